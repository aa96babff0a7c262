"""What all readers share: the signals they return, channel choice, units, sanity."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sscf.data.recording import Channel, Recording, Track
from sscf.errors import DataError

_VOLT = {"v": 1.0, "mv": 1e-3, "uv": 1e-6, "µv": 1e-6, "μv": 1e-6, "nv": 1e-9}
_ACCELERATION = {"g": 9.80665, "mg": 9.80665e-3, "m/s^2": 1.0, "m/s2": 1.0, "m/s²": 1.0}
_FAMILIES = (_VOLT, _ACCELERATION)


@dataclass(frozen=True)
class Annotation:
    """A mark in a recording: onset and duration in seconds from its start (duration None: a moment)."""

    onset: float
    duration: float | None
    text: str


@dataclass(frozen=True)
class Signals:
    """Channels of one file.

    signals  : C float32 arrays in `unit`, pieces joined.
    rates    : Hz of each channel.
    channels : names of the store.
    labels   : every signal label of the file.
    pieces   : (start second, first second in `signals`, seconds) of each continuous piece; one unless there are gaps.
    header   : other text a data set may need: "comments" of a WFDB header.
    """

    signals: list[NDArray[np.float32]]
    rates: tuple[float, ...]
    channels: tuple[str, ...]
    unit: str
    labels: tuple[str, ...]
    pieces: tuple[tuple[float, float, float], ...]
    header: dict[str, Any]

    @property
    def duration(self) -> float:
        """Seconds of signal every channel has, gaps left out."""
        return min(len(signal) / rate for signal, rate in zip(self.signals, self.rates, strict=True))

    def recordings(self, track: Track) -> list[Recording]:
        """The continuous pieces with their labels, ready to be cut."""
        out = []
        for start, first, seconds in self.pieces:
            cut = [
                signal[round(first * rate) : round((first + seconds) * rate)]
                for signal, rate in zip(self.signals, self.rates, strict=True)
            ]
            out.append(Recording(cut, self.rates, self.channels, self.unit, track, start))
        return out


def plain(label: str) -> str:
    """A label without case and blanks."""
    return "".join(label.split()).casefold()


def choose_channels(
    available: Sequence[str], channels: Sequence[Channel], path: str | Path
) -> list[tuple[int, int | None]]:
    """For each wanted channel the index of its signal and, for a derivation, of the signal to subtract.

    Spellings are tried in order; case and blanks do not matter; a spelling that is itself a label of the file
    ("C4-A1") comes before the same spelling read as a derivation (C4 minus A1).
    """
    where = {plain(label): i for i, label in reversed(list(enumerate(available)))}
    chosen: list[tuple[int, int | None]] = []
    for channel in channels:
        for spelling in channel.spellings:
            if (direct := where.get(plain(spelling))) is not None:
                chosen.append((direct, None))
                break
            plus, minus, reference = plain(spelling).partition("-")
            if minus and plus in where and reference in where:
                chosen.append((where[plus], where[reference]))
                break
        else:
            raise DataError(
                f"{path}: no channel {channel.name!r} (looked for {', '.join(map(repr, channel.spellings))}); "
                f"the file has {', '.join(map(repr, available)) or 'no signals'}. If one of these is it, say so: "
                f"in the recipe's channels, or with --channel {channel.name}=LABEL for a model"
            )
    return chosen


def unit_factor(have: str, want: str, path: str | Path = "signal") -> float:
    """What to multiply by to come from one unit to another ("uV" -> "mV": 0.001). Unknown or unlike: DataError."""
    if not want or plain(have) == plain(want):
        return 1.0
    for family in _FAMILIES:
        if plain(have) in family and plain(want) in family:
            return family[plain(have)] / family[plain(want)]
    raise DataError(f"{path}: unit {have!r} cannot be turned into {want!r}")


def check_signal(signal: NDArray[Any], name: str, path: str | Path, fs: float | None = None) -> None:
    """A signal with NaN or infinity, without samples or without any variation cannot be used."""
    if signal.size == 0:
        raise DataError(f"{path}: channel {name!r} has no samples")
    # The sum is finite unless a sample is not (or it overflows): one pass without a mask in the good case.
    if not np.isfinite(np.sum(signal, dtype=np.float64)):
        bad = np.flatnonzero(~np.isfinite(signal))
        if len(bad):
            at = f"sample {bad[0]}" + (f" ({bad[0] / fs:g} s)" if fs else "")
            raise DataError(f"{path}: channel {name!r} has {len(bad)} values that are not numbers, the first at {at}")
    if signal.min() == signal.max():
        what = "all zero" if signal[0] == 0 else f"constant ({signal[0]:g})"
        raise DataError(f"{path}: channel {name!r} is {what} over its {signal.size} samples")


def inside(root: str | Path, relative: str | Path) -> Path:
    """root / relative, which must exist and must not lead out of root (not by "..", not by a link)."""
    base = os.path.realpath(root)
    path = os.path.realpath(os.path.join(base, relative))
    if os.path.commonpath([base, path]) != base:
        raise DataError(f"{relative}: leads out of the raw folder {root}")
    if not os.path.exists(path):
        raise DataError(f"{os.path.join(base, relative)}: no such file")
    return Path(path)
