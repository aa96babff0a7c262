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
    known = {p.name: p.default for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY}
    for option, value in options.items():
        if option not in known:
            raise ConfigError(f"backbone '{name}' has no option '{option}'; it has: {', '.join(known)}")
        _check_option(f"backbone '{name}': {option} = {value!r}", value, known[option])
    try:
        return kind(in_channels=in_channels, length=length, n_classes=n_classes, **options)
    except AssertionError as error:  # of PyTorch's attention: so many heads do not share the width evenly
        raise ConfigError(f"backbone '{name}' cannot be built: {error}") from error


def _check_option(what: str, value: Any, default: Any) -> None:
    """Sizes are positive integers, or None where that is the default; dropout is a share."""
    if isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ConfigError(f"{what}: must be a number from 0 to below 1")
    elif value is not default and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"{what}: must be an integer of at least 1")
