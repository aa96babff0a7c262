"""V-REx: all domains have the same risk."""

from __future__ import annotations

from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, Rule, param


def vrex_penalty(risks: Tensor) -> Tensor:
    """Population variance of the risks (D,) of the domains."""
    return risks.var(correction=0)


class VREx(Rule):
    name = "vrex"
    title = "Variance risk extrapolation"
    paper = "Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation, ICML 2021"
    needs_domains = 2

    class Params(base.Params):
        weight: float = param(10.0, "weight of the penalty after annealing", [0.1, 1.0, 10.0, 100.0, 1e3, 1e4], ge=0)
        anneal_steps: int = param(500, "steps with weight 1 before it", [0, 100, 500, 1000, 5000], ge=0)

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        risks = self.risks(model(batch.x), batch)
        weight = self.params.weight if step >= self.params.anneal_steps else 1.0
        return self.total(risks.mean(), vrex_penalty(risks), weight)

    def resets_optimiser(self, step: int) -> bool:
        return step == self.params.anneal_steps > 0
