"""Resampling, filtering and cutting against closed forms: a sampled sine is the sine at other times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sscf.data.datasets.base import Recipe
from sscf.data.recording import Channel, Drop, Intervals, PerWindow, Recording, Whole, Windows
from sscf.data.signal import bandpass, by_time, cut, resample
from sscf.errors import ConfigError, DataError

RATIOS = [(256, 100), (257, 100), (128, 100), (125, 100), (360, 100), (500, 100), (300, 100), (200, 100), (100, 50)]


def sine(frequency: float, fs: float, seconds: float) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * np.arange(round(seconds * fs)) / fs + 0.3)


def decibel(x: np.ndarray) -> float:
    return 20 * np.log10(np.abs(x).max())


def inner(x: np.ndarray, fs: float, seconds: float = 3) -> np.ndarray:
    return x[int(seconds * fs) : -int(seconds * fs)]


def test_55_hz_from_256_to_100_hz_is_down_80_db_where_scipys_default_is_not() -> None:
    from scipy.signal import resample_poly

    tone = sine(55, 256, 30)
    assert decibel(inner(resample(tone, 256, 100), 100)) < -80
    assert decibel(inner(resample_poly(tone, 25, 64), 100)) > -30  # why we do not use it


@pytest.mark.parametrize(("fs", "to"), RATIOS)
def test_nothing_aliases_and_nothing_of_the_pass_band_is_lost(fs: float, to: float) -> None:
    for above in np.linspace(to / 2, fs / 2, 12)[:-1] * 1.0005:
        assert decibel(inner(resample(sine(above, fs, 20), fs, to), to)) < -80, above
    for below in np.linspace(0.5, 0.4 * to, 8):
        out = resample(sine(below, fs, 20), fs, to)
        np.testing.assert_allclose(inner(out, to), inner(sine(below, to, 20)[: len(out)], to), atol=1e-4)


@pytest.mark.parametrize(("fs", "to"), [(19.86, 50), (25.06, 50), (50, 100), (49.65, 50), (125, 256)])
def test_going_up_by_any_ratio_keeps_the_sine_and_its_time(fs: float, to: float) -> None:
    out = resample(sine(0.3 * fs, fs, 60), fs, to)
    assert len(out) == int(round(60 * fs) * to / fs)
    np.testing.assert_allclose(inner(out, to, 5), inner(sine(0.3 * fs, to, 70)[: len(out)], to, 5), atol=2e-4)


def test_no_drift_over_a_night() -> None:
    fs, to, hours = 257.0, 100.0, 2
    out = resample(sine(7, fs, hours * 3600), fs, to)
    np.testing.assert_allclose(out[-1000:-400], sine(7, to, hours * 3600)[-1000:-400], atol=1e-3)


@given(st.floats(-1e3, 1e3), st.integers(1, 3000), st.sampled_from([*RATIOS, (19.86, 50)]))
@settings(deadline=None, max_examples=60, derandomize=True)
def test_a_constant_stays_one_to_its_very_ends(value: float, length: int, ratio: tuple[float, float]) -> None:
    fs, to = ratio
    out = resample(np.full(length, value), fs, to)
    assert abs(len(out) - length * to / fs) <= 1
    np.testing.assert_allclose(out, np.float32(value), rtol=2e-6, atol=1e-30)


def test_same_rate_is_the_same_signal() -> None:
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    np.testing.assert_array_equal(resample(x, 50, 50.0), x)
    with pytest.raises(ConfigError, match="positive"):
        resample(x, 0, 50)


def test_band_pass_has_no_phase_and_the_butterworth_gain_twice() -> None:
    fs, band = 100.0, (0.3, 35.0)
    for frequency in (1.0, 10.0, 25.0):
        x = sine(frequency, fs, 60)
        np.testing.assert_allclose(inner(bandpass(x, fs, band), fs, 15), inner(x, fs, 15), atol=0.01)
    for frequency in band:  # at the edges the 4th order filter has 1/sqrt(2), run twice 1/2
        x = sine(frequency, fs, 120)
        np.testing.assert_allclose(inner(bandpass(x, fs, band), fs, 40), inner(x, fs, 40) / 2, atol=0.01)
    assert decibel(inner(bandpass(sine(47, fs, 60), fs, band), fs, 15)) < -40
    assert np.abs(inner(bandpass(np.full(6000, 50.0), fs, band), fs, 15)).max() < 1e-3


def test_band_with_one_side_open() -> None:
    mixed = sine(2, 100, 60) + sine(30, 100, 60)
    np.testing.assert_allclose(
        inner(bandpass(mixed, 100, (None, 8)), 100, 5), inner(sine(2, 100, 60), 100, 5), atol=0.01
    )
    np.testing.assert_allclose(
        inner(bandpass(mixed, 100, (8, None)), 100, 5), inner(sine(30, 100, 60), 100, 5), atol=0.01
    )
    with pytest.raises(ConfigError, match="half the rate, 50 Hz"):
        bandpass(mixed, 100, (0.3, 60))
    with pytest.raises(ConfigError, match="empty"):
        bandpass(mixed, 100, (10, 5))


def test_by_time_splits_at_gaps_and_follows_the_time_stamps() -> None:
    rng = np.random.default_rng(1)
    t = np.cumsum(rng.uniform(0.045, 0.055, 800))
    t[400:] += 7.0
    x = np.stack([np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)])
    pieces = by_time(t, x, 50, max_gap=0.5)
    assert [start for start, _, _ in pieces] == [np.ceil(t[0] * 50) / 50, np.ceil(t[400] * 50) / 50]
    for start, values, rate in pieces:
        grid = start + np.arange(values.shape[1]) / rate
        np.testing.assert_allclose(values[0], np.sin(2 * np.pi * grid), atol=0.01)
    assert by_time(np.arange(200) / 120, x[:, :200], 50, max_gap=1)[0][2] == 150  # faster than wanted: filtered later
    t[10] = t[9]
    with pytest.raises(DataError, match="row 10"):
        by_time(t, x, 50, max_gap=0.5)


RECIPE = Recipe(window_s=2, hop_s=1, fs=50, channels=(Channel("x"), Channel("y")), unit="g")


def recording(seconds: float, track: object, start: float = 0.0, unit: str = "g") -> Recording:
    n = round(seconds * 50)
    ramp = np.arange(n, dtype=np.float32) + round(start * 50)
    return Recording([ramp, -ramp], 50, ("x", "y"), unit, track, start)  # type: ignore[arg-type]


def test_windows_are_cut_on_the_hop_with_their_labels_and_positions() -> None:
    track = Intervals([0, 4], [4, 9], ["a", "b"])
    out = cut(recording(10, track), RECIPE)
    # Windows start at 0..8 s; those that start at 3 cross the change, at 8 run out of the labels.
    assert out.labels == ["a"] * 3 + ["b"] * 4
    assert out.positions.tolist() == [0, 50, 100, 200, 250, 300, 350]
    assert dict(out.dropped) == {"label changes inside": 1, "unscored": 1}
    assert out.windows.shape == (7, 2, 100)
    assert out.windows.dtype == np.float32
    for window, position in zip(out.windows, out.positions, strict=True):
        np.testing.assert_array_equal(window[0], np.arange(position, position + 100))
        np.testing.assert_array_equal(window[1], -window[0])


def test_pieces_are_never_joined_and_positions_count_from_the_recordings_start() -> None:
    out = cut([recording(3, Whole("a")), recording(2.5, Whole("a"), start=10), recording(1, Whole("a"), 20)], RECIPE)
    assert out.positions.tolist() == [0, 50, 500]
    assert dict(out.dropped) == {"piece shorter than a window": 1}


def test_units_and_rates_are_brought_to_the_recipes() -> None:
    seconds = np.arange(0, 60, 1 / 100)
    slow = np.arange(0, 60, 1 / 25)
    both = Recording([9.80665 * np.sin(seconds), 9.80665 * np.cos(slow)], (100, 25), ("x", "y"), "m/s^2", Whole("a"))
    out = cut(both, RECIPE)
    assert len(out.labels) == 59
    for window, position in zip(out.windows[3:-3], out.positions[3:-3], strict=True):
        t = (position + np.arange(100)) / 50
        np.testing.assert_allclose(window, [np.sin(t), np.cos(t)], atol=1e-4)


def test_windows_cut_by_others_come_through_unchanged() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 100)).astype(np.float32)
    out = cut(Windows(x, ["a", Drop("torn"), "b"], np.array([0, 50, 400])), RECIPE)
    np.testing.assert_array_equal(out.windows, x[[0, 2]])
    assert (out.labels, out.positions.tolist(), dict(out.dropped)) == (["a", "b"], [0, 400], {"torn": 1})
    with pytest.raises(DataError, match=r"\(3, 2, 100\)"):
        cut(Windows(x, ["a", "b"]), RECIPE)
    x[1, 0, 7] = np.nan
    with pytest.raises(DataError, match="window 1"):
        cut(Windows(x, ["a"] * 3), RECIPE)


def test_bad_signals_are_refused_with_their_position() -> None:
    good = recording(10, Whole("a"))
    signals = [np.array(s) for s in good.signals]
    signals[1][123] = np.inf
    with pytest.raises(DataError, match=r"'y' has 1 values that are not numbers, the first at sample 123 \(2.46 s\)"):
        cut(Recording(signals, 50, ("x", "y"), "g", Whole("a")), RECIPE)
    with pytest.raises(DataError, match="'x' is all zero"):
        cut(Recording([np.zeros(500), np.ones(500)], 50, ("x", "y"), "g", Whole("a")), RECIPE)
    with pytest.raises(DataError, match="the recipe says x, y"):
        cut(Recording(good.signals, 50, ("y", "x"), "g", Whole("a")), RECIPE)
    with pytest.raises(DataError, match="'uV' cannot be turned into 'g'"):
        cut(recording(10, Whole("a"), unit="uV"), RECIPE)


def test_interval_track() -> None:
    track = Intervals([30, 0, 90], [60, 30, 120], ["a", "a", Drop("movement")])
    assert track.at(0, 60) == "a"  # neighbours of equal label are one
    assert track.at(45, 75) == "unscored"
    assert isinstance(track.at(60, 90), Drop)
    assert isinstance(track.at(90, 120), Drop)
    assert track.at(90, 120) == "movement"
    with pytest.raises(DataError, match="'a' until 30 s and 'b' from 20 s"):
        Intervals([0, 20], [30, 50], ["a", "b"])
    with pytest.raises(DataError, match="not after its start"):
        Intervals([5], [5], ["a"])


def test_per_window_track() -> None:
    track = PerWindow(["a", "a", Drop("?"), "b"], 30)
    assert [track.at(30 * i, 30 * i + 30) for i in range(5)] == ["a", "a", "?", "b", "outside the labels"]
    assert track.at(0, 60) == "a"
    assert isinstance(track.at(15, 75), Drop)
