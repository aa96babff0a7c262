"""Reports: tables, statistics, figures and a page, all of them pure functions of the records of runs."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

MANIFEST = "report.json"
FIGURES = 120  # drawn unless asked for more: some fifteen seconds on one core


def write_report(
    runs: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    paper: bool = True,
    jobs: int = 1,
    figures: int = FIGURES,
    console: Console | None = None,
) -> Path:
    """Write a report on a folder of runs and return the path of its page.

    Parameters
    ----------
    runs : folder with `records/` (and `plan.json`, `meta/`, `arrays/` where present)
    out : folder for `index.html`, `tables/` (Markdown, LaTeX, CSV), `figures/` (SVG), `*.csv`, `experiment.toml`
    paper : show the paper's numbers beside those of the runs, on real data of its tasks
    jobs : processes that draw figures
    figures : most figures drawn; those of whole tables come first, then single runs of the reference method
    console : where progress is shown; None shows none
    """
    from sscf.files import write_json, write_text
    from sscf.report.figures import draw_all, panel_figures, run_figures
    from sscf.report.html import render_page, run_columns, run_rows
    from sscf.report.panels import make_panels
    from sscf.report.records import load_runs
    from sscf.report.statistics import compare, rank_methods, statistics_csv
    from sscf.report.tables import make_tables, to_csv, to_latex, to_markdown

    folder = Path(out)
    earlier = _files_of_earlier(folder)
    loaded = load_runs(Path(runs))
    panels = make_panels(loaded)
    tables = make_tables(panels, paper)
    comparisons = {panel.id: compare(panel) for panel in panels}
    rankings = {panel.id: rank_methods(panel) for panel in panels}
    wanted = [f for panel in panels for f in panel_figures(panel, comparisons[panel.id], rankings[panel.id])]
    # Figures of single runs in turn from every panel, so that a limit leaves none of them empty.
    turns = zip_longest(*(run_figures(panel, loaded.path) for panel in panels))
    wanted += [figure for turn in turns for figure in turn if figure is not None]
    planned = wanted[:figures]
    if console:
        console.print(f"{len(loaded.records)} runs, {len(tables)} tables, {len(planned)} figures", markup=False)
    svgs = draw_all(planned, loaded.path, jobs)
    drawn = [(figure, svg) for figure, svg in zip(planned, svgs, strict=True) if svg is not None]

    texts: dict[str, str] = {}
    for table in tables:
        for suffix, write in (("md", to_markdown), ("tex", to_latex), ("csv", to_csv)):
            texts[f"tables/{table.id}.{suffix}"] = write(table)
    texts |= {f"figures/{figure.id}.svg": svg for figure, svg in drawn}
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([run_columns(), *run_rows(loaded)])
    texts["runs.csv"] = lines.getvalue()
    texts["statistics.csv"] = statistics_csv(panels, comparisons)
    experiment = to_toml(loaded.plan["experiment"]) if loaded.plan and loaded.plan.get("experiment") else ""
    if experiment:
        texts["experiment.toml"] = experiment
    texts["index.html"] = render_page(
        loaded,
        panels,
        tables,
        comparisons,
        rankings,
        drawn,
        with_paper=paper,
        undrawn=len(wanted) - len(planned),
        experiment=experiment,
    )
    # What an earlier report left here and this one does not have would be taken for a part of it.
    for name in earlier - texts.keys():
        stale = folder / name
        if stale.resolve().is_relative_to(folder.resolve()):
            stale.unlink(missing_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    write_json(
        folder / MANIFEST, {"files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}}
    )
    return folder / "index.html"


def _files_of_earlier(folder: Path) -> set[str]:
    """What an earlier report wrote to this folder; a file of that name that is not ours is an error."""
    from sscf.errors import FileError
    from sscf.files import read_json

    path = folder / MANIFEST
    try:
        files = read_json(path)["files"] if path.exists() else {}
        return set(files.keys())
    except (FileError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: not that of a report, or damaged; choose another folder, or remove it") from error


def to_toml(values: dict[str, Any]) -> str:
    """An experiment as TOML; what is None is left out, since there it means the default."""

    def key(name: str) -> str:
        bare = name.replace("_", "").replace("-", "")
        return name if bare.isascii() and bare.isalnum() else json.dumps(name, ensure_ascii=False)

    def value(item: Any) -> str:
        if isinstance(item, dict):
            pairs = (f"{key(name)} = {value(inner)}" for name, inner in item.items() if inner is not None)
            return f"{{ {', '.join(pairs)} }}" if item else "{}"
        if isinstance(item, list | tuple):
            return f"[{', '.join(value(inner) for inner in item)}]"
        return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")

    plain = {name: item for name, item in values.items() if not isinstance(item, dict) and item is not None}
    lines = [f"{key(name)} = {value(item)}" for name, item in plain.items()]
    for name, item in values.items():
        if isinstance(item, dict):
            lines += ["", f"[{key(name)}]"]
            lines += [f"{key(inner)} = {value(given)}" for inner, given in item.items() if given is not None]
    return "\n".join(lines) + "\n"


__all__ = ["write_report"]
