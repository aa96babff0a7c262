"""`sscf demo`: the whole way from data to page, on simulated domains."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from sscf.data.simulate import simulate
from sscf.errors import ConfigError
from sscf.experiment.config import Experiment, SSCFConfig, TrainConfig
from sscf.experiment.driver import drive
from sscf.experiment.plan import make_plan

METHODS = ("erm", "coral", "global-anchor", "domain-anchor", "sscf")
# Windows are centred, so the direction of gravity is gone and sitting is standing: har3 is the task to judge by.
TASKS = {"har": "har3", "ecg": "ecg", "sleep": "sleep"}
# Sized so that the whole demo takes under three minutes on two CPU cores.
SIZES: dict[str, dict[str, int]] = {
    "har": {"subjects": 8, "windows": 40},
    "ecg": {"subjects": 8, "windows": 30},
    "sleep": {"subjects": 4, "windows": 80},
}
TRAIN: dict[str, TrainConfig] = {
    "har": TrainConfig(epochs=10, batch_size=96, ema=0.9, patience=None, lr=2e-3),
    "ecg": TrainConfig(epochs=20, batch_size=96, ema=0.98, patience=None, lr=2e-3),
    "sleep": TrainConfig(epochs=8, batch_size=6, ema=0.95, patience=None),
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
        backbone_params={"width": 16} if task == "sleep" else {},
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
    return write_report(folder, out / f"report-{task}-{seed}", console=console)
