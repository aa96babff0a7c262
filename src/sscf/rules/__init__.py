"""Learning rules: how a model learns from several domains. One file per rule, named like its registry entry."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sscf.errors import ConfigError

if TYPE_CHECKING:
    from sscf.rules.base import Params, Rule

_CLASSES = {
    "erm": "ERM",
    "irm": "IRM",
    "vrex": "VREx",
    "mmd": "MMD",
    "coral": "CORAL",
    "dann": "DANN",
    "cdan": "CDAN",
    "codats": "CoDATS",
    "groupdro": "GroupDRO",
    "mixup": "Mixup",
    "mixstyle": "MixStyle",
    "fishr": "Fishr",
    "mldg": "MLDG",
    "sleepdg": "SleepDG",
    "psdnorm": "PSDNorm",
    "fda": "FDA",
    "instance-norm": "InstanceNorm",
}


class _Registry(Mapping[str, "type[Rule]"]):
    """Rule classes by name; a rule's module (and torch with it) is imported when it is asked for."""

    def __getitem__(self, name: str) -> type[Rule]:
        if name not in _CLASSES:
            raise ConfigError(f"unknown rule '{name}'; rules are: {', '.join(_CLASSES)}")
        module = importlib.import_module(f"sscf.rules.{name.replace('-', '')}")
        return getattr(module, _CLASSES[name])

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


RULES: Mapping[str, type[Rule]] = _Registry()


def rule_params(name: str, params: Mapping[str, Any]) -> Params:
    """Check hyper-parameters given as plain values; a wrong one is an error that names it and what is allowed."""
    from pydantic import ValidationError

    kind = RULES[name].Params
    try:
        return kind.model_validate(dict(params))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            allowed = ", ".join(kind.model_fields) or "none"
            raise ConfigError(f"rule '{name}' has no hyper-parameter '{key}'; it has: {allowed}") from error
        raise ConfigError(f"rule '{name}': {key} = {first['input']!r}: {first['msg']}") from error


def build_rule(
    name: str, params: Mapping[str, Any] | None = None, *, n_domains: int, n_classes: int, feature_dim: int
) -> Rule:
    """The rule `name` with its defaults, changed by `params`, for a model with `feature_dim` features."""
    checked = rule_params(name, params or {})
    return RULES[name](checked, n_domains=n_domains, n_classes=n_classes, feature_dim=feature_dim)


__all__ = ["RULES", "build_rule", "rule_params"]
