"""SpectralCalibration against an independent NumPy computation, and the properties it promises."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal
from torch import Tensor

from sscf import Anchors, SpectralCalibration, welch_power
from sscf.core import READINGS, amplitude_filter, welch
from sscf.core.calibration import interpolation_matrix
from sscf.errors import InputError

# --- the method as in the paper, one sample and one channel at a time, in NumPy


def reference_power(x: np.ndarray, frame: int, hop: int) -> np.ndarray:
    """(C, L) -> (C, F)"""
    w = signal.get_window("hann", frame)
    w = w / np.linalg.norm(w)
    frames = [x[:, s : s + frame] for s in range(0, x.shape[1] - frame + 1, hop)]
    return np.mean([np.abs(np.fft.rfft(f * w)) ** 2 for f in frames], axis=0)


def reference_distances(power: np.ndarray, anchors: np.ndarray, reading: str) -> np.ndarray:
    """(C, F), (K, C, F) -> (K,)"""
    if reading == "amplitude":
        return np.array([np.linalg.norm(np.sqrt(power) - np.sqrt(a)) for a in anchors])
    if reading == "algorithm":
        return np.array([np.linalg.norm(power - a) for a in anchors])
    return np.array([np.linalg.norm(power - np.sqrt(a)) for a in anchors])


def reference_mask(x: np.ndarray, anchors: Anchors, rank: int, strength: float) -> np.ndarray:
    """(C, L) -> (C, L // 2 + 1)"""
    table = anchors.power.numpy().astype(np.float64)
    power = reference_power(x - x.mean(axis=1, keepdims=True), anchors.frame, anchors.hop)
    order = np.argsort(reference_distances(power, table, anchors.reading), kind="stable")
    numerator = table[order[rank - 1]]
    if anchors.reading == "equations":
        numerator = np.sqrt(numerator)
    mask = np.sqrt(numerator / (power + anchors.eps)) ** strength
    here, there = np.arange(anchors.frame // 2 + 1) / anchors.frame, np.arange(x.shape[1] // 2 + 1) / x.shape[1]
    return np.stack([np.interp(there, here, channel) for channel in mask])  # np.interp holds the last value


def reference_filter(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    centered = x - x.mean(axis=-1, keepdims=True)
    return np.fft.irfft(np.fft.rfft(centered) * mask, n=x.shape[-1])


def reference(x: np.ndarray, anchors: Anchors, rank=1, strength=1.0, restore_mean=False) -> np.ndarray:
    out = np.stack([reference_filter(one, reference_mask(one, anchors, rank, strength)) for one in x])
    return out + x.mean(axis=-1, keepdims=True) if restore_mean else out


# --- helpers


def noise(*shape: int, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Coloured noise with an offset, loudness varying from sample to sample."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    x = x + 0.8 * x.roll(1, -1)
    loudness = torch.rand(shape[0], 1, 1, generator=generator, dtype=torch.float64) * 3 + 0.2
    return (x * loudness + 0.5).to(dtype)


def fitted(k=3, channels=4, frame=8, hop=4, length=50, dtype=torch.float64, **options: Any) -> Anchors:
    power = welch_power(noise(60, channels, length, seed=9, dtype=dtype), frame, hop, center=True)
    return Anchors.fit(power, k=k, frame=frame, hop=hop, **options)


def drawn(power: Tensor, frame: int, hop: int, **options: Any) -> Anchors:
    return Anchors(power, torch.ones(len(power), dtype=torch.int64), frame, hop, **options)


def close(actual: Tensor, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(
        actual.detach().numpy(), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
    )


# --- numbers


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("mean", ["mas", "arithmetic", "geometric"])
@pytest.mark.parametrize(
    ("frame", "hop", "length"), [(8, 4, 50), (5, 2, 50), (5, 2, 5), (7, 3, 33), (16, 1, 16), (130, 60, 301)]
)
def test_equals_reference(reading, mean, frame: int, hop: int, length: int) -> None:
    anchors = fitted(frame=frame, hop=hop, length=length, reading=reading, mean=mean)
    calibration, x = SpectralCalibration(anchors), noise(7, 4, length)
    expected = reference(x.numpy(), anchors)
    close(calibration(x), expected, 1e-10)
    power = [reference_power(one - one.mean(axis=1, keepdims=True), frame, hop) for one in x.numpy()]
    distances = np.stack([reference_distances(p, anchors.power.numpy(), reading) for p in power])
    close(calibration.distances(x), distances, 1e-10)
    assert calibration.match(x).tolist() == distances.argmin(axis=1).tolist()

    single = calibration.float()(x.float())
    assert single.dtype == torch.float32
    # Near a tie float32 may settle on the other anchor; everything else must agree.
    same = (calibration.match(x.float()) == calibration.match(x)).numpy()
    assert same.mean() > 0.8
    close(single[same], expected[same], 1e-4)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0, 1.7])
@pytest.mark.parametrize("restore_mean", [False, True])
def test_rank_strength_and_mean(reading, rank: int, strength: float, restore_mean: bool) -> None:
    anchors = fitted(k=4, reading=reading)
    calibration = SpectralCalibration(anchors, rank=rank, strength=strength, restore_mean=restore_mean)
    x = noise(6, 4, 50)
    close(calibration(x), reference(x.numpy(), anchors, rank, strength, restore_mean), 1e-10)
    if strength == 0:
        unchanged = x if restore_mean else x - x.mean(dim=-1, keepdim=True)
        torch.testing.assert_close(calibration(x), unchanged, rtol=1e-10, atol=1e-10)


def test_rank_and_strength_may_be_set_again() -> None:
    anchors, x = fitted(k=3), noise(6, 4, 50)
    calibration = SpectralCalibration(anchors)
    calibration(x)
    calibration.rank, calibration.strength = 3, 0.5
    close(calibration(x), reference(x.numpy(), anchors, 3, 0.5), 1e-10)


def test_ties_go_to_the_lowest_anchor() -> None:
    power = torch.rand(1, 2, 5, dtype=torch.float64).repeat(3, 1, 1)
    calibration = SpectralCalibration(drawn(power, 8, 4))
    assert calibration.match(noise(4, 2, 20)).tolist() == [0] * 4
    calibration.rank = 2
    assert calibration.match(noise(4, 2, 20)).tolist() == [1] * 4


def test_match_and_distances_agree_with_anchors_on_power() -> None:
    anchors, x = fitted(k=4), noise(30, 4, 50)
    power = welch_power(x, 8, 4, center=True)
    calibration = SpectralCalibration(anchors)
    torch.testing.assert_close(calibration.distances(x), anchors.distances(power))
    assert torch.equal(calibration.match(x), anchors.assign(power))


def test_groups_give_domain_and_global_anchors() -> None:
    x = noise(60, 4, 50, seed=9)
    power = welch_power(x, 8, 4, center=True)
    groups = torch.arange(60) % 3
    for chosen in (groups, torch.zeros(60, dtype=torch.int64)):
        anchors = Anchors.fit(power, frame=8, hop=4, groups=chosen)
        by_hand = [np.mean(np.sqrt(power[chosen == g].numpy() + 1e-8), axis=0) ** 2 for g in chosen.unique()]
        np.testing.assert_allclose(anchors.power.numpy(), by_hand, rtol=1e-10)
        close(SpectralCalibration(anchors)(x[:5]), reference(x[:5].numpy(), anchors), 1e-10)


def test_assigned_anchors_replace_the_match_inside_the_context() -> None:
    anchors, x = fitted(k=3), noise(4, 4, 50)
    calibration = SpectralCalibration(anchors)
    before = calibration(x)
    stratum = torch.tensor([2, 0, 1, 2])
    with calibration.assigned(stratum):
        inside = calibration(x)
        with calibration.assigned(torch.zeros(4, dtype=torch.int64)):
            calibration(x)
        assert torch.equal(calibration(x), inside)
        with pytest.raises(InputError, match="4 strata assigned to 3 samples"):
            calibration(x[:3])
    for row, one in enumerate(stratum):
        alone = drawn(anchors.power[one : one + 1], 8, 4)
        close(inside[row : row + 1], reference(x[row : row + 1].numpy(), alone), 1e-10)
    assert torch.equal(calibration(x), before)


@pytest.mark.parametrize(("frame", "length"), [(4, 9), (5, 64), (8, 8), (7, 7), (16, 501), (2, 3)])
def test_interpolation_is_on_true_frequencies(frame: int, length: int) -> None:
    mask = np.random.default_rng(0).random(frame // 2 + 1)
    expected = np.interp(np.fft.rfftfreq(length), np.arange(frame // 2 + 1) / frame, mask)
    spread = interpolation_matrix(frame, length, torch.float64).numpy()
    np.testing.assert_allclose(mask @ spread, expected, rtol=1e-12)


def test_pieces_of_a_large_batch_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise(37, 4, 50).requires_grad_()
    for gradient in ("mask", "full"):
        calibration = SpectralCalibration(fitted(), gradient=gradient)
        results = []
        for size in (1 << 30, 1000):
            monkeypatch.setattr(welch, "PIECE_NUMBERS", size)
            y = calibration(x)
            results.append((y, *torch.autograd.grad((y**3).sum(), x)))
        torch.testing.assert_close(results[0], results[1], rtol=1e-11, atol=1e-11)


# --- gradients


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("length", [12, 13])
def test_gradient_full(reading, length: int) -> None:
    anchors = fitted(k=2, channels=2, frame=5, hop=2, length=length, reading=reading)
    calibration = SpectralCalibration(anchors, gradient="full", restore_mean=True, strength=0.7)
    x = noise(2, 2, length).requires_grad_()
    assert torch.autograd.gradcheck(calibration, (x,))
    assert torch.autograd.gradgradcheck(calibration, (x,), atol=1e-4)


@pytest.mark.parametrize("length", [12, 13])
def test_gradient_mask_is_that_of_a_constant_mask(length: int) -> None:
    anchors = fitted(k=2, channels=2, frame=5, hop=2, length=length)
    calibration, x = SpectralCalibration(anchors), noise(3, 2, length).requires_grad_()
    y = calibration(x)
    weight = torch.randn_like(y)
    (grad,) = torch.autograd.grad(y, x, weight)
    # With the mask held fixed the output is linear in x: its change for a step is known exactly.
    masks = np.stack([reference_mask(one, anchors, 1, 1.0) for one in x.detach().numpy()])
    for seed in range(5):
        step = np.random.default_rng(seed).normal(size=x.shape)
        assert np.sum(grad.numpy() * step) == pytest.approx(np.sum(weight.numpy() * reference_filter(step, masks)))
    full = torch.autograd.grad(SpectralCalibration(anchors, gradient="full")(x), x, weight)[0]
    assert not torch.allclose(full, grad, rtol=1e-2)


@pytest.mark.parametrize("length", [9, 10])
def test_gradient_of_the_filter_in_both_arguments(length: int) -> None:
    x = noise(2, 3, length).requires_grad_()
    mask = torch.rand(2, 3, 3, dtype=torch.float64, requires_grad=True)
    spread = interpolation_matrix(5, length, torch.float64)
    assert torch.autograd.gradcheck(amplitude_filter, (x, mask, spread))
    assert torch.autograd.gradgradcheck(amplitude_filter, (x, mask, spread))


@pytest.mark.parametrize("gradient", ["mask", "full"])
def test_no_gradient_to_anchors(gradient) -> None:
    anchors = fitted()
    power = anchors.power.clone().requires_grad_()
    calibration = SpectralCalibration(drawn(power, 8, 4), gradient=gradient)
    assert list(calibration.parameters()) == []
    calibration(noise(3, 4, 50).requires_grad_()).sum().backward()
    assert power.grad is None
    assert calibration.power.grad is None
    assert not calibration(noise(3, 4, 50)).requires_grad


# --- properties

shapes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(4, 90))


@settings(max_examples=60, deadline=None)
@given(shape=shapes, data=st.data(), reading=st.sampled_from(READINGS), seed=st.integers(0, 10_000))
def test_phase_is_unchanged(shape: tuple[int, int, int], data: st.DataObject, reading, seed: int) -> None:
    frame = data.draw(st.integers(2, shape[2]))
    hop = data.draw(st.integers(1, frame))
    generator = torch.Generator().manual_seed(seed)
    power = torch.rand(3, shape[1], frame // 2 + 1, generator=generator, dtype=torch.float64) + 0.05
    x = noise(*shape, seed=seed)
    before = torch.fft.rfft(x - x.mean(dim=-1, keepdim=True))
    after = torch.fft.rfft(SpectralCalibration(drawn(power, frame, hop, reading=reading))(x))
    energetic = before.abs() > 1e-6 * before.abs().amax()
    turn = torch.angle(after * before.conj())[energetic]
    assert turn.abs().max() < 1e-5
    assert (after.abs()[energetic] > 0).all()


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("length", [24, 25])
def test_idempotent_with_one_rectangular_frame(reading, length: int) -> None:
    """Calibrating twice is calibrating once exactly when the mask is the ratio that it corrects.

    That is so if frame == L (hence one frame, and Welch bins are FFT bins), the window is rectangular, rank == 1,
    strength == 1 (or 0), the anchors have no power at bin zero (they do not when fitted on centred maps), and eps is
    negligible beside the power of the map and of its anchor in every other bin; then the calibrated map lies at
    distance 0 from its anchor and its second mask is 1. The error left is about eps (1 / P + 1 / P_anchor) / 2.
    With a Hann window, several frames or frame < L, bins leak into each other and it is not idempotent.
    """
    maps = noise(40, 3, length, seed=9)
    power = welch_power(maps, length, 1, window="rectangular", center=True)
    anchors = Anchors.fit(power, 3, length, 1, reading, eps=1e-14, window="rectangular")
    calibration, x = SpectralCalibration(anchors), noise(5, 3, length)
    once = calibration(x)
    torch.testing.assert_close(calibration(once), once, rtol=1e-9, atol=1e-9)
    assert torch.equal(calibration.match(once), calibration.match(x))
    assert not torch.allclose(once, x - x.mean(dim=-1, keepdim=True), rtol=0.05)

    hann = Anchors.fit(welch_power(maps, 8, 4, center=True), 3, 8, 4, reading, eps=1e-14)
    other = SpectralCalibration(hann)
    assert (other(other(x)) - other(x)).abs().max() > 1e-3
    calibration.rank = 2
    assert (calibration(calibration(x)) - calibration(x)).abs().max() > 1e-3


@pytest.mark.parametrize("reading", ["amplitude", "algorithm"])
def test_a_map_whose_spectrum_is_its_anchor_is_unchanged(reading) -> None:
    x = noise(4, 3, 60)
    power = welch_power(x, 8, 4, center=True)
    calibration = SpectralCalibration(drawn(power, 8, 4, reading=reading, eps=1e-13), restore_mean=True)
    assert calibration.match(x).tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(calibration(x), x, rtol=1e-10, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(scale=st.floats(1e-2, 1e3), seed=st.integers(0, 1000), reading=st.sampled_from(READINGS))
def test_scale_does_not_matter_where_the_anchor_is_the_same(scale: float, seed: int, reading) -> None:
    anchors = fitted(k=3, reading=reading, eps=1e-14)
    calibration, x = SpectralCalibration(anchors), noise(8, 4, 50, seed=seed)
    same = calibration.match(x) == calibration.match(scale * x)
    torch.testing.assert_close(calibration(scale * x)[same], calibration(x)[same], rtol=1e-8, atol=1e-8)
    alone = SpectralCalibration(fitted(k=1, reading=reading, eps=1e-14))
    torch.testing.assert_close(alone(scale * x), alone(x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gradient", ["mask", "full"])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e3])
def test_a_constant_window_stays_finite(dtype: torch.dtype, gradient, value: float) -> None:
    x = noise(3, 4, 50, dtype=dtype)
    x[1] = value
    x[2, 0] = value
    x.requires_grad_()
    y = SpectralCalibration(fitted(dtype=torch.float32), gradient=gradient)(x)
    y.float().square().sum().backward()
    assert y.dtype == dtype
    assert torch.isfinite(y).all()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("gradient", ["mask", "full"])
def test_an_anchor_without_power_silences_and_stays_finite(gradient) -> None:
    x = noise(2, 4, 50).requires_grad_()
    y = SpectralCalibration(drawn(torch.zeros(2, 4, 5, dtype=torch.float64), 8, 4), gradient=gradient)(x)
    assert (y == 0).all()
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("frame", [8, 140])
def test_empty_batch(frame: int) -> None:
    calibration = SpectralCalibration(fitted(frame=frame, length=150))
    x = torch.empty(0, 4, 150, dtype=torch.float64)
    assert calibration(x).shape == (0, 4, 150)
    assert calibration.match(x).shape == (0,)


def test_samples_do_not_see_each_other() -> None:
    calibration, x = SpectralCalibration(fitted()), noise(5, 4, 50)
    alone = torch.cat([calibration(one[None]) for one in x])
    torch.testing.assert_close(calibration(x), alone, rtol=1e-12, atol=1e-12)


# --- a module like others


def test_state_is_the_anchors() -> None:
    first, second = SpectralCalibration(fitted()), SpectralCalibration(fitted(mean="geometric"))
    x = noise(5, 4, 50)
    assert set(first.state_dict()) == {"power", "counts"}
    assert not torch.allclose(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


def test_the_anchors_can_be_had_back() -> None:
    anchors = fitted(mean="geometric", reading="algorithm", eps=1e-6)
    back = SpectralCalibration(anchors).anchors
    assert torch.equal(back.power, anchors.power)
    assert torch.equal(back.counts, anchors.counts)
    assert back.to_tensors()[1] == anchors.to_tensors()[1]


def test_deepcopy_is_independent() -> None:
    calibration, x = SpectralCalibration(fitted(), rank=2), noise(5, 4, 50)
    before = calibration(x)
    twin = copy.deepcopy(calibration)
    assert torch.equal(twin(x), before)
    twin.load_state_dict({**twin.state_dict(), "power": twin.power * 4})
    torch.testing.assert_close(twin.anchors.power, 4 * calibration.power)
    assert torch.equal(calibration(x), before)
    assert not torch.allclose(twin(x), before)


@pytest.mark.parametrize("gradient", ["mask", "full"])
def test_trains_after_evaluation_in_inference_mode(gradient) -> None:
    x = torch.randn(8, 2, 30, generator=torch.Generator().manual_seed(0))
    anchors = Anchors.fit(welch_power(x, 8, 4, center=True), k=2, frame=8, hop=4)
    fresh, used = (SpectralCalibration(anchors, gradient=gradient) for _ in range(2))
    with torch.inference_mode():
        used(x)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for calibration, leaf in zip((fresh, used), leaves, strict=True):
        calibration(leaf).square().sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, atol=0, rtol=0)


def test_moving_to_another_dtype_loses_nothing() -> None:
    anchors, x = fitted(dtype=torch.float32), noise(5, 4, 50)
    expected = reference(x.numpy(), anchors)
    calibration = SpectralCalibration(anchors)
    calibration(x.float())
    close(calibration(x), expected, 1e-10)  # float64 maps, float32 anchors
    close(calibration.double()(x), expected, 1e-10)
    assert calibration.power.dtype == torch.float64
    close(calibration.float()(x.float()), expected, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    calibration, x = SpectralCalibration(fitted(dtype=torch.float32)), noise(5, 4, 50, dtype=dtype)
    expected, distances = calibration(x.float()), calibration.distances(x.float())
    for _ in range(2):
        assert torch.equal(calibration(x), expected.to(dtype))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(calibration(x), expected.to(dtype))
            assert torch.equal(calibration(x.float()), expected)
            assert torch.equal(calibration.distances(x), distances)
        calibration = calibration.to(dtype)
        assert calibration.power.dtype == torch.float32


def test_everything_moves_to_another_device() -> None:
    calibration = SpectralCalibration(fitted())
    calibration(noise(2, 4, 50))
    assert {buffer.device.type for buffer in calibration.to("meta").buffers()} == {"meta"}


@pytest.mark.parametrize("gradient", ["mask", "full"])
def test_compiles_without_graph_breaks(gradient) -> None:
    calibration, x = SpectralCalibration(fitted(), gradient=gradient), noise(5, 4, 50).requires_grad_()
    compiled = torch.compile(calibration, backend="aot_eager", fullgraph=True)
    for batch in (x, x[:3]):
        expected, y = calibration(batch), compiled(batch)
        torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
        ours, theirs = (torch.autograd.grad((out**2).sum(), x)[0] for out in (expected, y))
        torch.testing.assert_close(theirs, ours, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_exports_with_a_dynamic_batch(warm: bool, rank: int) -> None:
    calibration = SpectralCalibration(fitted(dtype=torch.float32), rank=rank).eval()
    if warm:
        calibration(noise(2, 4, 50, dtype=torch.float32))
    x = noise(6, 4, 50, dtype=torch.float32)
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.export.export(calibration, (x,), dynamic_shapes={"x": {0: batch}}).module()
    for rows in (1, 2, 6, 100):
        sample = noise(rows, 4, 50, seed=rows, dtype=torch.float32)
        torch.testing.assert_close(program(sample), calibration(sample), rtol=1e-5, atol=1e-5)


def test_repr_says_what_matters() -> None:
    text = repr(SpectralCalibration(fitted(), rank=2))
    assert "k=3, channels=4, frame=8, hop=4, reading=amplitude, rank=2" in text


# --- bad input


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(4, 50), r"\(B, C, L\), got shape \(4, 50\)"),
        (torch.zeros(2, 4, 7), "L = 7, frame = 8"),
        (torch.zeros(2, 5, 50), "the map has 5 channels, the anchors have 4"),
        (torch.zeros(2, 4, 50, dtype=torch.complex64), "real floating-point tensor, got torch.complex64"),
        (torch.zeros(2, 4, 50, dtype=torch.int64), "real floating-point tensor, got torch.int64"),
        (np.zeros((2, 4, 50)), "expected a torch tensor"),
    ],
)
@pytest.mark.parametrize("method", ["forward", "distances", "match"])
def test_bad_maps(x, message: str, method: str) -> None:
    with pytest.raises(InputError, match=message):
        getattr(SpectralCalibration(fitted()), method)(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 4}, "rank must be an integer from 1 to K = 3, got 4"),
        ({"rank": 0}, "rank must be an integer from 1 to K = 3, got 0"),
        ({"rank": 1.0}, "rank must be an integer"),
        ({"gradient": "none"}, "gradient must be one of mask, full, got 'none'"),
        ({"strength": -1}, "strength must be a finite number of at least 0, got -1"),
        ({"strength": math.nan}, "strength must be a finite number of at least 0, got nan"),
        ({"strength": "1"}, "strength must be a finite number"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SpectralCalibration(fitted(), **options)


def test_rank_set_too_high() -> None:
    calibration = SpectralCalibration(fitted())
    with pytest.raises(InputError, match="from 1 to K = 3, got 9"):
        calibration.rank = 9
    assert calibration.rank == 1
