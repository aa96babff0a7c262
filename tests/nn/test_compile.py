"""Every backbone, calibrated at its first tap, under torch.compile, autocast and torch.export."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import sscf
from sscf.nn import Backbone, insert, tap_output


def calibrated(small) -> Backbone:
    model = small.model().eval()
    tap = model.taps[0]
    with torch.no_grad():
        power = sscf.welch_power(tap_output(model, tap, small.input()), frame=8, hop=4, center=True)
    insert(model, tap, sscf.SpectralCalibration(sscf.Anchors.fit(power, k=2, frame=8, hop=4)))
    return model


def gradients(model: torch.nn.Module, call, small) -> dict[str, torch.Tensor]:
    model.zero_grad()
    F.cross_entropy(call(small.input()).flatten(0, -2), small.labels().flatten()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_compiles_for_training(small):
    """Values and gradients of the traced graph; which compiler makes machine code of it does not matter here."""
    model = calibrated(small)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(small.input()), model(small.input()), rtol=1e-4, atol=1e-5)
    expected, found = gradients(model, model, small), gradients(model, compiled, small)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5)


def test_compiles_to_machine_code(small_bilstm):
    model, x = small_bilstm.model().eval(), small_bilstm.input()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model)(x), model(x), rtol=1e-4, atol=1e-5)


def test_autocast(small):
    """bfloat16 where it is safe: the same answers to its precision, gradients finite and in float32."""
    model = calibrated(small)
    x = small.input()
    with torch.no_grad():
        exact = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = model(x)
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - exact).norm() < 0.1 * exact.norm()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x).flatten(0, -2), small.labels().flatten())
    loss.backward()
    for p in model.parameters():
        assert p.grad is not None
        assert p.grad.dtype == torch.float32
        assert p.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # of nn.LSTM, about weights it also has as parameters
def test_exports_with_any_batch(small):
    model = calibrated(small)
    with torch.no_grad():
        program = torch.export.export(
            model, (small.input(batch=3),), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=4096)},)
        )
        for batch in (1, 2, 9):
            x = small.input(batch=batch, seed=batch)
            torch.testing.assert_close(program.module()(x), model(x), rtol=1e-4, atol=1e-5)


def test_runs_in_float64(small):
    model = small.model().double()
    assert model(small.input().double()).dtype == torch.float64


@pytest.mark.parametrize("threads", [1, 2])
def test_same_seed_same_model(small, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        first, second = small.model(seed=3), small.model(seed=3)
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(a, b)
        torch.manual_seed(0)
        y = first(small.input())
        torch.manual_seed(0)
        assert torch.equal(second(small.input()), y)
    finally:
        torch.set_num_threads(before)
