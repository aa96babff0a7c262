"""The example runs as it stands, and calibration does in it what the text says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from sscf.core import SpectralCalibration
from sscf.nn import find

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_own_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / "own_loop.py"))
    assert names["accuracy"](names["calibrated"]) > names["accuracy"](names["plain"])
    (calibration,) = find(names["calibrated"], SpectralCalibration)
    assert torch.equal(calibration.power, names["anchors"].power)
    assert int(names["anchors"].counts.sum()) == len(names["x"])
    assert "mean accuracy on 8 unseen devices" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
