"""Fishr: the gradients of the classifier's last layer have the same variance in every domain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, ByDomain, Rule, flat, param


def gradient_variance(inputs: ByDomain, gradients: ByDomain) -> Tensor:
    """Variance over the rows of each domain of the gradient of a linear layer's weight and bias, (D, K*(d+1)).

    inputs (n_d, d) : what the layer gets;  gradients (n_d, K) : gradient of each row's own loss by the logits.
    A row's gradient is their outer product g hᵀ, so E[(g hᵀ)²] = E[g² (h²)ᵀ] needs no gradient per row.
    """
    variances = []
    for h, g in zip(inputs, gradients, strict=True):
        h = torch.cat([h, h.new_ones(len(h), 1)], 1)  # the bias is a weight of the constant 1
        variances.append((g.square().T @ h.square() / len(h) - (g.T @ h / len(h)).square()).flatten())
    return torch.stack(variances)


def fishr_penalty(variances: Tensor) -> Tensor:
    """Mean squared distance of the gradient variances (D, p) from their mean over domains."""
    return (variances - variances.mean(0)).square().mean()


class Fishr(Rule):
    name = "fishr"
    title = "Invariant gradient variances"
    paper = "Ramé et al., Fishr: Invariant Gradient Variances for Out-of-Distribution Generalization, ICML 2022"
    needs_domains = 2
    average: Tensor

    class Params(base.Params):
        weight: float = param(1000.0, "weight of the penalty after the warm-up", [10.0, 100.0, 1000.0, 1e4], ge=0)
        warmup: int = param(1500, "steps without penalty", [0, 500, 1500, 5000], ge=0)
        ema: float = param(
            0.95, "share of the past in the moving average of the variances", [0.9, 0.95, 0.99], ge=0, lt=1
        )

    def __init__(self, params: Any = None, **sizes: int) -> None:
        super().__init__(params, **sizes)
        self.register_buffer("average", torch.zeros(self.n_domains, 0))

    def prepare(self, model: Backbone, tap: str) -> None:
        layer = model.last_linear
        self.average = layer.weight.new_zeros(self.n_domains, layer.out_features * (layer.in_features + 1))

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        seen: list[Tensor] = []
        hook = model.last_linear.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0]))
        try:
            logits = model.classify(model.features(batch.x))
        finally:
            hook.remove()
        risk = self.criterion(logits, batch.y)
        # The criterion is a mean over windows: times their number, a row of its gradient is that of the row's own loss.
        (gradients,) = torch.autograd.grad(risk * batch.y.numel(), logits, create_graph=True)
        fresh = gradient_variance(batch.split(flat(seen[0])), batch.split(flat(gradients)))

        here = batch.present()
        variances = self.params.ema * self.average[here] + (1 - self.params.ema) * fresh
        average = self.average.clone()
        average[here] = variances.detach()
        self.average = average
        penalty = fishr_penalty(variances / (1 - self.params.ema))  # gradients of the size they have without averaging
        return self.total(risk, penalty, self.params.weight if step >= self.params.warmup else 0.0)

    def resets_optimiser(self, step: int) -> bool:
        return step == self.params.warmup > 0
