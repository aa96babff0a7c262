"""Windows of a file made block by block are those of the whole recording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sscf.data import stream
from sscf.data.datasets.base import Recipe
from sscf.data.readers import read_edf, read_wfdb
from sscf.data.recording import Channel, Recording, Whole
from sscf.data.signal import cut
from sscf.data.stream import FileDomain, open_signals
from sscf.errors import ConfigError, DataError

SLEEP = Recipe(30.0, 30.0, 100.0, (Channel("EEG", ("C4-M1",)), Channel("EOG")), "uV", (0.3, 35.0))
HAR = Recipe(2.56, 1.28, 50.0, (Channel("x"), Channel("y")), "g")


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK_S", 95.0)  # several blocks in a short recording, and windows across their edges


def signal(seconds: float, fs: float, seed: int) -> np.ndarray:
    """Coloured noise with an offset and a drift."""
    rng = np.random.default_rng(seed)
    n = round(seconds * fs)
    return (30 * rng.normal(size=n) + 0.3 * rng.normal(size=n).cumsum() + 40).astype(np.float32)


def write_edf(path: Path, seconds: float = 400.0, rates: tuple[float, ...] = (256, 256, 50)) -> Path:
    edfio = pytest.importorskip("edfio")
    names = ("C4", "M1", "EOG")
    signals = [
        edfio.EdfSignal(signal(seconds, fs, i), fs, label=name, physical_dimension="uV")
        for i, (name, fs) in enumerate(zip(names, rates, strict=True))
    ]
    edfio.Edf(signals, data_record_duration=10).write(path)
    return path


def windows_of(domain: FileDomain) -> np.ndarray:
    return domain.read(np.arange(len(domain)))


def test_edf_of_several_rates_with_filter(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "a.edf")
    whole = cut(read_edf(path, SLEEP.channels).recordings(Whole("?")), SLEEP)
    domain = FileDomain(open_signals(path, SLEEP), SLEEP)
    assert len(domain._size) == 1
    assert domain._size[0] < 0.3 * 400 * 100  # really in blocks
    np.testing.assert_array_equal(domain.positions, whole.positions)
    np.testing.assert_allclose(windows_of(domain), whole.windows, atol=2e-3)  # of about 30 uV
    np.testing.assert_allclose(domain.starts, np.arange(13) * 30.0)


@pytest.mark.parametrize("fs", [50.0, 20.0, 100.0, 19.86, 64.0, 257.0])
def test_npy_of_any_rate(tmp_path: Path, fs: float) -> None:
    values = np.stack([signal(300, fs, 0), signal(300, fs, 1)])
    np.save(tmp_path / "a.npy", values.astype(np.float64))
    whole = cut(Recording(values, fs, ("x", "y"), "g", Whole("?")), HAR)
    domain = FileDomain(open_signals(tmp_path / "a.npy", HAR, fs=fs), HAR)
    np.testing.assert_array_equal(domain.positions, whole.positions)
    np.testing.assert_allclose(windows_of(domain), whole.windows, rtol=1e-5, atol=1e-3)


def test_the_order_of_reading_does_not_matter(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.stack([signal(300, 64, 0), signal(300, 64, 1)]))
    domain = FileDomain(open_signals(tmp_path / "a.npy", HAR, fs=64), HAR)
    ahead = windows_of(domain)
    order = np.random.default_rng(0).permutation(len(domain))
    np.testing.assert_array_equal(domain.read(order), ahead[order])


def test_statistics_of_the_recording(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.stack([signal(60, 50, 0), signal(60, 50, 1)]))
    domain = FileDomain(open_signals(tmp_path / "a.npy", HAR, fs=50), HAR)
    x = windows_of(domain).astype(np.float64)
    np.testing.assert_allclose(domain.statistics.recording_mean[0], x.mean(axis=(0, 2)))
    np.testing.assert_allclose(domain.statistics.recording_std[0], x.std(axis=(0, 2)))


def test_csv_by_spelling_unit_and_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_CSV_ROWS", 777)
    values = np.stack([signal(60, 50, 0), signal(60, 50, 1)])
    rows = ["time,Acc Y,ACC X", *(f"{i / 50},{b:.6f},{a:.6f}" for i, (a, b) in enumerate(values.T))]
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    recipe = replace(HAR, channels=(Channel("x", ("x", "acc x")), Channel("y", ("acc y",))))
    domain = FileDomain(open_signals(tmp_path / "a.csv", recipe, fs=50, unit="m/s^2"), recipe)
    expected = cut(Recording(values, 50, ("x", "y"), "m/s^2", Whole("?")), recipe)
    np.testing.assert_allclose(windows_of(domain), expected.windows, atol=1e-4)
    timed = FileDomain(open_signals(tmp_path / "a.csv", recipe, time="time", unit="m/s^2"), recipe)
    np.testing.assert_allclose(windows_of(timed), expected.windows, atol=1e-3)


def test_wfdb(tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb")
    values = np.stack([signal(60, 250, 0), signal(60, 250, 1)], axis=1) / 1000
    wfdb.wrsamp("rec", fs=250, units=["mV", "mV"], sig_name=["I", "II"], p_signal=values.astype(np.float64),
                fmt=["16", "16"], write_dir=str(tmp_path))  # fmt: skip
    recipe = Recipe(10.0, 10.0, 100.0, (Channel("II"),), "mV")
    domain = FileDomain(open_signals(tmp_path / "rec.hea", recipe), recipe)
    whole = cut(read_wfdb(tmp_path / "rec.hea", recipe.channels).recordings(Whole("?")), recipe)
    np.testing.assert_allclose(windows_of(domain), whole.windows, atol=1e-5)


def test_wfdb_beside_channels_of_other_kinds_and_cut_short(tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb")
    values = np.stack([signal(60, 250, seed) for seed in (1, 2)], axis=1).astype(np.float64)
    names = {"units": ["%", "mV"], "sig_name": ["SaO2", "II"], "fmt": ["16", "16"]}
    wfdb.wrsamp("rec", fs=250, p_signal=values, write_dir=str(tmp_path), **names)
    recipe = Recipe(window_s=10, hop_s=10, fs=100, channels=(Channel("ECG", ("II",)),), unit="mV")
    read = windows_of(FileDomain(open_signals(tmp_path / "rec.hea", recipe), recipe))
    whole = cut(read_wfdb(tmp_path / "rec.hea", recipe.channels).recordings(Whole("?")), recipe)
    np.testing.assert_allclose(read, whole.windows, atol=1e-4)
    (tmp_path / "rec.dat").write_bytes((tmp_path / "rec.dat").read_bytes()[:-400])
    with pytest.raises(DataError, match=r"rec\.dat: cut short: rec\.hea promises 15000 samples"):
        open_signals(tmp_path / "rec.hea", recipe)


def test_windows_do_not_bridge_a_gap() -> None:
    piece = [signal(100, 50, 0), signal(100, 50, 1)]
    file = stream._arrays(Path("gap"), [(0.0, piece, 50.0), (130.0, piece, 50.0)])
    domain = FileDomain(file, HAR)
    half = len(domain) // 2
    assert domain.starts[half] == 130.0
    assert domain.positions[half] == 130 * 50
    np.testing.assert_array_equal(domain.read(np.arange(half)), domain.read(np.arange(half, 2 * half)))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    good = np.stack([signal(60, 50, 0), signal(60, 50, 1)])

    def saved(values: np.ndarray) -> Path:
        np.save(tmp_path / "a.npy", values)
        return tmp_path / "a.npy"

    with pytest.raises(ConfigError, match="give --fs"):
        open_signals(saved(good), HAR)
    with pytest.raises(DataError, match=r"3 channels .* takes 2: x, y"):
        open_signals(saved(np.concatenate([good, good[:1]])), HAR, fs=50)
    with pytest.raises(DataError, match="turn it over"):
        open_signals(saved(good.T), HAR, fs=50)
    with pytest.raises(DataError, match=r"shorter than one window of 2\.56 s"):
        FileDomain(open_signals(saved(good[:, :100]), HAR, fs=50), HAR)
    holed = good.copy()
    holed[1, 1234] = np.nan
    with pytest.raises(DataError, match=r"channel 'y' .* at sample 1234 \(24.68 s\)"):
        windows_of(FileDomain(open_signals(saved(holed), HAR, fs=50), HAR))
    with pytest.raises(DataError, match="no such file"):
        open_signals(tmp_path / "b.npy", HAR, fs=50)
    (tmp_path / "a.txt").write_text("1 2 3")
    with pytest.raises(DataError, match="not a kind of file we read"):
        open_signals(tmp_path / "a.txt", HAR)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,oops\n")
    with pytest.raises(DataError, match="not a table of numbers"):
        open_signals(tmp_path / "a.csv", HAR, fs=50)
    with pytest.raises(DataError, match=r"no channel 'EEG' \(looked for 'C4-M1'\); the file has 'x', 'y'"):
        open_signals(tmp_path / "a.csv", SLEEP, fs=50)
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match="not a readable"):
        open_signals(tmp_path / "o.npy", HAR, fs=50)
