from __future__ import annotations

import json

import numpy as np
import pytest

from sscf.data.normalise import NORMALISATIONS, Normaliser, is_zero_shot
from sscf.data.store import Domain, write_domain
from sscf.errors import ConfigError


@pytest.fixture
def domain(tmp_path) -> Domain:
    rng = np.random.default_rng(0)
    x = rng.normal(3, 2, size=(60, 2, 40)) + 1000 * np.arange(2)[:, None]
    x[20:] *= 5
    return Domain.open(write_domain(tmp_path / "d", x, np.zeros(60, int), np.repeat(range(3), 20), ["a"], 10))


def test_statistics_of_the_store_are_those_of_numpy(domain: Domain) -> None:
    x, s = np.asarray(domain.windows, np.float64), domain.statistics
    np.testing.assert_allclose(s.mean, x.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(s.std, x.std(axis=(0, 2)), rtol=1e-9)
    for r in range(3):
        own = x[domain.recordings == r]
        np.testing.assert_allclose(s.recording_mean[r], own.mean(axis=(0, 2)), rtol=1e-12)
        np.testing.assert_allclose(s.recording_std[r], own.std(axis=(0, 2)), rtol=1e-9)


@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_each_kind_is_what_it_says(domain: Domain, kind: str) -> None:
    x = np.asarray(domain.windows, np.float64)
    source = Normaliser.fit([domain.windows[:17], domain.windows[17:30]])
    out = Normaliser.for_domain(kind, domain, source).apply(domain.windows, domain.recordings)
    per_window, fitted = x.mean(axis=2, keepdims=True), x[:30]
    recording_mean = np.stack([x[domain.recordings == r].mean(axis=(0, 2)) for r in range(3)])[domain.recordings]
    recording_std = np.stack([x[domain.recordings == r].std(axis=(0, 2)) for r in range(3)])[domain.recordings]
    expected = {
        "none": x,
        "center": x - per_window,
        "window": (x - per_window) / x.std(axis=2, keepdims=True),
        "recording": (x - recording_mean[..., None]) / recording_std[..., None],
        "dataset": (x - x.mean(axis=(0, 2))[:, None]) / x.std(axis=(0, 2))[:, None],
        "source": (x - fitted.mean(axis=(0, 2))[:, None]) / fitted.std(axis=(0, 2))[:, None],
    }[kind]
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, atol=5e-4 * max(1, np.abs(expected).max() / 1000))


def test_the_store_is_not_changed(domain: Domain) -> None:
    before = np.array(domain.windows)
    for kind in ("none", "window"):
        Normaliser(kind).apply(domain.windows)[...] = 0
    np.testing.assert_array_equal(domain.windows, before)


def test_only_data_set_statistics_break_zero_shot() -> None:
    assert [kind for kind in NORMALISATIONS if not is_zero_shot(kind)] == ["dataset"]
    with pytest.raises(ConfigError, match="there are none, center"):
        is_zero_shot("zscore")


def test_flat_windows_stay_finite() -> None:
    assert np.isfinite(Normaliser("window").apply(np.full((1, 1, 10), 7.0))).all()


def test_json_round_trip_to_the_bit(domain: Domain) -> None:
    source = Normaliser.fit([domain.windows])
    back = Normaliser.from_json(json.loads(json.dumps(source.to_json())))
    np.testing.assert_array_equal(back.mean, source.mean)
    np.testing.assert_array_equal(back.std, source.std)


def test_what_is_missing_is_said(domain: Domain) -> None:
    with pytest.raises(ConfigError, match="fitted on the source"):
        Normaliser.for_domain("source", domain)
    with pytest.raises(ConfigError, match="each window's recording"):
        Normaliser.for_domain("recording", domain).apply(domain.windows)
    with pytest.raises(ConfigError, match="no source windows"):
        Normaliser.fit([])
    with pytest.raises(ConfigError, match="needs statistics"):
        Normaliser("dataset")
