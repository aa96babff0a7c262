"""`sscf demo`: the whole way from data to page, on simulated domains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sscf.data.simulate import simulate
from sscf.errors import ConfigError
from sscf.experiment.config import Experiment, SSCFConfig, TrainConfig
from sscf.experiment.driver import drive
from sscf.experiment.plan import make_plan

if TYPE_CHECKING:
    from sscf.report.tables import Entry

METHODS = ("erm", "coral", "global-anchor", "domain-anchor", "sscf")
# Windows are centred, so the direction of gravity is gone and sitting is standing: har3 is the task to judge by.
TASKS = {"har": "har3", "ecg": "ecg", "sleep": "sleep"}
# Sized so that the whole demo takes under three minutes on two CPU cores.
SIZES: dict[str, dict[str, int]] = {
    "har": {"subjects": 24, "windows": 14},
    "ecg": {"subjects": 16, "windows": 15},
    "sleep": {"subjects": 6, "windows": 60},
}
TRAIN: dict[str, TrainConfig] = {
    "har": TrainConfig(epochs=10, batch_size=96, ema=0.9, patience=None, lr=2e-3),
    "ecg": TrainConfig(epochs=20, batch_size=96, ema=0.98, patience=None, lr=2e-3),
    "sleep": TrainConfig(epochs=6, batch_size=6, ema=0.95, patience=None),
}


BACKBONE: dict[str, dict[str, int]] = {
    "har": {},
    "ecg": {"width": 16, "hidden": 32, "stride": 4},
    "sleep": {"width": 16},
}


def demo_experiment(task: str, store: str | os.PathLike[str], seeds: int = 2) -> Experiment:
    """The experiment of the demo on a store of simulated domains."""
    return Experiment(
        name=f"demo-{task}",
        task=TASKS[task],
        store=str(store),
        methods=list(METHODS),
        seeds=seeds,
        train=TRAIN[task],
        sscf=SSCFConfig(),
        backbone_params=BACKBONE[task],
    )


def run_demo(task: str, out: str | os.PathLike[str], jobs: int, seed: int) -> Path:
    """Simulate, run, report. Returns the path of the page."""
    from sscf.report import write_report

    if task not in SIZES:
        raise ConfigError(f"the demo knows the tasks {', '.join(SIZES)}, not '{task}'")
    console = Console()
    out = Path(out)
    store = out / f"store-{task}-{seed}"
    if not store.exists():
        console.print(f"simulating four {task} data sets in {store}", markup=False)
        simulate(task, store, seed=seed, domains=4, **SIZES[task])
    folder = out / f"runs-{task}-{seed}"
    drive(make_plan(demo_experiment(task, store)), folder, jobs=jobs, console=console)
    page = write_report(folder, out / f"report-{task}-{seed}", console=console)
    print_results(folder, console)
    console.print(f"page: {page.resolve()}", markup=False, soft_wrap=True)
    return page


def print_results(folder: Path, console: Console) -> None:
    """The table of methods and targets, and how well the strata found agree with the families simulated."""
    from sscf.report.panels import make_panels
    from sscf.report.records import load_runs
    from sscf.report.tables import methods_table

    runs = load_runs(folder)
    for panel in make_panels(runs):
        results = methods_table(panel, "macro_f1")
        # Narrow enough for a terminal of 80 columns.
        table = Table(title=results.title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(results.head, no_wrap=True)
        for column in results.columns:
            table.add_column(column, justify="right", overflow="fold")
        for line in results.lines:
            table.add_row(Text(line.label + line.marks), *map(_cell, line.entries))
        console.print(table)
    found = [r.strata_agreement for r in runs.records if r.spec.method == "sscf" and r.strata_agreement is not None]
    if found:
        mean = sum(found) / len(found)
        console.print(
            f"strata found against families simulated: adjusted Rand index {mean:.2f} (1: the same, 0: chance)",
            soft_wrap=True,
        )
    console.print("Simulated data: the numbers show how it works, not how well.")


def _cell(entry: Entry) -> Text:
    if entry.mean is None or entry.note:
        return Text(entry.text)
    spread = f"±{entry.std:.1f}" if entry.std is not None else ""
    return Text(f"{entry.mean:.1f}{spread}", "bold" if entry.best else "")
