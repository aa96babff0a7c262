"""The paper's tables from panels of runs, as Markdown, LaTeX (booktabs) and CSV. Numbers are percentages."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sscf.report.panels import METRICS, Cell, Panel, Row, describe_common
from sscf.report.paper import family, paper, reported, slips_of
from sscf.report.records import Record
from sscf.report.text import join, latex, markdown, plain, plural, slug

_ABLATION = {
    "none": "no calibration",
    "global": "one anchor",
    "domain": "anchor per data set",
    "kmeans": "strata (SSCF)",
}
_PAPER_MARK = "reported in the paper"


@dataclass(frozen=True)
class Entry:
    """What stands in one cell: mean and spread in percent, or a note why there is nothing."""

    mean: float | None = None
    std: float | None = None
    n: int | None = None
    note: str = ""
    hint: str = ""  # shown on hover and in CSV: the worst target's name
    best: bool = False

    @property
    def text(self) -> str:
        if self.mean is None:
            return self.note or "–"
        spread = f" ± {self.std:.2f}" if self.std is not None else ""
        return f"{self.mean:.2f}{spread}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class Line:
    """A row of a table. `reported` rows are the paper's numbers."""

    label: str
    entries: tuple[Entry, ...]
    marks: str = ""
    eligible: bool = True
    reported: bool = False


@dataclass(frozen=True)
class Table:
    """`groups` span columns: (heading, how many)."""

    id: str
    kind: str  # methods, overview, ablation, granularity, rank, classes
    metric: str
    title: str
    head: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    groups: tuple[tuple[str, int], ...] = ()
    panel: str = ""
    facets: tuple[tuple[str, str], ...] = ()  # what else tells it from tables of its kind


def _entry(cell: Cell) -> Entry:
    """A cell of ours, in percent."""
    if cell.mean is None:
        return Entry(note=cell.note)
    std = None if cell.std is None else 100 * cell.std
    return Entry(100 * cell.mean, std, len(cell.values), cell.note, cell.label)


def _mark_best(lines: Sequence[Line]) -> list[Line]:
    """Set `best` where a complete cell of an eligible row is the highest as printed; a single candidate is not best."""
    marked = list(lines)
    for place in range(len(lines[0].entries) if lines else 0):
        rivals = {
            i: round(line.entries[place].mean or 0.0, 2)
            for i, line in enumerate(lines)
            if line.eligible
            and not line.reported
            and line.entries[place].mean is not None
            and not line.entries[place].note
        }
        if len(rivals) < 2:
            continue
        for i in (i for i, value in rivals.items() if value == max(rivals.values())):
            entries = list(marked[i].entries)
            entries[place] = replace(entries[place], best=True)
            marked[i] = replace(marked[i], entries=tuple(entries))
    return marked


def _row_line(row: Row, entries: Iterable[Entry], label: str | None = None) -> Line:
    return Line(label or row.label, tuple(entries), row.marks, row.eligible)


def _row_entries(panel: Panel, row: Row, metric: str) -> list[Entry]:
    cells = [row.cell(metric, column, len(panel.seeds)) for column in panel.columns]
    if len(panel.columns) > 1:
        cells.append(row.average(metric, panel.columns, len(panel.seeds)))
        cells.append(row.worst(metric, panel.columns, len(panel.seeds)))
    return [_entry(cell) for cell in cells]


def _columns(panel: Panel) -> tuple[str, ...]:
    return (*panel.columns, "average", "worst") if len(panel.columns) > 1 else panel.columns


def _notes(panel: Panel, rows: Sequence[Row], lines: Sequence[Line]) -> list[str]:
    notes = []
    if panel.simulated:
        notes.append("Simulated data: these numbers say nothing about real recordings.")
    common = describe_common(panel)
    spread = (
        f"Mean ± standard deviation over {plural(len(panel.seeds), 'seed')}" if len(panel.seeds) > 1 else "One seed"
    )
    notes.append(f"{spread}, in percent." + (f" Unless a row says otherwise: {common}." if common else ""))
    if len(panel.columns) > 1:
        notes.append("Average: over targets, seed by seed. Worst: the target with the lowest mean.")
    notes += [f"{row.label}: {row.note}." for row in rows if row.note]
    if any("†" in line.marks for line in lines):
        notes.append("† Not zero-shot: normalised with statistics of unlabelled target data; never marked best.")
    if any("‡" in line.marks for line in lines):
        notes.append("‡ Oracle: chosen with the target's labels; an upper bound, never marked best.")
    if panel.repeated:
        notes.append(f"{plural(panel.repeated, 'repeated run')} of the same method, target and seed left out.")
    return notes


# --- the paper's numbers beside ours -------------------------------------------------------------------------------


def _paper_lines(panel: Panel, metric: str, kind: str, names: str, **where: Any) -> list[Line]:
    """Rows of the paper for the panel's columns; its average only where the targets are the paper's own."""
    lines = []
    for found in reported(panel.task, kind, metric, panel.like_paper, **where):
        places = found["places"]
        own = found["complete"] and len(places) == len(panel.columns)
        for row, values in found["rows"]:
            entries = [Entry(*values[column]) if column in values else Entry() for column in panel.columns]
            if len(panel.columns) > 1:
                worst = min((entry for entry in entries if entry.mean is not None), key=lambda e: e.mean or 0.0)
                entries += [Entry(*row[metric][-1]), worst] if own else [Entry(), Entry()]
            name = str(row[names]).replace("Ours", "SSCF")  # theirs, on our page
            lines.append(Line(name, tuple(entries), eligible=False, reported=True))
    return lines


def _slips(task: str, kind: str, lines: Sequence[Line]) -> list[str]:
    return [f"Paper, {text}" for text in slips_of([task], kind)] if any(line.reported for line in lines) else []


def paper_differences(panels: Sequence[Panel]) -> list[str]:
    """In which ways the runs differ from the paper's protocol, in sentences."""
    theirs = paper()["protocol"]
    ours = [panel for panel in panels if family(panel.task) and panel.like_paper]
    if not ours:
        return []
    sentences = list(theirs["statements"])
    records = [record for panel in ours for record in panel.records if record.done]

    def values(key: str, get: Any) -> None:
        found = sorted({str(get(record)) for record in records if get(record) is not None})
        if found and found != [str(theirs[key])]:
            sentences.append(f"{key.replace('_', ' ').capitalize()}: {join(found)} here, {theirs[key]} in the paper.")

    values("normalisation", lambda record: record.spec.normalisation)
    values("epochs", lambda record: (record.spec.train or {}).get("epochs"))
    values("batch_size", lambda record: (record.spec.train or {}).get("batch_size"))
    seeds = sorted({len(panel.seeds) for panel in ours})
    if seeds != [theirs["seeds"]]:
        sentences.append(f"Seeds: {join([str(n) for n in seeds])} here, {theirs['seeds']} in the paper.")
    limits = sorted({panel.max_windows for panel in ours if panel.max_windows is not None})
    if limits:
        sentences.append(f"Some runs here saw at most {join([f'{n:,}' for n in limits])} windows per domain.")
    return sentences


# --- the layouts -----------------------------------------------------------------------------------------------------


def methods_table(panel: Panel, metric: str, with_paper: bool = False) -> Table:
    """Methods x targets, with average and worst target."""
    lines = _mark_best([_row_line(row, _row_entries(panel, row, metric)) for row in panel.main])
    notes = _notes(panel, panel.main, lines)
    if with_paper:
        lines += _paper_lines(panel, metric, "methods", "name")
        notes += _slips(panel.task, "methods", lines)
    title = f"{METRICS[metric]}: {panel.title}"
    return Table(
        f"{panel.id}-{slug(metric.replace('_', '-'))}",
        "methods",
        metric,
        title[0].upper() + title[1:],
        "Method",
        _columns(panel),
        tuple(lines),
        tuple(notes),
        panel=panel.id,
    )


def overview_table(lodo: Panel, external: Panel, metric: str, with_paper: bool = False) -> Table:
    """The paper's first layout: the average over left-out domains, then every external target and their average."""
    lines = []
    partners = {row.label: row for row in lodo.main}
    for row in external.main:
        partner = partners.pop(row.label, None)
        average = partner.average(metric, lodo.columns, len(lodo.seeds)) if partner else Cell((), 0, label="not run")
        cells = [row.cell(metric, column, len(external.seeds)) for column in external.columns]
        cells.append(row.average(metric, external.columns, len(external.seeds)))
        lines.append(_row_line(row, [_entry(cell) for cell in (average, *cells)]))
    for row in partners.values():
        rest = [Entry(note="not run")] * (len(external.columns) + 1)
        lines.append(_row_line(row, [_entry(row.average(metric, lodo.columns, len(lodo.seeds))), *rest]))
    lines = _mark_best(lines)
    notes = _notes(external, external.main, lines)
    if with_paper:
        theirs = reported(lodo.task, "methods", metric, lodo.like_paper)
        same = bool(theirs) and theirs[0]["complete"] and len(theirs[0]["places"]) == len(lodo.columns)
        averages = (
            {row["name"].replace("Ours", "SSCF"): row[metric][-1] for row, _ in theirs[0]["rows"]} if same else {}
        )
        for line in _paper_lines(external, metric, "methods", "name"):
            lodo_average = Entry(*averages[line.label]) if line.label in averages else Entry()
            lines.append(replace(line, entries=(lodo_average, *line.entries[:-1])))
    return Table(
        f"{slug(lodo.task)}-overview-{slug(metric.replace('_', '-'))}",
        "overview",
        metric,
        f"{METRICS[metric][0].upper()}{METRICS[metric][1:]}: {plain(lodo.task)}, left-out domains and external targets",
        "Method",
        ("average", *external.columns, "average"),
        tuple(lines),
        tuple(notes),
        (("leave one domain out", 1), ("external targets", len(external.columns) + 1)),
        panel=external.id,
    )


def ablation_table(panel: Panel, metric: str, with_paper: bool = False) -> Table | None:
    """What the strata are worth: one rule (ERM) and backbone with each kind of anchor; None with fewer than two."""
    ours = panel.reference
    if ours is None:
        return None
    names = {"none": "erm", "global": "global-anchor", "domain": "domain-anchor"}
    rows = []
    for strata, name in names.items():
        peers = [row for row in panel.main if row.strata == strata and _differ_in_strata(row, ours)]
        rows += sorted(peers, key=lambda row: row.method != name)[:1]
    if not rows:
        return None
    rows.append(ours)
    lines = _mark_best([_row_line(row, _row_entries(panel, row, metric), _ABLATION[row.strata]) for row in rows])
    notes = _notes(panel, rows, lines)
    if with_paper:
        lines += _paper_lines(panel, metric, "ablation", "name")
    return Table(
        f"{panel.id}-ablation-{slug(metric.replace('_', '-'))}",
        "ablation",
        metric,
        f"Ablation of the anchors ({METRICS[metric]}): {panel.title}",
        "Anchors",
        _columns(panel),
        tuple(lines),
        tuple(notes),
        panel=panel.id,
    )


def _differ_in_strata(row: Row, ours: Row) -> bool:
    """Whether two rows have everything in common but the anchors."""

    def rest(one: Row) -> dict[str, Any]:
        skip = ("strata", "sscf.")
        return {key: value for key, value in one.settings.items() if not key.startswith(skip)}

    return rest(row) == rest(ours)


def granularity_table(panel: Panel, sweep: Sequence[Row], metric: str, with_paper: bool = False) -> Table:
    """K x target for rows that differ in K alone."""
    first = sweep[0]
    lines = _mark_best([_row_line(row, _row_entries(panel, row, metric), f"K = {row.k}") for row in sweep])
    notes = _notes(panel, (), lines)
    if with_paper and first.strata == "kmeans":
        lines += [
            replace(line, label=f"K = {line.label}")
            for line in _paper_lines(panel, metric, "granularity", "granularity")
        ]
        notes += _slips(panel.task, "granularity", lines)
    title = first.family
    return Table(
        f"{panel.id}-granularity-{slug(title)}-{slug(metric.replace('_', '-'))}",
        "granularity",
        metric,
        f"Granularity K of {title} ({METRICS[metric]}): {panel.title}",
        "Strata",
        _columns(panel),
        tuple(lines),
        tuple(notes),
        panel=panel.id,
        facets=(("Method", title),),
    )


def _at_rank(run: Record, rank: int, metric: str) -> float | None:
    return next((getattr(score, metric) for score in run.ranks if score.rank == rank), None)


def ranks_of(row: Row) -> list[int]:
    """Ranks that the runs of a row were evaluated at; a single one is no comparison."""
    ranks = sorted({score.rank for run in row.runs.values() for score in run.ranks})
    return ranks if len(ranks) > 1 else []


def rank_row(row: Row, rank: int) -> Row:
    """The same runs, scored with the anchor of that rank; runs not evaluated there are left out, as missing."""
    runs = {}
    for place, run in row.runs.items():
        scores = {metric: _at_rank(run, rank, metric) for metric in METRICS}
        if run.scores is not None and None not in scores.values():
            runs[place] = run.model_copy(update={"scores": run.scores.model_copy(update=scores)})
        elif not run.done:
            runs[place] = run
    return replace(row, runs=runs)


def rank_table(panel: Panel, row: Row, metric: str, with_paper: bool = False) -> Table:
    """Rank R x target: calibration to the R-th nearest anchor instead of the nearest."""
    ranks = ranks_of(row)
    by_rank = [rank_row(row, rank) for rank in ranks]
    lines = [
        _row_line(scored, _row_entries(panel, scored, metric), f"R = {rank}")
        for rank, scored in zip(ranks, by_rank, strict=True)
    ]
    lines = _mark_best(lines)
    notes = _notes(panel, (row,), lines)
    ks = {
        column: sorted({run.k for (c, _), run in row.runs.items() if c == column and run.k}) for column in panel.columns
    }
    every = sorted({k for found in ks.values() for k in found})
    if len(every) > 1:
        per_target = "; ".join(f"{column} {join([str(k) for k in found])}" for column, found in ks.items() if found)
        notes.append(f"K differs, so a rank above a run's K is missing there: {per_target}.")
    elif every:
        notes.append(f"K = {every[0]}.")
    if with_paper and row.strata == "kmeans" and len(every) == 1:
        lines += [
            replace(line, label=f"R = {line.label}") for line in _paper_lines(panel, metric, "rank", "rank", k=every[0])
        ]
        notes += _slips(panel.task, "rank", lines)
    return Table(
        f"{panel.id}-rank-{slug(row.label)}-{slug(metric.replace('_', '-'))}",
        "rank",
        metric,
        f"Anchor rank R of {row.label} ({METRICS[metric]}): {panel.title}",
        "Anchor",
        _columns(panel),
        tuple(lines),
        tuple(notes),
        panel=panel.id,
        facets=(("Method", row.family), ("K", "/".join(map(str, every)))),
    )


def classes_table(panel: Panel) -> Table | None:
    """F1 of every class, macro-F1, accuracy and Cohen's kappa, averaged over targets and seeds."""
    if not panel.classes:
        return None
    lines = []
    for row in panel.main:
        done = [run.scores for run in row.runs.values() if run.scores is not None]
        planned = len(panel.columns) * len(panel.seeds)
        label = row.label + (f" ({len(done)}/{planned} runs)" if len(done) < planned else "")

        def entry(values: list[float]) -> Entry:
            return Entry(100 * statistics.fmean(values), None, len(values)) if values else Entry(note="none")

        found = [[s.per_class_f1.get(c) for s in done] for c in panel.classes]
        entries = [entry([value for value in values if value is not None]) for values in found]
        entries += [entry([getattr(s, metric) for s in done]) for metric in METRICS]
        entries.append(entry([s.kappa for s in done if s.kappa is not None]))
        line = _row_line(row, entries, label)
        lines.append(line if len(done) == planned else replace(line, eligible=False))
    lines = _mark_best(lines)
    notes = _notes(panel, (), lines)[: 1 if panel.simulated else 0]
    notes.append("Mean over targets and seeds, in percent. A class that a target lacks does not count for that target.")
    lacking = {
        (column, plain(c))
        for row in panel.rows
        for (column, _), run in row.runs.items()
        if run.scores
        for c in run.scores.missing_classes
    }
    notes += [f"{column} has no windows of class {name}." for column, name in sorted(lacking)]
    names = tuple(plain(name) for name in panel.classes)
    return Table(
        f"{panel.id}-classes",
        "classes",
        "f1",
        f"F1 of each class: {panel.title}",
        "Method",
        (*names, *METRICS.values(), "κ × 100"),
        tuple(lines),
        tuple(notes),
        panel=panel.id,
    )


def make_tables(panels: Sequence[Panel], with_paper: bool = False) -> list[Table]:
    """Every table the runs allow, in the order of the page."""
    tables: list[Table] = []
    for panel in panels:
        tables += [methods_table(panel, metric, with_paper) for metric in METRICS]
        for metric in METRICS:
            ablation = ablation_table(panel, metric, with_paper)
            tables += [ablation] if ablation else []
        for sweep in panel.sweeps:
            tables += [granularity_table(panel, sweep, metric, with_paper) for metric in METRICS]
        for row in panel.by_interest:
            if ranks_of(row):
                tables += [rank_table(panel, row, metric, with_paper) for metric in METRICS]
        per_class = classes_table(panel)
        tables += [per_class] if per_class else []
    for external in (panel for panel in panels if panel.protocol == "external"):
        for lodo in panels:
            if (lodo.task, lodo.protocol, lodo.max_windows, lodo.data) == (
                external.task,
                "lodo",
                external.max_windows,
                external.data,
            ):
                tables += [overview_table(lodo, external, metric, with_paper) for metric in METRICS]
    return tables


# --- media -----------------------------------------------------------------------------------------------------------


def _split(table: Table) -> tuple[list[Line], list[Line]]:
    return [line for line in table.lines if not line.reported], [line for line in table.lines if line.reported]


def to_markdown(table: Table) -> str:
    ours, theirs = _split(table)
    out = [f"### {markdown(table.title)}", ""]
    names = list(table.columns)
    for heading, (start, stop) in _spans(table):
        names[start:stop] = [f"{heading}: {name}" for name in names[start:stop]]
    out.append("| " + " | ".join(map(markdown, [table.head, *names])) + " |")
    out.append("|:--" + "|--:" * len(names) + "|")
    for line in ours:
        cells = [f"**{markdown(e.text)}**" if e.best else markdown(e.text) for e in line.entries]
        out.append("| " + " | ".join([markdown(line.label) + line.marks, *cells]) + " |")
    for line in theirs:
        label = f"*{markdown(line.label)}, {_PAPER_MARK}*"
        out.append("| " + " | ".join([label, *(f"*{markdown(e.text)}*" for e in line.entries)]) + " |")
    out += ["", *(f"- {markdown(note)}" for note in table.notes), ""]
    return "\n".join(out)


def _spans(table: Table) -> list[tuple[str, tuple[int, int]]]:
    spans, start = [], 0
    for heading, width in table.groups:
        spans.append((heading, (start, start + width)))
        start += width
    return spans


def to_latex(table: Table) -> str:
    """A `table` environment; needs \\usepackage{booktabs}."""
    ours, theirs = _split(table)

    def row(label: str, entries: Sequence[Entry], wrap: str = "") -> str:
        cells = [rf"\textbf{{{latex(e.text)}}}" if e.best else f"{wrap}{latex(e.text)}" for e in entries]
        guard = "{}" if label[:1] in ("[", "*") else ""  # after a row's end these two would be taken for an option
        return " & ".join([f"{wrap}{guard}{label}", *cells]) + r" \\"

    width = len(table.columns) + 1
    out = ["% needs \\usepackage{booktabs}", r"\begin{table}", r"\centering", r"\small"]
    out.append(rf"\caption{{{latex(table.title)}. {' '.join(latex(note) for note in table.notes)}}}")
    out += [rf"\label{{tab:{table.id}}}", rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}", r"\toprule"]
    if table.groups:
        out.append(
            " & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{latex(name)}}}" for name, n in table.groups)]) + r" \\"
        )
        out.append(" ".join(rf"\cmidrule(lr){{{start + 2}-{stop + 1}}}" for _, (start, stop) in _spans(table)))
    out.append(" & ".join(rf"\textbf{{{latex(name)}}}" for name in (table.head, *table.columns)) + r" \\")
    out.append(r"\midrule")
    out += [row(latex(line.label) + (latex(line.marks) if line.marks else ""), line.entries) for line in ours]
    if theirs:
        out += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{\itshape {_PAPER_MARK.capitalize()}}} \\"]
        out += [row(latex(line.label), line.entries, r"\itshape ") for line in theirs]
    out += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(out)


def to_csv(table: Table) -> str:
    """One line per row; every column as mean, std (percent), seeds and note."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = list(table.columns)
    for heading, (start, stop) in _spans(table):
        names[start:stop] = [f"{heading}: {name}" for name in names[start:stop]]
    head = [f"{name} {part}" for name in names for part in ("mean", "std", "n", "note")]
    writer.writerow([table.head.lower(), "source", "marks", *head])
    for line in table.lines:
        cells: list[Any] = []
        for e in line.entries:
            number = [None if value is None else round(value, 4) for value in (e.mean, e.std)]
            cells += [*number, e.n, "; ".join(filter(None, (e.note, e.hint, "best" if e.best else "")))]
        source = _PAPER_MARK if line.reported else "runs"
        writer.writerow([line.label, source, line.marks, *("" if cell is None else cell for cell in cells)])
    return stream.getvalue()
