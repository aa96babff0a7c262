"""Which windows are comparable: K-Means over power spectra, in memory that does not grow with their number."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import numpy as np
import torch
from torch import Tensor

from sscf.errors import InputError

# Sums are taken over blocks of about this many numbers whatever the size of the batches that came in: the result cannot
# depend on how a stream was cut, and memory stays small.
BLOCK_NUMBERS = 1 << 21
# K-Means starts from a sample of this many rows; the passes over all rows then only refine.
SAMPLE_ROWS = 16384
MAX_PASSES = 100
TOLERANCE = 1e-4  # of the mean variance, as in scikit-learn


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
            blocks = _spill(power(), bins)
        else:
            array = _array(power, bins, 0)
            blocks = Blocks(len(array), array.shape[1:], array.dtype, _reader(array))
            for start, block in blocks:
                _check_values(block, start)
        if len(blocks) == 0:
            raise InputError("no power spectra given: there are no samples to fit anchors on")
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
        block = np.array(array[start:stop])
        if isinstance(array, np.memmap) and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]  # pages read need not stay resident
        return block

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
    vector = _vectors(root)
    _check_distinct(blocks, k, vector)
    if k == 1:
        return np.zeros(len(blocks), np.int64)
    centers = _initial_centers(blocks, k, vector, seed)
    labels, counts = _lloyd(blocks, centers, vector)
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


def _vectors(root: bool) -> Callable[[np.ndarray], np.ndarray]:
    def vector(block: np.ndarray) -> np.ndarray:
        flat = block.reshape(len(block), -1)
        return np.sqrt(flat) if root else flat

    return vector


def _check_distinct(blocks: Blocks, k: int, vector: Callable[[np.ndarray], np.ndarray]) -> None:
    seen: set[bytes] = set()
    for _, block in blocks:
        for row in vector(block) + 0.0:  # -0.0 and 0.0 are one value
            seen.add(row.tobytes())
            if len(seen) >= k:
                return
    raise InputError(f"k = {k} strata asked for, but there are only {len(seen)} distinct samples among {len(blocks)}")


def _initial_centers(blocks: Blocks, k: int, vector: Callable, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    rows = np.arange(len(blocks))
    if len(rows) > SAMPLE_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(len(rows), SAMPLE_ROWS, replace=False))
    sample = np.unique(vector(blocks.take(rows)), axis=0) if len(rows) < 2 * k else vector(blocks.take(rows))
    if len(sample) < k:
        # Hardly any distinct rows in the sample: start from the first k distinct rows of all.
        return _first_distinct(blocks, k, vector)
    with threadpool_limits(1):  # scikit-learn adds up threads in the order they finish
        fitted = KMeans(k, n_init=4, random_state=seed, copy_x=False).fit(np.ascontiguousarray(sample))
    return fitted.cluster_centers_


def _first_distinct(blocks: Blocks, k: int, vector: Callable) -> np.ndarray:
    found: dict[bytes, np.ndarray] = {}
    for _, block in blocks:
        for row in vector(block):
            found.setdefault((row + 0.0).tobytes(), row)
            if len(found) == k:
                break
    return np.stack(list(found.values())[:k])


def _lloyd(blocks: Blocks, centers: np.ndarray, vector: Callable) -> tuple[np.ndarray, np.ndarray]:
    """Full passes until the centres rest. Returns labels (N,) with no stratum empty, and their counts (K,)."""
    k = len(centers)
    labels = np.zeros(len(blocks), np.int64)
    spread = None
    for _ in range(MAX_PASSES):
        total, squares, counts = np.zeros(centers.shape), 0.0, np.zeros(k, np.int64)
        far_distance, far_row = np.full(k, -1.0), np.zeros(k, np.int64)
        changed = False
        for start, block in blocks:
            x = vector(block)
            nearest, distance = _nearest(x, centers)
            place = slice(start, start + len(x))
            changed |= not np.array_equal(labels[place], nearest)
            labels[place] = nearest
            counts += np.bincount(nearest, minlength=k)
            _add_by_label(total, x, nearest)
            if spread is None:
                squares += float(np.einsum("ij,ij->", x, x, dtype=np.float64))
            # The farthest rows stand by as new centres for strata that lose all of theirs.
            for row in np.argsort(-distance, kind="stable")[:k]:
                slot = int(far_distance.argmin())
                if distance[row] > far_distance[slot]:
                    far_distance[slot], far_row[slot] = distance[row], start + row
        if spread is None:
            mean = total.sum(axis=0) / len(blocks)
            spread = max(squares / len(blocks) - float(mean @ mean), 0.0) / centers.shape[1]
        updated = total / np.maximum(counts, 1)[:, None]
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            by_distance = far_row[np.argsort(-far_distance, kind="stable")][: len(empty)]
            rows, slots = np.sort(by_distance), empty
            updated[slots] = vector(blocks.take(rows))
        moved = float(((updated - centers) ** 2).sum())
        centers = updated.astype(centers.dtype)
        if not len(empty) and (not changed or moved <= TOLERANCE * spread):
            break
    # Labels belong to the centres before the last update. A stratum still empty takes the row farthest away.
    for stratum in np.flatnonzero(counts == 0):
        donors = np.flatnonzero(counts[labels[far_row]] > 1)
        row = far_row[donors[np.argmax(far_distance[donors])]]
        counts[labels[row]] -= 1
        labels[row] = stratum
        counts[stratum] = 1
        far_distance[far_row == row] = -1
    return labels, counts


def _nearest(x: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest centre of every row and the squared distance to it."""
    rows, marks = torch.from_numpy(x), torch.from_numpy(centers.astype(x.dtype))
    score = torch.addmm(marks.square().sum(dim=1), rows, marks.T, alpha=-2)
    best, index = score.min(dim=1)
    return index.numpy(), (best + rows.square().sum(dim=1)).clamp(min=0).double().numpy()


def _add_by_label(total: np.ndarray, x: np.ndarray, labels: np.ndarray) -> None:
    """total[labels[i]] += x[i], as one matrix product with the indicator of the labels."""
    indicator = torch.zeros(len(total), len(x), dtype=torch.float64 if x.dtype == np.float64 else torch.float32)
    indicator[torch.from_numpy(labels), torch.arange(len(x))] = 1
    total += (indicator @ torch.from_numpy(x)).numpy()
