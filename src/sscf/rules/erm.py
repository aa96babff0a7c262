"""Empirical risk minimisation: the mean loss over all windows of all domains."""

from __future__ import annotations

from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules.base import Batch, Rule


class ERM(Rule):
    name = "erm"
    title = "Empirical risk minimisation"
    paper = "Vapnik, Statistical Learning Theory, 1998"

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        risk = self.criterion(model(batch.x), batch.y)
        self.log = {"risk": risk.item()}
        return risk
