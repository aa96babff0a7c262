"""CORAL: features of all domains get the same mean and covariance."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, ByDomain, Rule, flat, moments, pairwise_mean_square, param


def coral_penalty(features: ByDomain) -> Tensor:
    """Mean over domain pairs of mean(Δμ²) + mean(ΔC²): the form of DomainBed. Features (n_d, d) of each domain."""
    mean, covariance = moments(features)
    return pairwise_mean_square(mean) + pairwise_mean_square(covariance)


def deep_coral_penalty(features: ByDomain) -> Tensor:
    """Mean over domain pairs of ‖ΔC‖²_F / 4d²: Deep CORAL, which leaves the means free."""
    _, covariance = moments(features)
    return pairwise_mean_square(covariance) / 4


class CORAL(Rule):
    name = "coral"
    title = "Correlation alignment"
    paper = "Sun & Saenko, Deep CORAL, ECCV Workshops 2016; means as in DomainBed, Gulrajani & Lopez-Paz, ICLR 2021"
    needs_domains = 2

    class Params(base.Params):
        weight: float = param(1.0, "weight of the penalty", [0.1, 1.0, 10.0], ge=0)
        form: Literal["default", "deep"] = param("default", "means and covariances, or `deep`: covariances only")

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        z = model.features(batch.x)
        penalty = coral_penalty if self.params.form == "default" else deep_coral_penalty
        risk = self.criterion(model.classify(z), batch.y)
        return self.total(risk, penalty(batch.split(flat(z))), self.params.weight)
