"""Readers on files written here in the true formats and on real samples; every defect names file and position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sscf.data.readers import (
    choose_channels,
    edf_annotations,
    inside,
    read_csv,
    read_edf,
    read_mat,
    read_table,
    read_wfdb,
    read_xlsx,
    safe_xml,
    unit_factor,
    wfdb_annotations,
    wfdb_comments,
)
from sscf.data.recording import Channel, Whole
from sscf.errors import DataError

edfio = pytest.importorskip("edfio")
wfdb = pytest.importorskip("wfdb")

SECONDS = 60


def wave(fs: float, frequency: float) -> np.ndarray:
    return 80 * np.sin(2 * np.pi * frequency * np.arange(round(SECONDS * fs)) / fs)


def write_edf(path: Path, **more: object) -> Path:
    def signal(label: str, fs: float, frequency: float, unit: str = "uV", scale: float = 1.0) -> Any:
        limit = 200 * scale
        return edfio.EdfSignal(
            scale * wave(fs, frequency), fs, label=label, physical_dimension=unit, physical_range=(-limit, limit)
        )

    signals = [
        signal("C4", 256, 10),
        signal("A1", 256, 1),
        signal("EOG(L)", 50, 2),
        signal("EKG", 256, 1.2, "mV", 0.01),
        signal("EEG C3-A2", 256, 3),
    ]
    notes = [edfio.EdfAnnotation(0, 30, "Sleep stage W"), edfio.EdfAnnotation(30, 30, "Sleep stage 2")]
    edfio.Edf(signals, annotations=notes, **more).write(path)
    return path


def test_edf_reads_wanted_channels_at_their_own_rates_and_derives(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "night.edf")
    wanted = [Channel("EEG", ("C4 - A1",)), Channel("EOG", ("loc", "eog (l)")), Channel("C3", ("EEG C3-A2",))]
    signals = read_edf(path, wanted)
    assert signals.rates == (256, 50, 256)
    assert signals.channels == ("EEG", "EOG", "C3")
    assert signals.labels == ("C4", "A1", "EOG(L)", "EKG", "EEG C3-A2")
    assert signals.pieces == ((0, 0, 60),)
    half_step = 400 / 65535  # of the 16-bit file
    np.testing.assert_allclose(signals.signals[0], wave(256, 10) - wave(256, 1), atol=2 * half_step)
    np.testing.assert_allclose(signals.signals[1], wave(50, 2), atol=half_step)
    assert all(signal.dtype == np.float32 for signal in signals.signals)


def test_edf_units(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "night.edf")
    (ecg,) = read_edf(path, [Channel("EKG")], "uV").signals
    np.testing.assert_allclose(ecg, 10 * wave(256, 1.2), atol=0.1)
    with pytest.raises(DataError, match=r"night\.edf: channel 'EKG': unit 'mV' cannot be turned into 'g'"):
        read_edf(path, [Channel("EKG")], "g")


def test_edf_annotations(tmp_path: Path) -> None:
    marks = edf_annotations(write_edf(tmp_path / "night.edf"))
    assert [(m.onset, m.duration, m.text) for m in marks] == [(0, 30, "Sleep stage W"), (30, 30, "Sleep stage 2")]


def test_edf_missing_channel_lists_what_the_file_has(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "night.edf")
    with pytest.raises(
        DataError, match=r"night\.edf: no channel 'EEG' \(looked for 'Fpz-Cz', 'Fpz - Cz'\); the file has 'C4', 'A1'"
    ):
        read_edf(path, [Channel("EEG", ("Fpz-Cz", "Fpz - Cz"))])
    with pytest.raises(DataError, match=r"'C4' \(256 Hz\) minus 'EOG\(L\)' \(50 Hz\)"):
        read_edf(path, [Channel("EEG", ("C4 - EOG(L)",))])


@pytest.mark.parametrize("cut", [10, 30_000])
def test_truncated_edf_says_where_it_ends(tmp_path: Path, cut: int) -> None:
    path = write_edf(tmp_path / "night.edf")
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    with pytest.raises(
        DataError, match=r"night\.edf: truncated or damaged: the header promises 60 data records .* record \d+"
    ):
        read_edf(path, [Channel("C4")])


@pytest.mark.parametrize("content", [b"", b"0       ", b"RIFF" + bytes(300), b"0       " + b"x" * 600])
def test_foreign_edf(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "night.edf").write_bytes(content)
    with pytest.raises(DataError, match=r"night\.edf: not a"):
        read_edf(tmp_path / "night.edf", [Channel("C4")])
    with pytest.raises(DataError, match="no such file"):
        read_edf(tmp_path / "none.edf", [Channel("C4")])


def test_flat_edf_channel(tmp_path: Path) -> None:
    flat = edfio.EdfSignal(
        np.zeros(1000),
        100,
        label="C4",
        physical_dimension="uV",
        physical_range=(-1000, 1000),
        digital_range=(-1000, 1000),
    )
    edfio.Edf([flat]).write(tmp_path / "flat.edf")
    with pytest.raises(DataError, match=r"flat\.edf: channel 'C4' is all zero over its 1000 samples"):
        read_edf(tmp_path / "flat.edf", [Channel("C4")])


def test_discontinuous_edf_gives_pieces(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "night.edf")
    data = bytearray(path.read_bytes())
    header = int(data[184:192])
    data[192:197] = b"EDF+D"
    record = (len(data) - header) // 60
    for i in range(40, 60):  # the last 20 of 60 s come 100 s later
        at = data.index(b"+%d\x14\x14" % i, header + i * record)
        data[at : at + 8] = (b"+%d\x14\x14\0" % (i + 100)).ljust(8, b"\0")
    path.write_bytes(data)
    signals = read_edf(path, [Channel("C4"), Channel("EOG(L)")])
    assert signals.pieces == ((0, 0, 40), (140, 40, 20))
    first, second = signals.recordings(Whole("W"))
    assert (first.start, first.duration, second.start, second.duration) == (0, 40, 140, 20)
    np.testing.assert_allclose(second.signals[1], wave(50, 2)[2000:], atol=0.01)


def test_channels_by_spelling() -> None:
    have = ["EEG Fpz-Cz", "C4", "a1", "C4-A1"]
    assert choose_channels(have, [Channel("x", ("eegfpz-cz",))], "f") == [(0, None)]
    assert choose_channels(have, [Channel("x", ("C4 - A1",))], "f") == [(3, None)]  # already derived in the file
    assert choose_channels(have[:3], [Channel("x", ("C4 - A1",))], "f") == [(1, 2)]
    assert choose_channels(have, [Channel("C4")], "f") == [(1, None)]


def test_units() -> None:
    assert unit_factor("uV", "mV") == pytest.approx(1e-3)
    assert unit_factor("µV", "uV") == 1
    assert unit_factor("mv", "mV") == 1
    assert unit_factor("m/s^2", "g") == pytest.approx(1 / 9.80665)
    with pytest.raises(DataError, match="'ohm' cannot"):
        unit_factor("ohm", "mV")


def write_wfdb(folder: Path, n: int = 3000) -> Path:
    t = np.arange(n) / 360
    x = np.stack([np.sin(2 * np.pi * t), 0.5 * np.cos(3 * t)], axis=1)
    wfdb.wrsamp("r1", 360, ["mV", "mV"], ["MLII", "V5"], x, fmt=["16", "16"], comments=["note"], write_dir=str(folder))
    wfdb.wrann("r1", "atr", np.array([10, 500]), ["+", "N"], aux_note=["(AFIB\0", ""], write_dir=str(folder), fs=360)
    return folder / "r1"


def test_wfdb_round_trip(tmp_path: Path) -> None:
    record = write_wfdb(tmp_path)
    signals = read_wfdb(record, [Channel("V5"), Channel("diff", ("MLII - V5",))], "uV")
    t = np.arange(3000) / 360
    np.testing.assert_allclose(signals.signals[0], 500 * np.cos(3 * t), atol=0.5)
    np.testing.assert_allclose(signals.signals[1], 1000 * np.sin(2 * np.pi * t) - 500 * np.cos(3 * t), atol=1)
    assert signals.rates == (360, 360)
    assert signals.header["comments"] == wfdb_comments(record) == ["note"]
    marks = wfdb_annotations(record, "atr")
    assert (marks.samples.tolist(), marks.symbols, marks.notes) == ([10, 500], ["+", "N"], ["(AFIB", ""])


def test_wfdb_defects(tmp_path: Path) -> None:
    record = write_wfdb(tmp_path)
    with pytest.raises(DataError, match=r"r1\.hea: no channel 'II'.*the file has 'MLII', 'V5'"):
        read_wfdb(record, [Channel("II")])
    with pytest.raises(DataError, match=r"r1\.qrs: no such file"):
        wfdb_annotations(record, "qrs")
    dat = tmp_path / "r1.dat"
    dat.write_bytes(dat.read_bytes()[:-100])
    with pytest.raises(
        DataError, match=r"r1\.dat: cut short: r1\.hea promises 3000 samples, it ends after 2975 \(8\.26"
    ):
        read_wfdb(record, [Channel("MLII")])
    dat.unlink()
    with pytest.raises(DataError, match=r"r1\.dat: no such file"):
        read_wfdb(record, [Channel("MLII")])
    with pytest.raises(DataError, match=r"none\.hea: no such file"):
        read_wfdb(tmp_path / "none", [Channel("MLII")])


@pytest.mark.parametrize("rate", ["fast", "0", "-360", "nan"])
def test_a_wfdb_rate_that_cannot_be_is_not_guessed(tmp_path: Path, rate: str) -> None:
    record = write_wfdb(tmp_path)
    header = (tmp_path / "r1.hea").read_text()
    assert " 360 " in header
    (tmp_path / "r1.hea").write_text(header.replace(" 360 ", f" {rate} "))
    with pytest.raises(DataError, match=rf"r1\.hea: a rate of '{rate}' Hz cannot be"):
        read_wfdb(record, [Channel("MLII")])


@pytest.mark.parametrize("kept", [0, 6])
def test_annotations_that_are_cut_short_are_an_error(tmp_path: Path, kept: int) -> None:
    record = write_wfdb(tmp_path)
    atr = tmp_path / "r1.atr"
    atr.write_bytes(atr.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"r1\.atr: cut short"):
        wfdb_annotations(record, "atr")


def test_wfdb_real_quirks(shared_raw: Callable[[str], Path]) -> None:
    samples = shared_raw("samples") / "samples"
    swapped = read_wfdb(samples / "mitbih/114", [Channel("MLII")])
    raw = wfdb.rdrecord(str(samples / "mitbih/114"))
    np.testing.assert_allclose(swapped.signals[0], raw.p_signal[:, raw.sig_name.index("MLII")], atol=1e-6)
    with pytest.raises(DataError, match="the file has 'V5', 'V2'"):
        read_wfdb(samples / "mitbih/102", [Channel("MLII")])
    odd = read_wfdb(samples / "cinc2020/E00015", [Channel("II")])  # its record line wfdb rejects
    assert (odd.rates, len(odd.signals[0])) == ((500.0,), 5000)
    assert read_wfdb(samples / "cinc2020/HR00003", [Channel("II")]).unit == "mV"  # written "mv"
    with pytest.raises(DataError, match=r"I0002"):
        read_wfdb(samples / "cinc2020/I0002", [Channel("II")])  # header without signals


def test_mat_4_5_and_73(tmp_path: Path) -> None:
    import h5py
    from scipy.io import savemat

    x = np.arange(6.0).reshape(2, 3)
    for version in ("4", "5"):
        savemat(tmp_path / f"v{version}.mat", {"val": x, "other": x}, format=version)
        np.testing.assert_array_equal(read_mat(tmp_path / f"v{version}.mat", ["val"])["val"], x)
    with h5py.File(tmp_path / "v7.mat", "w", userblock_size=512) as file:
        file["data/stages"] = x.T  # MATLAB writes columns first
    data = bytearray((tmp_path / "v7.mat").read_bytes())
    data[:19] = b"MATLAB 7.3 MAT-file"
    (tmp_path / "v7.mat").write_bytes(data)
    np.testing.assert_array_equal(read_mat(tmp_path / "v7.mat")["data/stages"], x)
    with pytest.raises(DataError, match=r"v5\.mat: no variable 'x'; the file has other, val"):
        read_mat(tmp_path / "v5.mat", ["x"])
    (tmp_path / "bad.mat").write_bytes(b"nonsense" * 40)
    with pytest.raises(DataError, match=r"bad\.mat: not a readable MATLAB file"):
        read_mat(tmp_path / "bad.mat")


def test_tables(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes("\ufeff,Acc X,y\r\n0,1.5,2\r\n1,-3e+000,4\r\n".encode())
    np.testing.assert_array_equal(read_csv(file, ["y", "acc x"]), [[2, 4], [1.5, -3]])
    assert read_table(file) == [{"": "0", "Acc X": "1.5", "y": "2"}, {"": "1", "Acc X": "-3e+000", "y": "4"}]
    with pytest.raises(DataError, match=r"t\.csv: no column 'z'; the file has '', 'Acc X', 'y'"):
        read_csv(file, ["z"])
    file.write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"t\.csv: line 3 has 1 fields, expected 2"):
        read_table(file)
    file.write_text("a,b\n1,two\n")
    with pytest.raises(DataError, match=r"t\.csv: not a table of numbers .*two"):
        read_csv(file, ["b"])


def test_xlsx(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    for row in (["FileName", "Rhythm"], ["r1", "AFIB "], [None, None], ["r2", 7]):
        book.active.append(row)
    book.save(tmp_path / "d.xlsx")
    assert read_xlsx(tmp_path / "d.xlsx") == [{"FileName": "r1", "Rhythm": "AFIB"}, {"FileName": "r2", "Rhythm": "7"}]
    (tmp_path / "bad.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"bad\.xlsx: not a readable Excel"):
        read_xlsx(tmp_path / "bad.xlsx")


def test_xml_with_entities_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text('<?xml version="1.0"?>\n<a><b>1</b></a>')
    assert safe_xml(file).findtext("b") == "1"
    bomb = '<?xml version="1.0"?>\n<!DOCTYPE a [<!ENTITY x "xxxx"><!ENTITY y "&x;&x;">]>\n<a>&y;</a>'
    reach = '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>'
    for text, line in ((bomb, 2), (reach, 1)):
        file.write_text(text)
        with pytest.raises(DataError, match=rf"a\.xml: line {line}: refused"):
            safe_xml(file)
    file.write_text("<a><b></a>")
    with pytest.raises(DataError, match=r"a\.xml: not well-formed XML"):
        safe_xml(file)


def test_paths_cannot_leave_the_raw_folder(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "in.txt").write_text("")
    (tmp_path / "out.txt").write_text("")
    (tmp_path / "rawer").mkdir()
    (raw / "link.txt").symlink_to(tmp_path / "out.txt")
    assert inside(raw, "in.txt") == (raw / "in.txt").resolve()
    for path in ("../out.txt", "link.txt", str(tmp_path / "out.txt"), "../rawer"):
        with pytest.raises(DataError, match="leads out of the raw folder"):
            inside(raw, path)
    with pytest.raises(DataError, match="no such file"):
        inside(raw, "none.txt")
