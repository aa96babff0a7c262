"""What held-out source subjects look like to a model: the yardstick for data it has never seen.

Three things are measured for every window: how far its feature map at the tap lies from the anchor it is matched with;
how far the spectrum of each channel lies from that channel's usual one, which finds a dead or noisy channel; and how
far the spectra of its channels, taken together, lie from what is usual (the structure: it tells a new kind of dynamics,
or a new device, also where the network has not learned to look). They become p-values against windows of source
subjects that were held out of training; those of map and structure within the window's stratum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sscf.core import Comparability, welch_power
from sscf.errors import InputError

LEVEL = 0.05  # a window with a smaller p-value lies outside
MOST_SUBJECTS = 200  # held-out subjects whose share of windows outside is kept
_FLOOR = 1e-8  # of a channel's mean power: what a flat channel is taken to have


@dataclass(frozen=True, eq=False)
class Spectra:
    """The usual log power spectra of the input channels, as the network gets them.

    frame     : int, samples of a Welch frame; bin j lies at j / frame cycles per sample.
    floor     : Tensor (C,) float64, added to the power before the logarithm.
    mean, std : Tensor (C, F) float64, over source training windows.
    precision : Tensor (C * F, C * F) float64, inverse covariance of (log power - mean) / std, shrunk (Ledoit and Wolf).
    """

    frame: int
    floor: Tensor
    mean: Tensor
    std: Tensor
    precision: Tensor

    @classmethod
    def fit(cls, batches: Iterator[Tensor], length: int) -> Spectra:
        """From batches (n, C, T) of normalised windows."""
        from sklearn.covariance import ledoit_wolf

        frame = frame_for(length)
        power = torch.cat([welch_power(x.double(), frame, frame // 2, center=True) for x in batches])
        floor = _FLOOR * power.mean(dim=(0, 2)) + torch.finfo(torch.float32).tiny
        log = (power + floor[:, None]).log()
        mean, std = (
            log.mean(dim=0),
            log.std(dim=0, correction=0).clamp(min=0.1),
        )  # a bin that hardly varies must not rule
        covariance, _ = ledoit_wolf(((log - mean) / std).flatten(1).numpy(), assume_centered=True)
        spread = torch.from_numpy(covariance + 1e-3 * np.eye(len(covariance)))
        return cls(frame, floor, mean, std, torch.linalg.inv(spread))

    def log_power(self, x: Tensor) -> Tensor:
        """(n, C, T) -> (n, C, F) float64, on the CPU."""
        power = welch_power(x.double().cpu(), self.frame, self.frame // 2, center=True)
        return (power + self.floor[:, None]).log()

    def distances(self, log_power: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Structure (n,) and channels (n, C): distances from the usual, about 1 for a usual window."""
        z = (log_power - self.mean) / self.std
        flat = z.flatten(1)
        structure = ((flat @ self.precision) * flat).mean(dim=1).clamp(min=0).sqrt()
        return structure.numpy(), z.square().mean(dim=-1).sqrt().numpy()


def frame_for(length: int) -> int:
    """Welch frame for windows of a length: a quarter of it or less, between 2 and 64 samples, a power of two."""
    return 1 << max(1, min(6, (max(2, length) // 4).bit_length() - 1))


@dataclass(frozen=True, eq=False)
class Measured:
    """Distances of n windows: of the map at the tap to its anchor (n,), of the structure (n,), of the channels (n, C).

    strata : (n,) int64. Without calibration `tap` is None and all windows are of stratum 0.
    """

    tap: np.ndarray | None
    structure: np.ndarray
    channels: np.ndarray
    strata: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Measured]) -> Measured:
        """Several, one after the other."""
        names = ("structure", "channels", "strata")
        rest = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        taps = [part.tap for part in parts if part.tap is not None]
        return cls(tap=np.concatenate(taps) if taps else None, **rest)

    def rows(self, rows: np.ndarray) -> Measured:
        tap = None if self.tap is None else self.tap[rows]
        return Measured(tap, self.structure[rows], self.channels[rows], self.strata[rows])


@dataclass(frozen=True, eq=False)
class PValues:
    """p-values of n windows: tap (n,), NaN without calibration; structure (n,); channels (n, C)."""

    tap: np.ndarray
    structure: np.ndarray
    channels: np.ndarray

    @property
    def table(self) -> np.ndarray:
        """(n, 2 + C)."""
        return np.column_stack([self.tap, self.structure, self.channels])

    @property
    def smallest(self) -> np.ndarray:
        """(n,) the smallest of tap and channels. Not of the structure: it differs with every device, as a rule."""
        return np.fmin(self.tap, self.channels.min(axis=1))


@dataclass(frozen=True, eq=False)
class Reference:
    """Held-out source windows, summed up.

    tap       : distances to anchors by stratum; None for a model without calibration.
    structure : distances of structures by stratum.
    channels  : distances of channel spectra; channel c takes the place of stratum c.
    together  : -log of the smallest p-value of tap and channels, of subjects measured against the others; turns the
                smallest of several p-values into a p-value again.
    shares    : Tensor (subjects, 2 + C) float64, for each held-out subject the share of windows with a p-value of at
                most `LEVEL` (tap, structure, channels), measured against the other held-out subjects.
    """

    spectra: Spectra
    tap: Comparability | None
    structure: Comparability
    channels: Comparability
    together: Comparability
    shares: Tensor

    @classmethod
    def fit(cls, spectra: Spectra, windows: Measured, subjects: np.ndarray, k: int) -> Reference:
        """From held-out windows, their subjects (n,) and the number of strata."""
        names = np.unique(subjects)
        shares, smallest = [], []
        # Evenly drawn: subjects are numbered domain by domain, and the first ones would be of the first domain alone.
        some = names[np.linspace(0, len(names) - 1, min(MOST_SUBJECTS, len(names))).round().astype(int)]
        for subject in some if len(names) > 1 else []:
            own = subjects == subject
            found = _pvalues(_parts(windows.rows(np.flatnonzero(~own)), k), windows.rows(np.flatnonzero(own)))
            shares.append((found.table <= LEVEL).mean(axis=0))
            smallest.append(found.smallest)
        parts = _parts(windows, k)
        least = np.concatenate(smallest) if smallest else _pvalues(parts, windows).smallest
        together = Comparability.fit(-np.log(least), np.zeros(len(least), np.int64), 1)
        width = 2 + windows.channels.shape[1]
        return cls(spectra, *parts, together, torch.from_numpy(np.array(shares).reshape(-1, width)))

    def pvalues(self, windows: Measured) -> PValues:
        return _pvalues((self.tap, self.structure, self.channels), windows)

    def comparability(self, windows: Measured) -> np.ndarray:
        """p-value (n,) of every window: small if its map lies far from its anchor or a channel is unusual."""
        smallest = self.pvalues(windows).smallest
        return self.together.pvalue(-np.log(smallest), np.zeros(len(smallest), np.int64)).numpy()

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        s = self.spectra
        tensors = {"shares": self.shares, "floor": s.floor, "mean": s.mean, "std": s.std, "precision": s.precision}
        for part in _PARTS:
            if (found := getattr(self, part)) is not None:
                tensors |= {f"{part}.{name}": tensor for name, tensor in found.to_tensors()[0].items()}
        return tensors, {"frame": s.frame}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], settings: dict[str, Any]) -> Reference:
        """The inverse of `to_tensors`; what does not fit is an InputError."""
        frame, shares = settings["frame"], tensors["shares"]
        c, f = shares.shape[-1] - 2, frame // 2 + 1
        wanted = {"floor": (c,), "mean": (c, f), "std": (c, f), "precision": (c * f, c * f)}
        for name, shape in wanted.items():
            if tuple(tensors[name].shape) != shape:
                raise InputError(f"{name} of the spectra must be {shape}, got {tuple(tensors[name].shape)}")

        def part(name: str) -> Comparability | None:
            own = {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}
            return Comparability.from_tensors(own, {}) if own else None

        parts = {name: part(name) for name in _PARTS}
        if None in (parts["structure"], parts["channels"], parts["together"]):
            raise InputError("the reference of held-out windows is not complete")
        spectra = Spectra(frame, *(tensors[name] for name in wanted))
        return cls(spectra, shares=shares, **parts)  # type: ignore[arg-type]


_PARTS = ("tap", "structure", "channels", "together")
_Parts = tuple[Comparability | None, Comparability, Comparability]


def _parts(windows: Measured, k: int) -> _Parts:
    tap = None if windows.tap is None else Comparability.fit(windows.tap, windows.strata, k)
    structure = Comparability.fit(windows.structure, windows.strata, k)
    return tap, structure, Comparability.fit(*_by_channel(windows.channels), windows.channels.shape[1])


def _pvalues(parts: _Parts, windows: Measured) -> PValues:
    tap, structure, channels = parts
    unknown = np.full(len(windows.structure), np.nan)
    return PValues(
        unknown if tap is None or windows.tap is None else tap.pvalue(windows.tap, windows.strata).numpy(),
        structure.pvalue(windows.structure, windows.strata).numpy(),
        channels.pvalue(*_by_channel(windows.channels)).view(*windows.channels.shape).numpy(),
    )


def _by_channel(distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances (n, C) in a row, and the channel of each."""
    return distances.ravel(), np.tile(np.arange(distances.shape[1]), len(distances))
