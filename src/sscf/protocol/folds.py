"""Which domains are trained on and which are tested: nothing here ever sees a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from sscf.errors import ConfigError

Protocol = Literal["lodo", "external", "leave-k-out"]
PROTOCOLS: tuple[str, ...] = ("lodo", "external", "leave-k-out")


@dataclass(frozen=True)
class Fold:
    """Source domains and the target they are tested on."""

    sources: tuple[str, ...]
    target: str
    protocol: Protocol = "lodo"

    def __post_init__(self) -> None:
        if not self.sources:
            raise ConfigError(f"target '{self.target}' has no source domains")
        if self.target in self.sources:
            raise ConfigError(f"'{self.target}' is both a source and the target")


def leave_one_domain_out(domains: Sequence[str], targets: Sequence[str] | None = None) -> list[Fold]:
    """Every domain (or every one of `targets`) is the target once; the others are its sources.

    >>> [fold.target for fold in leave_one_domain_out(["a", "b", "c"])]
    ['a', 'b', 'c']
    """
    _distinct(domains)
    folds = []
    for target in targets if targets is not None else domains:
        if target not in domains:
            raise ConfigError(f"target '{target}' is not one of the domains {', '.join(domains)}")
        folds.append(Fold(tuple(d for d in domains if d != target), target))
    return folds


def external(sources: Sequence[str], targets: Sequence[str]) -> list[Fold]:
    """All sources train one model, tested on every external target."""
    _distinct([*sources, *targets])
    return [Fold(tuple(sources), target, "external") for target in targets]


def leave_k_out(domains: Sequence[str], k: int) -> list[Fold]:
    """Every set of k domains is left out of training; each of its members is a target."""
    _distinct(domains)
    if not 1 <= k < len(domains):
        raise ConfigError(f"leave-k-out needs 1 <= k < {len(domains)} domains, got k = {k}")
    folds = []
    for out in combinations(domains, k):
        sources = tuple(d for d in domains if d not in out)
        folds += [Fold(sources, target, "leave-k-out") for target in out]
    return folds


def leave_one_source_out(sources: Sequence[str]) -> list[Fold]:
    """The folds inside a fold: every source is held out once. What settings are chosen on when the target is unseen."""
    if len(sources) < 2:
        raise ConfigError("leave-one-source-out needs at least two source domains")
    return leave_one_domain_out(sources)


def _distinct(domains: Sequence[str]) -> None:
    repeated = sorted({d for d in domains if list(domains).count(d) > 1})
    if repeated:
        raise ConfigError(f"domain '{repeated[0]}' is named twice")
