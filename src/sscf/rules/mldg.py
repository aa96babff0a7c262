"""MLDG: a gradient step on some domains must also lower the risk of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call

from sscf.core.calibration import SpectralCalibration
from sscf.errors import InputError
from sscf.nn.base import Backbone, find
from sscf.rules import base
from sscf.rules.base import Batch, Rule, param


class MLDG(Rule):
    """loss = risk(meta-train; θ) + beta * risk(meta-test; θ - inner_lr * step(∇ risk(meta-train; θ)))."""

    name = "mldg"
    title = "Meta-learning domain generalisation"
    paper = "Li et al., Learning to Generalize: Meta-Learning for Domain Generalization, AAAI 2018"
    needs_domains = 2

    class Params(base.Params):
        beta: float = param(1.0, "weight of the meta-test risk", [0.1, 1.0, 10.0], ge=0)
        inner_lr: float = param(1e-3, "learning rate of the inner step", [1e-4, 1e-3, 1e-2], gt=0)
        inner: Literal["adam", "sgd"] = param(
            "adam", "inner step: the first of a fresh Adam, or plain", ["adam", "sgd"]
        )
        second_order: bool = param(False, "let gradients flow through the inner step", [False, True])
        n_test: int = param(1, "domains held out as meta-test in each step", [1, 2], ge=1)

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        present = [int(d) for d in torch.tensor(batch.present())[torch.randperm(len(batch.present()))]]
        n_test = min(self.params.n_test, len(present) - 1)
        if n_test < 1:
            raise InputError("rule 'mldg' splits domains and got a batch with a single one")
        test, train = (select(batch, domains) for domains in (present[:n_test], present[n_test:]))

        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        with own_anchors(model, batch, train):
            train_risk = self.criterion(model(train.x), train.y)
        gradients = torch.autograd.grad(
            train_risk,
            list(parameters.values()),
            create_graph=self.params.second_order,
            retain_graph=True,
            allow_unused=True,
        )
        moved = {
            name: p if g is None else p - self.params.inner_lr * self._step(g)
            for (name, p), g in zip(parameters.items(), gradients, strict=True)
        }
        with own_anchors(model, batch, test):
            test_risk = self.criterion(functional_call(model, moved, (test.x,)), test.y)
        return self.total(train_risk, test_risk, self.params.beta)

    def _step(self, gradient: Tensor) -> Tensor:
        return gradient / (gradient.abs() + 1e-8) if self.params.inner == "adam" else gradient


@contextmanager
def own_anchors(model: Backbone, batch: Batch, part: Batch) -> Iterator[None]:
    """If the trainer has assigned anchors to the windows of a batch, assign those of a part of it."""
    with ExitStack() as stack:
        for calibration in find(model, SpectralCalibration):
            assigned = calibration._assigned
            if assigned is not None:
                rows = torch.isin(batch.domain, part.domain)
                stack.enter_context(calibration.assigned(assigned.unflatten(0, (len(rows), -1))[rows].flatten()))
        yield


def select(batch: Batch, domains: list[int]) -> Batch:
    """The rows of some domains of a batch."""
    rows = torch.isin(batch.domain, torch.tensor(domains, device=batch.domain.device))
    counts = tuple(count if d in domains else 0 for d, count in enumerate(batch.counts))
    return Batch(batch.x[rows], batch.y[rows], batch.domain[rows], batch.n_domains, counts)
