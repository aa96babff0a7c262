"""What held-out source subjects look like to a model: the yardstick for data it has never seen.

Two things are measured for every window. How far its feature map at the tap lies from the anchor it is matched with
(`core.comparability`), and how far the spectrum of each input channel lies from that channel's usual one; the second
finds a dead or noisy channel that the network may have learned to ignore. Both become p-values against windows of
source subjects that were held out of training, and the share of windows outside is known for each of those subjects.
"""

from __future__ import annotations

from collections.abc import Iterator
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
class ChannelSpectra:
    """The usual log power spectrum of each input channel, as the network gets it.

    frame : int, samples of a Welch frame.
    floor : Tensor (C,), added to the power before the logarithm.
    mean, std : Tensor (C, F), over source training windows; bin j lies at j / frame cycles per sample.
    """

    frame: int
    floor: Tensor
    mean: Tensor
    std: Tensor

    @classmethod
    def fit(cls, batches: Iterator[Tensor], length: int) -> ChannelSpectra:
        """From batches (n, C, T) of normalised windows."""
        frame = frame_for(length)
        power = torch.cat([welch_power(x.double(), frame, max(1, frame // 2), center=True) for x in batches])
        floor = _FLOOR * power.mean(dim=(0, 2)) + torch.finfo(torch.float32).tiny
        log = (power + floor[:, None]).log()
        # A bin that hardly varies in the source must not count a thousandfold.
        return cls(frame, floor, log.mean(dim=0), log.std(dim=0, correction=0).clamp(min=0.1))

    def log_power(self, x: Tensor) -> Tensor:
        """(n, C, T) -> (n, C, F) float64."""
        power = welch_power(x.double(), self.frame, max(1, self.frame // 2), center=True)
        return (power + self.floor.to(x.device)[:, None]).log()

    def distances(self, x: Tensor) -> Tensor:
        """(n, C): root mean square over bins of the deviation from the usual spectrum, in its standard deviations."""
        z = (self.log_power(x) - self.mean.to(x.device)) / self.std.to(x.device)
        return z.square().mean(dim=-1).sqrt()


def frame_for(length: int) -> int:
    """Welch frame for windows of a length: a quarter of it or less, between 2 and 256 samples, a power of two."""
    return 1 << max(1, min(8, (max(2, length) // 4).bit_length() - 1))


@dataclass(frozen=True, eq=False)
class Reference:
    """Held-out source windows, summed up.

    strata   : distances to anchors; None for a model without calibration.
    channels : distances of channel spectra; channel c takes the place of stratum c.
    spectra  : the usual spectrum of each channel.
    shares   : Tensor (subjects, 1 + C) float64, for each held-out subject the share of windows with a p-value of at
               most `LEVEL`, measured against the other held-out subjects: of the strata, then of every channel.
    """

    strata: Comparability | None
    channels: Comparability
    spectra: ChannelSpectra
    shares: Tensor

    @classmethod
    def fit(
        cls,
        spectra: ChannelSpectra,
        channel_distances: np.ndarray,
        subjects: np.ndarray,
        distances: np.ndarray | None = None,
        strata: np.ndarray | None = None,
        k: int = 0,
    ) -> Reference:
        """From n held-out windows: distances of channels (n, C), subjects, distances to anchors and strata (n,)."""
        width = channel_distances.shape[1]
        which = np.tile(np.arange(width), (len(channel_distances), 1))

        def parts(rows: np.ndarray) -> tuple[Comparability | None, Comparability]:
            own = None
            if distances is not None and strata is not None:
                own = Comparability.fit(distances[rows], strata[rows], k)
            return own, Comparability.fit(channel_distances[rows].ravel(), which[rows].ravel(), width)

        shares = []
        names = np.unique(subjects)
        for subject in names[:MOST_SUBJECTS] if len(names) > 1 else []:
            own_rows, other_rows = np.flatnonzero(subjects == subject), np.flatnonzero(subjects != subject)
            tap, channels = parts(other_rows)
            found = channels.pvalue(channel_distances[own_rows].ravel(), which[own_rows].ravel())
            outside = (found.view(len(own_rows), width) <= LEVEL).double().mean(dim=0)
            first = torch.full((1,), torch.nan, dtype=torch.float64)
            if tap is not None and distances is not None and strata is not None:
                first = (tap.pvalue(distances[own_rows], strata[own_rows]) <= LEVEL).double().mean(dim=0, keepdim=True)
            shares.append(torch.cat([first, outside]))
        tap, channels = parts(np.arange(len(channel_distances)))
        table = torch.stack(shares) if shares else torch.empty(0, 1 + width, dtype=torch.float64)
        return cls(tap, channels, spectra, table)

    def channel_pvalues(self, distances: np.ndarray) -> np.ndarray:
        """Distances (n, C) -> p-values (n, C)."""
        which = np.tile(np.arange(distances.shape[1]), (len(distances), 1))
        return self.channels.pvalue(distances.ravel(), which.ravel()).view(*distances.shape).numpy()

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {"shares": self.shares, "floor": self.spectra.floor}
        tensors |= {"mean": self.spectra.mean, "std": self.spectra.std}
        tensors |= {f"channels.{name}": t for name, t in self.channels.to_tensors()[0].items()}
        if self.strata is not None:
            tensors |= {f"strata.{name}": t for name, t in self.strata.to_tensors()[0].items()}
        return tensors, {"frame": self.spectra.frame}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], settings: dict[str, Any]) -> Reference:
        """The inverse of `to_tensors`; what does not fit is an InputError."""
        frame, shares, mean = settings["frame"], tensors["shares"], tensors["mean"]
        wanted = (shares.shape[-1] - 1, frame // 2 + 1)
        if mean.shape != wanted or tensors["std"].shape != wanted or tensors["floor"].shape != wanted[:1]:
            raise InputError(f"spectra of channels must be {wanted}, got {tuple(mean.shape)}")

        def part(name: str) -> dict[str, Tensor]:
            return {n.removeprefix(f"{name}."): t for n, t in tensors.items() if n.startswith(f"{name}.")}

        strata = Comparability.from_tensors(part("strata"), {}) if part("strata") else None
        spectra = ChannelSpectra(frame, tensors["floor"], mean, tensors["std"])
        return cls(strata, Comparability.from_tensors(part("channels"), {}), spectra, shares)
