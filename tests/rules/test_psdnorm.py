"""PSDNorm against the closed form of Gaussian optimal transport, in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from sscf.nn import find
from sscf.rules import build_rule
from sscf.rules.psdnorm import SpectralNorm, barycentre, filter_each, geodesic, monge_filter


def numpy_power(x: np.ndarray, size: int) -> np.ndarray:
    """Mean periodogram of half-overlapping frames of centred signals (B, C, L)."""
    x = x - x.mean(-1, keepdims=True)
    hop = size - size // 2
    frames = [x[..., s : s + size] for s in range(0, x.shape[-1] - size + 1, hop)]
    return np.mean([np.abs(np.fft.rfft(f)) ** 2 / size for f in frames], axis=0)


def test_barycentre_minimises_the_mean_squared_wasserstein_distance() -> None:
    # Between diagonal Gaussians W² = Σ (√p - √q)²; any other spectrum must be further away on average.
    rng = np.random.default_rng(0)
    power = rng.uniform(0.1, 4, size=(7, 2, 5))
    centre = barycentre(torch.tensor(power)).numpy()
    np.testing.assert_allclose(centre, np.mean(np.sqrt(power), axis=0) ** 2)

    def cost(q: np.ndarray) -> float:
        return float(((np.sqrt(power) - np.sqrt(q)) ** 2).sum())

    assert all(cost(centre) < cost(centre * rng.uniform(0.8, 1.2, centre.shape)) for _ in range(50))


def test_geodesic_has_constant_speed() -> None:
    a, b = torch.rand(2, 3, 5, dtype=torch.float64) + 0.1
    torch.testing.assert_close(geodesic(a, b, 0.0), a)
    torch.testing.assert_close(geodesic(a, b, 1.0), b)
    whole = (a.sqrt() - b.sqrt()).norm()
    assert (a.sqrt() - geodesic(a, b, 0.3).sqrt()).norm().item() == pytest.approx(0.3 * whole.item())


@pytest.mark.parametrize("size", [5, 8])
def test_filter_has_the_response_of_the_optimal_map(size: int) -> None:
    rng = np.random.default_rng(1)
    power, target = rng.uniform(0.5, 2, (2, 3, size // 2 + 1)), rng.uniform(0.5, 2, (3, size // 2 + 1))
    taps = monge_filter(torch.tensor(power), torch.tensor(target), size).numpy()
    response = np.fft.rfft(np.fft.ifftshift(taps, axes=-1))  # lag 0 first
    np.testing.assert_allclose(response, np.sqrt(target / power), atol=1e-12)  # real: no phase


@pytest.mark.parametrize("size", [5, 8])
def test_each_map_is_convolved_with_its_own_filter(size: int) -> None:
    x, taps = torch.randn(2, 3, 40), torch.randn(2, 3, size)
    y = filter_each(x, taps).numpy()
    for b in range(2):
        for c in range(3):
            whole = np.convolve(x[b, c], taps[b, c])  # lag 0 sits at size // 2
            np.testing.assert_allclose(y[b, c], whole[size // 2 : size // 2 + 40], atol=1e-5)


def test_layer_follows_the_closed_form_over_batches() -> None:
    size, momentum, eps = 5, 0.1, 1e-5
    layer = SpectralNorm(2, size, momentum, eps).train()
    target = None
    for seed in range(3):
        x = torch.randn(6, 2, 60, generator=torch.Generator().manual_seed(seed)) * (1 + seed) + 3
        y = layer(x).numpy()
        power = numpy_power(x.numpy(), size) + eps
        centre = np.sqrt(power).mean(0) ** 2
        target = centre if target is None else ((1 - momentum) * np.sqrt(target) + momentum * np.sqrt(centre)) ** 2
        np.testing.assert_allclose(layer.target, target, rtol=1e-4)
        taps = np.fft.fftshift(np.fft.irfft(np.sqrt(target / power), n=size), axes=-1)
        centred = x.numpy() - x.numpy().mean(-1, keepdims=True)
        expected = np.convolve(centred[4, 1], taps[4, 1])[size // 2 : size // 2 + 60]
        np.testing.assert_allclose(y[4, 1], expected, atol=1e-4)


def test_spectra_come_closer_to_the_barycentre() -> None:
    t = np.arange(512)
    x = np.stack(
        [np.sin(2 * np.pi * f * t) + 0.3 * np.random.default_rng(0).normal(size=512) for f in (0.05, 0.2, 0.4)]
    )
    layer = SpectralNorm(1, 33, 1.0, 1e-5).train()
    y = layer(torch.tensor(x, dtype=torch.float32)[:, None])
    target = np.sqrt(layer.target.numpy())

    def distance(signals: np.ndarray) -> np.ndarray:
        return ((np.sqrt(numpy_power(signals, 33)) - target) ** 2).sum((-1, -2))

    assert (distance(y.numpy()) < 0.2 * distance(x[:, None])).all()


def test_running_state_is_saved_and_frozen_in_evaluation(make_model, make_batch) -> None:
    def model_with_layer():
        model = make_model()
        rule = build_rule("psdnorm", n_domains=2, n_classes=3, feature_dim=model.feature_dim)
        rule.prepare(model, "stage1")
        return model, rule

    (model, rule), batch = model_with_layer(), make_batch((4, 4))
    for step in range(3):
        rule.loss(model, batch, step)
    (layer,) = find(model, SpectralNorm)
    assert "stage1.after.target" in model.state_dict()
    assert layer.batches.item() == 3
    assert not layer.target.requires_grad
    assert not torch.equal(layer.target, torch.ones_like(layer.target))

    model.eval()
    state = layer.target.clone()
    expected = model(batch.x)
    assert torch.equal(layer.target, state)
    other, _ = model_with_layer()
    other.load_state_dict(load(save(model.state_dict())))
    other.eval()
    assert torch.equal(other(batch.x), expected)


def test_double_precision_is_kept() -> None:
    layer = SpectralNorm(3, 5, momentum=0.1, eps=1e-5)
    layer(torch.randn(4, 3, 40))
    x = torch.randn(4, 3, 40, dtype=torch.float64)
    exact = layer.eval().double()(x)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), layer.float()(x.float()), atol=1e-5, rtol=1e-4)


def test_instance_norm_is_instance_norm(make_model, make_batch) -> None:
    model, batch = make_model().eval(), make_batch((4, 4))
    rule = build_rule("instance-norm", {"affine": True}, n_domains=2, n_classes=3, feature_dim=8)
    plain = model.stage1(batch.x).detach().numpy()
    rule.prepare(model, "stage1")
    expected = (plain - plain.mean(-1, keepdims=True)) / np.sqrt(plain.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(model.stage1(batch.x).detach(), expected, atol=1e-5)
    assert model.stage1.after.weight.shape == (4,)
