"""Every backbone at its size in the paper's tables, and small enough to compile and train in a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from sscf.nn import Backbone, build


@dataclass(frozen=True)
class Case:
    """A backbone, its input and what is known about it."""

    name: str
    shape: tuple[int, ...]  # of the input, batch first
    classes: int = 4
    options: dict[str, Any] = field(default_factory=dict)

    def model(self, seed: int = 0) -> Backbone:
        torch.manual_seed(seed)
        channels, length = self.shape[-2:]
        return build(self.name, in_channels=channels, length=length, n_classes=self.classes, **self.options)

    def input(self, batch: int | None = None, seed: int = 1) -> torch.Tensor:
        shape = self.shape if batch is None else (batch, *self.shape[1:])
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))

    def labels(self) -> torch.Tensor:
        return torch.arange(torch.Size(self.shape[:-2]).numel()).remainder(self.classes).view(self.shape[:-2])


SMALL = {
    "cnn_bilstm": Case("cnn_bilstm", (6, 3, 64), options={"width": 8, "hidden": 8}),
    "cnn_transformer": Case("cnn_transformer", (2, 3, 2, 600), options={"width": 8}),
    "sleepeegnet": Case("sleepeegnet", (2, 3, 2, 600), options={"hidden": 64, "dropout": 0.1}),
    "lgsleepnet": Case("lgsleepnet", (2, 3, 2, 300)),
}


@pytest.fixture(params=list(SMALL))
def small(request: pytest.FixtureRequest) -> Case:
    return SMALL[request.param]


@pytest.fixture
def small_bilstm() -> Case:
    return SMALL["cnn_bilstm"]
