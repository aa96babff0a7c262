"""Simulated domains: the same bytes for the same seed, and signals that are what their docstrings say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, signal

from sscf.data.simulate import KINDS, SimulatedDomain, mixture, simulate, simulate_domain
from sscf.data.simulate import ecg as ecg_module
from sscf.data.simulate import sleep as sleep_module
from sscf.data.simulate.dynamics import Clock, bouts, oscillator, wander
from sscf.data.simulate.observe import Observation
from sscf.data.store import open_store, verify
from sscf.errors import ConfigError

SMALL = {
    "har": {"subjects": 3, "windows": 12},
    "ecg": {"subjects": 3, "windows": 9},
    "sleep": {"subjects": 2, "windows": 20},
}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def amplitude(x: np.ndarray, fs: float) -> tuple[np.ndarray, np.ndarray]:
    """Root of Welch's spectrum over the last axis, and its frequencies."""
    f, p = signal.welch(x, fs, nperseg=min(x.shape[-1], 1024))
    return f, np.sqrt(p)


# What every kind has in common


@kinds
def test_shapes_units_and_order(kind: str) -> None:
    size = SMALL[kind]
    d = simulate_domain(kind, 1, **size)
    n = size["subjects"] * size["windows"]
    channels, length, fs, unit = {
        "har": (3, 128, 50, "g"),
        "ecg": (1, 1000, 100, "mV"),
        "sleep": (2, 3000, 100, "uV"),
    }[kind]
    assert d.windows.shape == (n, channels, length)
    assert d.windows.dtype == np.float32
    assert np.isfinite(d.windows).all()
    assert (d.fs, d.unit, len(d.channels), d.name) == (fs, unit, channels, f"sim-{kind}-b")
    for array in (d.labels, d.subjects, d.positions, d.family):
        assert array.shape == (n,)
    for subject in range(size["subjects"]):
        mine = d.subjects == subject
        assert (np.diff(d.positions[mine]) == length).all(), "a recording is contiguous"
        at_rest = d.family[mine] == (d.families.index("rest") if "rest" in d.families else -1)
        assert len(set(d.family[mine][~at_rest])) == 1, "the family belongs to the subject"
        if kind == "har":  # who sits or stands does not walk: windows without the family's dynamics
            assert np.array_equal(at_rest, d.labels[mine] >= 2)


@kinds
def test_windows_of_a_recording_join_without_a_seam(kind: str) -> None:
    d = simulate_domain(kind, 0, **SMALL[kind])
    joined = d.windows[d.subjects == 0].swapaxes(0, 1).reshape(len(d.channels), -1)
    step = np.abs(np.diff(joined))
    seams = step[:, d.windows.shape[2] - 1 :: d.windows.shape[2]]
    assert seams.max() <= step.max()
    assert np.median(seams) < 3 * np.median(step)


@kinds
def test_same_seed_same_bytes_whatever_else_is_simulated(kind: str, tmp_path: Path) -> None:
    few = simulate(kind, tmp_path / "few", domains=2, seed=5, **SMALL[kind])
    more = simulate(kind, tmp_path / "more", domains=3, seed=5, **SMALL[kind])
    assert [p.name for p in more] == [f"sim-{kind}-{c}" for c in "abc"]
    for a, b in zip(few, more, strict=False):
        files = sorted(f.name for f in a.iterdir())
        assert files == sorted(f.name for f in b.iterdir())
        for name in files:
            assert (a / name).read_bytes() == (b / name).read_bytes(), name
    other = simulate_domain(kind, 0, seed=6, **SMALL[kind])
    assert not np.array_equal(other.windows, simulate_domain(kind, 0, seed=5, **SMALL[kind]).windows)


def test_a_subject_does_not_depend_on_how_many_there_are() -> None:
    two, five = (simulate_domain("har", 0, subjects=n, windows=6, families=1) for n in (2, 5))
    assert np.array_equal(two.windows, five.windows[: len(two.windows)])


@kinds
def test_store(kind: str, tmp_path: Path) -> None:
    simulate(kind, tmp_path, domains=2, seed=1, **SMALL[kind])
    store = open_store(tmp_path)
    assert verify(tmp_path) == []
    assert list(store) == [f"sim-{kind}-a", f"sim-{kind}-b"]
    memory = simulate_domain(kind, 1, seed=1, **SMALL[kind])
    domain = store[f"sim-{kind}-b"]
    assert domain.simulated
    assert domain.manifest["task"] == kind
    assert np.array_equal(domain.windows, memory.windows)
    assert np.array_equal(domain.labels, memory.labels)
    assert np.array_equal(domain.positions, memory.positions)
    assert np.array_equal(domain.extra["family"], memory.family)
    assert (domain.label_names, domain.unit, domain.fs) == (memory.classes, memory.unit, memory.fs)
    assert not set(domain.subject_names) & set(store[f"sim-{kind}-a"].subject_names)


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("eeg", {}, "har, ecg, sleep"),
        ("har", {"families": 9}, "waist, pocket, hand, bag"),
        ("har", {"families": 0}, "families=0"),
        ("har", {"subjects": 0}, "subjects=0"),
        ("har", {"windows": 0}, "windows=0"),
        ("har", {"domains": 0}, "domains=0"),
        ("har", {"domains": 27}, "between 1 and 26"),
    ],
)
def test_wrong_arguments_are_named(kind: str, arguments: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        simulate(kind, tmp_path, **arguments)


def test_families_are_mixed_differently_and_none_is_alone() -> None:
    counts = np.array([np.bincount(mixture(i, 8, 3), minlength=3) for i in range(4)])
    assert counts.tolist() == [[4, 3, 1], [1, 4, 3], [3, 1, 4], [4, 1, 3]]
    for families in (1, 2, 3, 4):
        present = np.array([np.bincount(mixture(i, 6, families), minlength=families) > 0 for i in range(4)])
        assert (present.sum(axis=0) >= 2).all(), "a family that one domain alone has cannot be learnt from the others"


def test_bouts_keep_the_shares() -> None:
    labels = bouts(np.random.default_rng(0), 40, (2, 2, 1, 1), longest=5)
    assert np.abs(np.bincount(labels) - np.array([40, 40, 20, 20]) / 3).max() < 1
    assert len(labels) == 40
    assert np.bincount(bouts(np.random.default_rng(0), 7, (1, 1, 1))).tolist() == [3, 2, 2]


# The device


def device(**changes: object) -> Observation:
    settings = {
        "rate": 128.0,
        "centres": np.array([4.0, 8.0, 16.0]),
        "heights": np.array([[1.0, -0.5, 0.3], [-0.8, 0.4, 0.9]]),
        "low": 0.5,
        "high": 30.0,
        "noise": 0.0,
        "knee": 0.0,
    }
    return Observation(**{**settings, **changes})  # type: ignore[arg-type]


def test_sines_come_out_with_the_gain_of_the_response_and_their_phase() -> None:
    seen_by = device()
    t = np.arange(20 * 128) / 128
    after = np.arange(20 * 100) / 100
    for f in (1.0, 4.0, 9.0, 21.0):
        out = seen_by.observe(np.tile(np.sin(2 * np.pi * f * t), (2, 1)), np.random.default_rng(0), 100.0)
        expected = seen_by.response(np.array([f])) * np.sin(2 * np.pi * f * after)
        np.testing.assert_allclose(out, expected, atol=1e-9)


def test_response_has_the_corners_it_names() -> None:
    flat = {"heights": np.zeros((2, 3))}
    np.testing.assert_allclose(
        device(**flat).response(np.array([0.5, 4.0, 30.0])), [[2**-0.5, 1, 2**-0.5]] * 2, rtol=1e-3
    )
    assert device(**flat).response(np.array([0.0])).max() < 1e-6
    np.testing.assert_allclose(device(low=0.0).response(np.array([0.0])), 1, rtol=1e-6, err_msg="right at rest")
    own_and_neighbours = 1 + 2 * np.exp(-0.5 / 0.6**2)  # octaves: the bump itself and those an octave away
    raised = device(low=0.0, high=1e9, heights=np.ones((2, 3)))
    np.testing.assert_allclose(raised.response(np.array([8.0])), 2**own_and_neighbours, rtol=2e-3)


def test_nothing_aliases() -> None:
    t = np.arange(20 * 128) / 128
    out = device(high=1e9, heights=np.zeros((2, 3))).observe(
        np.tile(np.sin(2 * np.pi * 60 * t), (2, 1)), np.random.default_rng(0), 100.0
    )
    assert np.abs(out).max() < 1e-9


def test_noise_has_the_level_and_colour_it_names() -> None:
    out = device(noise=2.0, knee=4.0).observe(np.zeros((2, 128 * 600)), np.random.default_rng(0), 100.0)
    f, p = signal.welch(out, 100.0, nperseg=1000)
    white = 2.0**2 * 2 / 128  # one-sided density of the native noise
    near = (f > 0.5) & (f < 45)
    np.testing.assert_allclose(p.mean(axis=0)[near] / (white * (1 + 4 / f[near])), 1, atol=0.5)
    assert abs(np.median(p.mean(axis=0)[near] / (white * (1 + 4 / f[near]))) - 1) < 0.05


@kinds
def test_a_domain_is_its_latent_signal_times_its_response(kind: str) -> None:
    """shift=0 shows the same people through the plain device: the ratio of spectra is the ratio of responses."""
    size = {**SMALL[kind], "subjects": 2}
    plain, shifted = (simulate_domain(kind, 2, shift=shift, **size) for shift in (0.0, 1.0))
    assert np.array_equal(plain.labels, shifted.labels)
    assert plain.observation.rate == shifted.observation.rate
    assert plain.observation.noise == shifted.observation.noise
    centred = [d.windows - d.windows.mean(axis=-1, keepdims=True) for d in (plain, shifted)]
    f, _ = amplitude(centred[0], plain.fs)
    before, after = (np.sqrt((amplitude(x, plain.fs)[1] ** 2).mean(axis=0)) for x in centred)
    floor = plain.observation.noise * np.sqrt(
        2 / plain.observation.rate * (1 + plain.observation.knee / np.maximum(f, 0.1))
    )
    expected = shifted.observation.response(f) / plain.observation.response(f)
    clear = (before > 4 * floor) & (after > 4 * floor) & (f > 2 * f[1])
    assert clear.sum() > 10
    ratio = after / before
    assert np.abs(np.log2(ratio[clear] / expected[clear])).max() < 0.25
    assert np.ptp(np.log2(expected[clear])) > 0.5, "the device must matter for this test to mean anything"


def test_domains_have_their_own_devices() -> None:
    for kind in KINDS:
        devices = [simulate_domain(kind, i, subjects=1, windows=2).observation for i in range(4)]
        f = np.array([2.0, 4.0, 8.0, 16.0])
        curves = np.log2([d.response(f)[0] for d in devices])
        assert len({d.rate for d in devices}) == 4
        for i in range(4):
            for j in range(i):
                assert np.abs(curves[i] - curves[j]).max() > 0.2


# Building blocks


def test_oscillator_and_wander() -> None:
    rng = np.random.default_rng(0)
    x = oscillator(rng, 200_000, 100.0, 10.0, 2.0)
    f, p = signal.welch(x, 100.0, nperseg=2000)
    assert abs(f[p.argmax()] - 10) < 0.3
    assert abs(x.std() - 1) < 0.03
    above_half = f[p > p.max() / 2]
    assert 1.2 < np.ptp(above_half) < 2.8, "full width at half maximum is the bandwidth"
    y = wander(rng, 400_000, 100.0, 1.0)
    assert abs(y.std() - 1) < 0.05
    lag = round(100 / (2 * np.pi))  # the autocorrelation falls to 1/e after 1/(2 pi corner) seconds
    assert abs(np.mean(y[lag:] * y[:-lag]) - np.exp(-1)) < 0.05


# Activity


def test_har_class_balance() -> None:
    d = simulate_domain("har", 0, subjects=4, windows=30)
    assert d.classes == ("walking", "stairs", "sitting", "standing")
    for subject in range(4):
        assert np.bincount(d.labels[d.subjects == subject]).tolist() == [10, 10, 5, 5]


def test_walking_has_a_comb_at_the_cadence_and_rest_has_gravity() -> None:
    d = simulate_domain("har", 0, subjects=4, windows=30)
    waist = d.family == 0
    walking = d.windows[(d.labels == 0) & waist]
    assert len(walking) > 10
    padded = np.abs(np.fft.rfft((walking - walking.mean(-1, keepdims=True)) * np.hanning(128), 2048)) ** 2
    f = np.fft.rfftfreq(2048, 1 / 50)
    power = padded.sum(axis=1)
    band = (f > 0.5) & (f < 5)
    peak = f[band][power[:, band].argmax(axis=1)]
    steps = np.minimum(np.abs(np.log2(peak / 1.85)), np.abs(np.log2(peak / 3.7)))  # the step, or its first overtone
    assert np.mean(steps < 0.45) > 0.9
    moving, still = (d.windows[np.isin(d.labels, c)].std(-1).mean() for c in ((0, 1), (2, 3)))
    assert moving > 4 * still
    gravity = np.linalg.norm(d.windows[np.isin(d.labels, (2, 3))].mean(-1), axis=1)
    assert abs(np.median(gravity) - 1) < 0.05


def test_landing_before_push_when_walking_after_it_on_stairs() -> None:
    """The difference that no amplitude response can hide: the order of events in a step."""
    from sscf.data.simulate import har

    rng = np.random.default_rng(0)
    skew = {}
    for label, gait in har.GAITS.items():
        rises = [np.diff(har.steps(rng, 2000, 100.0, gait, har.FAMILIES[0])[0]) for _ in range(20)]
        skew[label] = np.mean([np.mean(d**3) / np.mean(d**2) ** 1.5 for d in rises])
    assert skew[0] > 0.4, "walking rises at once and comes down slowly"
    assert skew[1] < -0.4, "stairs rise slowly and come down at once"


# Electrocardiogram


def test_lead_is_the_z_of_the_three_equations() -> None:
    """McSharry's ODE, integrated by SciPy in x, y, z, against the closed form on the limit cycle."""
    rate, rr = 500.0, 0.9
    peaks = np.arange(-3, 14) * rr
    height, width = (np.array(v) for v in ecg_module.FAMILIES["upright"])
    angle, omega = ecg_module.ANGLES, 2 * np.pi / rr

    def rhs(_t: float, state: np.ndarray) -> list[float]:
        x, y, z = state
        r = 1 - np.hypot(x, y)
        d = np.angle(np.exp(1j * (np.arctan2(y, x) - angle)))
        pull = np.sum(height * omega / width**2 * d * np.exp(-0.5 * (d / width) ** 2))
        return [r * x - omega * y, r * y + omega * x, -pull - z]

    time = np.arange(0, 10, 1 / rate)
    start = -2 * rr
    solved = integrate.solve_ivp(rhs, (start, 10), [1, 0, 0], t_eval=time, rtol=1e-8, atol=1e-10, max_step=0.01)
    whole = np.arange(start, 10, 1 / rate)
    shape = (len(peaks), 5)
    z = ecg_module.lead(whole, rate, peaks, *(np.broadcast_to(v, shape) for v in (height, angle, width)))
    later = time > 6  # both have forgotten how they began
    np.testing.assert_allclose(np.interp(time, whole, z)[later], solved.y[2][later], atol=0.01)
    assert solved.y[2][later].max() > 0.8


def beats_of(d: SimulatedDomain, label: str) -> list[np.ndarray]:
    """RR intervals in seconds found in the windows of a class by a plain peak finder."""
    found = []
    for x in d.windows[d.labels == d.classes.index(label), 0]:
        y = signal.sosfiltfilt(signal.butter(2, (5, 20), "bandpass", fs=100, output="sos"), x)
        energy = np.abs(signal.hilbert(y))
        peaks, _ = signal.find_peaks(energy, height=0.45 * np.quantile(energy, 0.99), distance=28)
        found.append(np.diff(peaks) / 100)
    return found


def test_rhythms() -> None:
    d = simulate_domain("ecg", 0, subjects=4, windows=24, families=1)
    spread = {name: np.median([rr.std() / rr.mean() for rr in beats_of(d, name)]) for name in d.classes}
    assert spread["normal"] < 0.08
    assert spread["af"] > 0.14
    assert spread["other"] > 0.10
    rates = [60 / rr.mean() for rr in beats_of(d, "normal")]
    assert 50 < np.median(rates) < 95


def test_beat_times_follow_the_class() -> None:
    labels = np.repeat([0, 1, 2], 20)
    peaks, beats = ecg_module.rhythm(np.random.default_rng(3), Clock(labels, 10.0, 250.0))
    rr, state = np.diff(peaks), Clock(labels, 10.0, 250.0).at(peaks[:-1])
    assert (rr > 0.3).all()
    assert rr[state == 0].std() / rr[state == 0].mean() < 0.08
    irregular = rr[state == 1]
    assert irregular.std() / irregular.mean() > 0.14
    assert abs(np.corrcoef(irregular[:-1], irregular[1:])[0, 1]) < 0.3, "fibrillation has no memory"
    assert (beats[1:][state == 1] == ecg_module.FIBRILLATION).all()
    assert not np.isin(beats[1:][state == 0], (ecg_module.VENTRICULAR, ecg_module.ATRIAL)).any()
    ectopic = np.isin(beats[1:], (ecg_module.VENTRICULAR, ecg_module.ATRIAL))
    times = peaks[1:][ectopic]
    for window in range(40, 60):
        assert ((times > 10 * window - 1) & (times < 10 * window + 11)).any(), "every window has an ectopic beat near"
    assert rr[ectopic].mean() < 0.8 * rr[state == 0].mean(), "ectopic beats come early"


def test_r_peaks_are_where_the_rhythm_puts_them() -> None:
    clock = Clock(np.zeros(3, np.int64), 10.0, 250.0)
    rng = np.random.default_rng(0)
    peaks, beats = ecg_module.rhythm(rng, clock)
    heights, angles, widths = ecg_module.morphology(rng, peaks, beats, 0)
    z = ecg_module.lead(clock.time, 250.0, peaks, heights, angles, widths)
    inside = peaks[(peaks > 0) & (peaks < 29)]
    found, _ = signal.find_peaks(z, height=0.6, distance=60)
    nearest = np.abs(clock.time[found][:, None] - inside).min(axis=0)
    assert nearest.max() < 0.02


def test_fibrillation_has_no_p_wave() -> None:
    peaks = np.arange(20) * 0.8
    beats = np.array([ecg_module.SINUS, ecg_module.FIBRILLATION] * 10)
    heights, _, _ = ecg_module.morphology(np.random.default_rng(0), peaks, beats, 0)
    assert (heights[beats == ecg_module.FIBRILLATION, 0] == 0).all()
    assert (heights[beats == ecg_module.SINUS, 0] > 0.05).all()


# Sleep


def test_transitions_are_a_chain_that_visits_every_stage() -> None:
    t = sleep_module.TRANSITIONS
    np.testing.assert_allclose(t.sum(axis=1), 1)
    assert (t >= 0).all()
    assert (np.diag(t) > 0.5).all()
    w, n1, n2, n3, rem = range(5)
    for never in ((w, n2), (w, n3), (w, rem), (n1, n3), (rem, n3), (n3, rem)):
        assert t[never] == 0
    share = np.linalg.matrix_power(t, 2000)[0]
    assert share.min() > 0.05
    assert share.argmax() == n2


def test_hypnograms_follow_the_chain() -> None:
    stages = sleep_module.sequence(np.random.default_rng(0), 40_000)
    counts = np.zeros((5, 5))
    np.add.at(counts, (stages[:-1], stages[1:]), 1)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), sleep_module.TRANSITIONS, atol=0.02)
    assert stages[0] == 0


def test_sleep_has_the_marks_of_its_stages() -> None:
    d = simulate_domain("sleep", 1, subjects=3, windows=80)
    f, p = signal.welch(d.windows, d.fs, nperseg=500)

    def band(channel: int, stage: str, low: float, high: float) -> float:
        rows = p[d.labels == d.classes.index(stage), channel]
        return float(np.median(rows[:, (f >= low) & (f < high)].sum(axis=1)))

    assert set(d.labels) == set(range(5))
    assert band(0, "N3", 0.4, 3) > 4 * band(0, "W", 0.4, 3)
    assert band(0, "N3", 0.4, 3) > 2 * band(0, "N2", 0.4, 3)
    assert band(0, "W", 8, 12) > 1.5 * band(0, "N3", 8, 12)
    assert band(0, "N2", 11.5, 15) > 1.1 * band(0, "REM", 11.5, 15)
    eog = {stage: np.median(np.abs(np.diff(d.windows[d.labels == i, 1])).max(-1)) for i, stage in enumerate(d.classes)}
    assert eog["REM"] > 1.5 * eog["N2"], "saccades"
    assert band(1, "N1", 0.2, 0.7) > 4 * band(1, "N2", 0.2, 0.7), "rolling eyes"
