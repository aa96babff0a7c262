"""CNN-Transformer: the backbone for sleep staging."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sscf.errors import InputError
from sscf.nn.base import Backbone


class CNNTransformer(Backbone):
    """A convolutional encoder of each epoch, and a Transformer layer over the epochs of a sequence.

    ::

        (B, S, C, 3000) -> conv 49/6, BN, GELU  act1 (B*S, 64, 500) -> max-pool 9/2  pool1 (B*S, 64, 250)
                        -> three blocks of conv 9, BN, GELU, max-pool 9/2: 128, 256, 512 channels
                        -> mean over time (B, S, 512) -> Transformer layer, learned positions -> linear

    Parameters
    ----------
    in_channels, length, n_classes : C, T (30 s at 100 Hz = 3000) and the number of classes.
    max_sequence : the longest sequence S that can be given.
    width : channels of the first block; the others double it three times.
    heads, dropout : of the Transformer layer; dropout also after the first pool.
    """

    taps = ("act1", "pool1")
    sequence = True
    min_length = 96  # the stride of all the convolutions and pools together

    def __init__(
        self,
        in_channels: int,
        length: int,
        n_classes: int,
        *,
        max_sequence: int = 20,
        width: int = 64,
        heads: int = 8,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.check_length(length)
        self.conv1 = nn.Conv1d(in_channels, width, 49, stride=6, padding=24, bias=False)
        self.norm1 = nn.BatchNorm1d(width)
        self.act1 = nn.GELU()
        self.pool1 = nn.MaxPool1d(9, stride=2, padding=4)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(_block(width * 2**i) for i in range(3)))
        self.feature_dim = dim = 8 * width
        self.positions = nn.Parameter(torch.randn(max_sequence, dim) * 0.02)
        self.context = nn.TransformerEncoderLayer(
            dim, heads, dim_feedforward=dim, dropout=dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, n_classes)

    def features(self, x: Tensor) -> Tensor:
        self.check(x)
        steps, longest = x.shape[1], len(self.positions)
        if steps > longest:
            raise InputError(
                f"CNNTransformer was built for sequences of at most {longest} (max_sequence), these have {steps}"
            )
        maps = self.pool1(self.act1(self.norm1(self.conv1(x.flatten(0, 1)))))
        epochs = self.blocks(self.dropout(maps)).mean(-1).unflatten(0, x.shape[:2])
        return self.norm(self.context(epochs + self.positions[:steps]))


def _block(channels: int) -> nn.Sequential:
    """(B, channels, L) -> (B, 2 channels, ceil(L / 2))."""
    return nn.Sequential(
        nn.Conv1d(channels, 2 * channels, 9, padding=4, bias=False),
        nn.BatchNorm1d(2 * channels),
        nn.GELU(),
        nn.MaxPool1d(9, stride=2, padding=4),
    )
