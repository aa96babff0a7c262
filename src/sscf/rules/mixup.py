"""Mixup across domains: train on convex combinations of windows of two domains and of their labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Beta

from sscf.nn.base import Backbone
from sscf.rules import base
from sscf.rules.base import Batch, Rule, param


def partners(counts: tuple[int, ...]) -> Tensor:
    """For every row of a batch a row of another domain, (N,): domains stand in a random ring, each next to its partner.

    Rows of the partner domain are taken in random order, again from the start if there are too few.
    """
    starts = torch.tensor((0, *counts)).cumsum(0)
    present = [d for d, count in enumerate(counts) if count]
    ring = [present[i] for i in torch.randperm(len(present))]
    following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    rows = []
    for d in present:
        other = following[d]
        shuffled = torch.randperm(counts[other])
        rows.append(starts[other] + shuffled[torch.arange(counts[d]) % counts[other]])
    return torch.cat(rows)


class Mixup(Rule):
    name = "mixup"
    title = "Mixup across domains"
    paper = "Zhang et al., mixup, ICLR 2018; across domains: Yan et al., arXiv:2001.00677, 2020"
    needs_domains = 2

    class Params(base.Params):
        alpha: float = param(0.2, "mixing weights come from Beta(alpha, alpha)", [0.1, 0.2, 1.0, 10.0], gt=0)

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        partner = partners(batch.counts).to(batch.x.device)
        share = Beta(self.params.alpha, self.params.alpha).sample((batch.n_domains,)).to(batch.x)  # one per domain
        rows = share[batch.domain].view(-1, *[1] * (batch.x.dim() - 1))
        logits = model(rows * batch.x + (1 - rows) * batch.x[partner])
        here = share[batch.present()]
        other = Batch(batch.x, batch.y[partner], batch.domain, batch.n_domains, batch.counts)
        loss = (here * self.risks(logits, batch) + (1 - here) * self.risks(logits, other)).mean()
        self.log = {"risk": loss.item()}
        return loss
