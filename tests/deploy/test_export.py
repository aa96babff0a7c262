"""Exported models agree with torch on every backbone, on random and on extreme windows."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sscf import SSCFClassifier
from sscf.core import Anchors, SpectralCalibration, welch_power
from sscf.core.calibration import amplitude_filter, interpolation_matrix
from sscf.data.arrays import ArrayDomain
from sscf.data.simulate import SimulatedDomain
from sscf.data.tasks import Task
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.fitted import Settings
from sscf.export import (
    Exportable,
    ExportFailed,
    MatrixCalibration,
    MatrixFilter,
    MatrixNorm,
    compare,
    export_onnx,
    export_torch,
    exportable,
    onnx_runner,
)
from sscf.model import Model, fit_model
from sscf.nn import build, find, insert, tap_output
from sscf.rules.methods import get_method
from sscf.rules.psdnorm import SpectralNorm

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("length", [2, 15, 64, 127, 128, 129, 211, 250, 333, 500, 1000])
@pytest.mark.parametrize("frame", [2, 5, 16])
def test_real_products_filter_like_the_transform(length: int, frame: int) -> None:
    draw = torch.Generator().manual_seed(length)
    x = torch.randn(2, 3, length, generator=draw, dtype=torch.float64)
    mask = torch.rand(2, 3, frame // 2 + 1, generator=draw, dtype=torch.float64)
    expected = amplitude_filter(x, mask, interpolation_matrix(frame, length, torch.float64))
    made = MatrixFilter(frame, length)
    found = made((x - x.mean(-1, keepdim=True)).float(), mask.float())
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    assert made.a * made.b == length
    assert made.b > 1 or length <= 128 or length == 211  # long maps in two steps, unless the length is prime


@pytest.mark.parametrize("reading", ["amplitude", "algorithm", "equations"])
@pytest.mark.parametrize(("frame", "strength", "restore"), [(16, 1.0, False), (5, 0.5, True), (150, 1.0, False)])
def test_real_products_calibrate_like_the_layer(reading, frame: int, strength: float, restore: bool) -> None:
    x = torch.randn(40, 3, 300, generator=torch.Generator().manual_seed(0)).cumsum(-1) / 10
    power = welch_power(x, frame, frame // 2, center=True)
    anchors = Anchors.fit(power, k=3, frame=frame, hop=frame // 2, reading=reading)
    layer = SpectralCalibration(anchors, strength=strength, restore_mean=restore)
    made = MatrixCalibration(layer, 300)
    torch.testing.assert_close(made(x), layer(x), atol=1e-4, rtol=1e-4)
    assert torch.equal(made.found.pop(), layer.match(x))


def fitted(backbone: str, method: str = "sscf", **options: object) -> Model:
    """A hardly trained model; sequences of 3 short epochs keep the export quick."""
    sequence = 1 if backbone == "cnn_bilstm" else 3
    length = 64 if sequence == 1 else 600
    rng = np.random.default_rng(0)
    n = 36
    x = (rng.normal(size=(n, 2, length)).cumsum(axis=2) / 10 + rng.normal(size=(n, 2, length))).astype(np.float32)
    task = Task("own", ("a", "b", "c"), backbone=backbone, sequence=sequence)
    domain = ArrayDomain("one", x, np.arange(n) % 3, task.classes, subjects=np.arange(n) // 6, fs=100.0)
    settings = Settings(
        get_method(method),
        TrainConfig(epochs=2, batch_size=8, device="cpu"),
        SSCFConfig(k=2, frame=16),
        backbone_params=options,
    )
    return fit_model([task.view(domain)], settings)


SIZES: dict[str, dict[str, Any]] = {
    "cnn_bilstm": {"width": 16, "hidden": 16},
    "cnn_transformer": {"width": 8, "heads": 2, "max_sequence": 3},
    "sleepeegnet": {"hidden": 8, "attention": 8},
    "lgsleepnet": {},
}


@pytest.mark.parametrize("backbone", SIZES)
def test_onnx_agrees_with_torch_on_a_thousand_windows(backbone: str, tmp_path: Path) -> None:
    model = fitted(backbone, **SIZES[backbone])
    export_onnx(model, tmp_path / "m.onnx", windows=12)
    run = onnx_runner((tmp_path / "m.onnx").read_bytes())
    found = compare(model, run, windows=1020)
    assert found.windows >= 1000
    assert found.error < 1e-5
    assert found.classes == 0
    assert found.strata == 0
    module, example = exportable(model)
    for size in (1, 5):  # any number of windows
        x = example[:1].repeat(size, *(1,) * (example.ndim - 1))
        p, stratum = run(x.numpy())
        assert p.shape == (*x.shape[: 2 if model.fitted.model.sequence else 1], 3)
        assert stratum.shape == p.shape[:-1]
        torch.testing.assert_close(torch.from_numpy(p), module(x)[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["psdnorm", "sscf+psdnorm", "sscf+instance-norm"])
def test_layers_that_rules_insert_are_exported(method: str, tmp_path: Path) -> None:
    model = fitted("cnn_bilstm", method, width=8, hidden=8)
    assert export_onnx(model, tmp_path / "m.onnx").good
    assert {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}.isdisjoint({"DFT", "STFT"})


@pytest.mark.parametrize("size", [2, 5, 8])
def test_real_products_norm_like_the_layer(size: int) -> None:
    x = torch.randn(6, 3, 40, generator=torch.Generator().manual_seed(0)).cumsum(-1)
    layer = SpectralNorm(3, size, momentum=0.1, eps=1e-5)
    layer(x)
    torch.testing.assert_close(MatrixNorm(layer.eval())(x), layer(x), atol=1e-4, rtol=1e-4)


def test_anchors_equally_far_are_no_difference() -> None:
    """A huge window is about as far from every anchor: which is nearest is then a matter of rounding."""
    model = fitted("cnn_bilstm", "sscf:algorithm", width=8, hidden=8)
    network = copy.deepcopy(model.fitted.model)

    def other_way(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calibration = find(network, SpectralCalibration)[0]
        distances = calibration.distances(tap_output(network, "stage1", torch.from_numpy(x))).double()
        tie = (distances[:, 0] - distances[:, 1]).abs() < 1e-6 * distances[:, 0]
        strata = torch.where(tie, 1 - distances.argmin(1), distances.argmin(1))
        seen.append(int(tie.sum()))
        with torch.inference_mode(), calibration.assigned(strata):
            return network(torch.from_numpy(x)).softmax(-1).numpy(), strata.numpy()

    seen: list[int] = []
    found = compare(model, other_way, windows=60)
    assert sum(seen) > 0
    assert found.good


def test_a_network_of_ones_own_is_exported(tmp_path: Path) -> None:
    first = (nn.Conv1d(3, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU())
    layers = (*first, nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 2))
    x = np.random.default_rng(0).normal(size=(40, 3, 64)).cumsum(axis=2)
    own = SSCFClassifier(k=2, epochs=1, backbone=nn.Sequential(*layers), tap="2", random_state=0)
    own.fit(x, np.arange(40) % 2)
    assert export_torch(own.model_, tmp_path / "own.pt2", windows=12).good


@pytest.fixture(scope="module")
def har_onnx(har_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(har_model, path)
    return path


def test_the_file_says_how_to_feed_it_and_nothing_of_this_machine(har_onnx: Path) -> None:
    data = har_onnx.read_bytes()
    assert str(Path.home()).encode() not in data
    assert b"site-packages" not in data
    assert b".py" not in data
    proto = onnx.load_from_string(data)
    onnx.checker.check_model(proto)
    assert [o.name for o in proto.graph.output] == ["probabilities", "stratum"]
    assert not proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value  # dynamic
    assert {node.op_type for node in proto.graph.node}.isdisjoint({"DFT", "STFT"})
    notes = json.loads(next(p.value for p in proto.metadata_props if p.key == "sscf"))
    assert notes["classes"] == ["walking", "stairs", "sitting", "standing"]
    assert notes["normalisation"] == "center"
    assert (notes["fs"], notes["samples"], notes["unit"]) == (50.0, 128, "g")


def test_onnxruntime_alone_is_enough(har_model: Model, har_onnx: Path, har_domains: list[SimulatedDomain]) -> None:
    """The example of the docs, in a process that never imports torch or sscf."""
    folder = har_onnx.parent
    x = har_domains[0].windows[:7]
    np.save(folder / "windows.npy", x)
    text = (Path(__file__).parents[2] / "docs" / "use.md").read_text(encoding="utf-8")
    code = text.split("<!-- onnx example -->")[1].split("```python\n")[1].split("```")[0]
    assert len(code.strip().splitlines()) <= 10
    code += "\nnp.save('p.npy', probabilities)\nimport sys\nassert not {'torch', 'sscf'} & set(sys.modules)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    domain = ArrayDomain("x", x, np.zeros(7, int), har_model.classes, fs=50.0)
    np.testing.assert_allclose(np.load(folder / "p.npy"), har_model.judge(domain).probabilities, atol=1e-5)


def test_torch_export(har_model: Model, tmp_path: Path) -> None:
    found = export_torch(har_model, tmp_path / "har.pt2", windows=60)
    assert found.good
    program = torch.export.load(tmp_path / "har.pt2").module()
    _, example = exportable(har_model)
    p, stratum = program(torch.cat([example, example]))
    assert p.shape == (4, 4)
    assert stratum.shape == (4,)


def test_a_model_without_calibration_has_no_strata(tmp_path: Path) -> None:
    model = fitted("cnn_bilstm", "erm", width=8, hidden=8)
    assert export_onnx(model, tmp_path / "erm.onnx").good
    assert [o.name for o in onnx.load(tmp_path / "erm.onnx").graph.output] == ["probabilities"]


def test_a_difference_is_an_error_and_nothing_is_written(
    har_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = MatrixFilter.forward
    monkeypatch.setattr(MatrixFilter, "forward", lambda self, x, mask: 1.01 * right(self, x, mask))
    with pytest.raises(ExportFailed, match="differs from the model"):
        export_torch(har_model, tmp_path / "har.pt2")
    assert not (tmp_path / "har.pt2").exists()


def test_exporting_leaves_the_model_alone() -> None:
    network = build("cnn_bilstm", in_channels=1, length=64, n_classes=2, width=4, hidden=4)
    anchors = Anchors.fit(torch.rand(10, 4, 9), k=2, frame=16, hop=8)
    insert(network, "stage1", SpectralCalibration(anchors))
    Exportable(network, "stage1", 64)
    assert any(isinstance(module, SpectralCalibration) for module in network.modules())
