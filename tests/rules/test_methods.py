from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sscf.cli.app import app
from sscf.errors import ConfigError
from sscf.rules import RULES, rule_params
from sscf.rules.methods import METHODS, get_method


def test_every_rule_is_a_method_without_calibration() -> None:
    for name in RULES:
        method = get_method(name)
        assert (method.rule, method.strata, method.backbone, method.calibrated) == (name, "none", None, False)


def test_presets() -> None:
    assert [get_method(n).strata for n in ("global-anchor", "domain-anchor", "sscf")] == ["global", "domain", "kmeans"]
    assert get_method("sleepeegnet").backbone == "sleepeegnet"
    assert get_method("lgsleepnet").backbone == "lgsleepnet"
    for method in METHODS.values():
        rule_params(method.rule, method.rule_params)
        assert get_method(method.name) is method


@pytest.mark.parametrize(
    ("name", "strata", "rule", "overrides"),
    [
        ("sscf+coral", "kmeans", "coral", {}),
        ("sscf:algorithm", "kmeans", "erm", {"reading": "algorithm"}),
        ("sscf:equations+deep-coral", "kmeans", "coral", {"reading": "equations"}),
        ("global-anchor:amplitude+irm", "global", "irm", {"reading": "amplitude"}),
        ("sleepeegnet+vrex", "none", "vrex", {}),
    ],
)
def test_combinations(name: str, strata: str, rule: str, overrides: dict) -> None:
    method = get_method(name)
    assert (method.name, method.strata, method.rule, dict(method.overrides)) == (name, strata, rule, overrides)
    assert method.rule_params == ({"form": "deep"} if "deep" in name else {})


def test_one_method_has_one_name() -> None:
    assert get_method("sscf+erm") == get_method("sscf")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scf", r"unknown method 'scf'; presets are: erm, .*sscf"),
        ("sscf+scf", r"unknown rule 'scf'; rules are: erm"),
        ("sscf+sscf", r"unknown rule 'sscf'"),
        ("coral+irm", r"'coral' is a rule already"),
        ("deep-coral+irm", r"'deep-coral' is a rule already"),
        ("coral:algorithm", r"'coral' has no calibration"),
        ("sscf:phase", r"unknown reading 'phase'; readings are: amplitude, algorithm, equations"),
        ("sscf:", r"unknown reading ''"),
        ("sscf+", r"unknown rule ''"),
    ],
)
def test_wrong_names(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_method(name)


def test_names_are_known_without_torch() -> None:
    code = "import sys, sscf.cli.app, sscf.rules.methods as m; m.get_method('sscf+irm'); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_command_lists_methods_with_papers_and_ranges() -> None:
    result = CliRunner().invoke(app, ["methods", "--json"])
    listed = {one["name"]: one for one in json.loads(result.stdout)}
    assert set(listed) == set(METHODS)
    assert listed["irm"]["parameters"]["weight"]["default"] == 100
    assert 1000 in listed["irm"]["parameters"]["weight"]["search"]
    assert listed["deep-coral"]["parameters"]["form"]["default"] == "deep"
    assert all(one["paper"] and one["title"] for one in listed.values())
    table = CliRunner().invoke(app, ["methods"]).stdout
    assert all(name in table for name in METHODS)
    assert "weight = 100 {0.1, 1, 10, 100, 1000, 10000}" in table
    one = CliRunner().invoke(app, ["methods", "sscf:algorithm+coral"]).stdout
    assert "Sun & Saenko" in one
    assert "algorithm" in one
