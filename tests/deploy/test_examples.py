"""The example and the code of the docs run as they stand, and calibration does in it what the text says."""

from __future__ import annotations

import re
import runpy
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sscf.core import SpectralCalibration
from sscf.nn import find

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_own_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / "own_loop.py"))
    assert names["accuracy"](names["calibrated"]) > names["accuracy"](names["plain"])
    (calibration,) = find(names["calibrated"], SpectralCalibration)
    assert torch.equal(calibration.power, names["anchors"].power)
    assert int(names["anchors"].counts.sum()) == len(names["x"])
    assert "mean accuracy on 8 unseen devices" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def network() -> nn.Sequential:
    layers = {"layer1": nn.Conv1d(2, 8, 9, padding=4), "act": nn.ReLU(), "layer2": nn.Conv1d(8, 8, 9)}
    return nn.Sequential(OrderedDict(layers, pool=nn.AdaptiveMaxPool1d(1), flat=nn.Flatten(), out=nn.Linear(8, 2)))


@pytest.mark.parametrize("page", ["README.md", "docs/use.md"])
def test_the_code_of_the_docs_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block by itself, given only the names that stand for the reader's own data and network."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"(<!-- onnx example -->\n)?```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    own = [code for elsewhere, code in blocks if not elsewhere]  # the other one is tested with the export
    assert len(own) == 2
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2, 64)).astype(np.float32)
    for code in own:
        given: dict[str, Any] = {"X": x, "y": np.arange(40) % 2, "X_new": x[:5], "dataset": np.arange(40) // 20}
        given |= {"subject": np.arange(40) // 4, "x": torch.from_numpy(x), "features": torch.randn(40, 8, 64)}
        given |= {"network": network(), "net": network(), "new_net": network()}
        exec(compile(code, page, "exec"), given)
        for made in (given["network"], given["new_net"]):
            assert made(torch.randn(3, 2, 64)).shape == (3, 2)
