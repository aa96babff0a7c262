"""IRM: the classifier on top of the features is optimal in every domain at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, Rule, flat, param


def irm_penalty(logits: Tensor, y: Tensor, criterion: nn.Module) -> Tensor:
    """Squared gradient of a domain's risk with respect to a scale of its logits (n, K), y (n,).

    The product of the gradients on even and on odd rows estimates the square without bias, so it may be negative.
    """
    scale = logits.new_ones((), requires_grad=True)
    even, odd = (criterion(scale * logits[half::2], y[half::2]) for half in (0, 1))
    (gradient_even,) = torch.autograd.grad(even, scale, create_graph=True)
    (gradient_odd,) = torch.autograd.grad(odd, scale, create_graph=True)
    return gradient_even * gradient_odd


class IRM(Rule):
    name = "irm"
    title = "Invariant risk minimisation"
    paper = "Arjovsky et al., Invariant Risk Minimization, arXiv:1907.02893, 2019"
    needs_domains = 2

    class Params(base.Params):
        weight: float = param(100.0, "weight of the penalty after annealing", [0.1, 1.0, 10.0, 100.0, 1e3, 1e4], ge=0)
        anneal_steps: int = param(500, "steps with weight 1 before it", [0, 100, 500, 1000, 5000], ge=0)

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        logits = model(batch.x)
        domains = zip(batch.split(flat(logits)), batch.split(batch.y.flatten()), strict=True)
        # A lone row has no odd half.
        penalties = [irm_penalty(rows, y, self.criterion) for rows, y in domains if len(rows) > 1]
        penalty = torch.stack(penalties).mean() if penalties else logits.sum() * 0
        weight = self.params.weight if step >= self.params.anneal_steps else 1.0
        return self.total(self.risks(logits, batch).mean(), penalty, weight)

    def resets_optimiser(self, step: int) -> bool:
        return step == self.params.anneal_steps > 0
