"""Writing a domain: whole or not at all, the same bytes for the same data. The format is told in `store`."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sscf.errors import FileError, InputError
from sscf.files import hash_json, sha256_file, write_json

SCHEMA = 1
MANIFEST = "manifest.json"
ARRAYS = {"labels": np.int32, "subjects": np.int32, "recordings": np.int32, "positions": np.int64}
_CHUNK = 1024  # windows copied at a time
_IDENTITY = (
    "classes",
    "fs",
    "hop",
    "channels",
    "unit",
    "subjects",
    "recordings",
    "content",
)  # what the fingerprint covers


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """The hash of everything an experiment can see of a domain's data."""
    return hash_json({key: manifest[key] for key in _IDENTITY})


def write_domain(
    out: str | os.PathLike[str],
    windows: ArrayLike,
    labels: ArrayLike,
    subjects: ArrayLike,
    classes: Sequence[str],
    fs: float,
    *,
    name: str | None = None,
    channels: Sequence[str] | None = None,
    recordings: ArrayLike | None = None,
    positions: ArrayLike | None = None,
    hop: int | None = None,
    unit: str = "",
    task: str = "",
    extra: Mapping[str, ArrayLike] | None = None,
    simulated: bool = False,
    licence: str = "",
    citation: str = "",
    recipe: Mapping[str, Any] | None = None,
) -> Path:
    """Write arrays as the domain folder `out` (STORE/<name>); it takes part in every experiment. Returns `out`.

    windows    : (N, C, T) in `unit`, at `fs` Hz.
    labels     : (N,) names from `classes`, or integers into it.
    subjects   : (N,) names or integers; never split between training and validation.
    recordings : (N,) names or integers; one per subject when not given.
    positions  : (N,) first sample in the recording; one window after the other when not given.
    hop        : samples between the starts of neighbouring windows of a recording; T (no overlap) when not given.
    task       : the task it belongs to, for people ("har"); any task whose classes it names may use it.
    extra      : further arrays of N rows.

    >>> import numpy as np, tempfile
    >>> rng = np.random.default_rng(0)
    >>> x, y, who = rng.normal(size=(6, 1, 50)), ["rest", "walk"] * 3, ["ann"] * 3 + ["bob"] * 3
    >>> from sscf.data import Domain
    >>> path = write_domain(tempfile.mkdtemp() + "/mine", x, y, who, ["rest", "walk"], fs=50)
    >>> Domain.open(path)
    <Domain mine: 6 windows of 1 x 50 at 50 Hz>
    """
    out = Path(out)
    x = np.asarray(windows)
    if x.ndim != 3 or 0 in x.shape:
        raise InputError(f"windows must be (N, C, T) with nothing empty, got {x.shape}")
    n, width, samples = x.shape
    if not fs > 0:
        raise InputError(f"fs must be positive, got {fs}")
    classes = tuple(map(str, classes))
    if len(set(classes)) != len(classes) or not classes:
        raise InputError(f"classes must be different names, got {classes}")
    names = tuple(channels) if channels is not None else tuple(f"ch{i}" for i in range(width))
    if len(names) != width:
        raise InputError(f"{len(names)} channel names for {width} channels")
    for start in range(0, n, _CHUNK):
        finite = np.isfinite(x[start : start + _CHUNK]).all(axis=(1, 2))
        if not finite.all():
            raise InputError(f"window {start + int(np.argmin(finite))} has values that are not numbers")
    y = _label_index(np.asarray(labels), classes, n)
    subject_names, who = _number(np.asarray(subjects), n, "subjects")
    recording_names, which = (
        (subject_names, who) if recordings is None else _number(np.asarray(recordings), n, "recordings")
    )
    where = (
        _rows(positions, n, "positions", np.int64)
        if positions is not None
        else _one_after_another(which, hop or samples)
    )
    more = {key: _rows(value, n, key, None) for key, value in (extra or {}).items()}
    for key in more:
        if key in ("windows", "statistics", *ARRAYS):
            raise InputError(f"extra array cannot be called {key!r}")
    manifest = {
        "name": name or out.name,
        "task": task,
        "classes": list(classes),
        "fs": float(fs),
        "channels": list(names),
        "unit": unit,
        "samples": samples,
        "hop": hop or samples,
        "subjects": subject_names,
        "recordings": recording_names,
        "recipe": dict(recipe or {}),
        "recipe_hash": hash_json(dict(recipe or {})),
        "simulated": simulated,
        "licence": licence,
        "citation": citation,
    }
    chunks = (np.asarray(x[start : start + _CHUNK], np.float32) for start in range(0, n, _CHUNK))
    arrays = {"labels": y, "subjects": who, "recordings": which, "positions": where}
    with new_folder(out) as folder:
        write_folder(folder, manifest, chunks, (n, width, samples), arrays, more)
    return out


def write_folder(
    folder: Path,
    manifest: dict[str, Any],
    chunks: Iterable[NDArray[np.float32]],
    shape: tuple[int, int, int],
    arrays: Mapping[str, NDArray[Any]],
    extra: Mapping[str, NDArray[Any]],
) -> None:
    """Write all files of a domain; windows come in `chunks` that together have `shape`, so they need not fit memory."""
    recordings = np.asarray(arrays["recordings"])
    sums = _Sums(len(manifest["recordings"]), shape[1])
    content = {"windows.npy": _write_stream(folder / "windows.npy", chunks, shape, sums, recordings)}
    for name, array in [
        *((k, np.asarray(arrays[k], t)) for k, t in ARRAYS.items()),
        ("statistics", sums.table()),
        *extra.items(),
    ]:
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
        content[f"{name}.npy"] = sha256_file(folder / f"{name}.npy")
    whole = {
        "schema": SCHEMA,
        "tasks": {},
        "files": {},
        "sources": [],
        "dropped": {},
        "skipped": [],
        "notes": "",
        "same_people": [],
        **manifest,
        "windows": shape[0],
        "extra": list(extra),
        "content": content,
    }
    write_json(folder / MANIFEST, {**whole, "fingerprint": fingerprint(whole)})


class _Sums:
    """Streaming sums for the statistics, shifted by the first window's mean so that a large offset costs no digits."""

    def __init__(self, recordings: int, channels: int) -> None:
        self.n = np.zeros((recordings, 1))
        self.first = np.zeros((recordings, 2, channels))
        self.shift: NDArray[np.float64] | None = None

    def add(self, windows: NDArray[np.float32], recordings: NDArray[np.integer]) -> None:
        x = windows.astype(np.float64)
        if self.shift is None:
            self.shift = x[0].mean(axis=1)
        x -= self.shift[:, None]
        np.add.at(self.n, recordings, x.shape[2])
        np.add.at(self.first[:, 0], recordings, x.sum(axis=2))
        np.add.at(self.first[:, 1], recordings, np.einsum("nct,nct->nc", x, x))

    def table(self) -> NDArray[np.float64]:
        """(R + 1, 2, C) mean and standard deviation."""
        n = np.concatenate([self.n, self.n.sum(axis=0, keepdims=True)])
        first = np.concatenate([self.first, self.first.sum(axis=0, keepdims=True)]) / np.maximum(n, 1)[:, None]
        std = np.sqrt(np.maximum(first[:, 1] - first[:, 0] ** 2, 0.0))
        return np.stack([first[:, 0] + (0.0 if self.shift is None else self.shift), std], axis=1)


def _write_stream(
    file: Path, chunks: Iterable[NDArray[np.float32]], shape: tuple[int, ...], sums: _Sums, recordings: NDArray[Any]
) -> str:
    digest, row = hashlib.sha256(), 0
    with open(file, "w+b") as stream:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.seek(0)
        digest.update(stream.read())
        for chunk in chunks:
            data = np.ascontiguousarray(chunk, np.float32)
            sums.add(data, recordings[row : row + len(data)])
            row += len(data)
            stream.write(data.data)
            digest.update(data.data)
        if row != shape[0]:
            raise AssertionError(f"{row} windows written, {shape[0]} announced")
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A hidden folder beside `final` to be filled; it becomes `final` on success and is removed on failure."""
    check_place(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    folder, old = final.with_name(f".new-{final.name}-{token}"), final.with_name(f".old-{final.name}-{token}")
    folder.mkdir()
    try:
        yield folder
        if final.exists():
            final.rename(old)
        folder.rename(final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def check_place(final: Path) -> None:
    """A domain may be written where nothing lies, or another domain; anything else is not ours to replace."""
    if not final.exists() or (final / MANIFEST).is_file():
        return
    if not final.is_dir() or any(final.iterdir()):
        raise FileError(
            f"{final}: is there already and is no prepared domain; writing one would replace it: choose another place"
        )


def remove_leftovers(final: Path) -> None:
    """Remove what a killed `new_folder` left beside `final`."""
    for kind in ("new", "old"):
        for folder in final.parent.glob(f".{kind}-{final.name}-????????"):
            shutil.rmtree(folder, ignore_errors=True)


def _rows(values: ArrayLike, n: int, what: str, dtype: Any) -> NDArray[Any]:
    array = np.asarray(values, dtype)
    if array.shape[:1] != (n,) or array.dtype.kind not in "biuf":
        raise InputError(f"{what} must be numbers with {n} rows, got {array.dtype} {array.shape}")
    return array


def _label_index(labels: NDArray[Any], classes: Sequence[str], n: int) -> NDArray[np.int32]:
    if labels.shape != (n,):
        raise InputError(f"labels must have shape ({n},), got {labels.shape}")
    if labels.dtype.kind in "iu":
        if labels.min() < 0 or labels.max() >= len(classes):
            raise InputError(f"labels reach from {labels.min()} to {labels.max()}, there are {len(classes)} classes")
        return labels.astype(np.int32)
    index = {name: i for i, name in enumerate(classes)}
    unknown = sorted({str(label) for label in labels} - set(index))
    if unknown:
        raise InputError(f"labels {', '.join(map(repr, unknown))} are not among the classes {', '.join(classes)}")
    return np.array([index[str(label)] for label in labels], np.int32)


def _number(values: NDArray[Any], n: int, what: str) -> tuple[list[str], NDArray[np.int32]]:
    """Names in order of first appearance, and the index of each row into them."""
    if values.shape != (n,):
        raise InputError(f"{what} must have shape ({n},), got {values.shape}")
    numbers: dict[str, int] = {}
    index = [numbers.setdefault(str(value), len(numbers)) for value in values]
    return list(numbers), np.array(index, np.int32)


def _one_after_another(recordings: NDArray[np.int32], hop: int) -> NDArray[np.int64]:
    seen: dict[int, int] = {}
    out = np.empty(len(recordings), np.int64)
    for i, recording in enumerate(recordings.tolist()):
        out[i] = seen.get(recording, 0) * hop
        seen[recording] = seen.get(recording, 0) + 1
    return out
