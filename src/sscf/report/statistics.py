"""Which differences can be told from chance, and how far such a claim reaches.

Two runs are paired when they share target and seed. Runs on one target are not independent: the interval resamples
targets first, then seeds within them. A claim about *new* data sets would need a test over targets; with T targets its
p-value cannot fall below 2 / 2^T, so with fewer than six targets no such claim is made, whatever the numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import sqrt

import numpy as np
from scipy import stats

from sscf.report.panels import METRICS, Panel, Row
from sscf.report.text import join, plural

LEVEL = 0.05
ENOUGH_TARGETS = 6  # 2 / 2^6 = 0.031 is the first below 0.05
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Comparison:
    """Reference minus other, as fractions."""

    reference: str
    other: str
    metric: str
    difference: float  # mean over targets of the mean over seeds
    interval: tuple[float, float] | None  # 95 %, bootstrap clustered by target; None with one pair
    p: float | None  # Wilcoxon signed-rank over (target, seed) pairs; None with fewer than two pairs that differ
    p_holm: float | None
    targets: int
    pairs: int
    ahead: int  # targets on which the reference's mean is higher
    expected: int  # pairs there would be if nothing were missing

    @property
    def verdict(self) -> str:
        """ "ahead", "behind" or "not told apart": both the corrected test and the interval must agree."""
        if self.p_holm is None or self.interval is None or self.p_holm >= LEVEL:
            return "not told apart"
        low, high = self.interval
        return "ahead" if low > 0 else "behind" if high < 0 else "not told apart"

    @property
    def sentence(self) -> str:
        points = abs(100 * self.difference)
        way = "ahead of" if self.difference > 0 else "behind"
        where = f"over {plural(self.targets, 'target')} ({plural(self.pairs, 'pair')} of runs)"
        facts = []
        if self.interval:
            facts.append(f"95 % interval {100 * self.interval[0]:.1f} to {100 * self.interval[1]:.1f}")
        if self.p_holm is not None:
            facts.append(f"Wilcoxon {_p(self.p_holm)} after Holm")
        facts.append(f"higher on {self.ahead} of {self.targets}")
        detail = "; ".join(facts)
        metric = METRICS[self.metric]
        text = f"{self.reference} is {way} {self.other} by {points:.1f} points of {metric} on average {where}"
        if round(points, 1) == 0:
            text = f"{self.reference} and {self.other} have the same average {metric} to 0.1 points {where}"
        text += f": {detail}."
        if self.verdict == "not told apart":
            text += " The runs do not tell the two apart."
        if self.pairs < self.expected:
            text += f" {plural(self.expected - self.pairs, 'pair')} missing."
        return text


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; what has no p-value keeps none and does not count."""
    order = sorted((p, i) for i, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    running = 0.0
    for place, (p, i) in enumerate(order):
        running = max(running, min(1.0, (len(order) - place) * p))
        corrected[i] = running
    return corrected


def clustered_interval(groups: Sequence[np.ndarray], level: float = 0.95) -> tuple[float, float] | None:
    """Bootstrap interval of the mean of group means: groups (targets) are resampled, then values (seeds) within each.

    `groups` holds one array of paired differences per target. With one group only its seeds are resampled.
    """
    if sum(len(group) for group in groups) < 2:
        return None
    rng = np.random.default_rng(0)  # a report is a function of its records
    width = max(len(group) for group in groups)
    # means of resampled seeds, for every target and resample: (targets, resamples)
    means = np.empty((len(groups), _RESAMPLES))
    for i, group in enumerate(groups):
        draws = rng.integers(0, len(group), (_RESAMPLES, len(group)))
        means[i] = np.asarray(group)[draws].mean(axis=1) if width > 1 else group[0]
    picks = rng.integers(0, len(groups), (len(groups), _RESAMPLES))
    averages = means[picks, np.arange(_RESAMPLES)].mean(axis=0)
    low, high = np.quantile(averages, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _differences(reference: Row, other: Row, panel: Panel, metric: str) -> dict[str, np.ndarray]:
    """Paired differences by target domain."""
    found = {}
    for target, columns in panel.by_target.items():
        values = []
        for column in columns:
            ours, theirs = reference.scores(metric, column), other.scores(metric, column)
            values += [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if values:
            found[target] = np.array(values)
    return found


def _wilcoxon(values: np.ndarray) -> float | None:
    """Two-sided p-value; zeros are split between the signs (Pratt), all zeros mean no evidence at all."""
    if len(values) < 2:
        return None
    if not np.any(values):
        return 1.0
    # Rounded, so that equal differences tie whatever the last bits say.
    return float(stats.wilcoxon(np.round(values, 12), zero_method="pratt").pvalue)


def compare(panel: Panel, metric: str = "macro_f1") -> list[Comparison]:
    """The reference row against every other row of the main table; Holm over these comparisons.

    Without SSCF in the panel the reference is the row with the best average among those that may be best.
    """
    reference = reference_row(panel, metric)
    if reference is None:
        return []
    others = [row for row in panel.main if row is not reference]
    results = []
    for other in others:
        groups = _differences(reference, other, panel, metric)
        if not groups:
            continue
        means = [float(group.mean()) for group in groups.values()]
        pooled = np.concatenate(list(groups.values()))
        results.append(
            Comparison(
                reference.label,
                other.label + ("" if other.zero_shot else " (not zero-shot)") + (" (oracle)" if other.oracle else ""),
                metric,
                float(np.mean(means)),
                clustered_interval(list(groups.values())),
                _wilcoxon(pooled),
                None,
                len(groups),
                len(pooled),
                sum(mean > 0 for mean in means),
                len(panel.columns) * len(panel.seeds),
            )
        )
    corrected = holm([result.p for result in results])
    return [replace(result, p_holm=p) for result, p in zip(results, corrected, strict=True)]


def reference_row(panel: Panel, metric: str) -> Row | None:
    """The row compared with all others: SSCF, or the best of those without."""
    if panel.reference is not None:
        return panel.reference
    rated = [(row.average(metric, panel.columns, 1).mean, row) for row in panel.main if row.eligible]
    known = [(mean, row) for mean, row in rated if mean is not None]
    return max(known, key=lambda item: item[0])[1] if known else None


@dataclass(frozen=True)
class Ranking:
    """Friedman test and Nemenyi critical difference over targets (mean over seeds on each)."""

    metric: str
    labels: tuple[str, ...]
    ranks: tuple[float, ...]  # average rank, 1 is best
    targets: int
    p: float | None  # None when there are fewer than three rows or two targets
    critical: float | None
    left_out: tuple[str, ...]

    @property
    def sentence(self) -> str:
        if self.p is None or self.critical is None:
            return "Friedman's test needs at least three methods and two targets with scores."
        told = "differ" if self.p < LEVEL else "do not differ more than chance would allow"
        text = (
            f"Over {plural(self.targets, 'target')} the average ranks of {len(self.labels)} methods {told} "
            f"(Friedman {_p(self.p)}); two methods are told apart when their ranks differ by {self.critical:.2f} "
            "(Nemenyi, 5 %)."
        )
        if self.targets < ENOUGH_TARGETS:
            text += " So few targets make its p-value approximate and its power low."
        if self.left_out:
            text += f" Left out, since a target is missing: {join(list(self.left_out))}."
        return text


def rank_methods(panel: Panel, metric: str = "macro_f1") -> Ranking:
    """Average ranks of the rows of the main table that have a score on every target."""
    scores, left_out = {}, []
    for row in panel.main:
        cells = {column: row.cell(metric, column, 1).mean for column in panel.columns}
        if None in cells.values():
            left_out.append(row.label)
        else:
            means = [np.mean([cells[c] for c in columns]) for columns in panel.by_target.values()]
            scores[row.label] = np.array(means, dtype=float)
    table = np.round(np.array(list(scores.values())), 12)  # (methods, targets)
    k, n = (table.shape[0], table.shape[1]) if scores else (0, len(panel.by_target))
    ranks = stats.rankdata(-table, axis=0).mean(axis=1) if scores else np.array([])
    p = critical = None
    if k >= 3 and n >= 2:
        p = 1.0 if np.all(table == table[0]) else float(stats.friedmanchisquare(*table).pvalue)
        critical = float(stats.studentized_range.ppf(1 - LEVEL, k, np.inf) / sqrt(2) * sqrt(k * (k + 1) / (6 * n)))
    return Ranking(metric, tuple(scores), tuple(map(float, ranks)), n, p, critical, tuple(left_out))


def statistics_csv(panels: Sequence[Panel], comparisons: Mapping[str, Sequence[Comparison]]) -> str:
    """Every comparison, one per line; differences and intervals as fractions."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [f.name for f in fields(Comparison) if f.name != "interval"]
    writer.writerow(["data", *names, "low", "high", "verdict"])
    for panel in panels:
        for c in comparisons[panel.id]:
            values = ["" if value is None else value for value in (getattr(c, name) for name in names)]
            writer.writerow([panel.title, *values, *(c.interval or ("", "")), c.verdict])
    return stream.getvalue()


def reach_sentence(panel: Panel) -> str:
    """How far claims from this many targets can reach."""
    n = len(panel.by_target)
    if n >= ENOUGH_TARGETS:
        return f"{n} targets: the tests may be read as evidence about targets like these."
    if n == 1:
        return "One target: seeds say how stable training is, nothing about other data sets."
    return (
        f"{n} targets are too few for a claim about new data sets: no test over targets could reach p < 0.05 "
        f"(the smallest possible is {2 / 2**n:.3g}). The sentences here speak about these targets."
    )
