from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sscf.report import FIGURES  # imports nothing heavy


def register(app: typer.Typer) -> None:
    """Add this module's commands to the app."""
    app.command("report")(report)


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of runs, as given to `sscf run --out`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page, tables and figures.")],
    paper: Annotated[bool, typer.Option(help="Show the numbers printed in the paper beside ours.")] = True,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes that draw; default: all cores.")
    ] = None,
    figures: Annotated[int, typer.Option(min=0, help="Most figures drawn.")] = FIGURES,
) -> None:
    """Tables, statistics, figures and one HTML page from the records of runs."""
    from rich.console import Console

    from sscf.report import write_report

    console = Console()
    page = write_report(runs, out, paper=paper, jobs=jobs or os.cpu_count() or 1, figures=figures, console=console)
    console.print(f"report: {page}", markup=False, soft_wrap=True)
