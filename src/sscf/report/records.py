"""Records of runs, read from disk and checked; what was planned but has no record stands as `missing`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sscf.errors import FileError
from sscf.files import read_json

SCHEMA = 1
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # an id names files: nothing that could leave the folder


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Spec(BaseModel):
    """What a run was asked to do. Keys we do not know are kept: they tell runs apart like any other."""

    model_config = ConfigDict(frozen=True, extra="allow")

    task: str
    target: str
    method: str
    seed: int
    sources: tuple[str, ...] = ()
    backbone: str | None = None
    strata: str | None = None
    rule: str | None = None
    protocol: str = "lodo"
    selection: str | None = None
    normalisation: str | None = None
    max_windows: int | None = None
    sscf: dict[str, Any] | None = None
    train: dict[str, Any] | None = None
    data: dict[str, str] = Field(default_factory=dict)


class Scores(_Model):
    """Scores on the target, as fractions (0..1)."""

    macro_f1: float
    accuracy: float
    kappa: float | None = None
    per_class_f1: dict[str, float | None] = Field(default_factory=dict)
    missing_classes: tuple[str, ...] = ()
    confusion: list[list[int]] | None = None  # rows are the truth
    n: int | None = None
    interval: tuple[float, float] | None = None  # 95 %, bootstrap over subjects, of macro_f1


class Validation(_Model):
    macro_f1: float | None = None
    epoch: int | None = None


class RankScore(_Model):
    rank: int
    macro_f1: float
    accuracy: float


class StrataCounts(_Model):
    """How many windows each stratum holds; every list has one entry per stratum."""

    counts: list[int]
    by_domain: dict[str, list[int]] = Field(default_factory=dict)
    by_class: dict[str, list[int]] = Field(default_factory=dict)
    target: list[int] | None = None


class Record(_Model):
    """One run: what was asked, whether it came to an end, and what came out."""

    id: str
    status: Literal["done", "failed", "missing"]
    spec: Spec
    reason: str | None = None
    zero_shot: bool | None = None
    oracle: bool | None = None
    simulated: bool | None = None
    classes: tuple[str, ...] = ()
    scores: Scores | None = None
    validation: Validation | None = None
    ranks: tuple[RankScore, ...] = ()
    chosen: dict[str, Any] = Field(default_factory=dict)
    candidates: tuple[dict[str, Any], ...] = ()
    strata: StrataCounts | None = None
    strata_agreement: float | None = None
    history: dict[str, list[float | None]] | None = None
    psd_domains: tuple[str, ...] = ()
    embedding_domains: tuple[str, ...] = ()
    parameters: int | None = None

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def is_zero_shot(self) -> bool:
        """False when the run's normalisation saw unlabelled target data."""
        return self.zero_shot if self.zero_shot is not None else self.spec.normalisation != "dataset"

    @property
    def is_oracle(self) -> bool:
        """True when something was chosen with the target's labels."""
        return self.oracle if self.oracle is not None else self.spec.selection == "oracle"

    @property
    def k(self) -> int | None:
        """Number of strata the run ended with; None without calibration."""
        if self.spec.strata == "none":
            return None
        if self.strata is not None:
            return len(self.strata.counts)
        return next((s["k"] for s in (self.chosen, self.spec.sscf or {}) if isinstance(s.get("k"), int)), None)


@dataclass(frozen=True)
class Runs:
    """A folder of runs: records in the order of their ids, planned runs without a record among them as `missing`."""

    path: Path
    records: tuple[Record, ...]
    plan: dict[str, Any] | None = None
    meta: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> dict[str, Record]:
        return {record.id: record for record in self.records}

    def count(self, status: str) -> int:
        return sum(record.status == status for record in self.records)


def read_array(runs: Path, run: str, name: str) -> np.ndarray | None:
    """An array that a run left, or None when it left none; a damaged file is an error that names it."""
    path = runs / "arrays" / run / f"{name}.npy"
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (ValueError, OSError, EOFError) as error:
        raise FileError(
            f"{path}: not a readable array ({error}); delete the run's record and repeat the run"
        ) from error


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "record"
    return f"{where}: {first['msg']} (found {str(first.get('input'))[:80]!r})"


def read_record(path: Path) -> Record:
    """Read and check one record."""
    value = read_json(path)
    if not isinstance(value, dict) or "spec" not in value:
        raise FileError(f"{path}: not a record of a run")
    if value.get("schema") != SCHEMA:
        raise FileError(f"{path}: schema {value.get('schema')!r}, this version of sscf reads {SCHEMA}")
    for key in ("ranks", "chosen", "candidates", "psd_domains", "embedding_domains", "classes"):
        if value.get(key, ...) is None:  # "nothing" may be written as null
            del value[key]
    try:
        record = Record.model_validate(value)
    except ValidationError as error:
        raise FileError(f"{path}: {_explain(error)}") from error
    if record.id != path.stem:
        raise FileError(f"{path}: holds the record of run {record.id!r}; was the file renamed?")
    if not _ID.fullmatch(record.id):
        raise FileError(f"{path}: {record.id!r} is not a run id")
    if record.done and record.scores is None:
        raise FileError(f"{path}: status is 'done', but there are no scores")
    return record


def _read_plan(path: Path) -> tuple[dict[str, Any] | None, list[Record]]:
    if not path.exists():
        return None, []
    plan = read_json(path)
    if not isinstance(plan, dict) or not isinstance(plan.get("runs"), list):
        raise FileError(f"{path}: not a plan (no list of runs)")
    try:
        planned = [
            Record(id=run["id"], status="missing", spec=Spec.model_validate(run["spec"])) for run in plan["runs"]
        ]
    except ValidationError as error:
        raise FileError(f"{path}: {_explain(error)}") from error
    except (KeyError, TypeError) as error:
        raise FileError(f"{path}: a run without id or spec ({error})") from error
    return plan, planned


def load_runs(path: str | Path) -> Runs:
    """Read a folder of runs (`plan.json`, `records/`, `meta/`; `arrays/` is read when a figure asks for it)."""
    path = Path(path)
    if not path.is_dir():
        raise FileError(f"{path}: no such folder of runs")
    plan, planned = _read_plan(path / "plan.json")
    records = {record.id: record for record in planned}
    for file in sorted((path / "records").glob("*.json")):
        record = read_record(file)
        records[record.id] = record
    if not records:
        raise FileError(f"{path}: no records and no plan; is this the folder given to 'sscf run --out'?")
    meta = {file.stem: read_json(file) for file in sorted((path / "meta").glob("*.json")) if file.stem in records}
    return Runs(path, tuple(records[run] for run in sorted(records)), plan, meta)
