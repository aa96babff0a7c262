"""Signals of a recording -> windows: resample, band-pass, cut. Float32, one channel after the other, to spare memory.

Resampling comes first, with a filter that lets nothing alias; the band-pass follows at the store's rate, where it is
cheap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from sscf.data.datasets.base import Recipe
from sscf.data.readers import unit_factor
from sscf.data.recording import Drop, Recording, Windows
from sscf.errors import ConfigError, DataError

Band = tuple[float | None, float | None]

# Everything from the lower of the two Nyquist frequencies on is down by this much; up to 0.8 of it nothing is lost.
_REJECTION_DB = 92.0
_PASS = 0.8
_GROUP = 32  # output phases computed by one matrix product
_ROWS = 2048  # rows of such a product at a time: some megabytes


def resample(signal: NDArray[np.floating], fs: float, to: float) -> NDArray[np.float32]:
    """A signal (T,) of rate `fs` at rate `to`, both in Hz: floor(T * to / fs) samples, the first at the same moment.

    A polyphase windowed sinc (Kaiser): at least 80 dB against aliases and images, flat up to 0.4 of the lower rate. Any
    ratio goes, 257 -> 100 and 19.86 -> 50 too. Ends are continued by odd reflection, so an offset leaves no transient.
    """
    if not (fs > 0 and to > 0):
        raise ConfigError(f"rates must be positive, got {fs:g} and {to:g} Hz")
    x = np.asarray(signal, np.float32)
    ratio = (_fraction(to) / _fraction(fs)).limit_denominator(20_000)
    if ratio == 1 or not x.size:
        return x
    up, down = ratio.numerator, ratio.denominator
    if up < _GROUP:  # several periods at once make the matrix products worth it
        up, down = up * -(-_GROUP // up), down * -(-_GROUP // up)
    reach, groups = _phases(up, down)
    n_out = x.size * up // down
    periods = -(-n_out // up)
    padded = _odd_reflection(x, reach, max(0, periods * down + reach - x.size) + down)
    out = np.empty((periods, up), np.float32)
    for first, start, matrix in groups:
        width, phases = matrix.shape
        looked_at = as_strided(
            padded[start:], (periods, width), (down * padded.itemsize, padded.itemsize), writeable=False
        )
        for row in range(0, periods, _ROWS):
            out[row : row + _ROWS, first : first + phases] = looked_at[row : row + _ROWS] @ matrix
    return out.reshape(-1)[:n_out]


@lru_cache(maxsize=16)
def _phases(up: int, down: int) -> tuple[int, list[tuple[int, int, NDArray[np.float32]]]]:
    """How far the filter reaches, in input samples, and for each group of output phases of a period of `up` outputs and
    `down` inputs: (first phase, first input looked at in the signal padded by `reach`, (inputs, phases) weights)."""
    step = down / up  # input samples per output sample
    scale = min(1.0, 1 / step)  # lower of the two rates, in units of the input rate
    beta = 0.1102 * (_REJECTION_DB - 8.7)
    half = (_REJECTION_DB - 7.95) / (2.285 * np.pi * (1 - _PASS) * scale) / 2
    reach = int(np.ceil(half)) + 1
    groups = []
    for first in range(0, up, _GROUP):
        phases = np.arange(first, min(first + _GROUP, up))
        start = int(np.floor(first * step)) - reach
        width = int(np.floor(phases[-1] * step)) + reach - start + 1
        distance = (phases * step)[:, None] - (start + np.arange(width))
        kernel = _sinc_kaiser(distance, half, beta, 0.5 * (1 + _PASS) * scale)
        kernel /= kernel.sum(axis=1, keepdims=True)  # a constant stays what it is, in every phase
        groups.append((first, start + reach, np.ascontiguousarray(kernel.T, np.float32)))
    return reach, groups


def _fraction(rate: float) -> Fraction:
    return Fraction(rate).limit_denominator(1_000_000)


def _sinc_kaiser(t: NDArray[Any], half: float, beta: float, width: float) -> NDArray[Any]:
    """Low-pass kernel at distances t: sinc of bandwidth `width` (1: the input's Nyquist) under a Kaiser window."""
    inside = np.sqrt(np.maximum(0.0, 1 - (t / half) ** 2))
    return np.where(np.abs(t) < half, np.sinc(width * t) * np.i0(beta * inside), 0.0)


def _odd_reflection(x: NDArray[np.float32], left: int, right: int) -> NDArray[np.float32]:
    if x.size < 2:
        return np.pad(x, (left, right), mode="edge")
    # One reflection is real extrapolation; beyond it (a signal shorter than the filter) the end value is held.
    a, b = min(left, x.size - 1), min(right, x.size - 1)
    inner = np.concatenate([2 * x[0] - x[a:0:-1], x, 2 * x[-1] - x[-2 : -2 - b : -1]])
    return np.pad(inner, (left - a, right - b), mode="edge") if left > a or right > b else inner


def bandpass(signal: NDArray[np.floating], fs: float, band: Band) -> NDArray[np.float32]:
    """Zero-phase Butterworth band-pass of a signal (T,): 4th order forwards and backwards; None leaves a side open."""
    from scipy.signal import sosfiltfilt

    low, high = band
    if low is None and high is None:
        return np.asarray(signal, np.float32)
    sos = _butterworth(low, high, fs)
    # The low edge sets how long the filter remembers: about three of its periods.
    padding = min(len(signal) - 1, int(3 * fs / (low or 1.0)))
    return sosfiltfilt(sos, np.asarray(signal, np.float64), padlen=max(padding, 0)).astype(np.float32)


@lru_cache
def _butterworth(low: float | None, high: float | None, fs: float) -> NDArray[np.float64]:
    from scipy.signal import butter

    for edge in (low, high):
        if edge is not None and not 0 < edge < fs / 2:
            raise ConfigError(f"band edge {edge:g} Hz must lie between 0 and half the rate, {fs / 2:g} Hz")
    if low is not None and high is not None:
        if low >= high:
            raise ConfigError(f"band {low:g} to {high:g} Hz is empty")
        return butter(4, (low, high), "bandpass", fs=fs, output="sos")
    return butter(4, high if low is None else low, "lowpass" if low is None else "highpass", fs=fs, output="sos")


def by_time(
    times: NDArray[np.floating], signals: NDArray[np.floating], fs: float, *, max_gap: float
) -> list[tuple[float, NDArray[np.float32], float]]:
    """Samples at uneven times on a regular grid: [(start second, (C, n) signals, rate)] of each piece between gaps.

    times   : (T,) seconds, strictly increasing, else DataError.
    signals : (C, T).
    fs      : Hz wanted. A piece that was sampled faster gets a multiple of it, to be filtered and resampled from there.
    max_gap : seconds; a longer step ends a piece. Nothing is ever invented to fill it.

    A cubic spline passes through the samples at their own times; a piece of fewer than four samples is left out.
    """
    from scipy.interpolate import make_interp_spline

    steps = np.diff(times)
    if not np.isfinite(times).all() or (steps <= 0).any():
        row = int(np.argmax(~(steps > 0))) + 1
        raise DataError(f"time does not go forward at row {row} ({times[row]:g} s after {times[row - 1]:g} s)")
    edges = [0, *(np.flatnonzero(steps > max_gap) + 1).tolist(), len(times)]
    pieces = []
    for a, b in pairwise(edges):
        if b - a < 4:
            continue
        t = np.asarray(times[a:b], np.float64)
        own = (b - a - 1) / (t[-1] - t[0])
        # A clock that runs five per cent fast does not ask for twice the rate.
        rate = fs * max(1.0, float(np.ceil(own / fs - 0.05)))
        start = np.ceil(t[0] * fs - 1e-6) / fs  # on the grid of the wanted rate: positions in the recording are exact
        grid = start + np.arange(int((t[-1] - start) * rate + 1e-6) + 1) / rate
        values = make_interp_spline(t, np.asarray(signals[:, a:b], np.float64), k=3, axis=1)(grid)
        pieces.append((float(start), values.astype(np.float32), rate))
    return pieces


# --- cutting -------------------------------------------------------------------------------------------------------


class Cut:
    """Windows of one recording.

    windows   : (n, C, T) float32.    positions : (n,) int64.    labels : n own labels.
    dropped   : reason -> number of windows without a label.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._windows: list[NDArray[np.float32]] = []
        self._positions: list[int] = []
        self.labels: list[str] = []
        self.dropped: Counter[str] = Counter()
        self._shape = (len(recipe.channels), recipe.samples)

    def add(self, windows: NDArray[np.floating], labels: Sequence[str | Drop], positions: Sequence[int]) -> None:
        kept = [i for i, label in enumerate(labels) if not isinstance(label, Drop)]
        self.dropped.update(str(label) for label in labels if isinstance(label, Drop))
        if kept:
            self._windows.append(np.asarray(windows[kept], np.float32))
            self._positions += [int(positions[i]) for i in kept]
            self.labels += [str(labels[i]) for i in kept]

    @property
    def windows(self) -> NDArray[np.float32]:
        return np.concatenate(self._windows) if self._windows else np.empty((0, *self._shape), np.float32)

    @property
    def positions(self) -> NDArray[np.int64]:
        return np.array(self._positions, np.int64)


def cut(read: Recording | Windows | Sequence[Recording], recipe: Recipe) -> Cut:
    """Bring a recording (or its pieces) to the recipe's unit, rate and band and cut it; check windows cut by others."""
    out = Cut(recipe)
    if isinstance(read, Windows):
        n = len(read.windows)
        if read.windows.shape[1:] != (len(recipe.channels), recipe.samples) or len(read.labels) != n:
            raise DataError(
                f"windows {read.windows.shape} and {len(read.labels)} labels, expected (n, {len(recipe.channels)}, "
                f"{recipe.samples}) and n"
            )
        if not np.isfinite(read.windows).all():
            raise DataError(f"window {np.argwhere(~np.isfinite(read.windows))[0][0]} has values that are not numbers")
        positions = np.arange(n) * recipe.samples if read.positions is None else read.positions
        out.add(read.windows, read.labels, [int(p) for p in positions])
        return out
    for piece in [read] if isinstance(read, Recording) else read:
        _cut_piece(piece, recipe, out)
    return out


def _cut_piece(piece: Recording, recipe: Recipe, out: Cut) -> None:
    if tuple(piece.channels) != recipe.names or len(piece.signals) != len(recipe.names):
        raise DataError(f"channels {', '.join(piece.channels)}, the recipe says {', '.join(recipe.names)}")
    if round(piece.duration * recipe.fs) < recipe.samples:
        out.dropped["piece shorter than a window"] += 1
        return
    factor = np.float32(unit_factor(piece.unit, recipe.unit))
    channels = []
    for name, signal, fs in zip(piece.channels, piece.signals, piece.rates, strict=True):
        _check(signal, name, piece.start, fs)
        x = resample(signal, fs, recipe.fs)
        x = bandpass(x, recipe.fs, recipe.band) if recipe.band else x
        channels.append(x if factor == 1 else x * factor)
    length = min(map(len, channels))
    count = (length - recipe.samples) // recipe.hop + 1
    starts = [i * recipe.hop for i in range(count)]
    seconds = [piece.start + start / recipe.fs for start in starts]
    labels = [piece.track.at(s, s + recipe.window_s) for s in seconds]
    signals = np.stack([x[:length] for x in channels])
    windows = as_strided(
        signals,
        (count, len(channels), recipe.samples),
        (recipe.hop * signals.itemsize, *signals.strides),
        writeable=False,
    )
    first = round(piece.start * recipe.fs)
    out.add(windows, labels, [first + start for start in starts])


def _check(signal: NDArray[np.floating], name: str, start: float, fs: float) -> None:
    if not np.isfinite(np.sum(signal, dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(signal))
        if len(bad):
            at = f"sample {bad[0]} ({start + bad[0] / fs:g} s)"
            raise DataError(f"channel {name!r} has {len(bad)} values that are not numbers, the first at {at}")
    if not np.any(signal):
        raise DataError(f"channel {name!r} is all zero over {len(signal)} samples from {start:g} s")
