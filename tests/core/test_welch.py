"""welch_power against SciPy and against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import signal

from sscf import welch_power
from sscf.core import welch
from sscf.errors import InputError


def by_definition(x: np.ndarray, frame: int, hop: int, window: str = "hann") -> np.ndarray:
    """Mean over whole frames of |rFFT(frame · w)|², w of unit 2-norm; one frame at a time."""
    w = signal.get_window("hann" if window == "hann" else "boxcar", frame)
    w = w / np.sqrt(np.sum(w**2))
    starts = range(0, x.shape[-1] - frame + 1, hop)
    return np.mean([np.abs(np.fft.rfft(x[..., s : s + frame] * w)) ** 2 for s in starts], axis=0)


SHAPES = [
    (5, 2, 64),
    (5, 2, 5),
    (4, 3, 21),
    (2, 1, 9),
    (7, 9, 40),
    (16, 8, 61),
    (64, 16, 200),
    (129, 40, 500),
    (200, 7, 401),
]


@pytest.mark.parametrize(("frame", "hop", "length"), SHAPES)
@pytest.mark.parametrize("window", ["hann", "rectangular"])
def test_equals_definition(frame: int, hop: int, length: int, window) -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, length)) + 0.7
    expected = by_definition(x, frame, hop, window)
    power = welch_power(torch.from_numpy(x), frame, hop, window=window)
    assert power.dtype == torch.float64
    np.testing.assert_allclose(power.numpy(), expected, rtol=1e-10, atol=1e-10 * expected.max())
    single = welch_power(torch.from_numpy(x).float(), frame, hop, window=window)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.numpy(), expected, rtol=1e-4, atol=1e-5 * expected.max())


@pytest.mark.parametrize(("frame", "hop", "length"), [(5, 2, 64), (16, 8, 128), (150, 50, 500)])
def test_equals_scipy_up_to_its_scaling(frame: int, hop: int, length: int) -> None:
    x = np.random.default_rng(1).normal(size=(4, 3, length))
    _, density = signal.welch(x, fs=1.0, window="hann", nperseg=frame, noverlap=frame - hop, detrend=False)
    # SciPy's density is one-sided: every bin that has a mirror image counts twice.
    mirrored = np.full(frame // 2 + 1, 2.0)
    mirrored[0] = 1
    if frame % 2 == 0:
        mirrored[-1] = 1
    np.testing.assert_allclose(welch_power(torch.from_numpy(x), frame, hop).numpy() * mirrored, density, rtol=1e-10)


def test_defaults_are_frame_5_hop_2() -> None:
    x = torch.randn(2, 3, 50, dtype=torch.float64)
    assert torch.equal(welch_power(x), welch_power(x, 5, 2))
    assert welch_power(x).shape == (2, 3, 3)


def test_white_noise_has_its_variance_whatever_the_frame() -> None:
    x = torch.randn(64, 1, 4096, generator=torch.Generator().manual_seed(0))
    for frame in (8, 31, 64, 256):
        assert welch_power(x, frame, frame // 2).mean().item() == pytest.approx(1.0, abs=0.02)


def test_center_removes_the_mean_over_time() -> None:
    x = torch.randn(3, 2, 40, dtype=torch.float64) + 5
    by_hand = welch_power(x - x.mean(dim=-1, keepdim=True), 8, 4)
    torch.testing.assert_close(welch_power(x, 8, 4, center=True), by_hand, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(welch_power(x, 8, 4), by_hand)


@pytest.mark.parametrize("frame", [welch.MATMUL_FRAME, welch.MATMUL_FRAME + 1])
def test_large_maps_are_worked_on_in_pieces_with_the_same_result(monkeypatch: pytest.MonkeyPatch, frame: int) -> None:
    x = torch.randn(37, 3, 300, dtype=torch.float64)
    whole = welch_power(x, frame, 50)
    monkeypatch.setattr(welch, "PIECE_NUMBERS", 5000)
    assert 0 < welch.pieces(x) < 37
    torch.testing.assert_close(welch_power(x, frame, 50), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("frame", [5, 8, 130])
def test_gradient(frame: int) -> None:
    x = torch.randn(2, 2, 2 * frame if frame < 100 else 135, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: welch_power(x, frame, 3, center=True), (x,), fast_mode=frame > 100)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x = (torch.randn(2, 3, 64) * 300).to(dtype)  # power beyond the range of float16
    power = welch_power(x, 16, 8)
    assert power.dtype == torch.float32
    assert torch.equal(power, welch_power(x.float(), 16, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(welch_power(x, 16, 8), power)


def test_empty_batch() -> None:
    assert welch_power(torch.empty(0, 3, 20)).shape == (0, 3, 3)


@pytest.mark.parametrize(
    ("x", "frame", "hop", "message"),
    [
        (torch.zeros(3, 20), 5, 2, r"\(B, C, L\), got shape \(3, 20\)"),
        (torch.zeros(1, 1, 3, 20), 5, 2, r"\(B, C, L\), got shape"),
        (torch.zeros(1, 3, 4), 5, 2, "L = 4, frame = 5"),
        (torch.zeros(1, 3, 20), 5, 0, "hop must be an integer of at least 1, got 0"),
        (torch.zeros(1, 3, 20), 5, 1.5, "hop must be an integer of at least 1, got 1.5"),
        (torch.zeros(1, 3, 20), 1, 1, "frame must be an integer of at least 2, got 1"),
        (torch.zeros(1, 3, 20), True, 1, "frame must be an integer of at least 2, got True"),
        (torch.zeros(1, 3, 20, dtype=torch.complex64), 5, 2, "real floating-point tensor, got torch.complex64"),
        (torch.zeros(1, 3, 20, dtype=torch.int32), 5, 2, "real floating-point tensor, got torch.int32"),
        (np.zeros((1, 3, 20)), 5, 2, "expected a torch tensor .* got ndarray"),
    ],
)
def test_bad_input(x, frame, hop, message: str) -> None:
    with pytest.raises(InputError, match=message):
        welch_power(x, frame, hop)


def test_unknown_window() -> None:
    with pytest.raises(InputError, match="window must be one of hann, rectangular, got 'hamming'"):
        welch_power(torch.zeros(1, 1, 20), window="hamming")  # type: ignore[arg-type]
