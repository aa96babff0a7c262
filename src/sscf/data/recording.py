"""One recording: its channels, rate, unit and label track. What a data set's `read` returns and the engine cuts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sscf.errors import DataError


class Drop(str):
    """The reason why a window has no label; returned in place of a label and counted in the manifest."""

    __slots__ = ()


@runtime_checkable
class Track(Protocol):
    """The labels of a recording over time."""

    def at(self, start: float, stop: float) -> str | Drop:
        """The label of the window [start, stop), in seconds from the recording's start, or the reason it has none."""
        ...


@dataclass(frozen=True)
class Whole:
    """One label for the whole recording."""

    label: str | Drop

    def at(self, start: float, stop: float) -> str | Drop:
        return self.label


@dataclass(frozen=True)
class PerWindow:
    """Label i holds for [offset_s + i * hop_s, offset_s + (i + 1) * hop_s); a window must lie in equal labels."""

    labels: Sequence[str | Drop]
    hop_s: float
    offset_s: float = 0.0

    def at(self, start: float, stop: float) -> str | Drop:
        first = int(np.floor((start - self.offset_s) / self.hop_s + 1e-6))
        last = int(np.ceil((stop - self.offset_s) / self.hop_s - 1e-6))
        if first < 0 or last > len(self.labels):
            return Drop("outside the labels")
        inside = self.labels[first:last]
        drops = [label for label in inside if isinstance(label, Drop)]
        if drops:
            return drops[0]
        return inside[0] if all(label == inside[0] for label in inside) else Drop("label changes inside")


class Intervals:
    """Labelled intervals in seconds from the recording's start; a window must lie inside intervals of one label.

    Neighbouring intervals of equal label count as one. Overlapping intervals of different labels are an error.

    >>> track = Intervals([0, 30], [30, 60], ["W", "N1"])
    >>> track.at(0, 30), track.at(15, 45), track.at(60, 90)
    ('W', 'label changes inside', 'unscored')
    """

    # Time stamps are decimal text and rates are not whole numbers: a millisecond is the same moment.
    TOLERANCE_S = 1e-3

    def __init__(
        self,
        starts: Sequence[float],
        stops: Sequence[float],
        labels: Sequence[str | Drop],
        unscored: str = "unscored",
    ) -> None:
        if not len(starts) == len(stops) == len(labels):
            raise DataError(f"{len(starts)} starts, {len(stops)} stops and {len(labels)} labels of intervals")
        self.unscored = Drop(unscored)
        self._starts: list[float] = []
        self._stops: list[float] = []
        self._labels: list[str | Drop] = []
        for i in sorted(range(len(starts)), key=lambda i: (starts[i], stops[i])):
            self._append(float(starts[i]), float(stops[i]), labels[i])

    def _append(self, start: float, stop: float, label: str | Drop) -> None:
        if not stop > start:
            raise DataError(f"label {label!r} at {start:g} s ends at {stop:g} s, not after its start")
        if self._stops and start <= self._stops[-1] + self.TOLERANCE_S:
            if self._labels[-1] == label:
                self._stops[-1] = max(self._stops[-1], stop)
                return
            if start < self._stops[-1] - self.TOLERANCE_S:
                raise DataError(
                    f"labels overlap: {self._labels[-1]!r} until {self._stops[-1]:g} s and {label!r} from {start:g} s"
                )
        self._starts.append(start)
        self._stops.append(stop)
        self._labels.append(label)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def stop(self) -> float:
        """Where the last interval ends, in seconds."""
        return self._stops[-1] if self._stops else 0.0

    def at(self, start: float, stop: float) -> str | Drop:
        i = bisect_right(self._starts, start + self.TOLERANCE_S) - 1
        if i >= 0 and stop <= self._stops[i] + self.TOLERANCE_S:
            return self._labels[i]
        if i >= 0 and start < self._stops[i] - self.TOLERANCE_S:
            following = i + 1 < len(self) and self._starts[i + 1] <= self._stops[i] + self.TOLERANCE_S
            return Drop("label changes inside") if following else self.unscored
        return self.unscored


@dataclass(frozen=True)
class Channel:
    """A wanted channel: its name in the store and the ways it is spelt in files, best first.

    An alias is a label of the file (case and blanks do not matter) or a derivation "C4 - A1" of two of them.
    Without aliases the name itself is looked for.
    """

    name: str
    aliases: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        return self.aliases or (self.name,)


@dataclass(frozen=True)
class Recording:
    """A continuous piece of signal.

    signals : C arrays of one dimension, or one (C, T) array; in `unit`.
    fs      : Hz, one for all channels or one per channel.
    track   : labels, in seconds from the start of the *recording* (not of this piece).
    start   : where this piece begins, in seconds from the start of the recording. A recording with gaps is a list of
              pieces; windows are cut within a piece and never bridge a gap.
    """

    signals: Sequence[NDArray[np.floating]] | NDArray[np.floating]
    fs: float | Sequence[float]
    channels: tuple[str, ...]
    unit: str
    track: Track
    start: float = 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Sample rate of each channel, Hz."""
        if isinstance(self.fs, Sequence):
            return tuple(float(rate) for rate in self.fs)
        return (float(self.fs),) * len(self.signals)

    @property
    def duration(self) -> float:
        """Seconds for which every channel has samples."""
        return min(len(signal) / rate for signal, rate in zip(self.signals, self.rates, strict=True))


@dataclass(frozen=True)
class Windows:
    """Windows that a data set hands out already cut; they come through unchanged.

    windows   : (n, C, T) in the recipe's unit and at its rate.
    labels    : n own labels, or the reason a window has none.
    positions : (n,) first sample of each window in its recording; one after the other when not known.
    """

    windows: NDArray[np.floating]
    labels: Sequence[str | Drop]
    positions: NDArray[np.integer] | None = None


@dataclass(frozen=True)
class Source:
    """A raw recording not yet read: its id (unique in the data set), its subject, its files relative to the root."""

    id: str
    subject: str
    files: tuple[str, ...]
