"""CNN-BiLSTM: the backbone for ECG and activity recognition."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from sscf.nn.base import Backbone

MAX_STEPS = 64  # of the LSTM: past this it takes more time than all convolutions together


class CNNBiLSTM(Backbone):
    """Three convolution stages, a two-layer bidirectional LSTM, the maximum over time, an MLP.

    ::

        (B, C, T) -> stage1 (B, w, T/2s) -> stage2 (B, 2w, T/4s) -> stage3 (B, 2w, T/8s)
                  -> BiLSTM (B, 2h, T/8s) -> max over time (B, 2h) -> MLP (B, n_classes)

    A stage is convolution, batch norm, ReLU, max-pool by 2. s is the stride of the first convolution.
    Taps: `stage1` (w x 64 for windows of 128 samples; w x 250 for 1000), `stage2`, `stage3`.

    Parameters
    ----------
    in_channels, length, n_classes : C, T and the number of classes. Other lengths than T may be given later.
    width : w, channels of the first stage.
    hidden : h, units of the LSTM per direction.
    stride : s; by default the smallest that leaves the LSTM no more than 64 steps (1 for T=128, 2 for T=1000).
    dropout : of the MLP's hidden layer.
    """

    taps = ("stage1", "stage2", "stage3")

    def __init__(
        self,
        in_channels: int,
        length: int,
        n_classes: int,
        *,
        width: int = 32,
        hidden: int = 48,
        stride: int | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        stride = stride or math.ceil(length / (8 * MAX_STEPS))
        self.in_channels = in_channels
        self.min_length = 8 * stride
        self.check_length(length)
        self.stage1 = _stage(in_channels, width, kernel=9, stride=stride)
        self.stage2 = _stage(width, 2 * width, kernel=5)
        self.stage3 = _stage(2 * width, 2 * width, kernel=5)
        self.lstm = nn.LSTM(2 * width, hidden, num_layers=2, bidirectional=True)
        self.feature_dim = 2 * hidden
        self.classifier = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, n_classes)
        )

    def features(self, x: Tensor) -> Tensor:
        self.check(x)
        maps = self.stage3(self.stage2(self.stage1(x)))
        steps, _ = self.lstm(maps.permute(2, 0, 1))  # time first is how the LSTM works inside
        return steps.amax(0)


class PairMax(nn.Module):
    """Max-pool by 2, (B, C, L) -> (B, C, L // 2), as b + relu(a - b): on a CPU twice as fast as `nn.MaxPool1d(2)`.

    Values and gradients are those of the maximum, up to rounding.
    """

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        a, b = x[..., : 2 * half].unflatten(-1, (half, 2)).unbind(-1)
        return b + F.relu(a - b)


def _stage(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """(B, channels, L) -> (B, width, ceil(L / stride) // 2)."""
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv1d(channels, width, kernel, stride, padding=kernel // 2, bias=False),  # the norm has the bias
            norm=nn.BatchNorm1d(width),
            pool=PairMax(),
            act=nn.ReLU(),  # after the pool: the same values as before it, for half the work
        )
    )
