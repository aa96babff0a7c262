"""Batches from prepared domains: balanced for training, every window once for evaluation.

Windows are gathered from the store's memory map batch by batch; the data set is never copied. Which windows a batch
holds is a function of (seed, step) alone, so a stream is reproducible on any device and its state is one number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from sscf.errors import ConfigError, InputError
from sscf.rules.base import Batch


class View(Protocol):
    """What the loader needs of a task view: rows of a domain, their classes, the runs that are not broken by a gap."""

    @property
    def domain(self) -> Any: ...
    @property
    def index(self) -> np.ndarray: ...
    @property
    def y(self) -> np.ndarray: ...
    def runs(self) -> list[tuple[int, int]]: ...


class Normaliser(Protocol):
    """Makes float32 windows (n, C, T) from stored ones; `recordings` (n,) says where each came from."""

    def apply(self, windows: np.ndarray, recordings: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Sequences:
    """A view cut into sequences of consecutive windows.

    index : (M, length) int64 positions in the view, each row from one unbroken run of one recording
    repeated : (M,) int64, how many leading windows of a row the row before it holds already
    short : runs with fewer windows than `length`, as arrays of positions in the view
    """

    index: np.ndarray
    repeated: np.ndarray
    short: tuple[np.ndarray, ...]

    @property
    def dropped(self) -> int:
        """Windows in runs too short for a sequence: never trained on, but evaluated as shorter sequences."""
        return sum(map(len, self.short))


def sequence_index(view: View, length: int) -> Sequences:
    """Cut a view into sequences of `length` consecutive windows that never bridge a gap or a recording.

    A run of m >= length windows is cut from its start; when length does not divide m, a last sequence covers the run's
    end and repeats some windows of the one before. Shorter runs are kept apart (`short`).
    """
    rows, repeated, short = [np.empty((0, length), np.int64)], [np.empty(0, np.int64)], []
    for first, last in view.runs():
        run = np.arange(first, last)
        if len(run) < length:
            short.append(run)
            continue
        overlap = -len(run) % length
        starts = np.arange(0, len(run) - length + 1, length)
        if overlap:
            starts = np.append(starts, len(run) - length)
        rows.append(run[starts[:, None] + np.arange(length)])
        repeated.append(np.append(np.zeros(len(starts) - 1, np.int64), overlap))
    return Sequences(np.concatenate(rows), np.concatenate(repeated), tuple(short))


def _gather(view: View, normaliser: Normaliser, positions: np.ndarray, out: np.ndarray) -> None:
    """Write the normalised windows at `positions` (n,) of a view to `out` (n, C, T)."""
    rows = view.index[positions]
    order = np.argsort(rows)  # the disk is read front to back
    rows = rows[order]
    out[order] = normaliser.apply(view.domain.read(rows), view.domain.recordings[rows])


class DomainLoader:
    """An endless stream of batches with the same number of windows (or sequences) of every source domain.

    Each domain is shuffled anew whenever it has been gone through; a small domain is seen more often than a large one.

    Parameters
    ----------
    views : one task view per source domain
    normaliser : for all domains, or one per domain
    batch_size : rows per batch; what does not divide by the number of domains is left away
    seed : the stream is a function of it and of the step
    sequence : windows per row, for models of window sequences: x is then (N, S, C, T) and y (N, S)
    device : where the batches are put

    Iterating never ends; `epoch()` gives the `len(loader)` batches that hold as many rows as the domains do together.
    """

    def __init__(
        self,
        views: Sequence[View],
        normaliser: Normaliser | Sequence[Normaliser],
        batch_size: int,
        seed: int,
        sequence: int = 1,
        device: str | torch.device = "cpu",
    ) -> None:
        if batch_size < len(views):
            raise ConfigError(f"batch_size {batch_size} is smaller than the number of source domains, {len(views)}")
        self.views = list(views)
        self.normalisers = list(normaliser) if isinstance(normaliser, Sequence) else [normaliser] * len(views)
        self.per_domain = batch_size // len(views)
        self.seed, self.sequence, self.device = seed, sequence, torch.device(device)
        self.units = [self._units(view) for view in self.views]
        self.step = 0
        self._shuffled: dict[int, tuple[int, np.ndarray]] = {}
        rows = self.per_domain * len(self.views)
        self._domain = torch.arange(len(self.views)).repeat_interleave(self.per_domain).to(self.device)
        self._shape = (rows * sequence, *self.views[0].domain.windows.shape[1:])

    def _units(self, view: View) -> np.ndarray:
        """(M, S) positions in a view, one row per window or sequence."""
        if self.sequence == 1:
            units = np.arange(len(view.index))[:, None]
        else:
            units = sequence_index(view, self.sequence).index
        if not len(units):
            what = "no windows" if self.sequence == 1 else f"no run of {self.sequence} consecutive windows"
            raise InputError(f"source domain '{view.domain.name}' has {what} to train on")
        return units

    def __len__(self) -> int:
        """Batches per epoch: the rows of all domains over the rows of a batch, rounded down, at least one."""
        return max(sum(map(len, self.units)) // len(self._domain), 1)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.batch(self.step)
        self.step += 1
        return batch

    def epoch(self) -> Iterator[Batch]:
        """The next `len(self)` batches."""
        for _ in range(len(self)):
            yield next(self)

    def batch(self, step: int) -> Batch:
        """The batch of any step; the stream's place is not moved."""
        x = np.empty(self._shape, np.float32)
        y = np.empty(len(x), np.int64)
        size = self.per_domain * self.sequence
        for d, (view, normaliser) in enumerate(zip(self.views, self.normalisers, strict=True)):
            positions = self._draw(d, step).ravel()
            here = slice(d * size, (d + 1) * size)
            _gather(view, normaliser, positions, x[here])
            y[here] = view.y[positions]
        windows, labels = torch.from_numpy(x), torch.from_numpy(y)
        if self.sequence > 1:
            windows, labels = windows.unflatten(0, (-1, self.sequence)), labels.unflatten(0, (-1, self.sequence))
        counts = (self.per_domain,) * len(self.views)
        return Batch(windows.to(self.device), labels.to(self.device), self._domain, len(self.views), counts)

    def _draw(self, d: int, step: int) -> np.ndarray:
        """(n, S) positions of domain d in a batch: a stretch of its endless row of shuffles."""
        units = self.units[d]
        start, stop = step * self.per_domain, (step + 1) * self.per_domain
        parts = []
        while start < stop:
            turn, offset = divmod(start, len(units))
            part = self._shuffle(d, turn)[offset : offset + stop - start]
            parts.append(part)
            start += len(part)
        return units[np.concatenate(parts)]

    def _shuffle(self, d: int, turn: int) -> np.ndarray:
        if self._shuffled.get(d, (-1,))[0] != turn:
            self._shuffled[d] = turn, np.random.default_rng([self.seed, d, turn]).permutation(len(self.units[d]))
        return self._shuffled[d][1]

    def state(self) -> dict[str, Any]:
        """Where the stream stands, as small JSON."""
        return {"step": self.step, **self._identity()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state()` was taken; the loader must have been made with the same data and settings."""
        for key, value in self._identity().items():
            if state.get(key) != value:
                raise InputError(f"this stream cannot be resumed: its {key} was {state.get(key)}, now it is {value}")
        self.step = state["step"]

    def _identity(self) -> dict[str, Any]:
        sizes = [len(units) for units in self.units]
        return {"seed": self.seed, "per_domain": self.per_domain, "sequence": self.sequence, "sizes": sizes}


def evaluation_batches(
    view: View, normaliser: Normaliser, batch_size: int, sequence: int = 1, device: str | torch.device = "cpu"
) -> Iterator[tuple[torch.Tensor, np.ndarray]]:
    """All windows of a view, each to be predicted exactly once.

    Yields (x, positions): x (B, C, T) and positions (B,), or for sequences (B, S, C, T) and (B, S). `positions` are
    those in the view, -1 for a window that is there for context only because an earlier sequence holds it. Runs shorter
    than `sequence` come last, as shorter sequences. To scatter: `new = positions >= 0; out[positions[new]] = p[new]`.
    """
    for units, wanted in _evaluation_units(view, sequence):
        for start in range(0, len(units), batch_size):
            part = units[start : start + batch_size]
            x = np.empty((part.size, *view.domain.windows.shape[1:]), np.float32)
            _gather(view, normaliser, part.ravel(), x)
            windows = torch.from_numpy(x).to(device)
            if sequence == 1:
                yield windows, part.ravel()
            else:
                keep = wanted[start : start + batch_size]
                yield windows.unflatten(0, part.shape), np.where(keep, part, -1)


def _evaluation_units(view: View, sequence: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(M, S) positions and which of them count, first for whole sequences, then for each length of short runs."""
    if sequence == 1:
        units = np.arange(len(view.index))[:, None]
        yield units, np.ones_like(units, bool)
        return
    cut = sequence_index(view, sequence)
    yield cut.index, np.arange(sequence) >= cut.repeated[:, None]
    for length in sorted({len(run) for run in cut.short}, reverse=True):
        units = np.stack([run for run in cut.short if len(run) == length])
        yield units, np.ones_like(units, bool)
