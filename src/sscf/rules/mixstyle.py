"""MixStyle: shallow feature maps take on a mixture of their own mean and deviation and those of another domain."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Beta

from sscf.nn.base import Backbone, find, insert
from sscf.rules import base
from sscf.rules.base import Batch, Rule, param
from sscf.rules.mixup import partners


def mix_style(x: Tensor, partner: Tensor, share: Tensor, eps: float = 1e-6) -> Tensor:
    """Give maps x (B, C, L) the mean and deviation over time share * own + (1 - share) * partner's; share (B, 1, 1).

    The statistics are constants for the gradient.
    """
    mean = x.mean(-1, keepdim=True).detach()
    deviation = (x.var(-1, keepdim=True) + eps).sqrt().detach()
    mixed_mean = share * mean + (1 - share) * mean[partner]
    mixed_deviation = share * deviation + (1 - share) * deviation[partner]
    return (x - mean) / deviation * mixed_deviation + mixed_mean


class StyleMixer(nn.Module):
    """The layer at the tap. Mixes only between `set` and `clear`, that is within the loss of the rule."""

    partner: Tensor | None = None
    share: Tensor | None = None

    def set(self, partner: Tensor, share: Tensor) -> None:
        """partner (N,) rows to mix with; share (N, 1, 1) of a row's own style."""
        self.partner, self.share = partner, share

    def clear(self) -> None:
        self.partner = self.share = None

    def forward(self, x: Tensor) -> Tensor:
        if self.partner is None or self.share is None:
            return x
        windows = len(x) // len(self.partner)  # of a sequence; each is mixed with its counterpart in the other sequence
        partner = (self.partner[:, None] * windows + torch.arange(windows, device=x.device)).flatten()
        return mix_style(x.float(), partner, self.share.repeat_interleave(windows, 0)).to(x.dtype)


class MixStyle(Rule):
    name = "mixstyle"
    title = "MixStyle across domains, at the tap"
    paper = "Zhou et al., Domain Generalization with MixStyle, ICLR 2021"
    needs_domains = 2

    class Params(base.Params):
        probability: float = param(0.5, "probability that a batch is mixed", [0.25, 0.5, 1.0], ge=0, le=1)
        alpha: float = param(0.1, "mixing weights come from Beta(alpha, alpha)", [0.1, 0.2, 0.3], gt=0)

    def prepare(self, model: Backbone, tap: str) -> None:
        insert(model, tap, StyleMixer())

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        (mixer,) = find(model, StyleMixer)
        if torch.rand(()) < self.params.probability:
            share = Beta(self.params.alpha, self.params.alpha).sample((len(batch.x), 1, 1)).to(batch.x)
            mixer.set(partners(batch.counts).to(batch.x.device), share)
        try:
            risk = self.criterion(model(batch.x), batch.y)
        finally:
            mixer.clear()
        self.log = {"risk": risk.item()}
        return risk
