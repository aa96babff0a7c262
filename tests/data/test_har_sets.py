"""The four HAR sets on the real files: window counts, values against an independent read, the quirks of each set."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from scipy.interpolate import CubicSpline
from scipy.signal import firwin, resample_poly

from sscf.data.datasets import get, motionsense, uschad, wisdm
from sscf.data.prepare import prepare
from sscf.data.store import Domain
from sscf.data.tasks import get_task
from sscf.errors import DataError

Raw = Callable[[str], Path]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, shared_raw: Raw) -> Callable[[str], Domain]:
    """store("wisdm") is that set prepared from the real files, once per test run."""
    out = tmp_path_factory.mktemp("har")

    def domain(name: str) -> Domain:
        return Domain.open(out / name if (out / name).exists() else prepare(name, shared_raw(name), out).path)

    return domain


def windows_of(samples: int) -> int:
    """How many windows of 128 with half overlap fit."""
    return max(0, (samples - 128) // 64 + 1)


def by_subject_and_label(domain: Domain) -> Counter[tuple[str, str]]:
    subjects = [domain.subject_names[i] for i in domain.subjects]
    labels = [domain.label_names[i] for i in domain.labels]
    return Counter(zip(subjects, labels, strict=True))


def counts(domain: Domain, task: str) -> dict[str, int]:
    return get_task(task).view(domain).counts


def rows_of(domain: Domain, recording: str) -> np.ndarray:
    return np.flatnonzero(domain.recordings == domain.recording_names.index(recording))


@pytest.mark.parametrize("name", ["motionsense", "ucihar", "uschad", "wisdm"])
def test_every_label_has_a_place_in_every_task(name: str) -> None:
    dataset = get(name)
    for task, labels in dataset.tasks.items():
        assert set(labels) == set(dataset.labels), task
        assert set(labels.values()) - {None} <= set(get_task(task).classes), task
    har, har3 = dataset.tasks["har"], dataset.tasks["har3"]
    merged = {"sitting": "still", "standing": "still"}
    assert {label: merged.get(c, c) if c else None for label, c in har.items()} == har3


# --- MotionSense -----------------------------------------------------------------------------------------------------


def test_motionsense_counts(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain = store("motionsense")
    folder = shared_raw("motionsense") / "motionsense/A_DeviceMotion_data"
    expected: Counter[tuple[str, str]] = Counter()
    for path in folder.glob("*/sub_*.csv"):
        if path.parts[-2:] != ("sit_13", "sub_1.csv"):  # byte for byte sit_5/sub_1.csv
            rows = path.read_bytes().count(b"\n") - 1
            expected[path.stem[4:], path.parent.name[:3]] += windows_of(rows)
    assert by_subject_and_label(domain) == +expected
    assert counts(domain, "har") == {"walking": 5275, "stairs": 4302, "sitting": 5062, "standing": 4716}
    assert counts(domain, "har3") == {"walking": 5275, "stairs": 4302, "still": 9778}
    assert counts(domain, "har6")["upstairs"] == 2350
    assert counts(domain, "har6")["jogging"] == 2025
    assert len(domain.subject_names) == 24
    assert [entry["id"] for entry in domain.manifest["skipped"]] == ["sub_1-sit_13"]
    assert (folder / "sit_13/sub_1.csv").read_bytes() == (folder / "sit_5/sub_1.csv").read_bytes()


def test_motionsense_values_are_the_negated_total(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain = store("motionsense")
    with open(shared_raw("motionsense") / "motionsense/A_DeviceMotion_data/ups_3/sub_7.csv", newline="") as stream:
        table = list(csv.DictReader(stream))
    total = np.array(
        [[float(r[f"gravity.{a}"]) + float(r[f"userAcceleration.{a}"]) for r in table] for a in ("x", "y", "z")]
    )
    rows = rows_of(domain, "sub_7-ups_3")
    assert domain.positions[rows].tolist() == [64 * i for i in range(windows_of(len(table)))]
    for row in rows:
        at = domain.positions[row]
        np.testing.assert_allclose(domain.windows[row], -total[:, at : at + 128], atol=1e-6)


def test_at_rest_every_set_reads_the_reaction_not_gravity(store: Callable[[str], Domain]) -> None:
    """Standing, all sets read 1 g; and where the sensor's axis points up is known, it reads + there."""
    for name in ("motionsense", "ucihar", "uschad", "wisdm"):
        view = get_task("har").view(store(name))
        mean = view.read(np.flatnonzero(view.y == 3)).mean(axis=2)
        assert np.median(np.linalg.norm(mean, axis=1)) == pytest.approx(1.0, abs=0.06), name
    # x of UCIHAR and USC-HAD points up. Apple's own gravity has +y for a phone head down in the pocket, the usual way.
    for name, axis, sign in (("ucihar", 0, 1), ("uschad", 0, 1), ("motionsense", 1, -1)):
        view = get_task("har").view(store(name))
        mean = view.read(np.flatnonzero(view.y == 3)).mean(axis=2)
        assert np.median(sign * mean[:, axis]) > 0.8, name


def motionsense_trial(folder: Path, columns: str, rows: list[str]) -> None:
    folder.mkdir(parents=True)
    (folder / "sub_3.csv").write_text("\n".join([columns, *rows]) + "\n")


def test_motionsense_raw_accelerometer_variant(tmp_path: Path) -> None:
    trial = tmp_path / "motion-sense-master/data/B_Accelerometer_data/B_Accelerometer_data/wlk_15"
    motionsense_trial(trial, ",x,y,z", [f"{i},0.1,{i / 100},-0.9" for i in range(200)])
    domain = Domain.open(prepare("motionsense", tmp_path, tmp_path / "store").path)
    assert domain.recording_names == ("sub_3-wlk_15",)
    np.testing.assert_allclose(domain.windows[1, 1], -np.arange(64, 192) / 100, atol=1e-6)
    np.testing.assert_allclose(domain.windows[0, 2], 0.9, atol=1e-6)


def test_motionsense_prefers_device_motion_where_both_are_found(tmp_path: Path) -> None:
    motionsense_trial(tmp_path / "motionsense/B_Accelerometer_data/jog_9", ",x,y,z", ["0,1,1,1"])
    names = ",".join(f"{part}.{axis}" for part in ("gravity", "userAcceleration") for axis in "xyz")
    motionsense_trial(tmp_path / "motionsense/A_DeviceMotion_data/jog_9", f",{names}", ["0,1,2,3,4,5,6"])
    (source,) = motionsense.find(tmp_path / "motionsense")
    assert source.files == ("A_DeviceMotion_data/jog_9/sub_3.csv",)
    recording = motionsense.read(tmp_path / "motionsense", source)
    np.testing.assert_allclose(np.asarray(recording.signals)[:, 0], [-5, -7, -9])


def test_motionsense_samples_with_all_twelve_signals(shared_raw: Raw) -> None:
    root = shared_raw("samples") / "samples/motionsense"
    found = {source.id: motionsense.read(root, source) for source in motionsense.find(root)}
    assert set(found) == {"sub_1-dws_1", "sub_5-std_14"}
    assert found["sub_5-std_14"].track.at(0, 2.56) == "std"
    assert found["sub_1-dws_1"].track.at(0, 2.56) == "dws"


def test_motionsense_bad_files_are_named(tmp_path: Path) -> None:
    motionsense_trial(tmp_path / "motionsense/A_DeviceMotion_data/run_1", ",x", ["0,1"])
    with pytest.raises(DataError, match=r"run_1/sub_3\.csv: not a trial of MotionSense"):
        motionsense.find(tmp_path / "motionsense")
    motionsense_trial(tmp_path / "other/motionsense/A_DeviceMotion_data/sit_5", ",gravity.x", ["0,1"])
    root = tmp_path / "other/motionsense"
    with pytest.raises(DataError, match=r"sit_5/sub_3\.csv: no column 'gravity\.y'"):
        motionsense.read(root, motionsense.find(root)[0])


# --- UCIHAR ----------------------------------------------------------------------------------------------------------


def test_ucihar_windows_come_through_unchanged(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain, root = store("ucihar"), shared_raw("ucihar") / "UCI HAR Dataset"
    names = [line.split()[1] for line in (root / "activity_labels.txt").read_text().splitlines()]
    expected: Counter[tuple[str, str]] = Counter()
    for part in ("train", "test"):
        labels = (root / part / f"y_{part}.txt").read_text().split()
        subjects = np.array((root / part / f"subject_{part}.txt").read_text().split())
        expected.update((s, names[int(y) - 1]) for s, y in zip(subjects, labels, strict=True))
        text = (root / part / "Inertial Signals" / f"total_acc_z_{part}.txt").read_bytes().splitlines()
        for subject in np.unique(subjects):
            mine = np.flatnonzero(subjects == subject)
            rows = rows_of(domain, f"{part}-{subject}")
            assert len(rows) == len(mine)
            for i in (0, len(mine) // 2, len(mine) - 1):
                exact = np.array([float(word) for word in text[mine[i]].split()], np.float32)
                assert np.array_equal(domain.windows[rows[i], 2], exact)
                assert domain.label_names[domain.labels[rows[i]]] == names[int(labels[mine[i]]) - 1]
    assert by_subject_and_label(domain) == expected
    assert counts(domain, "har") == {"walking": 1722, "stairs": 2950, "sitting": 1777, "standing": 1906}
    view = get_task("har6").view(domain)
    assert view.missing == ("jogging",)
    assert view.dropped == {"label 'LAYING' is not in task har6": 1944}
    assert len(domain) == 10299
    assert len(domain.subject_names) == 30


def test_ucihar_positions_tell_shared_samples_from_breaks(store: Callable[[str], Domain]) -> None:
    """Within runs of one subject and activity 9,442 of 9,899 neighbours overlap."""
    domain = store("ucihar")
    same = (np.diff(domain.recordings) == 0) & (np.diff(domain.labels) == 0)
    step = np.diff(domain.positions)[same]
    assert set(step.tolist()) == {64, 128}
    assert (len(step), int((step == 64).sum())) == (9899, 9442)
    i = int(np.flatnonzero(same & (np.diff(domain.positions) == 64))[5])
    assert np.array_equal(domain.windows[i, :, 64:], domain.windows[i + 1, :, :64])


def write_ucihar(root: Path, activity: str = "1\n5\n") -> None:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        (root / part / "Inertial Signals").mkdir(parents=True)
        (root / part / f"y_{part}.txt").write_text(activity)
        (root / part / f"subject_{part}.txt").write_text("7\n7\n" if part == "train" else "2\n2\n")
        for axis in "xyz":
            # three-digit exponents and CRLF, as MATLAB for Windows writes
            lines = ["".join(f" {v:.7e}"[:-2] + f"0{v:.7e}"[-2:] for v in rng.normal(size=128)) for _ in range(2)]
            text = re.sub(r"e([+-])(\d\d)\b", r"e\g<1>0\2", "\r\n".join(lines) + "\r\n")
            (root / part / "Inertial Signals" / f"total_acc_{axis}_{part}.txt").write_bytes(text.encode())


def test_ucihar_defects_are_named(tmp_path: Path) -> None:
    root = tmp_path / "UCI HAR Dataset"
    write_ucihar(root, "1\n7\n")
    with pytest.raises(DataError, match=r"y_test\.txt: line 2: activity 7; known are 1 to 6"):
        prepare("ucihar", tmp_path, tmp_path / "store")
    (root / "test/y_test.txt").write_text("1\n")
    with pytest.raises(DataError, match=r"y_test\.txt: 1 labels, but 2 subjects and 2 windows"):
        prepare("ucihar", tmp_path, tmp_path / "store")
    for bad in ("1\nnan\n", "1\n5.5\n"):
        (root / "test/y_test.txt").write_text(bad)
        with pytest.raises(DataError, match=r"y_test\.txt: line 2: .* is not a whole number"):
            prepare("ucihar", tmp_path, tmp_path / "store")
    (root / "test/y_test.txt").write_text("1\n5\n")
    signal = root / "test/Inertial Signals/total_acc_y_test.txt"
    signal.write_bytes(signal.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(DataError, match=r"total_acc_y_test\.txt: 1 windows, but 2 labels"):
        prepare("ucihar", tmp_path, tmp_path / "store")
    (root / "train/subject_train.txt").write_text("7\nnan\n")
    with pytest.raises(DataError, match=r"subject_train\.txt: line 2: nan is not a whole number"):
        prepare("ucihar", tmp_path, tmp_path / "store")


# --- USC-HAD ---------------------------------------------------------------------------------------------------------

USCHAD = dict(
    zip(uschad.DATASET.labels, (2874, 1922, 2052, 1552, 1440, 1275, 728, 1951, 1744, 2854, 1189, 1187), strict=True)
)


def test_uschad_counts(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain = store("uschad")
    expected: Counter[tuple[str, str]] = Counter()
    for path in (shared_raw("uschad") / "USC-HAD").glob("Subject*/a*.mat"):
        samples = scipy.io.whosmat(path)
        (shape,) = (shape for name, shape, _ in samples if name == "sensor_readings")
        activity = int(re.match(r"a(\d+)t", path.name)[1])  # type: ignore[index]
        expected[path.parent.name[7:], list(USCHAD)[activity - 1]] += windows_of(shape[0] // 2)
    assert by_subject_and_label(domain) == expected
    totals: Counter[str] = Counter()
    for (_, label), n in expected.items():
        totals[label] += n
    assert dict(totals) == USCHAD
    assert counts(domain, "har") == {"walking": 6848, "stairs": 2992, "sitting": 1951, "standing": 1744}
    assert len(domain.recording_names) == 840


def test_uschad_values_against_another_resampler(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain = store("uschad")
    raw = scipy.io.loadmat(shared_raw("uschad") / "USC-HAD/Subject3/a1t4.mat")["sensor_readings"][:, :3].T
    other = resample_poly(raw, 1, 2, axis=1, window=firwin(801, 22.5, fs=100), padtype="line")
    rows = rows_of(domain, "Subject3-a1t4")
    for row in rows[2:-2]:
        at = domain.positions[row]
        expected = other[:, at : at + 128]
        # The two differ in the transition band alone, 20 to 25 Hz, where a walking hip has next to nothing.
        assert np.sqrt(np.mean((domain.windows[row] - expected) ** 2)) < 0.05 * expected.std(axis=1).max()


def test_uschad_goes_by_file_names(shared_raw: Raw) -> None:
    root = shared_raw("samples") / "samples/uschad"
    found = {source.id: uschad.read(root, source) for source in uschad.find(root)}
    assert found["Subject14-a3t2"].track.at(0, 2.56) == "Walking Right"  # string and number inside: walking left
    assert found["Subject13-a11t4"].track.at(0, 2.56) == "Elevator Up"  # `activity_numbr` inside
    assert np.asarray(found["Subject14-a3t2"].signals).dtype == np.float64


def test_uschad_bad_files_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "USC-HAD/Subject1"
    folder.mkdir(parents=True)
    scipy.io.savemat(folder / "a13t1.mat", {"sensor_readings": np.zeros((300, 6))})
    with pytest.raises(DataError, match=r"a13t1\.mat: not a trial of USC-HAD"):
        prepare("uschad", tmp_path, tmp_path / "store")
    (folder / "a13t1.mat").unlink()
    scipy.io.savemat(folder / "a8t1.mat", {"sensor_readings": np.zeros((300, 3))})
    with pytest.raises(DataError, match=r"a8t1\.mat: sensor_readings is \(300, 3\), expected 6 columns"):
        prepare("uschad", tmp_path, tmp_path / "store")
    scipy.io.savemat(folder / "a8t1.mat", {"readings": np.zeros((300, 6))})
    with pytest.raises(DataError, match=r"a8t1\.mat: no variable 'sensor_readings'; the file has readings"):
        prepare("uschad", tmp_path, tmp_path / "store")


# --- WISDM -----------------------------------------------------------------------------------------------------------


def wisdm_lines(path: Path) -> dict[str, np.ndarray]:
    """Activity code -> rows (seconds, x, y, z in g), read with nothing but split."""
    runs: dict[str, list[list[float]]] = {}
    for line in path.read_text().splitlines():
        _, code, time, *xyz = line.rstrip(";").split(",")
        runs.setdefault(code, []).append([int(time), *(float(v) / 9.80665 for v in xyz)])
    out = {code: np.array(rows) for code, rows in runs.items()}
    for rows in out.values():
        rows[:, 0] = (rows[:, 0] - rows[0, 0]) / 1e9
    return out


def test_wisdm_counts(store: Callable[[str], Domain], shared_raw: Raw) -> None:
    domain = store("wisdm")
    folder = shared_raw("wisdm") / "wisdm-dataset"
    key = dict(line.split(" = ")[::-1] for line in (folder / "activity_key.txt").read_text().split("\n") if line)
    assert {code.strip(): name.strip() for code, name in key.items()} == wisdm.ACTIVITIES
    expected: Counter[tuple[str, str]] = Counter()
    for path in folder.glob("raw/phone/accel/*.txt"):
        for code, rows in wisdm_lines(path).items():
            pieces = np.split(rows[:, 0] * 50, np.flatnonzero(np.diff(rows[:, 0]) > 0.2) + 1)
            n = sum(windows_of(math.floor(t[-1] + 1e-6) - math.ceil(t[0] - 1e-6) + 1) for t in pieces)  # on the grid
            expected[path.name.split("_")[1], wisdm.ACTIVITIES[code]] += n
    assert by_subject_and_label(domain) == expected
    assert counts(domain, "har") == {"walking": 3054, "stairs": 3058, "sitting": 3058, "standing": 3058}
    assert counts(domain, "har3") == {"walking": 3054, "stairs": 3058, "still": 6116}
    assert get_task("har6").view(domain).missing == ("upstairs", "downstairs")
    assert (len(domain), len(domain.subject_names)) == (54603, 22)


@pytest.mark.parametrize(("subject", "code"), [("1600", "A"), ("1607", "A"), ("1626", "B")])  # 20, 25 and 50 Hz
def test_wisdm_values_at_their_own_times(
    store: Callable[[str], Domain], shared_raw: Raw, subject: str, code: str
) -> None:
    domain = store("wisdm")
    folder = shared_raw("wisdm") / "wisdm-dataset/raw/phone/accel"
    rows = wisdm_lines(folder / f"data_{subject}_accel_phone.txt")[code]
    label = domain.label_names.index(wisdm.ACTIVITIES[code])
    mine = rows_of(domain, subject)
    mine = mine[domain.labels[mine] == label]
    seconds = (domain.positions[mine] - domain.positions[mine[0]]) / 50
    spline = CubicSpline(rows[:, 0], rows[:, 1:], bc_type="not-a-knot")
    for row, start in zip(mine, seconds, strict=True):
        expected = spline(start + np.arange(128) / 50).T
        np.testing.assert_allclose(domain.windows[row], expected, atol=2e-5)
    assert seconds[-1] + 2.56 == pytest.approx(rows[-1, 0], abs=1.3)


def write_wisdm(raw: Path, lines: list[str], subject: int = 1650) -> None:
    folder = raw / "wisdm-dataset/raw/phone/accel"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"data_{subject}_accel_phone.txt").write_text("\n".join(lines) + "\n")


def run(seconds: np.ndarray, code: str, hertz: float, start: int = 10**15) -> list[str]:
    """Lines of a run whose x is a sine of `hertz` and 1 g high, in m/s^2."""
    x = 9.80665 * np.sin(2 * np.pi * hertz * seconds)
    return [f"1650,{code},{start + int(t * 1e9)},{v:.9f},0.5,9.80665;" for t, v in zip(seconds, x, strict=True)]


@pytest.mark.parametrize("rate", [20.0, 25.06, 49.65, 52.0, 100.0, 120.0])
def test_wisdm_rate_is_that_of_the_time_stamps(tmp_path: Path, rate: float) -> None:
    jitter = np.random.default_rng(0).uniform(-0.1, 0.1, int(20 * rate))
    seconds = (np.arange(int(20 * rate)) + jitter - jitter[0]) / rate
    write_wisdm(tmp_path, run(seconds, "A", 1.8))
    domain = Domain.open(prepare("wisdm", tmp_path, tmp_path / "store").path)
    at = (domain.positions[3] + np.arange(128)) / 50
    np.testing.assert_allclose(domain.windows[3, 0], np.sin(2 * np.pi * 1.8 * at), atol=0.01)
    np.testing.assert_allclose(domain.windows[3, 2], 1.0, atol=1e-5)


def test_wisdm_fast_phone_does_not_alias(tmp_path: Path) -> None:
    write_wisdm(tmp_path, run(np.arange(2000) / 100, "A", 40.0))  # would be 10 Hz at 50
    domain = Domain.open(prepare("wisdm", tmp_path, tmp_path / "store").path)
    assert np.abs(domain.windows[4, 0]).max() < 1e-3


def test_wisdm_gaps_split_and_activities_are_never_joined(tmp_path: Path) -> None:
    seconds = np.arange(200) / 20
    later = seconds + 10.25  # 0.3 s after the last sample
    # The second activity's clock is behind the first one's: as on the phones, that is no error.
    write_wisdm(tmp_path, [*run(seconds, "A", 1), *run(later, "A", 1), *run(seconds, "D", 1, start=5)])
    domain = Domain.open(prepare("wisdm", tmp_path, tmp_path / "store").path)
    each = windows_of(int(9.95 * 50 + 1e-6) + 1)
    assert by_subject_and_label(domain) == {("1650", "walking"): 2 * each, ("1650", "sitting"): each}
    starts = domain.positions / 50
    assert starts[0] == 0
    assert starts[each] == pytest.approx(10.25, abs=0.01)
    assert starts[2 * each] > 20.2
    assert all(stop <= 9.96 or start >= 10.24 for start, stop in zip(starts, starts + 2.56, strict=True))


def test_wisdm_line_written_twice_counts_once(tmp_path: Path) -> None:
    lines = run(np.arange(200) / 20, "E", 1)
    write_wisdm(tmp_path / "once", lines)
    write_wisdm(tmp_path / "twice", [*lines[:50], lines[49], *lines[50:]])
    a, b = (Domain.open(prepare("wisdm", tmp_path / w, tmp_path / w / "store").path) for w in ("once", "twice"))
    assert np.array_equal(a.windows, b.windows)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ls: [*ls[:50], ls[30], *ls[50:]], r"activity A from line 1 on: time does not go forward at row 50"),
        (
            lambda ls: [*ls[:50], ls[49].replace(",0.5,", ",0.7,"), *ls[50:]],
            r".*time does not go forward at row 50 \(2\.45 s",
        ),
        (lambda ls: [*ls[:50], ls[50].replace(",A,", ",N,")], r"line 51: activity 'N'; known are A, B"),
        (lambda ls: [*ls[:50], ls[50].replace("1650,", "1651,")], r"line 51: subject 1651 in the file of subject 1650"),
        (lambda ls: [*ls[:50], ls[50][:-3]], r"cut short: line 51 does not end in ';'"),  # another number to the eye
        (
            lambda ls: [*ls[:50], ls[50][:20], *ls[51:]],
            r"not lines of 'subject,activity,time,x,y,z;'.*3 were found at row 51",
        ),
        (lambda ls: [], r"no lines"),
    ],
)
def test_wisdm_defects_are_named(
    tmp_path: Path, spoil: Callable[[list[str]], list[str]], message: str, recwarn: pytest.WarningsRecorder
) -> None:
    write_wisdm(tmp_path, spoil(run(np.arange(200) / 20, "A", 1)))
    with pytest.raises(DataError, match=r"data_1650_accel_phone\.txt: " + message):
        prepare("wisdm", tmp_path, tmp_path / "store")
    assert not (tmp_path / "store/wisdm").exists()


def test_wisdm_samples(shared_raw: Raw) -> None:
    """The first 2,000 lines of a 25 Hz and of a 20 Hz subject: 80 and 100 s, not the same length."""
    root = shared_raw("samples") / "samples/wisdm/wisdm-dataset"
    length = {s.subject: sum(piece.duration for piece in wisdm.read(root, s)) for s in wisdm.find(root)}
    assert length["1607"] == pytest.approx(2000 / 25.06, rel=0.01)
    assert length["1600"] == pytest.approx(2000 / 19.86, rel=0.01)
