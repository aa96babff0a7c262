"""The method and nothing else: spectra, strata, anchors, calibration, comparability."""

from sscf.core.anchors import MEANS, READINGS, Anchors
from sscf.core.calibration import GRADIENTS, SpectralCalibration, amplitude_filter
from sscf.core.comparability import Comparability, MixShift
from sscf.core.welch import WINDOWS, welch_power

__all__ = [
    "GRADIENTS",
    "MEANS",
    "READINGS",
    "WINDOWS",
    "Anchors",
    "Comparability",
    "MixShift",
    "SpectralCalibration",
    "amplitude_filter",
    "welch_power",
]
