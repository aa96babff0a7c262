"""The target is unseen: swap it for noise or remove it, and everything trained is the same to the bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sscf.experiment import runs as runs_module
from sscf.experiment.config import Experiment, SSCFConfig
from sscf.experiment.fitted import Fitted
from sscf.experiment.plan import make_plan
from sscf.experiment.runs import Runs, train_run


def trained(experiment: Experiment, folder: Path, remove: bool = False) -> list[Fitted]:
    """All runs on target "c", trained."""
    plan = make_plan(experiment)
    assert experiment.store is not None
    store = Path(experiment.store)
    if remove:
        shutil.rmtree(store / "c")
    return [train_run(Runs(folder), store, spec)[0] for spec in plan.runs if spec.target == "c"]


def differences(one: list[Fitted], other: list[Fitted]) -> list[str]:
    """What differs between models trained beside two versions of the target."""
    found = []
    for a, b in zip(one, other, strict=True):
        name = a.settings.method.name
        ours, theirs = a.model.state_dict(), b.model.state_dict()
        if ours.keys() != theirs.keys() or any(not torch.equal(ours[key], theirs[key]) for key in ours):
            found.append(f"{name}: weights")
        if a.calibration and b.calibration and not torch.equal(a.calibration.power, b.calibration.power):
            found.append(f"{name}: anchors")
        for part in ("chosen", "candidates", "validation", "history", "stage1_history"):
            if getattr(a, part) != getattr(b, part):
                found.append(f"{name}: {part}")
    return found


@pytest.fixture
def methods() -> list[str]:
    return ["erm", "coral", "sscf", "domain-anchor"]


@pytest.mark.parametrize("normalisation", ["center", "source", "dataset"])
def test_noise_in_place_of_the_target_changes_nothing(
    tiny_store: Callable, tiny: Callable, tmp_path: Path, methods: list[str], normalisation: str
) -> None:
    settings = {"methods": methods, "normalisation": normalisation, "sscf": SSCFConfig(k=[2, 3], frame=8)}
    real = trained(tiny(tiny_store("real"), **settings), tmp_path / "r1")
    noise = trained(tiny(tiny_store("noise", noise="c"), **settings), tmp_path / "r2")
    assert differences(real, noise) == []


def test_removing_the_target_changes_nothing(
    tiny_store: Callable, tiny: Callable, tmp_path: Path, methods: list[str]
) -> None:
    real = trained(tiny(tiny_store("real"), methods=methods), tmp_path / "r1")
    gone = trained(tiny(tiny_store("gone"), methods=methods), tmp_path / "r2", remove=True)
    assert differences(real, gone) == []


def test_leave_one_source_out_is_blind_too(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    settings = {"methods": ["sscf"], "selection": "leave-one-source-out", "sscf": SSCFConfig(k=[1, 2], frame=8)}
    real = trained(tiny(tiny_store("real"), **settings), tmp_path / "r1")
    noise = trained(tiny(tiny_store("noise", noise="c"), **settings), tmp_path / "r2")
    assert differences(real, noise) == []


def test_a_planted_leak_is_found(
    tiny_store: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A harness that slips the target in among the sources must not pass the check above."""
    honest = runs_module.open_views

    def leaking(store: Path, task: str, names: list[str], most: int | None) -> dict:
        return honest(store, task, [*names, "c"], most)

    monkeypatch.setattr(runs_module, "open_views", leaking)
    real = trained(tiny(tiny_store("real")), tmp_path / "r1")
    noise = trained(tiny(tiny_store("noise", noise="c")), tmp_path / "r2")
    found = differences(real, noise)
    assert "erm: weights" in found
    assert "sscf: anchors" in found
