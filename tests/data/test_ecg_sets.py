"""The five ECG sets: on the real files, and INCART on files the tests write; labels, counts, values, defects."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.signal
import wfdb

from sscf.data.datasets import chapman, cinc2017, get, incart, mitbih, ptbxl
from sscf.data.datasets._ecg import BEATS, LABELS, RHYTHMS, BeatTrack
from sscf.data.prepare import prepare
from sscf.data.readers import Marks
from sscf.data.recording import Drop, Recording, Source
from sscf.data.store import Domain
from sscf.data.tasks import get_task
from sscf.errors import DataError

Raw = Callable[[str], Path]

# Every nth recording of the large sets: their label counts are checked on all records, their signals on these.
EVERY = {"mitbih": 1, "ptbxl": 20, "chapman": 20, "cinc2017": 8}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, shared_raw: Raw) -> Callable[[str], Domain]:
    """store("mitbih") is that set (every nth recording of it) prepared from the real files, once per test run."""
    out = tmp_path_factory.mktemp("ecg")

    def domain(name: str) -> Domain:
        dataset = get(name)
        some = replace(dataset, find=lambda root: dataset.find(root)[:: EVERY[name]])
        return Domain.open(out / name if (out / name).exists() else prepare(some, shared_raw(name), out).path)

    return domain


def only(recordings: Recording | list[Recording]) -> Recording:
    (recording,) = [recordings] if isinstance(recordings, Recording) else recordings
    return recording


def label_of(recordings: Recording | list[Recording]) -> str | Drop:
    return only(recordings).track.at(0, 10)


def own_labels(domain: Domain) -> Counter[str]:
    return Counter(domain.label_names[i] for i in domain.labels)


def band_passed(signal: np.ndarray, fs: float) -> np.ndarray:
    """The signal at 100 Hz, 0.5 to 40 Hz, by one multiplication in the frequency domain: an independent reference.

    A Butterworth band-pass of order 4 run forwards and backwards has the gain 1 / (1 + w^8) of the analogue prototype.
    """
    x = np.concatenate([2 * signal[0] - signal[:0:-1], signal, 2 * signal[-1] - signal[-2::-1]])
    f = np.fft.rfftfreq(len(x), 1 / fs)
    warp = np.tan(np.pi * np.minimum(f, 49.999) / 100)  # the bilinear transform at 100 Hz
    low, high = np.tan(np.pi * np.array([0.5, 40]) / 100)
    with np.errstate(divide="ignore"):
        w = (warp**2 - low * high) / (warp * (high - low))
    y = np.fft.irfft(np.where(f < 50, np.fft.rfft(x) / (1 + w**8), 0), len(x))
    y = y[len(signal) - 1 :][: len(signal)]
    times = np.arange(int(len(signal) * 100 / fs)) / 100
    return scipy.interpolate.CubicSpline(np.arange(len(signal)) / fs, y)(times)


def assert_close(window: np.ndarray, reference: np.ndarray) -> None:
    """Equal but for the ends of a recording (how a signal is continued there is anybody's choice)."""
    assert np.abs(window - reference).max() < 0.02 * np.ptp(reference) + 0.002


@pytest.mark.parametrize("name", ["mitbih", "incart", "ptbxl", "chapman", "cinc2017"])
def test_every_label_has_a_place_in_the_task(name: str) -> None:
    dataset = get(name)
    assert set(dataset.tasks["ecg"]) == set(dataset.labels)
    assert {"normal", "af", "other"} <= set(dataset.tasks["ecg"].values()) <= {"normal", "af", "other", None}
    assert dataset.recipe.names == ("ECG",)
    assert (dataset.recipe.samples, dataset.recipe.hop) == (1000, 1000)


# --- windows of long recordings --------------------------------------------------------------------------------------


def track(*marks: tuple[float, str, str], before: str | Drop | None = None) -> BeatTrack:
    """A track of (second, symbol, note) at 100 Hz."""
    samples = np.array([round(second * 100) for second, _, _ in marks], np.int64)
    return BeatTrack(Marks(samples, [m[1] for m in marks], [m[2] for m in marks], 100.0), 100.0, "x.atr", before)


def beats(start: float, stop: float, symbol: str = "N") -> list[tuple[float, str, str]]:
    return [(t, symbol, "") for t in np.arange(start, stop, 0.8).tolist()]


def test_sinus_rhythm_of_normal_beats() -> None:
    t = track((0.1, "+", "(N"), *beats(0.1, 30))
    assert [t.at(s, s + 10) for s in (0, 10, 20)] == ["(N", "(N", "(N"]


@pytest.mark.parametrize("symbol", [*BEATS])
def test_a_beat_that_is_not_normal_decides_a_sinus_window(symbol: str) -> None:
    t = track((0, "+", "(N"), *beats(0.1, 14), (14.0, symbol, ""), *beats(14.8, 30))
    assert [t.at(s, s + 10) for s in (0, 10, 20)] == ["(N", symbol, "(N"]


def test_ectopy_decides_before_bundle_branch_block() -> None:
    t = track((0, "+", "(N"), *beats(0, 5, "L"), (5, "V", ""), *beats(5.6, 20, "L"))
    assert [t.at(0, 10), t.at(10, 20)] == ["V", "L"]
    assert mitbih.DATASET.tasks["ecg"]["V"] == "other"
    assert mitbih.DATASET.tasks["ecg"]["L"] is None


def test_a_beat_on_the_border_belongs_to_the_window_it_begins() -> None:
    t = track((0, "+", "(N"), *beats(0.1, 9.9), (10, "V", ""), *beats(10.7, 20))
    assert [t.at(0, 10), t.at(10, 20)] == ["(N", "V"]


def test_rhythm_comes_before_beats() -> None:
    t = track((0, "+", "(AFIB"), *beats(0, 12), (12, "V", ""), *beats(12.6, 20))
    assert [t.at(0, 10), t.at(10, 20)] == ["(AFIB", "(AFIB"]


def test_rhythm_changes() -> None:
    marks = [(0, "+", "(N"), (13, "+", "(VT"), (14, "+", "(N"), (25, "+", "(AFIB"), (36, "+", "(AFL"), (45, "+", "(N")]
    t = track(*sorted([*marks, *beats(0, 60)]))
    assert [t.at(s, s + 10) for s in (0, 10, 30, 50)] == ["(N", "(VT", "(AFIB", "(N"]
    for start in (20, 40):
        assert isinstance(t.at(start, start + 10), Drop)
    assert t.at(40, 50) == "fibrillation begins or ends inside"
    assert t.at(35, 45) == "(AFIB"  # flutter after fibrillation: both are af


def test_rhythm_holds_from_the_start_although_its_mark_stands_at_the_first_beat() -> None:
    t = track((0.6, "+", "(AFIB"), *beats(0.6, 10))
    assert t.at(0, 10) == "(AFIB"


def test_windows_nobody_could_read_are_dropped() -> None:
    t = track((0, "+", "(N"), *beats(0, 14), *beats(17.5, 30), (33, "Q", ""), *beats(30.1, 32), *beats(33.5, 40))
    assert t.at(0, 10) == "(N"
    assert t.at(10, 20) == Drop("no beat for 3 s")
    assert isinstance(t.at(10, 20), Drop)
    assert t.at(30, 40) == Drop("beat that could not be classified")
    assert isinstance(t.at(30, 40), Drop)
    assert isinstance(track(*beats(0, 10)).at(0, 10), Drop)  # no rhythm given


def test_unknown_codes_are_errors() -> None:
    with pytest.raises(DataError, match=r"x\.atr: rhythm '\(XYZ' at sample 50; known are \(N"):
        track((0.5, "+", "(XYZ"))
    with pytest.raises(DataError, match=r"x\.atr: beat 'G' at sample 50"):
        track((0.5, "G", ""))


# --- MIT-BIH ---------------------------------------------------------------------------------------------------------


def mitbih_reference(record: str) -> Counter[str]:
    """Classes of the 180 windows of a record, from per-sample arrays rather than lists of marks."""
    marks, n = wfdb.rdann(record, "atr"), 650_000
    names = sorted({note.rstrip("\0") for note in marks.aux_note if note.startswith("(")})
    rhythm = np.full(n, -1, np.int8)
    for sample, symbol, note in zip(marks.sample, marks.symbol, marks.aux_note, strict=True):
        if symbol == "+":
            rhythm[sample:] = names.index(note.rstrip("\0"))
    rhythm[rhythm < 0] = rhythm[np.argmax(rhythm >= 0)]
    normal, block, unknown = (np.zeros(n, bool) for _ in range(3))
    ectopic = np.zeros(n, bool)
    for sample, symbol in zip(marks.sample, marks.symbol, strict=True):
        kind = {"N": normal, "L": block, "R": block, "B": block, "Q": unknown}.get(symbol)
        if kind is None and symbol not in '+~|"[]':
            kind = ectopic
        if kind is not None:
            kind[sample] = True
    out: Counter[str] = Counter()
    for a in range(0, n - 3599, 3600):
        inside = slice(a, a + 3600)
        here = {names[i] for i in np.flatnonzero(np.bincount(rhythm[inside]))}
        af = here & {"(AFIB", "(AFL"}
        if af:
            out["af" if here == af else "dropped"] += 1
        elif here - {"(N"}:
            out["dropped" if here - {"(N"} == {"(PREX"} else "other"] += 1
        elif ectopic[inside].any():
            out["other"] += 1
        else:
            out["dropped" if block[inside].any() or unknown[inside].any() else "normal"] += 1
    return out


def test_mitbih_counts(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain = store("mitbih")
    view = get_task("ecg").view(domain)
    assert view.counts == {"normal": 3418, "af": 781, "other": 2815}
    assert view.dropped == {
        f"label '{own}' is not in task ecg": n for own, n in {"(PREX": 124, "L": 483, "R": 488}.items()
    }
    assert domain.manifest["dropped"] == {
        "beat that could not be classified": 6,
        "fibrillation begins or ends inside": 165,
    }
    root = shared_raw("mitbih") / "mit-bih-arrhythmia-database-1.0.0"
    for i, record in enumerate(domain.recording_names):
        expected = mitbih_reference(str(root / record))
        mine = view.y[view.recordings == i]
        got = dict(zip(view.classes, np.bincount(mine, minlength=3).tolist(), strict=True))
        assert got == {name: expected[name] for name in view.classes}, record
    paced = own_labels(domain)
    assert paced["(P"] == 314  # 107 and most of 217; 102 and 104 have no lead II


def test_mitbih_leads_and_subjects(store: Callable[[str], Domain]) -> None:
    domain = store("mitbih")
    assert [entry["id"] for entry in domain.manifest["skipped"]] == ["102", "104"]
    assert all("no lead II" in entry["reason"] for entry in domain.manifest["skipped"])
    assert (len(domain.recording_names), len(domain.subject_names)) == (46, 45)  # 201 and 202 are one
    both = [domain.subjects[domain.recordings == domain.recording_names.index(name)][0] for name in ("201", "202")]
    assert both[0] == both[1]


@pytest.mark.parametrize("record", ["100", "114"])  # 114 has V5 first and MLII second
def test_mitbih_values(store: Callable[[str], Domain], shared_raw: Raw, record: str) -> None:
    domain = store("mitbih")
    root = shared_raw("mitbih") / "mit-bih-arrhythmia-database-1.0.0"
    raw = np.frombuffer((root / f"{record}.dat").read_bytes(), np.uint8).reshape(-1, 3).astype(np.int32)
    first = raw[:, 0] | (raw[:, 1] & 0x0F) << 8  # format 212: two 12-bit samples in three bytes
    second = raw[:, 2] | (raw[:, 1] & 0xF0) << 4
    lead = first if record == "100" else second
    lead = np.where(lead > 2047, lead - 4096, lead)
    header = (root / f"{record}.hea").read_text().splitlines()[1 if record == "100" else 2].split()
    assert header[-1] == "MLII"
    rows = np.flatnonzero(domain.recordings == domain.recording_names.index(record))
    for row in rows[2:-2:40]:
        at = int(domain.positions[row])
        around = lead[int((at - 500) * 3.6) : int((at + 1500) * 3.6)]  # with 5 s on either side
        assert_close(domain.windows[row, 0], band_passed((around - 1024) / 200, 360.0)[500:1500])


def test_mitbih_samples_without_lead_two_are_listed_not_refused(shared_raw: Raw, tmp_path: Path) -> None:
    prepared = prepare("mitbih", shared_raw("samples") / "samples", tmp_path)
    assert [entry["id"] for entry in prepared.skipped] == ["102"]
    assert Domain.open(prepared.path).recording_names == ("100", "114")


# --- INCART ----------------------------------------------------------------------------------------------------------

LEADS = ("I", "II", "III", "AVR", "AVL", "AVF", "V1", "V2", "V3", "V4", "V5", "V6")


def write_incart(
    folder: Path,
    name: str,
    marks: list[tuple[float, str, str]],
    comments: list[str],
    gain: float = 306,
    seconds: int = 40,
) -> np.ndarray:
    """A record as incartdb has it: 12 leads in one file, format 16, 257 Hz; returns lead II in mV."""
    folder.mkdir(parents=True, exist_ok=True)
    t = np.arange(257 * seconds) / 257
    hertz = 1 + int(name[1:]) / 100
    digital = np.round(200 * np.sin(2 * np.pi * hertz * t)[:, None] * np.arange(1, 13)).astype(np.int64)
    wfdb.wrsamp(
        name, fs=257, units=["mV"] * 12, sig_name=list(LEADS), d_signal=digital, fmt=["16"] * 12,
        adc_gain=[gain] * 12, baseline=[0] * 12, comments=comments, write_dir=str(folder),
    )  # fmt: skip
    order = sorted(marks)
    wfdb.wrann(
        name, "atr", np.array([round(s * 257) for s, _, _ in order]), [m[1] for m in order],
        aux_note=[m[2] for m in order], fs=257, write_dir=str(folder),
    )  # fmt: skip
    return digital[:, 1] / gain


def test_incart_labels_values_and_patients(tmp_path: Path) -> None:
    folder = tmp_path / "incartdb/1.0.0"
    who = "<age>: 65 <sex>: F <diagnoses> Coronary artery disease, arterial hypertension"
    lead = write_incart(
        folder, "I01", [*beats(0.2, 13), (13, "V", ""), *beats(13.8, 25), *beats(25.2, 40, "R")],
        [who, "patient 1", "PVCs, noise"],
    )  # fmt: skip
    write_incart(folder, "I02", [*beats(0.2, 24), (24, "A", ""), *beats(24.8, 40)], [who, "patient 1", "APCs"])
    # Fibrillation is marked in part of the record; before the mark nobody says what the rhythm is.
    write_incart(
        folder, "I50", [*beats(0.2, 40), (10, "+", "(AFIB"), (30, "+", "(N")],
        ["<age>: 70 <sex>: M", "patient 22", "Atrial fibrillation"],
    )  # fmt: skip
    domain = Domain.open(prepare("incart", tmp_path, tmp_path / "store").path)
    labels = [domain.label_names[i] for i in domain.labels]
    names = [domain.recording_names[i] for i in domain.recordings]
    assert list(zip(names, labels, strict=True)) == [
        *(("I01", label) for label in ("(N", "V", "R", "R")),
        *(("I02", label) for label in ("(N", "(N", "A", "(N")),
        *(("I50", label) for label in ("(AFIB", "(AFIB", "(N")),
    ]
    assert domain.manifest["dropped"] == {"header says atrial fibrillation, no rhythm is marked": 1}
    assert domain.subject_names == ("1", "22")
    assert get_task("ecg").view(domain).counts == {"normal": 5, "af": 2, "other": 2}
    reference = band_passed(lead, 257.0)
    assert_close(domain.windows[1, 0], reference[1000:2000])
    assert_close(domain.windows[2, 0], reference[2000:3000])


@pytest.mark.parametrize("finding", ["Atrial fibrillation", "Sinus node dysfunction", "AV nodal block, PVCs", "WPW"])
def test_incart_rhythm_named_in_the_header_only_is_not_guessed(tmp_path: Path, finding: str) -> None:
    write_incart(tmp_path / "incartdb", "I09", beats(0.2, 40), ["patient 4", finding])
    root = tmp_path / "incartdb"
    assert isinstance(label_of(incart.read(root, incart.find(root)[0])), Drop)


def test_incart_refuses_the_challenge_copy(tmp_path: Path, shared_raw: Raw) -> None:
    (tmp_path / "incart").mkdir()
    shutil.copy(shared_raw("samples") / "samples/cinc2020/I0002.hea", tmp_path / "incart")
    with pytest.raises(DataError, match=r"I0002\.hea: a gain of 306000/mV cannot be.*use incartdb 1\.0\.0"):
        prepare("incart", tmp_path, tmp_path / "store")


def test_incart_needs_the_patient(tmp_path: Path) -> None:
    write_incart(tmp_path / "incart", "I03", beats(0, 40), ["<age>: 65 <sex>: F"])
    with pytest.raises(DataError, match=r"I03\.hea: no patient number"):
        prepare("incart", tmp_path, tmp_path / "store")


# --- PTB-XL ----------------------------------------------------------------------------------------------------------


def ptbxl_class(row: dict[str, str]) -> str:
    """Class of a row by regular expressions over the raw text."""
    codes = set(re.findall(r"'([^']+)'", row["scp_codes"]))
    af = codes & {"AFIB", "AFLT"}
    if af:
        clash = codes & {"SR", "SBRAD", "STACH", "SARRH", "PACE", "SVTAC", "PSVT", "SVARR", "2AVB", "3AVB"}
        return "ambiguous" if clash else "af"
    if codes & {*"SBRAD STACH SARRH PACE SVTAC PSVT SVARR BIGU TRIGU PVC PAC 2AVB 3AVB".split(), "PRC(S)"}:  # noqa: SIM905
        return "other"
    return "normal" if codes & {"SR", "NORM"} else "ambiguous"


def test_ptbxl_labels_of_all_records(shared_raw: Raw) -> None:
    root = shared_raw("ptbxl") / "ptb-xl"
    with open(root / "ptbxl_database.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    expected = Counter(ptbxl_class(row) for row in rows)
    assert expected == {"normal": 2715, "af": 1544, "other": 2715, "ambiguous": 26}
    got: Counter[str] = Counter()
    for row in ptbxl._rows(root).values():
        label = ptbxl.decide(set(re.findall(r"'([^']+)'", row["scp_codes"])))
        got["ambiguous" if isinstance(label, Drop) else ptbxl.DATASET.tasks["ecg"][label] or "dropped"] += 1
    assert got == expected
    subjects = {source.id: source.subject for source in ptbxl.find(root)}
    known = {row["ecg_id"]: row["patient_id"].removesuffix(".0") or f"ecg{row['ecg_id']}" for row in rows}
    assert subjects == known
    assert len({s for s in known.values() if not s.startswith("ecg")}) == 1762


def test_ptbxl_prepared(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain, root = store("ptbxl"), shared_raw("ptbxl") / "ptb-xl"
    with open(root / "ptbxl_database.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))[:: EVERY["ptbxl"]]
    expected = Counter(ptbxl_class(row) for row in rows)
    view = get_task("ecg").view(domain)
    assert view.counts == {name: expected[name] for name in view.classes}
    assert sum(domain.manifest["dropped"].values()) == expected["ambiguous"]
    assert "ecg<id>" in domain.manifest["notes"]
    lead = {row["ecg_id"]: row["filename_lr"] for row in rows}
    for i in range(0, len(domain), 40):
        record = domain.recording_names[domain.recordings[i]]
        raw = np.fromfile(root / f"{lead[record]}.dat", "<i2") / 1000
        reference = band_passed(raw, 100.0)
        assert_close(domain.windows[i, 0, 150:-150], reference[150:-150])


def test_ptbxl_twelve_leads_and_500_hz(shared_raw: Raw, tmp_path: Path) -> None:
    """The official files hold lead II as second of twelve; both resolutions tell the same story."""
    samples = shared_raw("samples") / "samples/ptbxl"
    low = Domain.open(prepare("ptbxl", samples, tmp_path / "low").path)
    fast = tmp_path / "raw/ptb-xl"
    shutil.copytree(samples / "records500", fast / "records500")
    shutil.copy(samples / "ptbxl_database.csv", fast)
    high = Domain.open(prepare("ptbxl", tmp_path / "raw", tmp_path / "high").path)
    assert low.recording_names == high.recording_names
    assert np.array_equal(low.labels, high.labels)
    for a, b in zip(low.windows[:, 0], high.windows[:, 0], strict=True):
        assert np.corrcoef(a[100:-100], b[100:-100])[0, 1] > 0.99
    raw = np.fromfile(samples / "records100/00000/00002_lr.dat", "<i2").reshape(-1, 12)[:, 1] / 1000
    assert_close(low.windows[low.recording_names.index("2"), 0, 150:-150], band_passed(raw, 100.0)[150:-150])


def write_ptbxl(root: Path, codes: str, patient: str = "7.0") -> Source:
    (root / "records100").mkdir(parents=True)
    signal = np.round(300 * np.sin(np.arange(1000) / 15)).astype(np.int64)[:, None]
    wfdb.wrsamp(
        "00001_lr", fs=100, units=["mV"], sig_name=["II"], d_signal=signal, fmt=["16"], adc_gain=[1000], baseline=[0],
        write_dir=str(root / "records100"),
    )  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["ecg_id", "patient_id", "scp_codes", "filename_lr", "filename_hr"])
    writer.writerow(["1", patient, codes, "records100/00001_lr", "records500/00001_hr"])
    (root / "ptbxl_database.csv").write_text(text.getvalue())
    return ptbxl.find(root)[0]


@pytest.mark.parametrize("codes", ["__import__('os').system('true')", "{'SR': 0.0", "['SR']", "17"])
def test_ptbxl_statements_are_data_not_code(tmp_path: Path, codes: str) -> None:
    source = write_ptbxl(tmp_path / "ptbxl", codes)
    with pytest.raises(DataError, match=r"ecg_id 1: scp_codes .* is not a dictionary"):
        ptbxl.read(tmp_path / "ptbxl", source)


def test_ptbxl_table_without_a_column_or_with_a_record_twice(tmp_path: Path) -> None:
    root = tmp_path / "ptbxl"
    write_ptbxl(root, "{'SR': 0.0}")
    table = root / "ptbxl_database.csv"
    good = table.read_text()
    table.write_text(good + good.splitlines()[1].replace("SR", "AFIB") + "\n")
    with pytest.raises(DataError, match=r"ptbxl_database\.csv: ecg_id 1 is listed twice"):
        prepare("ptbxl", tmp_path, tmp_path / "store")
    table.write_text(good.replace("scp_codes", "codes"))
    with pytest.raises(DataError, match=r"ptbxl_database\.csv: not the table of PTB-XL, .*'scp_codes'"):
        prepare("ptbxl", tmp_path, tmp_path / "store")


def test_ptbxl_decisions() -> None:
    assert ptbxl.decide({"SR", "CLBBB"}) == "CLBBB"
    assert ptbxl.DATASET.tasks["ecg"]["CLBBB"] is None
    assert ptbxl.decide({"SR", "IMI", "LVH"}) == "SR"
    assert ptbxl.decide({"AFLT", "AFIB", "PVC", "BIGU"}) == "AFIB"
    assert isinstance(ptbxl.decide({"AFIB", "PACE"}), Drop)
    assert isinstance(ptbxl.decide({"IMI"}), Drop)


def test_ptbxl_paths_stay_inside(tmp_path: Path) -> None:
    root = tmp_path / "ptbxl"
    write_ptbxl(root, "{'SR': 0.0}")
    table = root / "ptbxl_database.csv"
    table.write_text(table.read_text().replace("records100/00001_lr", "../../records100/00001_lr"))
    with pytest.raises(DataError, match=r"leads out of the raw folder"):
        prepare("ptbxl", tmp_path, tmp_path / "store")


# --- CHAPMAN ---------------------------------------------------------------------------------------------------------


def test_chapman_labels_of_all_records(shared_raw: Raw) -> None:
    root = shared_raw("chapman") / "chapman"
    with open(root / "labels.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    ectopy = r"\b(APB|VPB|VEB|VET|VB|ABI|JPS|JPT|JEB|VFW|WAVN|2AVB\d?|3AVB)\b"
    block = r"\b(L?[RLF]?BBBB?|LFBBB|IVB|IDC|1?AVB|PRIE|VPE|WPW|FQRS|LRRI)\b"
    expected: Counter[str | None] = Counter()
    for row in rows:
        if row["rhythm"] in ("AFIB", "AF"):
            expected["af"] += 1
        elif row["rhythm"] != "SR" or re.search(ectopy, row["beat"]):
            expected["other"] += 1
        else:
            expected[None if re.search(block, row["beat"]) else "normal"] += 1
    assert expected == {"af": 2216, "other": 2012, "normal": 1715, None: 57}
    decided = (chapman.decide(*diagnosis) for diagnosis in chapman._diagnoses(root).values())
    assert Counter(chapman.DATASET.tasks["ecg"][label] for label in decided) == expected


def test_chapman_knows_every_code_of_the_official_table(shared_raw: Raw) -> None:
    diagnoses = chapman._diagnoses(shared_raw("samples") / "samples/chapman")
    assert len(diagnoses) == 10646
    decided = Counter(chapman.decide(*diagnosis) for diagnosis in diagnoses.values())
    assert (decided["AFIB"], decided["AF"], decided["SB"]) == (1780, 445, 3889)
    with pytest.raises(DataError, match="beat finding 'XYZ' is not known"):
        chapman.decide("SR", ["XYZ"])
    with pytest.raises(DataError, match="rhythm 'XYZ' is not known"):
        chapman.decide("XYZ", [])


def test_chapman_prepared(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain, root = store("chapman"), shared_raw("chapman") / "chapman"
    assert len(domain) == len(domain.subject_names) == 300
    for i in range(0, 300, 30):
        raw = np.fromfile(root / f"records/{domain.recording_names[i]}.dat", "<i2") / 1000
        assert_close(domain.windows[i, 0, 150:-150], band_passed(raw, 500.0)[150:-150])


def test_chapman_csv_form_and_its_bad_files(shared_raw: Raw, tmp_path: Path) -> None:
    raw = shared_raw("samples") / "samples"
    with pytest.raises(DataError, match=r"(?s)MUSE_20180113_124215_52000\.csv.*row 1926.*--skip-bad"):
        prepare("chapman", raw, tmp_path)
    prepared = prepare("chapman", raw, tmp_path, skip_bad=True)
    domain = Domain.open(prepared.path)
    bad = {entry["id"]: entry["reason"] for entry in prepared.skipped}
    assert set(bad) == {
        "MUSE_20180113_124215_52000", "MUSE_20180113_180425_75000", "MUSE_20181222_204118_08000"
    }  # fmt: skip
    assert "29874 values are NaN, the first in row 12, column 7" in bad["MUSE_20180113_180425_75000"]
    assert "all zero" in bad["MUSE_20181222_204118_08000"]
    assert own_labels(domain) == {"APB": 1, "AFIB": 1}  # the first is sinus rhythm with premature beats
    # The reduced form holds one of them in WFDB, rounded to a microvolt.
    both = "MUSE_20180111_155154_74000"
    root = shared_raw("chapman") / "chapman"
    other = only(chapman.read(root, Source(both, both, (f"records/{both}.hea",))))
    mine = only(chapman.read(raw / "chapman", Source(both, both, (f"ECGDataDenoised/{both}.csv",))))
    np.testing.assert_allclose(mine.signals[0], other.signals[0], atol=0.00051)
    assert label_of(mine) == label_of(other) == "AFIB"


def test_chapman_file_cut_at_the_end_of_a_row(shared_raw: Raw, tmp_path: Path) -> None:
    samples, root = shared_raw("samples") / "samples/chapman", tmp_path / "chapman"
    (root / "ECGDataDenoised").mkdir(parents=True)
    shutil.copy(samples / "Diagnostics.xlsx", root)
    name = "ECGDataDenoised/MUSE_20180111_160610_98000.csv"
    lines = (samples / name).read_text().splitlines()
    (root / name).write_text("\n".join(lines[:4000]) + "\n")
    with pytest.raises(DataError, match=r"160610_98000\.csv: 4000 rows, expected 5000 \(10 s at 500 Hz\)"):
        chapman.read(root, chapman.find(root)[0])
    (root / name).rename(root / "ECGDataDenoised/MUSE_1.csv")
    with pytest.raises(DataError, match=r"MUSE_1\.csv: no diagnosis of MUSE_1 in .*Diagnostics\.xlsx"):
        chapman.read(root, chapman.find(root)[0])


# --- CinC 2017 -------------------------------------------------------------------------------------------------------


def test_cinc2017_counts_and_values(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    root = shared_raw("cinc2017") / "training2017"
    with open(root / "REFERENCE.csv", newline="") as stream:
        reference = dict(csv.reader(stream))
    length = {record: ((root / f"{record}.mat").stat().st_size - 24) // 2 for record in reference}  # MAT 4: 24 + int16
    everything: Counter[str] = Counter()
    for record, label in reference.items():
        everything[label] += length[record] // 3000
    assert everything == {"N": 3819, "A": 1863, "O": 1996, "~": 147}
    assert sum(samples < 3000 for samples in length.values()) == 5

    domain = store("cinc2017")
    some = list(reference)[:: EVERY["cinc2017"]]
    expected: Counter[str] = Counter()
    for record in some:
        expected[reference[record]] += length[record] // 3000
    assert own_labels(domain) == +expected
    short = [record for record in some if length[record] < 3000]
    assert domain.manifest["dropped"] == ({"piece shorter than a window": len(short)} if short else {})
    for row in range(0, len(domain), 97):
        record = domain.recording_names[domain.recordings[row]]
        raw = scipy.io.loadmat(root / f"{record}.mat")["val"][0] / 1000
        at = int(domain.positions[row])
        first, last = (150 if at == 0 else 0), (850 if at + 1150 > len(raw) / 3 else 1000)
        assert_close(domain.windows[row, 0, first:last], band_passed(raw, 300.0)[at + first : at + last])


def test_cinc2017_noisy_recordings_keep_their_label_and_the_task_drops_them(shared_raw: Raw, tmp_path: Path) -> None:
    root = tmp_path / "training2017"
    shutil.copytree(shared_raw("samples") / "samples/cinc2017/training2017", root)
    (root / "REFERENCE.csv").write_text("A00033,N\nA00004,A\nA00024,O\nA00196,~\n")
    labels = {source.id: label_of(cinc2017.read(root, source)) for source in cinc2017.find(root)}
    assert labels == {"A00033": "N", "A00004": "A", "A00024": "O", "A00196": "~"}
    assert cinc2017.DATASET.tasks["ecg"]["~"] is None


def test_cinc2017_record_listed_twice(tmp_path: Path) -> None:
    (tmp_path / "REFERENCE.csv").write_text("A00001,N\nA00001,A\n")
    with pytest.raises(DataError, match=r"REFERENCE\.csv: record A00001 is listed twice"):
        cinc2017.find(tmp_path)


def test_labels_are_codes_of_the_annotation_files() -> None:
    assert (*RHYTHMS, *BEATS) == LABELS
    assert mitbih.DATASET.labels == incart.DATASET.labels == LABELS
