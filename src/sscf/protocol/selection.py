"""How settings and checkpoints are chosen: by source domains only, unless `oracle` is asked for by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Literal

Selection = Literal["source-val", "leave-one-source-out", "last", "oracle"]
SELECTIONS: tuple[str, ...] = ("source-val", "leave-one-source-out", "last", "oracle")


def candidates(settings: Mapping[str, Any], searchable: Iterable[str]) -> list[dict[str, Any]]:
    """Every combination of the settings given as lists, simplest first: as the lists are ordered, K ascending.

    >>> candidates({"k": [4, 2], "frame": 16}, ["k", "frame"])
    [{'k': 2}, {'k': 4}]
    """
    lists = {name: list(settings[name]) for name in searchable if isinstance(settings.get(name), list | tuple)}
    if "k" in lists:
        lists["k"].sort()
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def best(scored: list[tuple[dict[str, Any], float]]) -> dict[str, Any]:
    """The candidate with the highest score; ties go to the earlier one, that is to the smaller K."""
    return max(enumerate(scored), key=lambda item: (item[1][1], -item[0]))[1][0]
