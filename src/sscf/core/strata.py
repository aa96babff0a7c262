"""Which windows are comparable: K-Means over power spectra, in memory that does not grow with their number."""

from __future__ import annotations

import mmap
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
import torch
from torch import Tensor

from sscf.errors import InputError

# Sums are taken over blocks of about this many numbers whatever the size of the batches that came in: the result cannot
# depend on how a stream was cut, and memory stays small.
BLOCK_NUMBERS = 1 << 18
# K-Means starts from the best of a few runs on a sample of this many rows; passes over all rows then only refine.
SAMPLE_ROWS = 16384
SAMPLE_STARTS = 4
MAX_PASSES = 100
TOLERANCE = 1e-5  # a pass that lowers the inertia by less, relatively, was the last


class Blocks:
    """Power spectra (N, C, F), read block by block as float32 or float64 arrays, as often as needed."""

    def __init__(
        self,
        n: int,
        shape: tuple[int, int],
        dtype: np.dtype,
        read: Callable[[int, int], np.ndarray],
        file: IO[bytes] | None = None,
    ) -> None:
        self.n, self.shape, self.dtype, self._read, self._file = n, shape, dtype, read, file
        self.rows = max(1, BLOCK_NUMBERS // (shape[0] * shape[1]))

    def __len__(self) -> int:
        return self.n

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        """Pairs (index of the first row, block (n, C, F))."""
        for start in range(0, self.n, self.rows):
            yield start, self._read(start, min(start + self.rows, self.n))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Rows by ascending index, (len(rows), C, F)."""
        parts = []
        for start, block in self:
            low, high = np.searchsorted(rows, (start, start + len(block)))
            if low < high:
                parts.append(block[rows[low:high] - start])
        return np.concatenate(parts)

    @staticmethod
    def of(power: Tensor | np.ndarray | Callable[[], Iterable[Tensor | np.ndarray]], bins: int) -> Blocks:
        """Check the spectra and make them readable in blocks; a stream is spilled to a temporary file."""
        if callable(power):
            return _spill(power(), bins)
        array = _array(power, bins, 0)
        blocks = Blocks(len(array), array.shape[1:], array.dtype, _reader(array))
        for start, block in blocks:
            _check_values(block, start)
        return blocks


def _array(power: Tensor | np.ndarray, bins: int, start: int) -> np.ndarray:
    array = power.detach().cpu().numpy() if isinstance(power, Tensor) else power
    if not isinstance(array, np.ndarray):
        raise InputError(f"expected power as tensor, array or callable, got {type(power).__name__}")
    if array.ndim != 3 or array.shape[2] != bins or array.shape[1] == 0:
        raise InputError(f"expected power of shape (N, C, {bins}) for this frame, got {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        raise InputError(f"power must be float32 or float64, got {array.dtype} (sample {start})")
    return array


def _check_values(block: np.ndarray, start: int) -> None:
    bad = ~np.isfinite(block)
    if bad.any() or (block < 0).any():
        what = "is not finite" if bad.any() else "is negative"
        i, c, f = np.argwhere(bad if bad.any() else block < 0)[0]
        raise InputError(f"power {what} at sample {start + i}, channel {c}, bin {f}: {block[i, c, f]}")


def _reader(array: np.ndarray) -> Callable[[int, int], np.ndarray]:
    def read(start: int, stop: int) -> np.ndarray:
        if isinstance(array, np.memmap) and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]  # pages read need not stay resident
        return array[start:stop]

    return read


def _spill(batches: Iterable[Tensor | np.ndarray], bins: int) -> Blocks:
    file = tempfile.TemporaryFile(prefix="sscf-power-")  # noqa: SIM115 - closed by Blocks
    try:
        n, shape, dtype = 0, None, None
        for batch in batches:
            array = _array(batch, bins, n)
            if shape is None:
                shape, dtype = array.shape[1:], array.dtype
            if array.shape[1:] != shape or array.dtype != dtype:
                raise InputError(
                    f"batches differ: {shape} {dtype} first, {array.shape[1:]} {array.dtype} at sample {n}"
                )
            _check_values(array, n)
            file.write(np.ascontiguousarray(array).data)
            n += len(array)
        if shape is None or dtype is None:
            raise InputError("no power spectra given: the stream is empty")
        file.flush()
        size = int(np.prod(shape))

        def read(start: int, stop: int) -> np.ndarray:
            file.seek(start * size * dtype.itemsize)
            return np.fromfile(file, dtype, (stop - start) * size).reshape(-1, *shape)

        return Blocks(n, shape, dtype, read, file)
    except BaseException:
        file.close()
        raise


def cluster(blocks: Blocks, k: int, *, root: bool, seed: int) -> np.ndarray:
    """Strata (N,) int64 by K-Means on the spectra (root=False) or on their square roots; 0 is the largest stratum."""
    _check_distinct(blocks, k, root)
    if k == 1:
        return np.zeros(len(blocks), np.int64)
    space = _Space.of(blocks, root)
    labels, counts = _lloyd(blocks, _initial_centers(blocks, k, space, seed), space)
    order = np.argsort(-counts, kind="stable")
    return np.argsort(order, kind="stable")[labels]


def means(blocks: Blocks, labels: np.ndarray, mean: str, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Average spectrum (K, C, F) of every stratum, and the counts (K,).

    "mas": the mean amplitude, squared; "arithmetic": the mean power; "geometric": exp of the mean log power.
    """
    k = int(labels.max()) + 1
    counts = np.bincount(labels, minlength=k).astype(np.int64)
    total = np.zeros((k, *blocks.shape))
    for start, block in blocks:
        power = block.astype(np.float64)
        if mean == "mas":
            power = np.sqrt(power + eps)
        elif mean == "geometric":
            power = np.log(power + eps)
        _add_by_label(total.reshape(k, -1), power.reshape(len(power), -1), labels[start : start + len(power)])
    average = total / counts[:, None, None]
    if mean == "mas":
        average = average**2
    elif mean == "geometric":
        average = np.exp(average)
    return average.astype(blocks.dtype), counts


@dataclass(frozen=True)
class _Space:
    """The space K-Means works in: spectra or their roots as vectors, less their mean.

    Without an offset common to all, distances taken by |a|² − 2ab + |b|² do not cancel.
    """

    root: bool
    mean: np.ndarray  # (C * F,)
    spread: float  # sum over all rows of the squared distance to the mean

    @staticmethod
    def of(blocks: Blocks, root: bool) -> _Space:
        total = np.zeros(blocks.shape[0] * blocks.shape[1])
        for _, block in blocks:
            total += _vectors(block, root).sum(axis=0, dtype=np.float64)
        centered = _Space(root, (total / len(blocks)).astype(blocks.dtype), 0.0)
        return replace(centered, spread=sum(_energy(centered(block)) for _, block in blocks))

    def __call__(self, block: np.ndarray) -> np.ndarray:
        return _vectors(block, self.root) - self.mean


def _energy(x: np.ndarray) -> float:
    return float(np.square(x).sum(dtype=np.float64))


def _vectors(block: np.ndarray, root: bool) -> np.ndarray:
    flat = block.reshape(len(block), -1)
    return np.sqrt(flat) if root else flat


def _check_distinct(blocks: Blocks, k: int, root: bool) -> None:
    seen: set[bytes] = set()
    for _, block in blocks:
        for row in _vectors(block, root) + 0.0:  # -0.0 and 0.0 are one value
            seen.add(row.tobytes())
            if len(seen) >= k:
                return
    raise InputError(f"k = {k} strata asked for, but there are only {len(seen)} distinct samples among {len(blocks)}")


def _initial_centers(blocks: Blocks, k: int, space: _Space, seed: int) -> np.ndarray:
    """Centres (K, C * F) by K-Means on a sample of the rows."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    rows = np.arange(len(blocks))
    if len(rows) > (size := max(SAMPLE_ROWS, 2 * k)):
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), size, replace=False))
    # One thread: scikit-learn adds up the sums of its threads in the order in which they finish.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # duplicates in the sample are dealt with by `_lloyd`
        return KMeans(k, n_init=SAMPLE_STARTS, random_state=seed).fit(space(blocks.take(rows))).cluster_centers_


def _lloyd(blocks: Blocks, centers: np.ndarray, space: _Space) -> tuple[np.ndarray, np.ndarray]:
    """Full passes until they gain nothing. Returns labels (N,) with no stratum empty, and their counts (K,)."""
    k, labels, before = len(centers), np.zeros(len(blocks), np.int64), np.inf
    for _ in range(MAX_PASSES):
        total, counts, inertia = np.zeros(centers.shape), np.zeros(k, np.int64), space.spread
        for start, block in blocks:
            x = space(block)
            nearest, gain = _nearest(x, centers)
            labels[start : start + len(x)] = nearest
            counts += np.bincount(nearest, minlength=k)
            inertia += gain
            _add_by_label(total, x, nearest)
        empty = np.flatnonzero(counts == 0)
        if not len(empty) and before - inertia <= TOLERANCE * abs(inertia):
            return labels, counts
        centers, before = (total / np.maximum(counts, 1)[:, None]).astype(centers.dtype), inertia
        if len(empty):  # they start again from the rows that are served worst
            rows = np.sort(_farthest(blocks, centers, labels, space)[: len(empty)])
            centers[empty], before = space(blocks.take(rows)), np.inf
    for stratum in np.flatnonzero(counts == 0):  # rows too close to be told apart in this precision
        far = _farthest(blocks, centers, labels, space)
        row = far[counts[labels[far]] > 1][0]  # exists: k rows lie in fewer than k strata
        counts[labels[row]] -= 1
        labels[row], counts[stratum] = stratum, 1
    return labels, counts


def _nearest(x: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, float]:
    """Nearest centre of every row, ties to the lowest, and the sum of the squared distances less that of |x|²."""
    marks = torch.from_numpy(centers)
    score, index = torch.addmm(marks.square().sum(dim=1), torch.from_numpy(x), marks.T, alpha=-2).min(dim=1)
    return index.numpy(), float(score.sum(dtype=torch.float64))


def _farthest(blocks: Blocks, centers: np.ndarray, labels: np.ndarray, space: _Space) -> np.ndarray:
    """The k rows farthest from their centres, farthest first."""
    distance = np.concatenate(
        [np.square(space(block) - centers[labels[start : start + len(block)]]).sum(axis=1) for start, block in blocks]
    )
    return np.argsort(-distance, kind="stable")[: len(centers)]


def _add_by_label(total: np.ndarray, x: np.ndarray, labels: np.ndarray) -> None:
    """total[labels[i]] += x[i], as one matrix product with the indicator of the labels."""
    indicator = torch.zeros(len(total), len(x), dtype=torch.float64 if x.dtype == np.float64 else torch.float32)
    indicator[torch.from_numpy(labels), torch.arange(len(x))] = 1
    total += (indicator @ torch.from_numpy(x)).numpy()
