"""Backbones with named taps, and what it takes to put a module at a tap of any PyTorch encoder."""

from __future__ import annotations

import inspect
from typing import Any

from sscf.errors import ConfigError
from sscf.nn.base import Backbone, Tapped, find, insert, tap_output, wrap
from sscf.nn.cnn_bilstm import CNNBiLSTM
from sscf.nn.cnn_transformer import CNNTransformer
from sscf.nn.lgsleepnet import LGSleepNet
from sscf.nn.sleepeegnet import SleepEEGNet

BACKBONES: dict[str, type[Backbone]] = {
    "cnn_bilstm": CNNBiLSTM,
    "cnn_transformer": CNNTransformer,
    "sleepeegnet": SleepEEGNet,
    "lgsleepnet": LGSleepNet,
}

__all__ = [
    "BACKBONES",
    "Backbone",
    "CNNBiLSTM",
    "CNNTransformer",
    "LGSleepNet",
    "SleepEEGNet",
    "Tapped",
    "build",
    "find",
    "insert",
    "tap_output",
    "wrap",
]


def build(name: str, *, in_channels: int, length: int, n_classes: int, **options: Any) -> Backbone:
    """A backbone by its name, for windows of `in_channels` x `length` samples; `options` are those of its class."""
    if name not in BACKBONES:
        raise ConfigError(f"no backbone '{name}'; there are: {', '.join(BACKBONES)}")
    kind = BACKBONES[name]
    known = [p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(f"backbone '{name}' has no option '{unknown[0]}'; it has: {', '.join(known)}")
    return kind(in_channels=in_channels, length=length, n_classes=n_classes, **options)
