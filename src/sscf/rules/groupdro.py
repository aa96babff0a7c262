"""GroupDRO: the worst domains weigh most."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, Rule, param


def groupdro_weights(weights: Tensor, risks: Tensor, eta: float) -> Tensor:
    """Exponentiated gradient ascent: weights (D,) times exp(eta * risks), brought back to their former sum."""
    raised = weights * torch.exp(eta * risks)
    return raised * weights.sum() / raised.sum()


class GroupDRO(Rule):
    name = "groupdro"
    title = "Group distributionally robust optimisation"
    paper = "Sagawa et al., Distributionally Robust Neural Networks for Group Shifts, ICLR 2020"
    weights: Tensor

    class Params(base.Params):
        eta: float = param(0.01, "step size of the domain weights", [0.001, 0.01, 0.1], ge=0)

    def __init__(self, params: Any = None, **sizes: int) -> None:
        super().__init__(params, **sizes)
        self.register_buffer("weights", torch.full((self.n_domains,), 1 / self.n_domains))

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        risks = self.risks(model(batch.x), batch)
        here = batch.present()  # a domain absent from the batch keeps its weight
        weights = self.weights.clone()
        weights[here] = groupdro_weights(weights[here], risks.detach(), self.params.eta)
        self.weights = weights
        loss = (risks * weights[here]).sum()
        self.log = {"risk": risks.mean().item(), "worst": risks.max().item(), "loss": loss.item()}
        return loss
