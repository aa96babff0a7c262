"""DANN: a classifier of domains cannot tell from the features which domain a window came from."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, Rule, flat, param


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.weight * gradients[0], None


def reverse_gradient(x: Tensor, weight: float = 1.0) -> Tensor:
    """x itself, whose gradient comes back multiplied by -weight."""
    return _Reverse.apply(x, weight)


def ramp(step: int, warmup: int) -> float:
    """Rise from 0 to 1 within `warmup` steps: 2 / (1 + exp(-10 step / warmup)) - 1."""
    return 1.0 if warmup == 0 else 2 / (1 + math.exp(-10 * step / warmup)) - 1


def window_domains(batch: Batch) -> Tensor:
    """Domain of every window, (N,) or (N*S,) for sequences."""
    return batch.domain.repeat_interleave(batch.y.numel() // len(batch.y))


class DANN(Rule):
    """The domain classifier minimises its loss, the encoder, behind a gradient reversal, maximises it."""

    name = "dann"
    title = "Domain-adversarial training"
    paper = "Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016"
    needs_domains = 2

    class Params(base.Params):
        weight: float = param(1.0, "weight of the reversed gradient", [0.01, 0.1, 1.0, 10.0], ge=0)
        warmup: int = param(0, "steps in which that weight rises from 0; 0: constant", [0, 1000, 5000], ge=0)
        hidden: int = param(256, "units of the two hidden layers of the domain classifier", [64, 256, 1024], gt=0)
        dropout: float = param(0.0, "dropout in the domain classifier", [0.0, 0.1, 0.5], ge=0, lt=1)

    def __init__(self, params: Any = None, **sizes: int) -> None:
        super().__init__(params, **sizes)
        self.domain_classifier = self.build_classifier(self.adversary_width())

    def adversary_width(self) -> int:
        """Size of what the domain classifier sees."""
        return self.feature_dim

    def build_classifier(self, width: int) -> nn.Sequential:
        hidden, dropout = self.params.hidden, self.params.dropout
        return nn.Sequential(
            *(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(hidden, self.n_domains),
        )

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        z = model.features(batch.x)
        risk = self.criterion(model.classify(z), batch.y)
        weight = self.params.weight * ramp(step, self.params.warmup)
        domain_logits = self.domain_classifier(reverse_gradient(flat(z), weight))
        return self.total(risk, F.cross_entropy(domain_logits.float(), window_domains(batch)), 1.0)
