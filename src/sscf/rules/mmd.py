"""MMD: features of all domains have the same distribution, as seen by Gaussian kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, ByDomain, Rule, flat, param

GAMMAS = (1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3)


def mmd_penalty(features: ByDomain, gammas: tuple[float, ...] = GAMMAS) -> Tensor:
    """Mean over domain pairs of the squared maximum mean discrepancy (biased estimate) of features (n_d, d).

    The kernel is the sum over gammas of exp(-gamma ‖x - y‖²). One Gram matrix serves all pairs.
    """
    sizes = torch.tensor([len(rows) for rows in features], device=features[0].device)
    rows = torch.cat(list(features))
    square = rows.square().sum(1)
    distance = (square[:, None] + square - 2 * rows @ rows.T).clamp_min(0)
    kernel = torch.zeros_like(distance)
    for gamma in gammas:
        kernel = kernel + torch.exp((-gamma * distance).clamp_min(-50))  # numbers near underflow are forty times slower

    member = torch.arange(len(sizes), device=rows.device).repeat_interleave(sizes)
    average = (member == torch.arange(len(sizes), device=rows.device)[:, None]) / sizes[:, None].to(rows.dtype)
    mean = average @ kernel @ average.T  # (D, D): mean kernel between the rows of two domains
    discrepancy = mean.diagonal()[:, None] + mean.diagonal() - 2 * mean
    return discrepancy.sum() / max(len(sizes) * (len(sizes) - 1), 1)


class MMD(Rule):
    name = "mmd"
    title = "Maximum mean discrepancy"
    paper = "Li et al., Domain Generalization with Adversarial Feature Learning, CVPR 2018"
    needs_domains = 2

    class Params(base.Params):
        weight: float = param(1.0, "weight of the penalty", [0.01, 0.1, 1.0, 10.0], ge=0)
        gammas: tuple[float, ...] = param(GAMMAS, "inverse widths of the Gaussian kernels", min_length=1)

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        z = model.features(batch.x)
        risk = self.criterion(model.classify(z), batch.y)
        return self.total(risk, mmd_penalty(batch.split(flat(z)), self.params.gammas), self.params.weight)
