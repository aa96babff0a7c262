"""What may stand in one table: runs on the same task, protocol and data, in rows that say what tells them apart."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sscf.files import canonical_json, hash_json
from sscf.report.paper import domain_order, family
from sscf.report.records import Record, Runs
from sscf.report.text import join, method_title, plain, plural, slug

METRICS = {"macro_f1": "macro-F1", "accuracy": "accuracy"}
PROTOCOLS = {"lodo": "leave one domain out", "external": "external targets", "leave-k-out": "leave k domains out"}
_FOLD = {"task", "target", "sources", "seed", "data", "protocol", "max_windows"}  # differ between the runs of one row
_FAIR = ("selection", "normalisation", "train.", "code")  # should be equal for all methods: shown on every row if not
_STRATA = {"none": 0, "global": 1, "domain": 2, "kmeans": 3}


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation (n - 1) over seeds, and what is behind them; `mean` is None when there is nothing."""

    values: tuple[float, ...]
    expected: int
    failed: int = 0
    label: str = ""  # e.g. which target is the worst

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def note(self) -> str:
        """What is not as planned: "3/5 seeds, 1 failed", "failed", "missing", or nothing."""
        n = len(self.values)
        if n == 0 and self.failed:
            return "failed"
        if n == 0:
            return self.label or "missing"
        if n < self.expected:
            return f"{n}/{self.expected} seeds" + (f", {self.failed} failed" if self.failed else "")
        return ""


@dataclass(frozen=True)
class Row:
    """Runs of one method with one set of settings: one run per column (target) and seed."""

    method: str
    settings: Mapping[str, Any]  # flat, e.g. {"sscf.k": 4}
    runs: Mapping[tuple[str, int], Record]
    shown: tuple[str, ...] = ()  # settings that tell this row from the others, as "K=4"
    note: str = ""
    title: str = ""  # instead of the method's
    family: str = ""  # rows that differ in K alone have one family, named without K

    @property
    def label(self) -> str:
        return (self.title or method_title(self.method)) + (f" ({', '.join(self.shown)})" if self.shown else "")

    @property
    def marks(self) -> str:
        """† for unlabelled target data in the normalisation, ‡ for labels of the target in a choice."""
        unlabelled = self.settings.get("normalisation") == "dataset" or not (self.zero_shot or self.oracle)
        return "†" * unlabelled + "‡" * self.oracle

    @cached_property
    def zero_shot(self) -> bool:
        return all(run.is_zero_shot for run in self.runs.values())

    @cached_property
    def oracle(self) -> bool:
        return any(run.is_oracle for run in self.runs.values())

    @property
    def eligible(self) -> bool:
        """Whether the row may be called best: nothing of the target went into it."""
        return self.zero_shot and not self.oracle

    @property
    def strata(self) -> str:
        return str(self.settings.get("strata") or "none")

    @property
    def k(self) -> Any:
        return self.settings.get("sscf.k")

    def scores(self, metric: str, column: str) -> dict[int, float]:
        """Scores by seed of the runs that are done."""
        return {
            seed: getattr(run.scores, metric)
            for (name, seed), run in self.runs.items()
            if name == column and run.scores is not None
        }

    def validation(self, columns: Iterable[str]) -> float | None:
        """Mean source-validation macro-F1 of the runs that are done, or None if one of them has none."""
        wanted = set(columns)
        done = [run for (name, _), run in self.runs.items() if name in wanted and run.done]
        values = [run.validation.macro_f1 for run in done if run.validation and run.validation.macro_f1 is not None]
        return statistics.fmean(values) if values and len(values) == len(done) else None

    def cell(self, metric: str, column: str, expected: int) -> Cell:
        scores = self.scores(metric, column)
        failed = sum(run.status == "failed" for (name, _), run in self.runs.items() if name == column)
        return Cell(tuple(scores[seed] for seed in sorted(scores)), expected, failed)

    def average(self, metric: str, columns: tuple[str, ...], expected: int) -> Cell:
        """Mean over columns, seed by seed; only seeds that all columns have."""
        by_column = [self.scores(metric, column) for column in columns]
        seeds = sorted(set.intersection(*(set(scores) for scores in by_column)) if by_column else ())
        values = tuple(statistics.fmean(scores[seed] for scores in by_column) for seed in seeds)
        have = sum(bool(scores) for scores in by_column)
        if not values:
            return Cell((), expected, 0, f"{have}/{len(columns)} targets" if have < len(columns) else "no common seed")
        return Cell(values, expected)

    def worst(self, metric: str, columns: tuple[str, ...], expected: int) -> Cell:
        """The cell of the column with the lowest mean, which its label names; none unless all columns have a score."""
        cells = {column: self.cell(metric, column, expected) for column in columns}
        if any(cell.mean is None for cell in cells.values()) or not cells:
            have = sum(cell.mean is not None for cell in cells.values())
            return Cell((), expected, 0, f"{have}/{len(columns)} targets")
        column = min(cells, key=lambda name: (cells[name].mean, name))
        return replace(cells[column], label=column)


@dataclass(frozen=True)
class Panel:
    """Rows that may be compared: same task, protocol, data and limits."""

    id: str
    task: str
    protocol: str
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    targets: Mapping[str, str]  # column -> name of the target domain
    max_windows: int | None = None
    data: str | None = None  # tag of the data, where one task comes with several versions of them
    repeated: int = 0
    common: Mapping[str, Any] = field(default_factory=dict)  # settings of all rows that do not say otherwise

    @property
    def records(self) -> list[Record]:
        return [run for row in self.rows for run in row.runs.values()]

    @cached_property
    def simulated(self) -> bool:
        return any(record.simulated for record in self.records)

    @property
    def title(self) -> str:
        task = plain(self.task)
        parts = [
            task.upper() if family(self.task) in ("har", "ecg") else task,
            PROTOCOLS.get(self.protocol, plain(self.protocol)),
        ]
        if self.max_windows is not None:
            parts.append(f"at most {plural(self.max_windows, 'window')} per domain")
        if self.data:
            parts.append(f"data {self.data}")
        return ", ".join(parts) + (" (simulation)" if self.simulated else "")

    @cached_property
    def by_target(self) -> dict[str, tuple[str, ...]]:
        """Columns of each target domain: several when it was left out together with different others."""
        return {name: tuple(c for c in self.columns if self.targets[c] == name) for name in self.targets.values()}

    @property
    def like_paper(self) -> dict[str, str]:
        """Columns that may stand beside the paper's: real data, its protocols, one set of sources for each target."""
        if self.simulated or self.protocol not in ("lodo", "external"):
            return {}
        return {column: target for column, target in self.targets.items() if len(self.by_target[target]) == 1}

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return max((record.classes for record in self.records), key=len, default=())

    @cached_property
    def main(self) -> tuple[Row, ...]:
        """Rows of the main tables: a sweep over K is one row, K chosen per target on source validation."""
        rows: list[Row] = []
        for rows_of_one in self._families:
            fixed = [row for row in rows_of_one if isinstance(row.k, int)]
            chosen = [row for row in rows_of_one if not isinstance(row.k, int)]
            if chosen or len(fixed) < 2:  # the runs chose K themselves, or there is no sweep
                rows += chosen or fixed
                continue
            row = self._choose_k(fixed)
            rows += [row] if row else fixed
        return tuple(rows)

    @cached_property
    def sweeps(self) -> tuple[tuple[Row, ...], ...]:
        """Rows that differ in K alone, by rising K."""
        families = ([row for row in rows_of_one if isinstance(row.k, int)] for rows_of_one in self._families)
        return tuple(tuple(sorted(sweep, key=lambda row: row.k)) for sweep in families if len(sweep) > 1)

    @cached_property
    def reference(self) -> Row | None:
        """The row whose claims are examined: SSCF as it is; failing that, its variant best on source validation."""
        ours = [row for row in self.main if row.eligible and row.strata == "kmeans"]
        ours = [row for row in ours if row.settings.get("rule") in (None, "erm")] or ours
        ours = [row for row in ours if "sscf" in (row.method, row.title.lower())] or ours
        return max(ours, key=lambda row: row.validation(self.columns) or 0.0, default=None)

    @cached_property
    def by_interest(self) -> tuple[Row, ...]:
        """All rows, the reference first, and of a sweep first the K that was chosen most often."""
        chosen = {run.id for run in self.reference.runs.values()} if self.reference else set()
        return tuple(sorted(self.rows, key=lambda row: -sum(run.id in chosen for run in row.runs.values())))

    @cached_property
    def _families(self) -> list[list[Row]]:
        families: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            families[row.family].append(row)
        return list(families.values())

    def _choose_k(self, sweep: list[Row]) -> Row | None:
        runs: dict[tuple[str, int], Record] = {}
        chosen: dict[int, list[str]] = defaultdict(list)
        for column in self.columns:
            complete = max(len(row.scores("macro_f1", column)) for row in sweep)
            candidates = [row for row in sweep if len(row.scores("macro_f1", column)) == complete]
            scores = {row.k: row.validation([column]) for row in candidates}
            if complete and any(score is None for score in scores.values()):
                return None
            best = min(candidates, key=lambda row: (-(scores[row.k] or 0.0), row.k))
            if complete:
                chosen[best.k].append(column)
            runs |= {key: run for key, run in best.runs.items() if key[0] == column}
        ks = "; ".join(f"{k} for {join(columns)}" for k, columns in sorted(chosen.items()))
        settings = {**sweep[0].settings, "sscf.k": "source validation"}
        note = f"K chosen on source validation: {ks}"
        return Row(sweep[0].method, settings, runs, note=note, family=sweep[0].family, title=sweep[0].family)


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flatten(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat


def _settings(record: Record) -> dict[str, Any]:
    spec = {key: value for key, value in record.spec.model_dump().items() if key not in _FOLD and key != "method"}
    if record.spec.strata == "none":
        spec.pop("sscf", None)  # without calibration its settings mean nothing
    return _flatten(spec)


def _show(key: str, value: Any) -> str:
    name = {"sscf.k": "K"}.get(key, key.rpartition(".")[2])
    text = "default" if value is None else f"{value:g}" if isinstance(value, float) else value
    return plain(f"{name}={'/'.join(map(str, text)) if isinstance(text, (list, tuple)) else text}")


def _label(rows: list[Row], common: Mapping[str, Any]) -> list[Row]:
    """Give every row the settings that tell it from others of its method, and the fair ones that are not the common."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    frozen = [{key: canonical_json(value) for key, value in row.settings.items()} for row in rows]
    keys = sorted({key for settings in frozen for key in settings})
    for row, settings in zip(rows, frozen, strict=True):
        for key in keys:
            found[row.method, key].add(settings.get(key, ""))

    def tells(row: Row, key: str) -> bool:
        if key.startswith(_FAIR):
            return row.settings.get(key) != common.get(key)
        return len(found[row.method, key]) > 1

    return [
        replace(row, shown=tuple(_show(key, row.settings.get(key)) for key in keys if tells(row, key))) for row in rows
    ]


def _name_families(rows: list[Row]) -> list[Row]:
    """Find the rows that differ in K alone, whatever name the user gave each of them."""
    families: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        settings = {key: value for key, value in row.settings.items() if key != "sscf.k"}
        families[canonical_json(settings) if row.strata == "kmeans" else str(i)].append(i)
    named = list(rows)
    taken: set[str] = set()
    for members in families.values():
        ks = [canonical_json(rows[i].k) for i in members]
        for group in [members] if len(set(ks)) == len(ks) else [[i] for i in members]:
            first = rows[group[0]]
            shown = (
                [setting for setting in first.shown if not setting.startswith("K=")] if len(group) > 1 else first.shown
            )
            methods = {rows[i].method for i in group}
            rule = first.settings.get("rule")
            ours = "sscf" if rule in (None, "erm") else f"sscf+{rule}"
            title = method_title(first.method if len(methods) == 1 else ours)
            name = title + (f" ({', '.join(shown)})" if shown else "")
            while name in taken:  # two families of one name stay two
                name += "′"
            taken.add(name)
            for i in group:
                named[i] = replace(rows[i], family=name)
    return named


def _common(rows: list[Row]) -> dict[str, Any]:
    """The value that most rows have of each setting that should be equal for all, and of each that is."""
    common = {}
    for key in sorted({key for row in rows for key in row.settings}):
        counts: dict[str, int] = defaultdict(int)
        values = {}
        for row in rows:
            text = canonical_json(row.settings.get(key))
            counts[text] += 1
            values[text] = row.settings.get(key)
        if key.startswith(_FAIR) or len(counts) == 1:
            common[key] = values[max(sorted(counts), key=lambda text: counts[text])]
    return common


def _order(row: Row) -> tuple:
    known = isinstance(row.k, int)
    rule = str(row.settings.get("rule") or "")
    return (
        not row.eligible,
        _STRATA.get(row.strata, 9),
        row.method not in ("erm", "sscf"),
        rule != "erm",
        row.method,
        (0, row.k, "") if known else (1, 0, str(row.k)),
        canonical_json(dict(row.settings)),
    )


def _columns(task: str, records: list[Record]) -> dict[tuple[str, tuple[str, ...]], str]:
    """Name of the column of each (target, sources); the sources are named where one target comes with several."""
    folds = sorted({(record.spec.target, tuple(sorted(record.spec.sources))) for record in records})
    order = domain_order(task)
    folds.sort(key=lambda fold: (order(fold[0]), fold))
    targets = [target for target, _ in folds]
    return {
        (target, sources): plain(target) + (f" ← {', '.join(map(plain, sources))}" if targets.count(target) > 1 else "")
        for target, sources in folds
    }


def _panel(task: str, protocol: str, max_windows: int | None, data: str | None, records: list[Record]) -> Panel:
    columns = _columns(task, records)
    grouped: dict[str, list[Record]] = defaultdict(list)
    settings = {}
    for record in records:
        found = _settings(record)
        key = canonical_json([record.spec.method, found])
        grouped[key].append(record)
        settings[key] = found
    rows, repeated = [], 0
    for key, members in grouped.items():
        runs: dict[tuple[str, int], Record] = {}
        for record in sorted(members, key=lambda member: (member.status != "done", member.id)):
            place = (columns[record.spec.target, tuple(sorted(record.spec.sources))], record.spec.seed)
            repeated += place in runs
            runs.setdefault(place, record)
        rows.append(Row(members[0].spec.method, settings[key], runs))
    common = _common(rows)
    rows = _name_families(sorted(_label(rows, common), key=_order))
    seeds = tuple(sorted({record.spec.seed for record in records}))
    name = slug(*[part for part in (task, protocol, max_windows, data) if part is not None])
    targets = {column: target for (target, _), column in columns.items()}
    return Panel(
        name, task, protocol, tuple(columns.values()), seeds, tuple(rows), targets, max_windows, data, repeated, common
    )


def make_panels(runs: Runs) -> list[Panel]:
    """Split the runs into panels. Two fingerprints of one domain never share a panel."""
    groups: dict[tuple[str, str, int | None], list[Record]] = defaultdict(list)
    for record in runs.records:
        groups[record.spec.task, record.spec.protocol, record.spec.max_windows].append(record)
    order = {name: i for i, name in enumerate(PROTOCOLS)}
    panels = []
    for (task, protocol, limit), records in sorted(
        groups.items(), key=lambda item: (item[0][0], order.get(item[0][1], 9), item[0][1], item[0][2] or 0)
    ):
        prints: dict[str, set[str]] = defaultdict(set)
        for record in records:
            for domain, fingerprint in record.spec.data.items():
                prints[domain].add(fingerprint)
        if all(len(found) == 1 for found in prints.values()):
            panels.append(_panel(task, protocol, limit, None, records))
            continue
        versions: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            versions[hash_json(record.spec.data, 6)].append(record)
        panels += [_panel(task, protocol, limit, tag, members) for tag, members in sorted(versions.items())]
    return panels


def describe_common(panel: Panel) -> str:
    """What holds for all rows of a panel that do not say otherwise, on one line."""
    names = {
        "normalisation": "normalisation",
        "selection": "selection",
        "backbone": "backbone",
        "train.epochs": "epochs",
    }
    parts = [f"{name} {plain(panel.common[key])}" for key, name in names.items() if panel.common.get(key) is not None]
    return join(parts)
