"""Small real backbones and seeded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from sscf.nn import Backbone, build
from sscf.rules.base import Batch

CLASSES = 3


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def make_model() -> Callable[..., Backbone]:
    """make_model(sequence=False): a tiny CNN-BiLSTM, or CNN-Transformer, for two channels and three classes."""

    def make(sequence: bool = False) -> Backbone:
        torch.manual_seed(1)
        if sequence:
            return build("cnn_transformer", in_channels=2, length=192, n_classes=CLASSES, width=4, heads=2, dropout=0.0)
        return build("cnn_bilstm", in_channels=2, length=64, n_classes=CLASSES, width=4, hidden=4, dropout=0.0)

    return make


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """make_batch((4, 4)): random windows, the domains scaled differently; with sequence=True sequences of 5 windows."""

    def make(counts: Sequence[int], sequence: bool = False, missing: int | None = None) -> Batch:
        generator = torch.Generator().manual_seed(2)
        rows, shape = sum(counts), (5, 2, 192) if sequence else (2, 64)
        domain = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        scale = (1.0 + domain).view(-1, *[1] * len(shape))
        x = torch.randn(rows, *shape, generator=generator) * scale
        y = torch.randint(0, CLASSES, (rows, *shape[:-2]), generator=generator)
        if missing is not None:  # class 0 does not occur in this domain
            y[domain == missing] = y[domain == missing].clamp_min(1)
        return Batch(x, y, domain, len(counts))

    return make
