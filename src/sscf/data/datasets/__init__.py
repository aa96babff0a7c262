"""The data sets by name. Each is the `DATASET` of the module of its name, imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from sscf.data.datasets.base import DataSet, Recipe
from sscf.errors import ConfigError

NAMES = (
    *("shhs1", "p2018", "mros1", "mros2", "mesa", "abc", "ccshs", "cfs", "hmc", "isruc", "sleepedfx"),
    *("mitbih", "incart", "ptbxl", "chapman", "cinc2017"),
    *("motionsense", "ucihar", "uschad", "wisdm"),
)


class _Registry(Mapping[str, DataSet]):
    """Name -> data set; iterating gives the names in the order of the paper."""

    def __getitem__(self, name: str) -> DataSet:
        if name not in NAMES:
            raise KeyError(name)
        return importlib.import_module(f"{__name__}.{name}").DATASET

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


DATASETS: Mapping[str, DataSet] = _Registry()


def get(name: str) -> DataSet:
    """The data set of that name."""
    if name not in NAMES:
        raise ConfigError(f"no data set {name!r}; there are {', '.join(NAMES)}")
    return DATASETS[name]


__all__ = ["DATASETS", "NAMES", "DataSet", "Recipe", "get"]
