"""Methods: a backbone x a calibration x a rule, by name.

A name is a head, optionally with the reading of the calibration and a rule: `sscf`, `sscf:algorithm`, `sscf+coral`,
`global-anchor:equations+irm`, `sleepeegnet`. A rule's own name (`coral`) is that rule without calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sscf.errors import ConfigError
from sscf.rules import RULES

Strata = Literal["none", "global", "domain", "kmeans"]
_SSCF = "Rethinking Time Series Domain Generalization via Structure-Stratified Calibration, 2026"
READINGS = ("amplitude", "algorithm", "equations")


@dataclass(frozen=True)
class Method:
    """What is trained. `backbone` None is the task's own; `overrides` are settings of the calibration (`reading`)."""

    name: str
    rule: str = "erm"
    rule_params: Mapping[str, Any] = field(default_factory=dict)
    strata: Strata = "none"
    backbone: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    paper: str = ""  # of the calibration or the backbone; a rule has its own

    @property
    def calibrated(self) -> bool:
        return self.strata != "none"


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in [
        *(Method(name, rule=name) for name in RULES),
        Method(
            "deep-coral",
            rule="coral",
            rule_params={"form": "deep"},
            title="Deep CORAL",
            paper="Sun & Saenko, Deep CORAL, ECCV Workshops 2016",
        ),
        Method("global-anchor", strata="global", title="Calibration to one anchor of all sources (K=1)", paper=_SSCF),
        Method("domain-anchor", strata="domain", title="Calibration to one anchor per source data set", paper=_SSCF),
        Method("sscf", strata="kmeans", title="Structure-stratified spectral calibration", paper=_SSCF),
        Method(
            "sleepeegnet",
            backbone="sleepeegnet",
            title="SleepEEGNet",
            paper="Mousavi et al., SleepEEGNet, PLoS ONE 2019",
        ),
        Method(
            "lgsleepnet",
            backbone="lgsleepnet",
            title="LG-SleepNet",
            paper="Shen et al., LGSleepNet, IEEE Transactions on Instrumentation and Measurement 2023",
        ),
    ]
}


def get_method(name: str) -> Method:
    """The method of a name: a preset of `METHODS`, with `:reading` and `+rule` where they apply.

    >>> get_method("sscf+coral").rule, get_method("sscf:algorithm").overrides["reading"]
    ('coral', 'algorithm')
    """
    stem, plus, rule = name.partition("+")
    head, colon, reading = stem.partition(":")
    if head not in METHODS:
        raise ConfigError(f"unknown method '{name}'; presets are: {', '.join(METHODS)}")
    method = METHODS[head]
    if colon:
        if not method.calibrated:
            raise ConfigError(f"method '{name}': '{head}' has no calibration, so no reading '{reading}'")
        if reading not in READINGS:
            raise ConfigError(f"method '{name}': unknown reading '{reading}'; readings are: {', '.join(READINGS)}")
        method = replace(method, name=stem, overrides={"reading": reading})
    if plus:
        if head in RULES or method.rule != "erm":
            raise ConfigError(
                f"method '{name}': '{head}' is a rule already; combine a calibration or backbone with a rule"
            )
        if rule not in METHODS or METHODS[rule].calibrated or METHODS[rule].backbone:
            raise ConfigError(f"method '{name}': unknown rule '{rule}'; rules are: {', '.join(RULES)}, deep-coral")
        added = METHODS[rule]
        if rule != "erm":  # sscf+erm is sscf: one method, one name
            name = f"{method.name}+{rule}"
            method = replace(method, name=name, rule=added.rule, rule_params=added.rule_params)
    return method
