"""Raw files -> a domain of a store, resumably.

Each recording becomes a part, named by the hash of all it depends on: recipe, own labels, the raw files' contents, this
code's schema. Parts are kept in STORE/.work-<name> until the domain is published, so what was interrupted goes on; a
recording whose inputs have not changed since the last time is copied from the published domain. Order, chunking and
arithmetic do not depend on the number of processes: the same raw files give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sscf.data import writing
from sscf.data.datasets import NAMES, get
from sscf.data.datasets.base import DataSet
from sscf.data.readers import inside
from sscf.data.recording import Source
from sscf.data.signal import cut
from sscf.data.store import Domain
from sscf.errors import DataError, FileError, SSCFError
from sscf.files import hash_json, sha256_file

ENGINE = 1  # raise it when the same raw files and recipe give other windows
Progress = Callable[[str, int, int], None]  # called with (data set, recordings done, recordings in all)


@dataclass(frozen=True)
class Prepared:
    """What `prepare` did: the domain, how many recordings were computed anew or left out, and why."""

    path: Path
    windows: int
    recordings: int
    computed: int
    dropped: dict[str, int]
    skipped: list[dict[str, str]]


@dataclass(frozen=True)
class _Part:
    """One prepared recording as the manifest tells it; its windows lie in a part file, or in rows of the old domain."""

    id: str
    subject: str
    key: str
    files: dict[str, str]
    windows: int
    dropped: dict[str, int]
    sha256: str
    row: int | None = None  # first row in the published domain, when they are taken from there
    computed: bool = False

    def to_json(self) -> dict[str, Any]:
        plain = ("id", "subject", "key", "windows", "dropped", "sha256")
        return {**{name: getattr(self, name) for name in plain}, "files": list(self.files)}


_ARRAYS = ("windows", "labels", "positions")


def prepare(
    dataset: DataSet | str,
    raw: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    jobs: int = 1,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Prepared:
    """Prepare a data set found at or below `raw` as the domain out/<name>.

    A recording that cannot be used is a DataError naming file and position; with `skip_bad` it is left out and listed
    in the manifest. Called again, it computes only what is missing or depends on something that has changed.
    """
    from threadpoolctl import threadpool_limits

    if isinstance(dataset, str):
        dataset = get(dataset)
    if jobs < 1:
        raise DataError(f"jobs must be at least 1, got {jobs}")
    root = dataset.root(Path(raw))
    final = Path(out) / dataset.name
    writing.check_place(final)
    sources = dataset.find(root)
    _check_sources(dataset, root, sources)
    with _working_folder(final) as work, threadpool_limits(1):
        writing.remove_leftovers(final)
        job = _Job(dataset, root, work, final)
        wanted = [source for source in sources if source.id not in dataset.exclude]
        parts, skipped = _sort_out(_run(job, wanted, jobs, skip_bad, progress), skip_bad)
        skipped += [
            {"id": source.id, "subject": source.subject, "reason": f"known: {dataset.exclude[source.id]}"}
            for source in sources
            if source.id in dataset.exclude
        ]
        if not any(part.windows for part in parts):
            raise DataError(f"{dataset.name}: no window left of {len(sources)} recordings; {_why(parts, skipped)}")
        _publish(job, parts, skipped)
        shutil.rmtree(work)
    dropped = sum((Counter(part.dropped) for part in parts), Counter())
    computed = sum(part.computed for part in parts)
    return Prepared(final, sum(p.windows for p in parts), len(parts), computed, dict(dropped), skipped)


def _check_sources(dataset: DataSet, root: Path, sources: list[Source]) -> None:
    if not sources:
        raise DataError(f"{dataset.name}: no recordings in {root}; is the download complete? {dataset.access}")
    twice = [name for name, n in Counter(source.id for source in sources).items() if n > 1]
    if twice:
        raise DataError(f"{dataset.name}: two recordings called {twice[0]!r} in {root}")


def _why(parts: list[_Part], skipped: list[dict[str, str]]) -> str:
    reasons = sum((Counter(part.dropped) for part in parts), Counter())
    text = [f"{n} windows: {reason}" for reason, n in reasons.most_common(3)]
    return "; ".join(text + [f"{entry['id']}: {entry['reason']}" for entry in skipped[:3]])


# --- one recording ---------------------------------------------------------------------------------------------------


@dataclass
class _Job:
    """What every worker needs to turn a source into a part."""

    dataset: DataSet
    root: Path
    work: Path
    final: Path
    published: dict[str, tuple[int, dict[str, Any]]] = field(
        init=False, default_factory=dict
    )  # key -> first row, entry
    old: Domain | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        try:
            self.old = Domain.open(self.final)
        except FileError:
            return  # nothing there, or nothing of use: everything is computed
        row = 0
        for entry in self.old.manifest["sources"]:
            self.published[entry["key"]] = (row, entry)
            row += entry["windows"]

    def part(self, source: Source) -> _Part | str:
        """The part of a source, computed or found; or what is wrong with the recording."""
        try:
            files = {name: _sha256(inside(self.root, name)) for name in source.files}
            key = self._key(source, files)
            return self._found(source, key, files) or self._compute(source, key, files)
        except DataError as error:
            return str(error)

    def _key(self, source: Source, files: dict[str, str]) -> str:
        d = self.dataset
        depends = {"schema": [writing.SCHEMA, ENGINE], "name": d.name, "recipe": d.recipe.to_json(), "labels": d.labels}
        return hash_json({**depends, "id": source.id, "subject": source.subject, "files": files}, 32)

    def _found(self, source: Source, key: str, files: dict[str, str]) -> _Part | None:
        row, entry = self.published.get(key, (None, None))
        if entry is None and (saved := _load_part(self.work / f"{key}.npz", *_ARRAYS)):
            entry = saved[0]
        if entry is None:
            return None
        part = _Part(source.id, source.subject, key, files, entry["windows"], entry["dropped"], entry["sha256"], row)
        return part if row is None or _digest(self.arrays(part, *_ARRAYS)) == part.sha256 else None

    def _compute(self, source: Source, key: str, files: dict[str, str]) -> _Part:
        d = self.dataset
        names = {label: i for i, label in enumerate(d.labels)}
        try:
            made = cut(d.read(self.root, source), d.recipe)
        except DataError as error:
            # Errors of the engine know the channel and the second; the file is known here.
            first = str(self.root / source.files[0]) if source.files else source.id
            raise error if any(f in str(error) for f in source.files) else DataError(f"{first}: {error}") from error
        unknown = sorted(set(made.labels) - set(names))
        if unknown:
            raise DataError(f"{source.id}: label {unknown[0]!r} is not one of {', '.join(d.labels)}")
        labels = np.array([names[label] for label in made.labels], np.int32)
        arrays: list[NDArray[Any]] = [made.windows, labels, made.positions]
        dropped = dict(sorted(made.dropped.items()))
        part = _Part(source.id, source.subject, key, files, len(labels), dropped, _digest(arrays), computed=True)
        _save_part(self.work / f"{key}.npz", part, arrays)
        return part

    def arrays(self, part: _Part, *names: str) -> list[NDArray[Any]]:
        """Arrays of a part by name: "windows", "labels", "positions"."""
        if part.row is not None and self.old is not None:
            rows = slice(part.row, part.row + part.windows)
            return [np.asarray(getattr(self.old, name)[rows]) for name in names]
        saved = _load_part(self.work / f"{part.key}.npz", *names)
        if saved is None:
            raise FileError(f"{self.work / part.key}.npz: vanished or damaged while preparing; run it again")
        return saved[1]


@lru_cache(maxsize=4096)
def _sha256_of_state(path: Path, size: int, mtime_ns: int) -> str:
    return sha256_file(path)


def _sha256(path: Path) -> str:
    """SHA-256 of a file; a table that many recordings share is read once per process."""
    try:
        state = path.stat()
        return _sha256_of_state(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _digest(arrays: list[NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _save_part(path: Path, part: _Part, arrays: list[NDArray[Any]]) -> None:
    """No flush to disk as for a domain: the checksums of the zip tell a damaged part, which is then computed again."""
    meta = np.frombuffer(json.dumps(part.to_json()).encode(), np.uint8)
    temporary = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
    with open(temporary, "wb") as stream:
        np.savez(stream, allow_pickle=False, meta=meta, **dict(zip(_ARRAYS, arrays, strict=True)))
    temporary.replace(path)


def _load_part(path: Path, *names: str) -> tuple[dict[str, Any], list[NDArray[Any]]] | None:
    """What the manifest says of a part, and those of its arrays; None when it is not there or damaged."""
    try:
        with np.load(path, allow_pickle=False) as part:
            return json.loads(part["meta"].tobytes()), [part[name] for name in names]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        path.unlink(missing_ok=True)
        return None


# --- all recordings --------------------------------------------------------------------------------------------------

_job: _Job | None = None  # of this worker process


def _start_worker(dataset: DataSet | str, root: Path, work: Path, final: Path) -> None:
    from threadpoolctl import threadpool_limits

    global _job
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _job = _Job(get(dataset) if isinstance(dataset, str) else dataset, root, work, final)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(source: Source) -> _Part | str:
    assert _job is not None
    return _job.part(source)


def _run(
    job: _Job, sources: list[Source], jobs: int, skip_bad: bool, progress: Progress | None
) -> list[tuple[Source, _Part | str]]:
    """(source, part or what is wrong) of each source, in order; stops at the first bad one unless `skip_bad`."""
    name, total = job.dataset.name, len(sources)
    tell = progress or (lambda *_: None)
    tell(name, 0, total)
    results: dict[str, _Part | str] = {}
    if jobs == 1:
        for source in sources:
            results[source.id] = _good(source, job.part(source), skip_bad)
            tell(name, len(results), total)
    else:
        # A built-in data set goes by name: its functions need not be picklable. Spawned, not forked: threads may run.
        given = name if name in NAMES and get(name) is job.dataset else job.dataset
        start = (given, job.root, job.work, job.final)
        with ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, start) as pool:
            try:
                pending = {pool.submit(_work, source): source for source in sources}
                for future in as_completed(pending):
                    source = pending[future]
                    results[source.id] = _good(source, future.result(), skip_bad)
                    tell(name, len(results), total)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return [(source, results[source.id]) for source in sources]


def _good(source: Source, result: _Part | str, skip_bad: bool) -> _Part | str:
    if isinstance(result, str) and not skip_bad:
        raise DataError(f"{result}\n(recording {source.id!r}; --skip-bad leaves such recordings out and lists them)")
    return result


def _sort_out(results: list[tuple[Source, _Part | str]], skip_bad: bool) -> tuple[list[_Part], list[dict[str, str]]]:
    """Parts and bad recordings; the second of two recordings with the same windows is bad."""
    parts: list[_Part] = []
    skipped: list[dict[str, str]] = []
    seen: dict[str, str] = {}
    for source, result in results:
        if (
            isinstance(result, _Part)
            and result.windows
            and (twin := seen.setdefault(result.sha256, source.id)) != source.id
        ):
            result = _good(source, f"{source.files[0]}: the same signal as recording {twin!r}", skip_bad)
        if isinstance(result, str):
            skipped.append({"id": source.id, "subject": source.subject, "reason": result})
        else:
            parts.append(result)
    return parts, skipped


def _publish(job: _Job, parts: list[_Part], skipped: list[dict[str, str]]) -> None:
    d = job.dataset
    full = [part for part in parts if part.windows]
    subjects = list(dict.fromkeys(part.subject for part in full))
    counts = [part.windows for part in full]
    manifest = {
        "name": d.name,
        "title": d.title,
        "task": d.task,
        "classes": list(d.labels),
        "tasks": {task: dict(labels) for task, labels in d.tasks.items()},
        "fs": float(d.recipe.fs),
        "hop": d.recipe.hop,
        "channels": list(d.recipe.names),
        "unit": d.recipe.unit,
        "samples": d.recipe.samples,
        "subjects": subjects,
        "recordings": [part.id for part in full],
        "recipe": json.loads(json.dumps(d.recipe.to_json())),
        "recipe_hash": d.recipe.hash,
        "files": {name: sha for part in parts for name, sha in part.files.items()},
        "sources": [part.to_json() for part in parts],
        "dropped": dict(sorted(sum((Counter(part.dropped) for part in parts), Counter()).items())),
        "skipped": skipped,
        "simulated": False,
        "licence": d.licence,
        "citation": d.citation,
        "notes": d.notes,
        "same_people": list(d.same_people),
    }
    if job.old is not None and all(job.old.manifest.get(key) == value for key, value in manifest.items()):
        return  # nothing has changed: leave the domain, its time stamps and open memory maps alone
    small = [job.arrays(part, "labels", "positions") for part in full]
    arrays = {
        "labels": np.concatenate([labels for labels, _ in small]),
        "positions": np.concatenate([positions for _, positions in small]),
        "subjects": np.repeat([subjects.index(part.subject) for part in full], counts),
        "recordings": np.repeat(np.arange(len(full)), counts),
    }
    shape = (sum(counts), len(d.recipe.channels), d.recipe.samples)
    with writing.new_folder(job.final) as folder:
        writing.write_folder(folder, manifest, (job.arrays(part, "windows")[0] for part in full), shape, arrays, {})


@contextmanager
def _working_folder(final: Path) -> Iterator[Path]:
    """STORE/.work-<name>, held by one process at a time; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not a Unix: parts are atomic, so two at once waste work but break nothing
        fcntl = None  # type: ignore[assignment]
    work = final.with_name(f".work-{final.name}")
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise SSCFError(f"{final}: another process is preparing it") from error
        for leftover in work.glob("*.tmp"):
            leftover.unlink(missing_ok=True)
        yield work
