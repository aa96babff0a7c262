from __future__ import annotations

from itertools import combinations, product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sscf.report.figures import _cliques
from sscf.report.panels import Panel, make_panels
from sscf.report.records import load_runs
from sscf.report.statistics import clustered_interval, compare, holm, rank_methods, reach_sentence


def panel_of(fab: Any, folder: Path, table: dict[str, list[list[float]]]) -> Panel:
    """A panel from method -> scores (targets, seeds)."""
    names = [f"T{i}" for i in range(len(next(iter(table.values()))))]
    records = [
        fab.make_record(fab.make_spec("har", names[t], names, method, seed), fab.CLASSES, score)
        for method, scores in table.items()
        for t, row in enumerate(scores)
        for seed, score in enumerate(row)
    ]
    (panel,) = make_panels(load_runs(fab.write_runs(folder, records)))
    return panel


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, None]) == pytest.approx([0.03, 0.06, 0.06, None])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([None]) == [None]


def test_interval_agrees_with_every_resample() -> None:
    """Three targets of one seed: all 27 resamples can be listed."""
    groups = [np.array([v]) for v in (0.0, 1.0, 5.0)]
    means = [np.mean(pick) for pick in product([0.0, 1.0, 5.0], repeat=3)]
    low, high = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    found = clustered_interval(groups)
    assert found is not None
    assert found[0] == pytest.approx(low, abs=0.35)
    assert found[1] == pytest.approx(high, abs=0.35)
    assert clustered_interval([np.array([1.0])]) is None
    assert clustered_interval(groups) == found  # the same every time


def test_interval_is_wider_when_targets_disagree() -> None:
    rng = np.random.default_rng(1)
    seeds = rng.normal(0, 0.1, (4, 50))
    spread = [row + shift for row, shift in zip(seeds, (-2, -1, 1, 2), strict=True)]
    together, apart = clustered_interval(list(seeds)), clustered_interval(spread)
    assert together is not None
    assert apart is not None
    assert apart[1] - apart[0] > 20 * (together[1] - together[0])  # 200 pairs, but four targets


def test_comparison_against_scipy(fab: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(0.4, 0.8, (7, 3))
    table = {
        "sscf": base + 0.03 + rng.normal(0, 0.005, base.shape),
        "erm": base,
        "coral": base + 0.03 + rng.normal(0, 0.02, base.shape),
    }
    table = {name: scores.round(6) for name, scores in table.items()}
    panel = panel_of(fab, tmp_path, {name: scores.tolist() for name, scores in table.items()})
    found = {c.other: c for c in compare(panel)}
    assert set(found) == {"ERM", "CORAL"}
    raw = []
    for name, label in (("erm", "ERM"), ("coral", "CORAL")):
        difference = (table["sscf"] - table[name]).round(12)
        assert found[label].difference == pytest.approx(difference.mean())
        raw.append(stats.wilcoxon(difference.ravel(), zero_method="pratt").pvalue)
        assert found[label].p == pytest.approx(raw[-1])
        assert found[label].ahead == int((difference.mean(axis=1) > 0).sum())
        assert (found[label].targets, found[label].pairs) == (7, 21)
    assert sorted(c.p_holm or 0 for c in found.values()) == pytest.approx(sorted(stats_holm(raw)))
    assert found["ERM"].verdict == "ahead"
    low, high = found["ERM"].interval or (0, 0)
    text = found["ERM"].sentence
    assert text.startswith(f"SSCF is ahead of ERM by {100 * found['ERM'].difference:.1f} points of macro-F1 on average")
    assert f"95 % interval {100 * low:.1f} to {100 * high:.1f}" in text
    assert "higher on 7 of 7" in text
    assert found["CORAL"].verdict == "not told apart"
    assert "do not tell the two apart" in found["CORAL"].sentence


def stats_holm(values: list[float]) -> list[float]:
    """Two p-values: the smaller twice, the larger once, never out of order."""
    low, high = sorted(values)
    return [min(1, 2 * low), max(min(1, 2 * low), high)]


def test_behind_and_equal_are_said(fab: Any, tmp_path: Path) -> None:
    high, low = [[0.8 + 0.001 * t + 0.002 * s for s in range(3)] for t in range(6)], [[0.7] * 3 for _ in range(6)]
    panel = panel_of(fab, tmp_path, {"sscf": low, "erm": high, "irm": low})
    found = {c.other: c for c in compare(panel)}
    assert found["ERM"].verdict == "behind"
    assert "SSCF is behind ERM by" in found["ERM"].sentence
    assert found["IRM"].p == 1.0
    assert "have the same average" in found["IRM"].sentence


def test_without_sscf_the_best_is_the_reference(fab: Any, tmp_path: Path) -> None:
    panel = panel_of(fab, tmp_path, {"erm": [[0.5], [0.5]], "coral": [[0.6], [0.7]], "irm": [[0.4], [0.4]]})
    assert {c.reference for c in compare(panel)} == {"CORAL"}


def test_missing_pairs_are_counted(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm", "sscf"], seeds=2, ks=[4])
    lost = next(r for r in records if r["spec"]["method"] == "erm")
    kept = [r for r in records if r is not lost]
    (panel,) = make_panels(load_runs(fab.write_runs(tmp_path, kept, planned=[lost["spec"]])))
    (found,) = compare(panel)
    assert (found.pairs, found.expected) == (7, 8)
    assert "1 pair missing" in found.sentence


def test_friedman_and_nemenyi(fab: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    scores = {
        name: (rng.uniform(0.4, 0.9, (6, 1)) + shift).round(6)
        for name, shift in (("erm", 0), ("coral", 0.02), ("sscf", 0.1))
    }
    panel = panel_of(fab, tmp_path, {name: values.tolist() for name, values in scores.items()})
    found = rank_methods(panel)
    order = ["erm", "coral", "sscf"]
    matrix = np.array([scores[name][:, 0] for name in order])
    ranks = (matrix[:, None] < matrix[None]).sum(axis=1).mean(axis=1) + 1
    assert dict(zip(found.labels, found.ranks, strict=True)) == pytest.approx(
        dict(zip(["ERM", "CORAL", "SSCF"], ranks, strict=True))
    )
    assert found.p == pytest.approx(stats.friedmanchisquare(*matrix).pvalue)
    assert found.critical == pytest.approx(2.343 * sqrt(3 * 4 / (6 * 6)), abs=2e-3)  # Demsar 2006, table 5a, k = 3


def test_too_few_methods_or_targets_for_friedman(fab: Any, tmp_path: Path) -> None:
    found = rank_methods(panel_of(fab, tmp_path, {"erm": [[0.5], [0.6]], "sscf": [[0.5], [0.7]]}))
    assert found.p is None
    assert "at least three methods" in found.sentence


def test_few_targets_are_said_to_be_few(fab: Any, tmp_path: Path) -> None:
    def panel(n: int) -> Panel:
        return panel_of(fab, tmp_path / str(n), {"erm": [[0.5]] * n, "sscf": [[0.6]] * n})

    assert "too few for a claim about new data sets" in reach_sentence(panel(4))
    assert "0.125" in reach_sentence(panel(4))
    assert "nothing about other data sets" in reach_sentence(panel(1))
    assert "too few" not in reach_sentence(panel(6))


def test_cliques_join_all_and_only_what_is_close() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ranks, critical = np.sort(rng.uniform(1, 8, 7)), rng.uniform(0.2, 3)
        bars = _cliques(ranks, critical)
        for a, b in combinations(ranks, 2):
            assert any(low <= a and b <= high for low, high in bars) == (b - a <= critical)
        for one, other in combinations(bars, 2):
            assert not (one[0] <= other[0] and other[1] <= one[1])


def test_a_target_counts_once_whatever_its_sources(fab: Any, tmp_path: Path) -> None:
    """Leave-k-out tests a target with several sets of sources: more runs, not more targets."""
    names = ["A", "B", "C", "D"]
    records = []
    for method, score in (("erm", 0.5), ("sscf", 0.6)):
        for target, other in product(names, names):
            if target != other:
                domains = [name for name in names if name != other]
                spec = fab.make_spec("har", target, domains, method, 0, protocol="leave-k-out")
                records.append(fab.make_record(spec, fab.CLASSES, score + 0.01 * names.index(other)))
    (panel,) = make_panels(load_runs(fab.write_runs(tmp_path, records)))
    assert len(panel.columns) == 12
    (found,) = compare(panel)
    assert (found.targets, found.pairs) == (4, 12)
    assert "4 targets are too few" in reach_sentence(panel)
    assert rank_methods(panel).targets == 4
    assert panel.like_paper == {}
