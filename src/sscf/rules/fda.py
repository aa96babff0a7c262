"""Amplitude mix: windows keep their phases and take on part of the amplitude spectrum of another domain's window."""

from __future__ import annotations

import torch
from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, Rule, param
from sscf.rules.mixup import partners


def mix_amplitudes(x: Tensor, other: Tensor, share: Tensor, band: float = 1.0) -> Tensor:
    """x (..., T) with amplitudes (1 - share) |X| + share |Other| in the lowest `band` of the bins, its own phases.

    share broadcasts against x. With share 1 and a small band this is FDA's swap of low frequencies.
    """
    spectrum = torch.fft.rfft(x)
    size = spectrum.abs()
    mixed = size + share * (torch.fft.rfft(other).abs() - size)
    low = torch.arange(size.shape[-1], device=x.device) < band * size.shape[-1]
    # polar(mixed, angle) instead of a quotient: an empty bin has a phase too
    return torch.fft.irfft(torch.where(low, torch.polar(mixed, spectrum.angle()), spectrum), n=x.shape[-1])


class FDA(Rule):
    name = "fda"
    title = "Fourier amplitude mix across domains"
    paper = "Yang & Soatto, FDA, CVPR 2020; mixing: Xu et al., A Fourier-Based Framework for DG, CVPR 2021"
    needs_domains = 2

    class Params(base.Params):
        strength: float = param(1.0, "the other's share is uniform in [0, strength]", [0.2, 0.5, 1.0], gt=0, le=1)
        band: float = param(
            1.0, "share of the spectrum mixed, from zero frequency up", [0.01, 0.1, 0.5, 1.0], gt=0, le=1
        )
        probability: float = param(0.5, "probability that a window is mixed", [0.5, 1.0], gt=0, le=1)

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        p = self.params
        n = len(batch.x)
        share = p.strength * torch.rand(n) * (torch.rand(n) < p.probability)
        other = batch.x[partners(batch.counts).to(batch.x.device)]
        x = mix_amplitudes(batch.x, other, share.to(batch.x).view(-1, *[1] * (batch.x.dim() - 1)), p.band)
        risk = self.criterion(model(x), batch.y)
        self.log = {"risk": risk.item()}
        return risk
