"""What every learning rule shares: the domain-balanced batch, typed hyper-parameters, the `Rule` interface.

A rule gets a batch that holds windows of every source domain and returns a scalar loss. Penalties are plain functions
of tensors (`coral_penalty(features_by_domain)`); the `Rule` around them holds the state: a schedule, a classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from sscf.errors import ConfigError, InputError
from sscf.nn.base import Backbone, tap_output

ByDomain: TypeAlias = Tensor | Sequence[Tensor]
"""Rows of each domain: one (D, n, ...) tensor when the domains are equally large, else D tensors (n_d, ...)."""


@dataclass(frozen=True)
class Batch:
    """Windows of several domains, sorted by domain.

    x : (N, C, T) windows, or (N, S, C, T) sequences of S windows
    y : (N,) or (N, S) class indices
    domain : (N,) int64 in 0..n_domains-1, not decreasing
    n_domains : number of source domains, some of which may be absent from this batch
    counts : rows of each domain; counted from `domain` when not given
    """

    x: Tensor
    y: Tensor
    domain: Tensor
    n_domains: int
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.counts:
            if bool((self.domain[1:] < self.domain[:-1]).any()):
                raise InputError("the rows of a batch must be sorted by domain")
            counts = torch.bincount(self.domain, minlength=self.n_domains).tolist()
            object.__setattr__(self, "counts", tuple(counts))
        if len(self.counts) != self.n_domains or sum(self.counts) != len(self.x):
            raise InputError(f"{len(self.x)} rows, {self.n_domains} domains and counts {self.counts} do not agree")

    def split(self, values: Tensor) -> ByDomain:
        """Cut (N, ...) or window-wise (N*S, ...) values into the domains present: (D, n, ...), or a list if unequal."""
        repeat = len(values) // len(self.x)
        sizes = [count * repeat for count in self.counts if count]
        if len(set(sizes)) == 1:
            return values.unflatten(0, (len(sizes), sizes[0]))
        return list(values.split(sizes))

    def present(self) -> list[int]:
        """Numbers of the domains that have rows in this batch, in the order of `split`."""
        return [d for d, count in enumerate(self.counts) if count]


def flat(values: Tensor) -> Tensor:
    """(N, D) as it is, sequences (N, S, D) window by window as (N*S, D): penalties compare windows, not sequences.

    Half precision becomes float32, because penalties are differences of nearly equal numbers.
    """
    values = values.flatten(0, -2)
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def moments(features: ByDomain) -> tuple[Tensor, Tensor]:
    """Mean (D, d) and covariance (D, d, d), over n-1, of the rows of each domain; a lone row has covariance zero."""
    if not isinstance(features, Tensor):
        means, covariances = zip(*(moments(rows[None]) for rows in features), strict=True)
        return torch.cat(means), torch.cat(covariances)
    mean = features.mean(1)
    centred = features - mean[:, None]
    return mean, centred.mT @ centred / max(features.shape[1] - 1, 1)


def pairwise_mean_square(values: Tensor) -> Tensor:
    """Mean over all pairs of D domains, and over entries, of the squared difference of values (D, ...).

    That mean equals twice the (D-1) variance over the domains, so no pair is ever formed. Zero for a single domain.
    """
    return 2 * values.var(0).mean() if len(values) > 1 else values.sum() * 0


class CrossEntropy(nn.Module):
    """Mean cross-entropy over windows; takes (N, K) with (N,) and (N, S, K) with (N, S)."""

    weight: Tensor | None

    def __init__(self, label_smoothing: float = 0.0, weight: Tensor | None = None) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(flat(logits), y.flatten(), self.weight, label_smoothing=self.label_smoothing)


class Params(BaseModel):
    """Hyper-parameters of a rule: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def param(default: Any, description: str, search: Sequence[Any] = (), **limits: Any) -> Any:
    """A documented hyper-parameter with the values a search may try."""
    return Field(default, description=description, json_schema_extra={"search": list(search)}, **limits)


def search_range(info: FieldInfo) -> list[Any]:
    """The values a search may try for a hyper-parameter; empty if it is not worth searching."""
    extra = info.json_schema_extra
    return list(extra["search"]) if isinstance(extra, dict) else []  # type: ignore[arg-type]


class Rule(nn.Module):
    """A way to learn from several domains.

    Subclasses say `name`, `title`, `paper`, how many domains they need, and their `Params`, and write `loss`.
    Modules a rule owns (a domain classifier, a decoder) are optimised together with the model: `rule.parameters()`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    needs_domains: ClassVar[int] = 1
    Params: ClassVar[type[Params]] = Params

    def __init__(self, params: Any = None, *, n_domains: int, n_classes: int, feature_dim: int) -> None:
        super().__init__()
        if n_domains < self.needs_domains:
            raise ConfigError(
                f"rule '{self.name}' needs {self.needs_domains} or more source domains, there is {n_domains}"
            )
        self.params: Any = self.Params() if params is None else params
        self.n_domains, self.n_classes, self.feature_dim = n_domains, n_classes, feature_dim
        self.criterion: nn.Module = CrossEntropy()
        self.log: dict[str, float] = {}

    def prepare(self, model: Backbone, tap: str) -> None:
        """Change the model before training and before weights are loaded: a rule may insert a layer at the tap."""

    def loss(self, model: Backbone, batch: Batch, step: int) -> Tensor:
        """Scalar loss of a batch at a training step (counted from 0); its parts are left in `self.log`."""
        raise NotImplementedError

    def resets_optimiser(self, step: int) -> bool:
        """Whether the optimiser must forget its moments before this step, because the loss changes its scale."""
        return False

    def risks(self, logits: Tensor, batch: Batch) -> Tensor:
        """Loss of each domain present in the batch, (D,)."""
        parts = zip(batch.split(logits), batch.split(batch.y), strict=True)
        return torch.stack([self.criterion(domain_logits, y) for domain_logits, y in parts])

    def total(self, risk: Tensor, penalty: Tensor, weight: float) -> Tensor:
        """risk + weight * penalty, with both kept in the log."""
        self.log = {"risk": risk.item(), "penalty": penalty.item()}
        return risk + weight * penalty


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def input_channels(model: Backbone) -> int:
    """Channels of the windows a model takes; of a wrapped encoder, those of its first convolution."""
    if model.in_channels is not None:
        return model.in_channels
    for module in model.modules():
        if isinstance(module, nn.Conv1d):
            return module.in_channels
    raise ConfigError(f"cannot tell how many channels {type(model).__name__} takes: set its `in_channels`")


def tap_channels(model: Backbone, tap: str) -> int:
    """Channels of the feature maps at a tap, found by sending one window of zeros there."""
    length = getattr(model, "length", max(model.min_length, 1024))  # some backbones take one length only
    shape = (1, input_channels(model), length)
    x = torch.zeros((1, *shape) if model.sequence else shape, device=device_of(model))
    training = model.training
    model.eval()  # batch norm must not count this window
    with torch.no_grad():
        channels = tap_output(model, tap, x).shape[1]
    model.train(training)
    return channels
