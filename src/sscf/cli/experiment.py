"""`sscf demo`, `sscf run`, `sscf status`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of runs; asking again goes on where it was.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the app."""
    app.command("demo")(demo)
    app.command("run")(run)
    app.command("status")(status)


def demo(
    task: Annotated[str, typer.Option(help="har, ecg or sleep.")] = "har",
    out: Annotated[Path, typer.Option("--out", "-o", help="Where everything is written.")] = Path("demo"),
    jobs: Jobs = 2,
    seed: Annotated[int, typer.Option(help="Seed of the simulated data.")] = 0,
) -> None:
    """Simulate data sets, train on all but one, test on that one, for every one; a table and a page."""
    from sscf.demo import run_demo

    run_demo(task, out, jobs, seed)


def run(
    spec: Annotated[Path, typer.Argument(help="Experiment, a TOML file.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of runs. Default: runs/NAME")] = None,
    store: Annotated[Path | None, typer.Option(help="Prepared domains, instead of the spec's.")] = None,
    jobs: Jobs = 1,
    engine: Annotated[str, typer.Option(help="local or dask.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="Address of a dask scheduler.")] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="dask: a run needs the resource GPU=1.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and an estimate of time, do nothing.")
    ] = False,
) -> None:
    """Do the runs of an experiment that are not done yet."""
    from sscf.experiment.config import Experiment
    from sscf.experiment.driver import drive, print_plan
    from sscf.experiment.plan import make_plan

    experiment = Experiment.load(spec)
    if store is not None:
        experiment = experiment.model_copy(update={"store": str(store)})
    plan = make_plan(experiment)
    folder = out or Path("runs") / experiment.name
    if dry_run:
        print_plan(plan, folder, jobs)
        return
    failed = drive(plan, folder, jobs=jobs, engine=engine, scheduler=scheduler, gpus=gpus)
    raise typer.Exit(1 if failed else 0)


def status(runs: Annotated[Path, typer.Argument(help="Folder of runs.")]) -> None:
    """What is done, running, failed and missing in a folder of runs."""
    from rich.console import Console
    from rich.table import Table

    from sscf.experiment.driver import survey

    states = survey(runs)
    console = Console()
    rows: dict[str, dict[str, int]] = {}
    for one in states:
        rows.setdefault(one["method"], {}).setdefault(one["state"], 0)
        rows[one["method"]][one["state"]] += 1
    kinds = ("done", "running", "failed", "missing")
    table = Table("method", *kinds)
    for method, counts in rows.items():
        table.add_row(method, *(str(counts.get(kind, "")) for kind in kinds))
    totals: dict[str, Any] = {kind: sum(counts.get(kind, 0) for counts in rows.values()) for kind in kinds}
    table.add_section()
    table.add_row("all", *(str(totals[kind]) for kind in kinds))
    console.print(table)
    for one in states:
        if one["state"] == "failed":
            console.print(
                f"failed: {one['method']} on {one['target']}, seed {one['seed']}: {one['reason']}", markup=False
            )
