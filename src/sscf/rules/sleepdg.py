"""SleepDG: align windows and the relations between windows of a sequence, and keep what rebuilds the signal."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, ByDomain, Rule, flat, moments, pairwise_mean_square, param


def epoch_alignment(features: ByDomain) -> Tensor:
    """Sum over domain pairs of mean(Δμ²) + mean(ΔC²) of the window features (n_d, d)."""
    mean, covariance = moments(features)
    pairs = len(mean) * (len(mean) - 1) / 2
    return pairs * (pairwise_mean_square(mean) + pairwise_mean_square(covariance))


def relations(features: Tensor, eps: float = 1e-8) -> Tensor:
    """Mean over sequences of the Pearson correlations between their windows: (n, S, d) -> (S, S)."""
    unit = F.normalize(features - features.mean(-1, keepdim=True), dim=-1, eps=eps)
    return (unit @ unit.mT).mean(0)


def sequence_alignment(features: ByDomain) -> Tensor:
    """Mean over domain pairs of the squared Frobenius distance of their `relations`; features (n_d, S, d)."""
    matrices = torch.stack([relations(rows) for rows in features])
    return pairwise_mean_square(matrices) * matrices[0].numel()


class Decoder(nn.Module):
    """Features (n, d) -> signal (n, C, length): upsample by 4 twice, stretch to length / 8, upsample by 8."""

    def __init__(self, feature_dim: int, channels: int, width: int = 32) -> None:
        super().__init__()
        self.expand = nn.Sequential(
            *(nn.Linear(feature_dim, width * 16), nn.Unflatten(1, (width, 16)), nn.GELU()),
            *(nn.ConvTranspose1d(width, width, 4, stride=4), nn.BatchNorm1d(width), nn.GELU()),
            *(nn.ConvTranspose1d(width, width, 4, stride=4), nn.BatchNorm1d(width), nn.GELU()),
        )
        self.render = nn.ConvTranspose1d(width, channels, 16, stride=8, padding=4)

    def forward(self, z: Tensor, length: int) -> Tensor:
        steps = -(-length // 8)
        return self.render(F.interpolate(self.expand(z), size=steps, mode="linear"))[..., :length]


class SleepDG(Rule):
    """Windows that are not in sequences have no relations: that term is then left out."""

    name = "sleepdg"
    title = "Multi-level domain alignment"
    paper = "Wang et al., Generalizable Sleep Staging via Multi-Level Domain Alignment, AAAI 2024"
    needs_domains = 2

    class Params(base.Params):
        epoch: float = param(1.0, "weight of the alignment of windows", [0.1, 0.5, 1.0], ge=0)
        sequence: float = param(1.0, "weight of the alignment of relations", [0.1, 0.5, 1.0], ge=0)
        reconstruction: float = param(1.0, "weight of the reconstruction error", [0.1, 0.5, 1.0], ge=0)
        label_smoothing: float = param(0.1, "label smoothing of the cross-entropy", [0.0, 0.1], ge=0, lt=1)

    def prepare(self, model: Backbone, tap: str) -> None:
        self.decoder = Decoder(self.feature_dim, base.input_channels(model)).to(base.device_of(model))

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        p = self.params
        z = model.features(batch.x)
        logits = model.classify(z)
        signal = batch.x.flatten(0, -3)  # (windows, C, T)
        rebuilt = self.decoder(z.flatten(0, -2), signal.shape[-1]).float()
        # Smoothing in the open: it adds to whatever criterion the trainer has set.
        uniform = -flat(logits).log_softmax(1).mean()
        parts = {
            "risk": (1 - p.label_smoothing) * self.criterion(logits, batch.y) + p.label_smoothing * uniform,
            "epoch": p.epoch * epoch_alignment(batch.split(flat(z))),
            "reconstruction": p.reconstruction * F.mse_loss(rebuilt, signal),
        }
        if z.dim() == 3:
            parts["sequence"] = p.sequence * sequence_alignment(batch.split(z.float()))
        self.log = {name: part.item() for name, part in parts.items()}
        return torch.stack(list(parts.values())).sum()
