"""What every backbone offers, and how a module is placed at one of its taps.

A *tap* is the dotted name of a submodule whose output is a feature map (B, C, L). `insert` replaces that submodule by
`Tapped(inner, after)`. A finished model has no hooks, so copying, saving, compiling and exporting it just work.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NoReturn, TypeVar

from torch import Tensor, nn

from sscf.errors import ConfigError, InputError

M = TypeVar("M", bound=nn.Module)


class Backbone(nn.Module):
    """An encoder and its classifier: `forward(x) = classify(features(x))`.

    Attributes
    ----------
    taps : names of the submodules where a module may be inserted, shallow first; the first one is the default.
    feature_dim : D, the size of a feature vector.
    sequence : True if the input is sequences of windows (B, S, C, T), False if it is single windows (B, C, T).
    in_channels, min_length : C and the smallest T the input may have; C is None for a wrapped encoder.
    """

    taps: tuple[str, ...] = ()
    feature_dim: int
    sequence: bool = False
    in_channels: int | None = None
    min_length: int = 1
    root: str = ""  # where tap names start, relative to this module

    classifier: nn.Module

    def features(self, x: Tensor) -> Tensor:
        """(B, C, T) -> (B, D), or (B, S, C, T) -> (B, S, D) for a sequence model."""
        raise NotImplementedError

    def classify(self, z: Tensor) -> Tensor:
        """Features (..., D) -> logits (..., n_classes)."""
        return self.classifier(z)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))

    def at(self, tap: str) -> nn.Module:
        """The submodule at `tap`, together with whatever has been inserted there."""
        return _get(self, _path(self, tap))

    @property
    def last_linear(self) -> nn.Linear:
        """The linear layer that gives the logits."""
        return _linears(self.classifier)[-1]

    def check(self, x: Tensor) -> None:
        """Raise InputError if `x` is not what this backbone takes."""
        name, axes = type(self).__name__, "(B, S, C, T)" if self.sequence else "(B, C, T)"
        if x.dim() != 3 + self.sequence:
            raise InputError(f"{name} takes {axes}, not a tensor of shape {tuple(x.shape)}")
        if x.shape[-2] != self.in_channels:
            raise InputError(
                f"{name} was built for {self.in_channels} channels, the input has {x.shape[-2]}: "
                f"shape {tuple(x.shape)} is read as {axes}"
            )
        self.check_length(x.shape[-1])

    def check_length(self, length: int) -> None:
        if length < self.min_length:
            raise InputError(
                f"{type(self).__name__} needs windows of at least {self.min_length} samples, these have {length}"
            )


class Tapped(nn.Module):
    """`after(inner(x))`: a submodule of a backbone, and what was inserted behind it."""

    def __init__(self, inner: nn.Module, after: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        if y.dim() != 3:
            raise InputError(f"a tap must give feature maps (B, C, L), this one gives shape {tuple(y.shape)}")
        return self.after(y)


def insert(model: M, tap: str, module: nn.Module) -> M:
    """Place `module`, (B, C, L) -> (B, C, L), behind the submodule named `tap`. Changes `model` and returns it.

    A second module inserted at the same tap comes after the first.
    """
    path = _path(model, tap)
    _set(model, path, Tapped(_get(model, path), module))
    return model


def find(model: nn.Module, kind: type[M]) -> list[M]:
    """All submodules of a kind, e.g. the calibrations of a model, in the order in which they were registered."""
    return [module for module in model.modules() if isinstance(module, kind)]


class _Reached(Exception):
    def __init__(self, output: Tensor) -> None:
        self.output = output


def tap_output(model: nn.Module, tap: str, x: Tensor, *, inserted: bool = False) -> Tensor:
    """The feature maps (B', C, L) at a tap; what lies deeper in the model is not run.

    B' is B, or B*S for a sequence model. With `inserted=False` these are the maps as the first inserted module receives
    them, with `inserted=True` as the last one leaves them.
    """
    module = _get(model, _path(model, tap))
    while not inserted and isinstance(module, Tapped):
        module = module.inner

    def stop(_module: nn.Module, _args: object, output: Tensor) -> NoReturn:
        raise _Reached(output)

    hook = module.register_forward_hook(stop)
    try:
        model.features(x) if isinstance(model, Backbone) else model(x)
    except _Reached as reached:
        output = reached.output
    else:
        raise ConfigError(f"the model's forward pass never came to '{tap}'")
    finally:
        hook.remove()
    if not isinstance(output, Tensor) or output.dim() != 3:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(f"a tap must give feature maps (B, C, L), '{tap}' gives {shape}")
    return output


class Wrapped(Backbone):
    """A user's own encoder, its classifier taken out so that features and logits can be had apart."""

    root = "net"

    def __init__(self, net: nn.Module, taps: tuple[str, ...], classifier: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.classifier = classifier
        self.taps = taps
        self.feature_dim = _linears(classifier)[0].in_features

    def features(self, x: Tensor) -> Tensor:
        return self.net(x)


def wrap(model: nn.Module, tap: str | Sequence[str] = "layer1", classifier: str | nn.Module | None = None) -> Backbone:
    """Make a backbone of any PyTorch encoder.

    Parameters
    ----------
    model : the encoder. It is copied; the one given stays as it is.
    tap : dotted name of one of its submodules (or of several) whose output is (B, C, L).
    classifier : name of the submodule that maps features to logits, which must be the last thing `model` does; or a new
        head to be put behind a `model` that has none. By default the last `nn.Linear` of `model`.

    Examples
    --------
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv1d(1, 8, 5), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3))
    >>> wrap(net, tap="0").feature_dim
    8
    """
    net = copy.deepcopy(model)
    taps = (tap,) if isinstance(tap, str) else tuple(tap)
    for name in taps:
        _path(net, name)
    if isinstance(classifier, nn.Module):
        head = copy.deepcopy(classifier)
    else:
        name = classifier or _last_linear(net)
        head = _get(net, _path(net, name))
        _set(net, name, nn.Identity())
    if not _linears(head):
        raise ConfigError(f"the classifier of {type(model).__name__} has no nn.Linear")
    return Wrapped(net, taps, head)


def _last_linear(net: nn.Module) -> str:
    names = [name for name, module in net.named_modules() if name and isinstance(module, nn.Linear)]
    if not names:
        raise ConfigError(f"{type(net).__name__} has no nn.Linear: say which submodule is the classifier")
    return names[-1]


# Paths. A Tapped is transparent: "stage1.conv" is found whether or not something has been inserted at "stage1".


def _path(model: nn.Module, tap: str) -> str:
    """The dotted path of a tap in `model`; ConfigError with the names there are if it does not exist."""
    if isinstance(model, Backbone):
        if tap not in model.taps:
            raise ConfigError(f"{type(model).__name__} has no tap '{tap}'; its taps are: {', '.join(model.taps)}")
        return f"{model.root}.{tap}" if model.root else tap
    try:
        if not tap:
            raise AttributeError
        _get(model, tap)
    except AttributeError:
        names = [name for name, _ in model.named_modules() if name]
        shown = ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")
        raise ConfigError(f"{type(model).__name__} has no submodule '{tap}'; it has: {shown}") from None
    return tap


def _child(module: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """(owner, child): the module that holds `name`, looking through what has been inserted."""
    while isinstance(module, Tapped) and name not in module._modules:
        module = module.inner
    return module, module.get_submodule(name)


def _get(model: nn.Module, path: str) -> nn.Module:
    for name in path.split("."):
        model = _child(model, name)[1]
    return model


def _set(model: nn.Module, path: str, new: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    owner, _ = _child(_get(model, parent) if parent else model, name)
    owner._modules[name] = new


def _linears(module: nn.Module) -> list[nn.Linear]:
    return [m for m in module.modules() if isinstance(m, nn.Linear)]
