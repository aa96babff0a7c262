"""The page: one HTML file that opens from disk, needs no network and stays below 5 MB."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from sscf import __version__
from sscf.errors import require
from sscf.report.figures import FAINT, INK, KINDS, Figure
from sscf.report.panels import METRICS, Panel
from sscf.report.paper import paper, slips_of
from sscf.report.records import Record, Runs
from sscf.report.statistics import Comparison, Ranking, reach_sentence, reference_row
from sscf.report.tables import Table, paper_differences
from sscf.report.text import join, method_title, percent, plain, plural

PAGE_BYTES = 5_000_000
_RESERVE = 250_000  # for what is neither table, run nor figure
_MOST_RUNS = 6_000
_MOST_PROBLEMS = 200
_RUN_COLUMNS = (
    ("Method", "text"),
    ("Task", "text"),
    ("Target", "text"),
    ("Seed", "number"),
    ("K", "number"),
    ("Status", "text"),
    ("Macro-F1", "number"),
    ("95 % interval", "number"),
    ("Accuracy", "number"),
    ("κ", "number"),
    ("Validation", "number"),
    ("Windows", "number"),
    ("Seconds", "number"),
    ("Run", "text"),
)
_TABLE_TITLES = {
    "overview": "Left-out domains and external targets",
    "methods": "Methods",
    "ablation": "Ablation of the anchors",
    "granularity": "Granularity K",
    "rank": "Anchor rank R",
    "classes": "Classes",
}


def _environment() -> Any:
    jinja2 = require("jinja2", "report")
    loader = jinja2.FunctionLoader(lambda name: _template(name))
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)


def _template(name: str) -> str:
    return files("sscf.report").joinpath("templates", name).read_text(encoding="utf-8")


def pack_svg(svg: str) -> str:
    """An SVG for the page: no prolog or metadata, colours of ink and grid left to the page; deflated, in base64."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # nothing refers to groups, and ids must be unique in a page
    svg = re.sub(
        r'(width|height)="([\d.]+)pt"', lambda m: f'{m[1]}="{1.6 * float(m[2]):.0f}"', svg, count=2
    )  # pt -> px, larger
    svg = svg.replace(INK, "currentColor").replace(FAINT, "var(--line)")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(packer.compress(svg.encode()) + packer.flush()).decode()


def run_rows(runs: Runs) -> list[list[str]]:
    """One row of text per run, as in `runs.csv`; numbers in percent."""

    def number(value: float | None) -> str:
        return "" if value is None else percent(value)

    rows = []
    for run in runs.records:
        scores = run.scores
        seconds = (runs.meta.get(run.id, {}).get("time") or {}).values()
        interval = (
            f"{percent(scores.interval[0])} – {percent(scores.interval[1])}" if scores and scores.interval else ""
        )
        rows.append(
            [
                method_title(run.spec.method),
                plain(run.spec.task),
                plain(run.spec.target),
                str(run.spec.seed),
                "" if run.k is None else str(run.k),
                run.status,
                number(scores.macro_f1 if scores else None),
                interval,
                number(scores.accuracy if scores else None),
                number(scores.kappa if scores else None),
                number(run.validation.macro_f1 if run.validation else None),
                "" if scores is None or scores.n is None else str(scores.n),
                f"{sum(seconds):.0f}" if seconds else "",
                run.id,
            ]
        )
    return rows


def run_columns() -> list[str]:
    return [name for name, _ in _RUN_COLUMNS]


def _cards(panels: Sequence[Panel], comparisons: Mapping[str, Sequence[Comparison]]) -> list[dict[str, Any]]:
    cards = []
    for panel in panels:
        reference = reference_row(panel, "macro_f1")
        found = list(comparisons[panel.id])
        rivals = {row.label: row.average("macro_f1", panel.columns, 1).mean for row in panel.main if row.eligible}
        rated = {label: mean for label, mean in rivals.items() if mean is not None}
        headline = ""
        if reference and reference.label in rated:
            worst = reference.worst("macro_f1", panel.columns, 1)
            headline = f"{reference.label}: {percent(rated[reference.label], 1)} % macro-F1 on average"
            if len(panel.columns) > 1 and worst.mean is not None:
                headline += f", {percent(worst.mean, 1)} % on its worst target, {worst.label}"
            others = {label: mean for label, mean in rated.items() if label != reference.label}
            if others:
                best = max(others, key=lambda label: (others[label], label))
                headline += f". Best of the others: {best}, {percent(others[best], 1)} %"
            headline += "."
            wanted = [c for c in found if c.other == "ERM"] + [c for c in found if others and c.other == best]
            claims = [c.sentence for c in dict.fromkeys(wanted)]
        else:
            claims = []
        done = sum(record.done for record in panel.records)
        if not headline:
            headline = "No method has a score on every target yet." if done else "No run is done yet."
        cards.append(
            {"title": _capital(panel.title), "headline": headline, "claims": claims, "reach": reach_sentence(panel)}
        )
    return cards


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _table_groups(tables: Sequence[Table], panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Tables of one kind share a card; its choices are what they differ in."""
    titles = {panel.id: panel.title for panel in panels}
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for table in tables:
        facets = {"Data": titles.get(table.panel, ""), **dict(table.facets), "Metric": METRICS.get(table.metric, "F1")}
        groups[table.kind].append({"table": table, "facets": json.dumps(facets, ensure_ascii=False)})
    return [{"title": title, "tables": groups[kind]} for kind, title in _TABLE_TITLES.items() if kind in groups]


def _figure_groups(drawn: Iterable[tuple[Figure, str]], budget: int) -> tuple[list[dict[str, Any]], int]:
    """Cards of figures that fit into `budget` bytes, and how many did not."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    left_out = 0
    for figure, svg in drawn:
        packed = pack_svg(svg)
        size = len(packed) + 3 * len(figure.alt) + 600
        if size > budget:
            left_out += 1
            continue
        budget -= size
        facets = json.dumps(figure.facets, ensure_ascii=False)
        groups[figure.kind].append({"id": figure.id, "facets": facets, "alt": figure.alt, "svg": packed})
    cards = [{"title": title, "figures": groups[kind]} for kind, title in KINDS.items() if kind in groups]
    return cards, left_out


def _problems(runs: Runs, status: str) -> list[list[str]]:
    found = [run for run in runs.records if run.status == status]
    rows = []
    for run in sorted(found, key=_problem_order)[:_MOST_PROBLEMS]:
        row = [method_title(run.spec.method), plain(run.spec.task), plain(run.spec.target), str(run.spec.seed)]
        rows.append([*row, *([run.reason or "no reason given"] if status == "failed" else []), run.id])
    return rows


def _problem_order(run: Record) -> tuple:
    return run.spec.method, run.spec.task, run.spec.target, run.spec.seed, run.id


def _notices(runs: Runs, panels: Sequence[Panel]) -> list[str]:
    notices = []
    simulated = [panel for panel in panels if panel.simulated]
    if simulated:
        which = "" if len(simulated) == len(panels) else f" ({join([panel.title for panel in simulated])})"
        notices.append(
            f"Simulated data{which}: these numbers show that the method runs, not how it does on real recordings."
        )
    versions = defaultdict(set)
    for panel in panels:
        if panel.data:
            versions[panel.task].add(panel.data)
    for task in versions:
        notices.append(
            f"Task {plain(task)}: the runs used different versions of its data; they stand in separate tables."
        )
    problems = [(runs.count("failed"), "failed"), (runs.count("missing"), "not run yet")]
    said = [f"{plural(n, 'run')} {what}" for n, what in problems if n]
    if said:
        notices.append(f"{_capital(join(said))}: cells say so, and no average hides it.")
    return notices


def _facts(runs: Runs) -> list[tuple[str, str]]:
    values: dict[str, set[str]] = defaultdict(set)
    seconds = 0.0
    for meta in runs.meta.values():
        for key, value in (meta.get("environment") or {}).items():
            values[str(key)].add(str(value))
        seconds += sum(value for value in (meta.get("time") or {}).values() if isinstance(value, int | float))
    facts = [(key, join(sorted(found))) for key, found in sorted(values.items())]
    if seconds:
        hours, rest = divmod(round(seconds), 3600)
        facts.append(
            ("time of all runs", f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s")
        )
    return facts


def _fingerprints(runs: Runs) -> list[tuple[str, str, str]]:
    found = {(r.spec.task, domain, value) for r in runs.records for domain, value in r.spec.data.items()}
    return [(plain(task), plain(domain), plain(value)) for task, domain, value in sorted(found)]


def render_page(
    runs: Runs,
    panels: Sequence[Panel],
    tables: Sequence[Table],
    comparisons: Mapping[str, Sequence[Comparison]],
    rankings: Mapping[str, Ranking],
    drawn: Sequence[tuple[Figure, str]],
    *,
    with_paper: bool,
    undrawn: int = 0,
    experiment: str = "",
) -> str:
    """The whole page. Everything that comes from records passes through autoescaping templates."""
    from markupsafe import Markup

    environment = _environment()

    def part(name: str, **values: Any) -> Any:
        return Markup(environment.get_template(name).render(**values))

    rows = run_rows(runs)
    notes = [f"The first {_MOST_RUNS:,} runs; all are in runs.csv."] if len(rows) > _MOST_RUNS else []
    for status in ("failed", "missing"):
        if runs.count(status) > _MOST_PROBLEMS:
            notes.append(f"The first {_MOST_PROBLEMS} of {runs.count(status):,} {status} runs; all are in runs.csv.")
    failed, missing = _problems(runs, "failed"), _problems(runs, "missing")
    runs_part = part(
        "runs.html", runs=rows[:_MOST_RUNS], columns=_RUN_COLUMNS, failed=failed, missing=missing, notes=notes
    )
    tables_part = part("tables.html", groups=_table_groups(tables, panels))
    budget = PAGE_BYTES - _RESERVE - len(runs_part.encode()) - len(tables_part.encode())
    groups, left_out = _figure_groups(drawn, budget)
    figure_notes = []
    if left_out:
        figure_notes.append(
            f"{plural(left_out, 'figure')} would make this page too large; they are in the folder “figures”."
        )
    if undrawn:
        figure_notes.append(f"{plural(undrawn, 'figure')} not drawn; 'sscf report --figures N' draws more.")
    differences = paper_differences(panels) if with_paper else []
    script = _template("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    blocks = [
        {
            "title": _capital(panel.title),
            "reach": reach_sentence(panel),
            "sentences": [
                {"text": c.sentence, "verdict": c.verdict, "tone": c.verdict.split()[0]} for c in comparisons[panel.id]
            ],
            "ranking": rankings[panel.id].sentence,
        }
        for panel in panels
    ]
    name = (runs.plan or {}).get("experiment", {}).get("name") if runs.plan else None
    has_paper = any(line.reported for table in tables for line in table.lines)
    sections = ["Summary", "Tables", "Statistics", "Figures", *(["Paper"] if differences else []), "Runs", "Reproduce"]
    commands = sorted({str(meta["command"]) for meta in runs.meta.values() if meta.get("command")})[:5]
    if experiment and not commands:
        commands = ["sscf run experiment.toml --out RUNS"]
    done = runs.count("done")
    counts = [("runs done", f"{done:,}", "")]
    counts += [(f"runs {s}", f"{runs.count(s):,}", "warn") for s in ("failed", "missing") if runs.count(s)]
    counts += [
        ("methods", str(len({run.spec.method for run in runs.records})), ""),
        ("targets", str(len({(run.spec.task, run.spec.target) for run in runs.records})), ""),
        ("seeds", str(len({run.spec.seed for run in runs.records})), ""),
    ]
    source = paper()
    return environment.get_template("page.html").render(
        title=f"SSCF report: {plain(name)}" if name else "SSCF report",
        version=__version__,
        script_hash=f"sha256-{digest}",
        style=Markup(_template("page.css")),
        script=Markup(script),
        sections=[(section.lower(), section) for section in sections],
        notices=_notices(runs, panels),
        counts=counts,
        cards=_cards(panels, comparisons),
        tables=tables_part,
        has_paper=has_paper,
        statistics=blocks,
        figures=part("figures.html", groups=groups, notes=figure_notes),
        paper={
            "authors": source["authors"],
            "title": source["title"],
            "differences": differences,
            "slips": slips_of({panel.task for panel in panels if panel.like_paper}),
        }
        if differences
        else None,
        runs=runs_part,
        commands=commands,
        report_command="sscf report RUNS --out REPORT" + ("" if with_paper else " --no-paper"),
        experiment=experiment,
        fingerprints=_fingerprints(runs),
        environment=_facts(runs),
        run_count=plural(len(runs.records), "run"),
    )
