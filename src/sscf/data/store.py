"""Prepared windows on disk. A store is a folder of domains; a domain is a folder of .npy files and a manifest.

    STORE/<name>/windows.npy     (N, C, T) float32, physical units, not normalised
                 labels.npy      (N,) index into the manifest's classes (the data set's own labels)
                 subjects.npy    (N,) index into the manifest's subjects
                 recordings.npy  (N,) index into the manifest's recordings
                 positions.npy   (N,) first sample of the window in its recording, at the store's rate
                 statistics.npy  (R + 1, 2, C) float64: mean and standard deviation per recording; last row: all windows
                 manifest.json

A domain is written under a hidden name and renamed when it is complete: a visible domain is a whole one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sscf.data.writing import ARRAYS, MANIFEST, SCHEMA, fingerprint, write_domain
from sscf.errors import FileError
from sscf.files import read_json, sha256_file

__all__ = ["MANIFEST", "Domain", "Statistics", "open_store", "verify", "write_domain"]


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each channel over a domain's windows, in its unit.

    recording_mean, recording_std : (R, C) float64.    mean, std : (C,) float64 over all windows.
    """

    recording_mean: NDArray[np.float64]
    recording_std: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]


class Domain:
    """A prepared domain, opened: arrays are memory-mapped or small, nothing is copied.

    windows    : (N, C, T) float32 memory map, in `unit`.
    labels     : (N,) index into `label_names`, the data set's own labels. A Task maps them to classes.
    subjects, recordings : (N,) indices into `subject_names`, `recording_names`.
    positions  : (N,) first sample of each window in its recording, at `fs` Hz.
    extra      : further arrays of N rows, e.g. the simulator's "family".
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.name: str = manifest["name"]
        self.fs: float = float(manifest["fs"])
        self.hop: int = int(manifest["hop"])  # samples between the starts of neighbouring windows
        self.channels: tuple[str, ...] = tuple(manifest["channels"])
        self.unit: str = manifest["unit"]
        self.label_names: tuple[str, ...] = tuple(manifest["classes"])
        self.subject_names: tuple[str, ...] = tuple(manifest["subjects"])
        self.recording_names: tuple[str, ...] = tuple(manifest["recordings"])
        self.fingerprint: str = manifest["fingerprint"]
        self.simulated: bool = bool(manifest.get("simulated", False))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Domain:
        """Open a domain's folder; a foreign, incomplete or newer one is a FileError that says what to do."""
        path = Path(path)
        if not (path / MANIFEST).is_file():
            hint = f"; it is a store of {', '.join(names)}: open one of these" if (names := _domain_names(path)) else ""
            raise FileError(f"{path}: not a prepared domain (no {MANIFEST}){hint}")
        manifest = read_json(path / MANIFEST)
        if not isinstance(manifest, dict) or "schema" not in manifest:
            raise FileError(f"{path / MANIFEST}: not the manifest of a domain")
        if manifest["schema"] != SCHEMA:
            remedy = "update sscf" if manifest["schema"] > SCHEMA else "prepare it again"
            raise FileError(
                f"{path}: prepared with store schema {manifest['schema']}, this sscf reads {SCHEMA}: {remedy}"
            )
        try:
            domain = cls(path, manifest)
            domain.name = Path(
                os.path.abspath(path)
            ).name  # folders may be copied and renamed; experiments know domains by folder
            domain._check()
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path}: damaged domain ({type(error).__name__}: {error}); prepare it again") from error
        return domain

    def _check(self) -> None:
        n = self.manifest["windows"]
        for name in ("windows", *ARRAYS, *self.manifest["extra"]):
            array = self._load(name)
            if len(array) != n:
                raise FileError(f"{self.path / name}.npy: {len(array)} rows, the manifest says {n}; prepare it again")

    def _load(self, name: str) -> NDArray[Any]:
        file = self.path / f"{name}.npy"
        try:
            return np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise FileError(f"{file}: missing or damaged ({error}); prepare it again") from error

    def __len__(self) -> int:
        return int(self.manifest["windows"])

    def __repr__(self) -> str:
        _, channels, samples = self.windows.shape
        return f"<Domain {self.name}: {len(self)} windows of {channels} x {samples} at {self.fs:g} Hz>"

    @cached_property
    def windows(self) -> NDArray[np.float32]:
        return self._load("windows")

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        return np.array(self._load("labels"))

    @cached_property
    def subjects(self) -> NDArray[np.int32]:
        return np.array(self._load("subjects"))

    @cached_property
    def recordings(self) -> NDArray[np.int32]:
        return np.array(self._load("recordings"))

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        return np.array(self._load("positions"))

    @cached_property
    def extra(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(self._load(name)) for name in self.manifest["extra"]}

    @cached_property
    def statistics(self) -> Statistics:
        table = np.array(self._load("statistics"))
        return Statistics(table[:-1, 0], table[:-1, 1], table[-1, 0], table[-1, 1])

    def read(self, rows: ArrayLike, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """A copy (n, C, T) of the windows of these rows, in their order, into `out` when given."""
        # np.take on the base array: fancy indexing of a memmap pays for the subclass and ignores `out`.
        return np.take(self.windows.view(np.ndarray), np.asarray(rows, np.intp), axis=0, out=out, mode="raise")


def open_store(path: str | os.PathLike[str]) -> dict[str, Domain]:
    """All domains of a store by name, in alphabetical order."""
    path = Path(path)
    if not path.is_dir():
        raise FileError(f"{path}: no such store")
    domains = {name: Domain.open(path / name) for name in _domain_names(path)}
    if not domains:
        raise FileError(f"{path}: no prepared domain in it; make one with 'sscf prepare'")
    return domains


def verify(path: str | os.PathLike[str]) -> list[str]:
    """Recompute every hash of a store or a domain and return what is wrong; an empty list means intact."""
    path = Path(path)
    if (path / MANIFEST).is_file():
        return _problems(path)
    names = _domain_names(path) or list(open_store(path))  # which says why there are none
    return [problem for name in names for problem in _problems(path / name)]


def _problems(folder: Path) -> list[str]:
    try:
        manifest = Domain.open(folder).manifest
        changed = fingerprint(manifest) != manifest["fingerprint"]
    except FileError as error:
        return [str(error)]
    except KeyError as error:
        return [f"{folder / MANIFEST}: damaged, it lacks {error}; prepare it again"]
    problems = []
    for name, expected in manifest["content"].items():
        if not (folder / name).is_file():
            problems.append(f"{folder / name}: missing; prepare it again")
        elif sha256_file(folder / name) != expected:
            problems.append(f"{folder / name}: its bytes have changed since it was prepared")
    if changed:
        problems.append(f"{folder / MANIFEST}: changed since it was written (its fingerprint differs)")
    for name in sorted(f.name for f in folder.iterdir() if f.name not in {*manifest["content"], MANIFEST}):
        problems.append(f"{folder / name}: not part of the domain")
    return problems


def _domain_names(path: Path) -> list[str]:
    return sorted(f.parent.name for f in path.glob(f"*/{MANIFEST}") if not f.parent.name.startswith("."))
