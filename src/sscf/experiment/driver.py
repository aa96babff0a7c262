"""What a person sees of an experiment while it runs, and before and after."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from sscf.errors import ConfigError
from sscf.experiment.engines import run_dask, run_local
from sscf.experiment.plan import Plan, RunSpec, open_views
from sscf.experiment.runs import Runs
from sscf.files import read_json


def drive(
    plan: Plan,
    folder: str | os.PathLike[str],
    *,
    jobs: int = 1,
    engine: str = "local",
    scheduler: str | None = None,
    gpus: bool = False,
    console: Console | None = None,
) -> int:
    """Do the runs of a plan that are not done, with a live display. Returns the number of failed ones."""
    if engine not in ("local", "dask"):
        raise ConfigError(f"engine must be local or dask, got '{engine}'")
    console = console or Console()
    runs = Runs(folder)
    runs.add(plan)
    for warning in plan.warnings:
        console.print(f"warning: {warning}", markup=False)
    assert plan.experiment.store is not None
    todo = [spec for spec in plan.runs if not runs.done(spec.id)]
    console.print(
        f"{plan.experiment.name}: {len(plan.runs)} runs, {len(plan.runs) - len(todo)} done before", markup=False
    )
    if not todo:
        return 0
    display = _Display(console, todo)
    with display.progress:
        if engine == "local":
            run_local(folder, plan.experiment.store, todo, jobs, display.report)
        else:
            run_dask(folder, plan.experiment.store, todo, jobs, display.report, scheduler, gpus)
    for spec, reason in display.failed:
        console.print(f"failed: {_name(spec)}: {reason}", markup=False)
    return len(display.failed)


class _Display:
    """One bar for all runs, one line for each that is active."""

    def __init__(self, console: Console, specs: list[RunSpec]) -> None:
        self.specs = {spec.id: spec for spec in specs}
        self.failed: list[tuple[RunSpec, str]] = []
        self.lines: dict[str, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self.all = self.progress.add_task("all runs", total=len(specs), note="")

    def report(self, run: str, event: dict[str, Any]) -> None:
        spec = self.specs[run]
        state = event["state"]
        if state in ("started", "progress") and run not in self.lines:
            self.lines[run] = self.progress.add_task(_name(spec), total=None, note="")
        if state == "progress":
            note = f"{event['stage']}: loss {event['loss']:.3f}, validation {100 * event['validation']:.1f}"
            self.progress.update(self.lines[run], total=event["epochs"], completed=event["epoch"], note=note)
        elif state in ("done", "failed"):
            if run in self.lines:
                self.progress.remove_task(self.lines.pop(run))
            if state == "failed":
                self.failed.append((spec, event.get("reason") or "unknown"))
            note = f"{len(self.failed)} failed" if self.failed else ""
            self.progress.update(self.all, advance=1, note=note)


def _name(spec: RunSpec) -> str:
    return f"{spec.method} → {spec.target}, seed {spec.seed}"


def survey(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """State (done, running, failed, missing) and reason of every run of the plan."""
    runs = Runs(folder)
    found = []
    for entry in runs.plan()["runs"]:
        record = runs.record(entry["id"])
        if record is not None and record["status"] == "done":
            state = "done"
        elif runs.running(entry["id"]):
            state = "running"
        else:
            state = "failed" if record is not None else "missing"
        brief = {name: entry["spec"][name] for name in ("method", "target", "seed")}
        found.append({"id": entry["id"], "state": state, "reason": record["reason"] if record else None, **brief})
    return found


def print_plan(plan: Plan, folder: str | os.PathLike[str], jobs: int) -> None:
    """The grid, what of it is done, and how long the rest may take."""
    console, runs = Console(), Runs(folder)
    todo = [spec for spec in plan.runs if not runs.done(spec.id)]
    targets = list(dict.fromkeys(spec.target for spec in plan.runs))
    table = Table("method", *targets, "seeds")
    for method in dict.fromkeys(spec.method for spec in plan.runs):
        left = Counter(spec.target for spec in todo if spec.method == method)
        all_of = Counter(spec.target for spec in plan.runs if spec.method == method)
        table.add_row(
            method,
            *(f"{left[t]} to do" if left[t] else "done" if all_of[t] else "" for t in targets),
            str(len({spec.seed for spec in plan.runs if spec.method == method})),
        )
    console.print(table)
    console.print(f"{len(plan.runs)} runs, {len(plan.runs) - len(todo)} done, {len(todo)} to do")
    if todo:
        seconds, basis = estimate(plan, runs, todo)
        console.print(f"about {_duration(seconds / jobs)} with {jobs} at a time ({basis})")


def estimate(plan: Plan, runs: Runs, todo: list[RunSpec]) -> tuple[float, str]:
    """Seconds for the runs one after the other, from runs already done or from a few training steps now."""
    times: dict[str, list[float]] = {}
    for spec in plan.runs:
        path = runs.folder / "meta" / f"{spec.id}.json"
        if path.exists():
            times.setdefault(spec.method, []).append(sum(read_json(path)["time"].values()))
    if times:
        overall = sum(map(sum, times.values())) / sum(map(len, times.values()))
        total = 0.0
        for spec in todo:
            own = times.get(spec.method)
            total += sum(own) / len(own) if own else overall
        return total, "from the runs done so far"
    return sum(
        _seconds_of(spec, step) for spec, step in _steps(plan, todo)
    ), "from timed training steps; early stopping may save some"


def _steps(plan: Plan, todo: list[RunSpec]) -> list[tuple[RunSpec, tuple[float, int]]]:
    """For every run the seconds of a step and the steps of an epoch, timed once for each size of step."""
    import torch

    from sscf.experiment.config import SSCFConfig, TrainConfig
    from sscf.experiment.fitted import Settings
    from sscf.experiment.train import fit
    from sscf.rules.methods import Method

    assert plan.experiment.store is not None
    known: dict[Any, tuple[float, int]] = {}
    result = []
    for spec in todo:
        key = (spec.sources, spec.train["batch_size"], spec.backbone)
        if key not in known:
            torch.set_num_threads(spec.train["threads"])
            views = list(open_views(plan.experiment.store, spec.task, spec.sources, spec.max_windows).values())
            windows = sum(map(len, views)) // views[0].task.sequence
            settings = Settings(
                Method("erm"),
                train=TrainConfig.model_validate({**spec.train, "epochs": 1, "steps_per_epoch": 6}),
                sscf=SSCFConfig(),
                normalisation=spec.normalisation,
                backbone=spec.backbone,
                backbone_params=spec.backbone_params,
            )
            started = time.perf_counter()
            fit(views, settings, 0)
            steps = max(1, round(windows * (1 - spec.train["validation"]) / spec.train["batch_size"]))
            known[key] = (time.perf_counter() - started) / 8, spec.train["steps_per_epoch"] or steps
        result.append((spec, known[key]))
    return result


def _seconds_of(spec: RunSpec, step: tuple[float, int]) -> float:
    seconds, steps = step
    once = seconds * steps * spec.train["epochs"]
    if spec.sscf is None:
        return once
    searched = 1
    for value in spec.sscf.values():
        searched *= 4 if value == "auto" else len(value) if isinstance(value, list) else 1
    inner = len(spec.sources) + 1 if spec.selection == "leave-one-source-out" and searched > 1 else 1
    return once * (1.1 * searched * inner + 1)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
