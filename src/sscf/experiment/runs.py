"""A folder of runs: the plan, one atomic record per run, and `execute`, the pure function from a spec to its record."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sscf import __version__
from sscf.data.normalise import is_zero_shot
from sscf.errors import ConfigError, FileError, SSCFError
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.plan import Plan, RunSpec, open_views
from sscf.experiment.stages import Stages, locked
from sscf.files import read_json, write_bytes, write_json
from sscf.rules.methods import Method

if TYPE_CHECKING:
    from sscf.data.tasks import TaskView
    from sscf.experiment.fitted import Fitted

SCHEMA = 1


class Runs:
    """The folder. Records are written once and whole; several processes may work in it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def add(self, plan: Plan) -> None:
        """Write the plan; runs of an earlier plan in the same folder are kept."""
        path = self.folder / "plan.json"
        value = plan.to_json()
        with locked(self.folder / "locks" / "plan.lock"):
            if path.exists():
                earlier = read_json(path)
                if earlier.get("schema") != SCHEMA:
                    raise FileError(f"{path}: schema {earlier.get('schema')}, this version of sscf reads {SCHEMA}")
                new = {run["id"] for run in value["runs"]}
                value["runs"] = [run for run in earlier["runs"] if run["id"] not in new] + value["runs"]
            write_json(path, value)

    def plan(self) -> dict[str, Any]:
        return read_json(self.folder / "plan.json")

    def record(self, run: str) -> dict[str, Any] | None:
        """The record of a run, or None if there is none yet."""
        path = self.folder / "records" / f"{run}.json"
        return read_json(path) if path.exists() else None

    def done(self, run: str) -> bool:
        record = self.record(run)
        return record is not None and record["status"] == "done"

    def fail(self, spec: RunSpec, reason: str) -> None:
        """Record that a run failed; asking again tries it again."""
        record = {"schema": SCHEMA, "id": spec.id, "status": "failed", "reason": reason, "spec": spec.to_json()}
        write_json(self.folder / "records" / f"{spec.id}.json", {**record, "scores": None})

    def lock(self, run: str) -> Any:
        """Context: True if this process may work on the run, False if another one does."""
        return locked(self.folder / "locks" / f"{run}.lock", wait=False)

    def running(self, run: str) -> bool:
        """Whether some process works on the run now."""
        path = self.folder / "locks" / f"{run}.lock"
        if not path.exists():
            return False
        with locked(path, wait=False) as free:
            return not free


def execute(
    folder: str | os.PathLike[str],
    store: str | os.PathLike[str],
    spec: RunSpec,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> str:
    """Do one run if it is not done: train, evaluate, write the record.

    Returns "done", "failed", or "busy" if another process works on it. Errors of the run end in its record.
    """
    import torch

    runs = Runs(folder)
    with runs.lock(spec.id) as mine:
        if not mine:
            return "busy"
        if runs.done(spec.id):
            return "done"
        torch.set_num_threads(spec.train["threads"])
        try:
            _execute(runs, Path(store), spec, progress)
        except Exception as error:  # whatever it was, it is this run's end and not the experiment's
            runs.fail(spec, _reason(error))
            return "failed"
    return "done"


def _reason(error: Exception) -> str:
    if isinstance(error, SSCFError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"


def train_run(runs: Runs, store: Path, spec: RunSpec, progress: Any = None) -> tuple[Fitted, list[TaskView]]:
    """The trained model of a run and the source views it was trained on. The target is not opened."""
    from sscf.experiment.fitted import Fitted, Settings
    from sscf.experiment.train import fit

    sources = list(open_views(store, spec.task, spec.sources, spec.max_windows).values())
    _check_fingerprints(spec, sources)
    settings = Settings(
        method=Method(spec.method, spec.rule, spec.rule_params, spec.strata, spec.backbone),  # type: ignore[arg-type]
        train=TrainConfig.model_validate(spec.train),
        sscf=SSCFConfig.model_validate(spec.sscf or {}),
        normalisation=spec.normalisation,
        selection=spec.selection,
        backbone=spec.backbone,
        backbone_params=spec.backbone_params,
    )
    stages = Stages(runs.folder / "stages")

    def train() -> Fitted:
        return fit(sources, settings, spec.seed, stages=stages, progress=progress)

    if spec.protocol == "lodo" or spec.selection == "oracle":
        return train(), sources
    # One model for several targets.
    return Fitted.from_tensors(*stages.get(spec.training_key(), lambda: train().to_tensors())), sources


def _execute(runs: Runs, store: Path, spec: RunSpec, progress: Any) -> None:
    from sscf.experiment.evaluate import evaluate

    started = time.time()
    fitted, sources = train_run(runs, store, spec, progress)
    trained = time.time()
    target = open_views(store, spec.task, [spec.target], spec.max_windows)[spec.target]
    _check_fingerprints(spec, [target])
    result, arrays = evaluate(fitted, target, sources)
    for name, array in arrays.items():
        buffer = BytesIO()
        np.save(buffer, array, allow_pickle=False)
        write_bytes(runs.folder / "arrays" / spec.id / f"{name}.npy", buffer.getvalue())
    ended = time.time()
    write_json(
        runs.folder / "meta" / f"{spec.id}.json",
        {
            "started": started,
            "time": {"train_s": trained - started, "evaluate_s": ended - trained},
            "environment": environment(str(fitted.device), spec.train["threads"]),
        },
    )
    record = {
        "schema": SCHEMA,
        "id": spec.id,
        "status": "done",
        "reason": None,
        "spec": spec.to_json(),
        "zero_shot": is_zero_shot(spec.normalisation) and spec.selection != "oracle",
        "oracle": spec.selection == "oracle",
        "simulated": any(view.domain.simulated for view in [*sources, target]),
        "classes": list(target.classes),
        **result,
    }
    write_json(runs.folder / "records" / f"{spec.id}.json", record)


def _check_fingerprints(spec: RunSpec, views: list[Any]) -> None:
    for view in views:
        if view.domain.fingerprint != spec.data[view.name]:
            raise ConfigError(f"domain '{view.name}' has changed since the plan was made: plan again")


def environment(device: str, threads: int) -> dict[str, Any]:
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "sscf": __version__,
        "platform": platform.platform(),
        "device": device,
        "threads": threads,
    }
