"""PSDNorm: every window's spectrum is moved to a running Wasserstein barycentre of the spectra seen in training."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sscf.core.welch import welch_power, working
from sscf.nn.base import Backbone, insert
from sscf.rules import base
from sscf.rules.base import param
from sscf.rules.erm import ERM


def barycentre(power: Tensor) -> Tensor:
    """Wasserstein barycentre (C, F) of the spectra (B, C, F) of stationary Gaussian signals: (mean √p)²."""
    return power.sqrt().mean(0).square()


def geodesic(start: Tensor, end: Tensor, t: Tensor | float) -> Tensor:
    """The spectrum at t in [0, 1] on the Wasserstein geodesic between two: ((1 - t) √start + t √end)²."""
    return ((1 - t) * start.sqrt() + t * end.sqrt()).square()


def monge_filter(power: Tensor, target: Tensor, size: int) -> Tensor:
    """Taps (B, C, size), lag 0 at size // 2, of the zero-phase filter √(target / power), the optimal transport."""
    return torch.fft.fftshift(torch.fft.irfft((target / power).sqrt(), n=size), dim=-1)


def filter_each(x: Tensor, taps: Tensor) -> Tensor:
    """Convolve each map of x (B, C, L) with its own taps (B, C, size); zeros beyond the ends, same length."""
    size = taps.shape[-1]
    padded = F.pad(x, ((size - 1) // 2, size // 2)).flatten(0, 1)  # (B*C, L + size - 1): one group per map
    return F.conv1d(padded, taps.flip(-1).flatten(0, 1)[:, None], groups=len(padded)).view_as(x)


class SpectralNorm(nn.Module):
    """The layer at the tap. In training it moves `target` a little towards each batch's barycentre."""

    target: Tensor
    batches: Tensor

    def __init__(self, channels: int, size: int, momentum: float, eps: float) -> None:
        super().__init__()
        self.size, self.momentum, self.eps = size, momentum, eps
        self.register_buffer("target", torch.ones(channels, size // 2 + 1))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            centred = working(x)
            centred = centred - centred.mean(-1, keepdim=True)
            hop = self.size - self.size // 2
            power = welch_power(centred, self.size, hop, window="rectangular") + self.eps
            if self.training:
                with torch.no_grad():
                    share = torch.where(self.batches == 0, 1.0, self.momentum)  # the first batch sets the target
                    self.target.copy_(geodesic(self.target, barycentre(power), share))
                    self.batches += 1
            return filter_each(centred, monge_filter(power, self.target.clone(), self.size)).to(x.dtype)


class PSDNorm(ERM):
    name = "psdnorm"
    title = "PSD normalisation at the tap"
    paper = "Gnassounou et al., PSDNorm: Test-Time Temporal Normalization for Deep Learning, arXiv:2503.04582, 2025"

    class Params(base.Params):
        size: int = param(5, "taps of the filter, and samples of a Welch frame", [5, 9, 15, 33], ge=2)
        momentum: float = param(0.01, "share of a batch in the running barycentre", [0.001, 0.01, 0.1], gt=0, le=1)
        eps: float = param(1e-5, "added to the power, so that empty bins are not blown up", gt=0)

    def prepare(self, model: Backbone, tap: str) -> None:
        p = self.params
        layer = SpectralNorm(base.tap_channels(model, tap), p.size, p.momentum, p.eps)
        insert(model, tap, layer.to(base.device_of(model)))
