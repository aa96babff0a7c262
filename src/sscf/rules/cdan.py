"""CDAN: like DANN, but the domain classifier also sees what class the model takes a window for."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sscf.nn.base import Backbone
from sscf.rules.base import Batch, flat, param
from sscf.rules.dann import DANN, ramp, reverse_gradient, window_domains


def multilinear_map(features: Tensor, probabilities: Tensor) -> Tensor:
    """Outer product of features (n, d) and class probabilities (n, K), as (n, K*d)."""
    return (probabilities[:, :, None] * features[:, None]).flatten(1)


def entropy_weights(probabilities: Tensor) -> Tensor:
    """1 + exp(-entropy) of probabilities (n, K), divided by their mean: sure predictions count more."""
    weights = 1 + torch.exp(-torch.special.entr(probabilities).sum(1))
    return weights / weights.mean()


class CDAN(DANN):
    name = "cdan"
    title = "Conditional adversarial training"
    paper = "Long et al., Conditional Adversarial Domain Adaptation, NeurIPS 2018"

    class Params(DANN.Params):
        entropy: bool = param(False, "weigh windows by how sure the prediction is (CDAN+E)", [False, True])

    def adversary_width(self) -> int:
        return self.n_classes * self.feature_dim

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        z = model.features(batch.x)
        logits = model.classify(z)
        probabilities = flat(logits).detach().softmax(1)  # the adversary shapes features, not predictions
        weight = self.params.weight * ramp(step, self.params.warmup)
        joint = multilinear_map(reverse_gradient(flat(z), weight), probabilities)
        losses = F.cross_entropy(self.domain_classifier(joint).float(), window_domains(batch), reduction="none")
        if self.params.entropy:
            losses = losses * entropy_weights(probabilities)
        return self.total(self.criterion(logits, batch.y), losses.mean(), 1.0)
