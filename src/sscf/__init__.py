"""sscf: structure-stratified spectral calibration of time series, for data sets a model has never seen."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are looked up on first use, so that `import sscf` and `sscf --help` stay fast.
_PUBLIC = {
    "welch_power": "sscf.core.welch",
    "Anchors": "sscf.core.anchors",
    "SpectralCalibration": "sscf.core.calibration",
    "SSCFClassifier": "sscf.estimator",
    "SSCFError": "sscf.errors",
}
_ROOMS = ("core", "nn", "rules", "data", "protocol", "experiment", "report")

__all__ = ["Anchors", "SSCFClassifier", "SSCFError", "SpectralCalibration", "__version__", "welch_power"]

if TYPE_CHECKING:
    from sscf.core.anchors import Anchors
    from sscf.core.calibration import SpectralCalibration
    from sscf.core.welch import welch_power
    from sscf.errors import SSCFError
    from sscf.estimator import SSCFClassifier


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"sscf.{name}")
    raise AttributeError(f"module 'sscf' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, *_ROOMS])
