"""Tasks: small declarative maps from a data set's own labels to shared classes. One store serves several tasks.

Where a domain's map comes from, first found: the task itself under the domain's name; the domain's manifest (what its
data set declared when it was prepared); the task's "*" map; and a label that is a class of the task maps to it.
A label that no map names is dropped and counted, never guessed.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sscf.data.store import Domain
from sscf.errors import ConfigError
from sscf.files import hash_json

Map = Mapping[str, str | None]


@dataclass(frozen=True)
class Task:
    """What is to be told apart.

    classes  : in the order of class indices.
    maps     : domain name or "*" -> {own label -> class, or None: drop}.
    backbone : the network used unless told otherwise.
    sequence : windows a model sees at once (20 for sleep; 1 elsewhere).
    """

    name: str
    classes: tuple[str, ...]
    maps: Mapping[str, Map] = field(default_factory=dict)
    backbone: str = "cnn_bilstm"
    sequence: int = 1

    def map_for(self, domain: Domain) -> dict[str, str | None]:
        """Own label -> class, or None where the task drops the label; every own label of the domain is a key."""
        declared = domain.manifest["tasks"].get(self.name)
        known = self.maps.get(domain.name, self.maps.get("*", {}) if declared is None else declared)
        wrong = sorted({c for c in known.values() if c is not None} - set(self.classes))
        if wrong:
            raise ConfigError(
                f"task {self.name!r}: the map of {domain.name!r} leads to {', '.join(map(repr, wrong))}; "
                f"the classes are {', '.join(self.classes)}"
            )
        misspelt = [own for own in self.maps.get(domain.name, ()) if own not in domain.label_names]
        if misspelt:
            raise ConfigError(
                f"task {self.name!r}: the map of {domain.name!r} names {', '.join(map(repr, misspelt))}, which is none "
                f"of its labels: {', '.join(domain.label_names)}"
            )
        return {own: known.get(own, own if own in self.classes else None) for own in domain.label_names}

    def view(self, domain: Domain) -> TaskView:
        """The domain as this task sees it."""
        own = self.map_for(domain)
        if all(to is None for to in own.values()):
            raise ConfigError(
                f"task {self.name!r} has no map for domain {domain.name!r}: its labels are {', '.join(own)}, "
                f"the task's classes {', '.join(self.classes)}; write a task file with [maps.{domain.name}]"
            )
        lookup = np.array([-1 if to is None else self.classes.index(to) for to in own.values()], np.int64)
        y = lookup[domain.labels]
        kept = np.flatnonzero(y >= 0)
        counts = np.bincount(domain.labels, minlength=len(own))
        dropped = {
            f"label {name!r} is not in task {self.name}": int(n)
            for (name, to), n in zip(own.items(), counts, strict=True)
            if to is None and n
        }
        identity = hash_json({"domain": domain.fingerprint, "classes": self.classes, "map": own})
        return TaskView(self, domain, kept, y[kept], dropped, identity)


@dataclass(frozen=True, eq=False)
class TaskView:
    """A domain seen through a task: which rows of the store take part, and their classes.

    index       : (n,) int64, rows of the store in ascending order.
    y           : (n,) int64, index into `classes`.
    dropped     : reason -> windows left out.
    fingerprint : changes when the data or the mapping does.
    """

    task: Task
    domain: Domain
    index: NDArray[np.int64]
    y: NDArray[np.int64]
    dropped: Mapping[str, int]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.index)

    @property
    def name(self) -> str:
        return self.domain.name

    @property
    def classes(self) -> tuple[str, ...]:
        return self.task.classes

    @cached_property
    def subjects(self) -> NDArray[np.int32]:
        """(n,) index into `domain.subject_names`."""
        return self.domain.subjects[self.index]

    @cached_property
    def recordings(self) -> NDArray[np.int32]:
        """(n,) index into `domain.recording_names`."""
        return self.domain.recordings[self.index]

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(n,) first sample of each window in its recording."""
        return self.domain.positions[self.index]

    @property
    def counts(self) -> dict[str, int]:
        """Windows of each class."""
        return dict(zip(self.classes, np.bincount(self.y, minlength=len(self.classes)).tolist(), strict=True))

    @property
    def missing(self) -> tuple[str, ...]:
        """Classes of the task that this domain has no window of."""
        return tuple(name for name, n in self.counts.items() if n == 0)

    def read(self, rows: ArrayLike, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """A copy (len(rows), C, T) of the windows of these rows of the view."""
        return self.domain.read(self.index[np.asarray(rows, np.intp)], out)

    def runs(self) -> list[tuple[int, int]]:
        """[start, stop) rows of the view that follow one another in one recording without a gap."""
        if not len(self):
            return []
        joined = (np.diff(self.recordings) == 0) & (np.diff(self.positions) == self.domain.hop)
        edges = [0, *(np.flatnonzero(~joined) + 1).tolist(), len(self)]
        return list(pairwise(edges))


_SLEEP = ("W", "N1", "N2", "N3", "REM")
_HAR6 = ("walking", "upstairs", "downstairs", "jogging", "sitting", "standing")
_STAIRS = {"upstairs": "stairs", "downstairs": "stairs"}

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task("sleep", _SLEEP, {"*": {**{s: s for s in _SLEEP}, "N4": "N3"}}, backbone="cnn_transformer", sequence=20),
        Task("ecg", ("normal", "af", "other")),
        Task("har", ("walking", "stairs", "sitting", "standing"), {"*": _STAIRS}),
        # Without the direction of gravity sitting and standing cannot be told apart.
        Task("har3", ("walking", "stairs", "still"), {"*": {**_STAIRS, "sitting": "still", "standing": "still"}}),
        Task("har6", _HAR6),
    )
}


class _TaskFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(min_length=1)
    classes: list[str] = Field(min_length=2)
    backbone: str = "cnn_bilstm"
    sequence: int = Field(1, ge=1)
    # TOML has no null: false says "drop this label", which is also what leaving it out does.
    maps: dict[str, dict[str, str | bool]] = Field(default_factory=dict)


def get_task(name: str | os.PathLike[str]) -> Task:
    """A built-in task by name, or a user's from a TOML file (name, classes, [maps.<domain>] label = "class")."""
    if str(name) in TASKS:
        return TASKS[str(name)]
    path = Path(name)
    if path.suffix != ".toml":
        raise ConfigError(f"no task {str(name)!r}; there are {', '.join(TASKS)}, or give a .toml file of your own")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        file = _TaskFile.model_validate(values)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, _TaskFile)}") from error
    if len(set(file.classes)) != len(file.classes):
        raise ConfigError(f"{path}: classes: a class is named twice in {file.classes}")
    maps: dict[str, dict[str, str | None]] = {}
    for domain, labels in file.maps.items():
        for own, to in labels.items():
            if to is True or (isinstance(to, str) and to not in file.classes):
                allowed = ", ".join([*map(repr, file.classes), "false (drop)"])
                raise ConfigError(f"{path}: maps.{domain}.{own} = {to!r}: must be one of {allowed}")
        maps[domain] = {own: to if isinstance(to, str) else None for own, to in labels.items()}
    return Task(file.name, tuple(file.classes), maps, file.backbone, file.sequence)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The main defect of a config in one line: key, value and what is allowed."""
    # A misspelt key is also a missing one: naming the misspelling is what helps.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}; known here: {', '.join(_fields_at(model, first['loc'][:-1]))}"
    if first["type"] == "missing":
        return f"key {key!r} is missing"
    return f"{key} = {first['input']!r}: {first['msg']}"


def _fields_at(model: Any, location: tuple[int | str, ...]) -> list[str]:
    """The keys allowed in the table at `location`."""
    for part in location:
        inner = model.model_fields[part].annotation
        inner = next(
            (a for a in getattr(inner, "__args__", (inner,)) if isinstance(a, type) and issubclass(a, BaseModel)), None
        )
        if inner is None:
            break
        model = inner
    return list(model.model_fields)
