"""LG-SleepNet: local convolutions beside a global Transformer; a baseline of the sleep table."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sscf.nn.base import Backbone

PATCH = 100  # samples: 1 s at 100 Hz


class LGSleepNet(Backbone):
    """Each epoch by itself: what its waveforms are (local) and how they follow each other (global), fused.

    ::

        (B, S, C, T) -> local1 (B*S, 64, T/3) -> local2 (B*S, 64, T/6) -> conv 128 k8, 256 k4, pool 4 -> (B*S, 256, L)
                     -> T/100 patches and a class token of size 100 -> two Transformer layers -> (B*S, 256)
                     -> fusion (B, S, 128) -> linear

    Fusion keeps of the local map what is orthogonal to the global vector, pools it (generalised mean, p = 3), weighs
    the two against each other channel by channel and adds them.

    Parameters
    ----------
    in_channels, length, n_classes : C, T and the number of classes. A rest of T below a whole patch is local only.
    heads : of the Transformer layers.
    dropout : after the first pool; that of the Transformer layers is 0.2.
    """

    taps = ("local1", "local2")
    sequence = True
    min_length = PATCH
    feature_dim = 128

    def __init__(self, in_channels: int, length: int, n_classes: int, *, heads: int = 5, dropout: float = 0.5) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.check_length(length)
        self.local1 = _conv(in_channels, 64, 50, stride=3)
        self.local2 = nn.Sequential(*_conv(64, 64, 16), nn.MaxPool1d(8, stride=2, padding=4))
        self.local3 = nn.Sequential(
            nn.Dropout(dropout), *_conv(64, 128, 8), *_conv(128, 256, 4), nn.MaxPool1d(4, padding=2)
        )
        self.patches = nn.Conv1d(in_channels, PATCH, PATCH, stride=PATCH)  # a linear map of each patch
        self.token = nn.Parameter(torch.randn(PATCH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            PATCH, heads, dim_feedforward=4 * PATCH, dropout=0.2, activation="gelu", batch_first=True, norm_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.from_token = nn.Sequential(nn.Linear(PATCH, 256), nn.GELU(), nn.Linear(256, 256))
        self.from_local = nn.Linear(256, 256)
        self.fuse = nn.Sequential(nn.Linear(256, self.feature_dim), nn.ReLU())
        self.classifier = nn.Linear(self.feature_dim, n_classes)

    def features(self, x: Tensor) -> Tensor:
        self.check(x)
        epochs = x.flatten(0, 1)
        local = self.local3(self.local2(self.local1(epochs)))
        tokens = self.patches(epochs).transpose(1, 2)
        tokens = torch.cat([self.token.expand(tokens.shape[0], 1, -1), tokens], 1)
        tokens = self.transformer(tokens + _positions(tokens.shape[1], tokens))
        whole = self.from_token(tokens[:, 0])
        pair = torch.stack([whole, self.from_local(_generalised_mean(_orthogonal(local, whole)))])
        return self.fuse((pair * pair.softmax(0)).sum(0)).unflatten(0, x.shape[:2])


def _conv(channels: int, width: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(channels, width, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm1d(width), nn.GELU()
    )


def _positions(steps: int, like: Tensor) -> Tensor:
    """Sines and cosines of falling frequency, (steps, size of a token)."""
    size = like.shape[-1]
    place = torch.arange(steps, device=like.device, dtype=torch.float32)[:, None]
    index = torch.arange(size, device=like.device)
    angle = place / 10000 ** (2 * (index // 2) / size)
    return torch.where(index % 2 == 0, angle.sin(), angle.cos()).to(like.dtype)


def _orthogonal(maps: Tensor, vector: Tensor) -> Tensor:
    """(B, D, L) without its component along (B, D), at each time."""
    unit = F.normalize(vector, dim=1).unsqueeze(2)
    return maps - unit * (unit * maps).sum(1, keepdim=True)


def _generalised_mean(maps: Tensor, p: float = 3.0, eps: float = 1e-6) -> Tensor:
    """(B, D, L) -> (B, D); p = 1 is the mean, a large p the maximum."""
    return maps.clamp_min(eps).pow(p).mean(-1).pow(1 / p)
