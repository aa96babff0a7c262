"""The eleven sleep sets on nights written in their true formats: epoch-exact labels, channels, subjects, bad input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data import sleep_files as write
from tests.data.sleep_files import Mark, Plan, Wire

from sscf.data.datasets import DATASETS, p2018, sleepedfx
from sscf.data.datasets._sleep import Event, Hypnogram, edf_hypnogram, xml_hypnogram
from sscf.data.prepare import prepare
from sscf.data.recording import Drop, Recording, Source
from sscf.data.signal import cut
from sscf.data.store import Domain
from sscf.data.tasks import get_task
from sscf.errors import DataError

SETS = ("shhs1", "p2018", "mros1", "mros2", "mesa", "abc", "ccshs", "cfs", "hmc", "isruc", "sleepedfx")

# 40 epochs with every stage, single-epoch bouts, and an unscored and a movement epoch in the middle of the night.
NIGHT = """W W W N1 W N1 N1 N2 N2 N2 N2 N3 N3 N4 N4 N4 N3 N2 unscored N2
movement REM REM REM N1 REM W N1 N2 N3 N4 N2 REM REM W N2 W W W unscored"""
RK = NIGHT.split()
AASM = [{"N4": "N3", "movement": "N2"}.get(stage, stage) for stage in RK]
SCORED = [{"unscored": "N2"}.get(stage, stage) for stage in AASM]  # ISRUC has no code for unscored


# --- nights in true formats ----------------------------------------------------------------------------------------


def wires(
    layout: str,
    epochs: int,
    eeg: str,
    eog: str,
    references: Sequence[str] = (),
    *,
    first: int = 0,
    shift_s: float = 0.0,
) -> list[Wire]:
    """EDF signals of a layout "C3, C4 @ 256 | SpO2 @ 1". `eeg` and `eog` carry the tones, on top of the reference that
    their derivation takes away again; every other signal is something else, so a wrong choice shows. The tones begin
    with that of epoch `first`, so nights differ, and `shift_s` into the recording."""
    out = []
    for group in layout.split("|"):
        labels, _, rate = group.partition("@")
        fs = float(rate)
        t = np.arange(round((epochs * write.EPOCH_S + shift_s) * fs)) / fs
        for label in labels.split(","):
            label = label.strip()
            carried = {eeg: "EEG", eog: "EOG"}.get(label)
            if carried:
                samples = np.concatenate([np.zeros(round(shift_s * fs)), write.tones(carried, epochs, fs, first)])
                if references:
                    samples = samples + reference(references[0 if carried == "EEG" else 1], t)
            elif label in references:
                samples = reference(label, t)
            else:
                samples = 70 * np.sin(2 * np.pi * min(27.5, fs / 5) * t)
            out.append(Wire(label, fs, samples))
    return out


def reference(label: str, t: np.ndarray) -> np.ndarray:
    """What a mastoid electrode sees."""
    return 60 * np.sin(2 * np.pi * (5.5 if label.endswith("1") else 8.5) * t)


SHHS = (
    "SaO2, H.R. @ 1 | EEG(sec), ECG, EMG @ 125 | EOG(L), EOG(R) @ 50 | EEG @ 125 | THOR RES, ABDO RES @ 10 | "
    "POSITION, LIGHT @ 1 | NEW AIR @ 10 | OX STAT @ 1"
)
MROS = (
    "Position @ 4 | Leg L, Leg R @ 64 | C3, C4, {0}1, {0}2, {1}, {2}, L Chin, R Chin @ 256 | ECG L, ECG R @ 512 | "
    "Airflow, Thoracic, Abdominal @ 16 | SAO2 @ 1"
)
MESA = (
    "EKG, EOG-L, EOG-R, EMG, EEG1, EEG2, EEG3 @ 256 | Pres, Flow, Snore, Thor, Abdo, Leg @ 32 | Pleth @ 256 | SpO2 @ 1"
)
ABC = "F3, F4, C3, C4, O1, O2, M1, M2, E1, E2, ECG1 @ 256 | Airflow, Abdo, Thorax @ 32 | SpO2 @ 16"
CLEVELAND = "C3, C4, A1, A2, LOC, ROC @ 128 | ECG1, ECG2, EMG1 @ 256 | L Leg @ 64 | AIRFLOW @ 32 | SpO2 @ 1"
P2018 = "F3-M2, F4-M1, C3-M2, C4-M1, O1-M2, O2-M1, E1-M2, Chin1-Chin2, ABD, CHEST, AIRFLOW, SaO2, ECG @ 200"
HMC = "EEG F4-M1, EEG C4-M1, EEG O2-M1, EEG C3-M2, EMG chin, EOG E1-M2, EOG E2-M2, ECG @ 256"
ISRUC = "LOC-A2, ROC-A1, F3-A2, C3-A2, O1-A2, F4-A1, C4-A1, O2-A1, X1, X2 @ 200 | DC3 @ 25 | SaO2 @ 10"
ISRUC_M = ISRUC.replace("LOC", "E1").replace("ROC", "E2").replace("-A", "-M")
EDFX = "EEG Fpz-Cz, EEG Pz-Oz, EOG horizontal @ 100 | Resp oro-nasal, EMG submental, Temp rectal, Event marker @ 1"

Night = tuple[str, str, list[str]]  # id, subject, what every epoch of the signal is
NEXT = 7  # the tones of a data set's second night begin with that of epoch 7, and so on


def nsrr(
    study: str, layout: str, eeg: str, eog: str, nights: Sequence[tuple[str, str]], references: Sequence[str] = ()
):
    """Writes nights (visit folder, name) of an NSRR study; the last one has Profusion scoring alone."""

    def build(raw: Path) -> list[Night]:
        psg = raw / study / "polysomnography"
        for i, (visit, name) in enumerate(nights):
            night = wires(layout, len(RK), eeg, eog, references, first=NEXT * i)
            write.write_edf(psg / "edfs" / visit / f"{name}.edf", night)
            kinds = ["profusion"] if i == len(nights) - 1 else ["nsrr", "profusion"]
            for kind in kinds:
                path = psg / f"annotations-events-{kind}" / visit / f"{name}-{kind}.xml"
                path.parent.mkdir(parents=True, exist_ok=True)
                # Where both are there, the NSRR file must be the one that is read.
                stages = ["W"] * len(RK) if kind == "profusion" and len(kinds) == 2 else RK
                path.write_text({"nsrr": write.nsrr_xml, "profusion": write.profusion_xml}[kind](stages))
        return [(name, name.rpartition("-")[2], RK) for _, name in nights]

    return build


def build_p2018(raw: Path) -> list[Night]:
    """The first six epochs are before the first mark; the last stage lasts to the end, which is no whole epoch."""
    stages = ["unscored"] * 6 + AASM[:18] + AASM[19:39]
    folder = raw / "challenge-2018" / "1.0.0"
    for i, record in enumerate(("tr03-0005", "tr12-0684")):
        night = wires(P2018, len(stages), "C3-M2", "E1-M2", first=NEXT * i)
        signals = {wire.label: np.concatenate([wire.samples, wire.samples[:999]]) for wire in night}
        write.write_challenge2018(folder / "training" / record, record, signals)
        marks = [(6000 * first, stage.replace("REM", "R")) for first, _, stage in write.bouts(stages)[1:]]
        if i == 1:
            write_masks(folder / "training" / record / f"{record}-arousal.mat", marks, len(signals["ECG"]))
        else:
            events = [(700_0, "(arousal_rera"), (1234_5, "arousal_rera)"), (1234_5, "(resp_hypopnea")]
            write.write_marks(folder / "training" / record / f"{record}.arousal", sorted(marks + events))
    write.write_challenge2018(folder / "test" / "te03-0005", "te03-0005", {"C3-M2": signals["C3-M2"][:6000]})
    return [("tr03-0005", "tr03-0005", stages), ("tr12-0684", "tr12-0684", stages)]


def write_masks(path: Path, marks: list[tuple[int, str]], samples: int) -> None:
    """The masks of a -arousal.mat; like the real ones they count samples from 1 and end in an undefined sample."""
    names = {"W": "wake", "N1": "nonrem1", "N2": "nonrem2", "N3": "nonrem3", "R": "rem", "U": "undefined"}
    stage = np.full(samples, "U")
    stage = stage.astype("<U2")
    for (start, code), (stop, _) in zip(marks, [*marks[1:], (samples, "")], strict=True):
        stage[start - 1 : stop - 1] = code
    with h5py.File(path, "w", userblock_size=512) as file:
        for code, name in names.items():
            file[f"data/sleep_stages/{name}"] = (stage == code).astype(np.uint8)[None]
        file["data/arousals"] = np.zeros((samples, 1))
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Feb 12 10:00:00 2018 HDF5 schema 1.00 .")


def hmc_marks(stages: Sequence[str]) -> list[Mark]:
    """One mark per epoch, and the lights, which are no stage."""
    text = {"REM": "R", "unscored": "?"}
    marks = [Mark(30 * i, 30, f"Sleep stage {text.get(stage, stage)}") for i, stage in enumerate(stages)]
    return [*marks[:2], Mark(46.28, None, "Lights off@@EEG F4-A1"), *marks[2:], Mark(1170.5, None, "Lights on@@SaO2")]


def build_hmc(raw: Path) -> list[Night]:
    """SN001 with both scoring files (of which EDF+ is read), SN002 with the text alone."""
    folder = raw / "haaglanden-medisch-centrum-sleep-staging-database-1.1" / "recordings"
    for i, name in enumerate(("SN001", "SN002")):
        write.write_edf(folder / f"{name}.edf", wires(HMC, len(AASM), "EEG C4-M1", "EOG E1-M2", first=NEXT * i))
    write.write_edf_hypnogram(folder / "SN001_sleepscoring.edf", hmc_marks(AASM))
    (folder / "SN001_sleepscoring.txt").write_text(
        "Date, Time, Recording onset, Duration, Annotation, Linked channel\n"
    )
    lines = ["Date, Time, Recording onset, Duration, Annotation, Linked channel"]
    for mark in hmc_marks(AASM):
        name, _, channel = mark.text.partition("@@")
        lines.append(f"01.01.01, 22.00.00, {mark.onset:g}, {mark.duration or 0:g}, {name}, {channel}")
    (folder / "SN002_sleepscoring.txt").write_text("\n".join(lines) + "\n")
    return [("SN001", "SN001", AASM), ("SN002", "SN002", AASM)]


def build_isruc(raw: Path) -> list[Night]:
    """A night of subgroup I, two of one subject of subgroup II with the other spelling, one of subgroup III."""
    digits = {"W": "0", "N1": "1", "N2": "2", "N3": "3", "REM": "5"}
    nights = []
    places = (("I/8/8", ISRUC), ("II/3/1/1", ISRUC_M), ("II/3/2/2", ISRUC_M), ("III/8/8", ISRUC))
    for i, (place, layout) in enumerate(places):
        rec = raw / "ISRUC_Sleep" / f"subgroup{place}.rec"
        eeg, eog = ("F4-M1", "E1-M2") if layout == ISRUC_M else ("F4-A1", "LOC-A2")
        write.write_edf(rec, wires(layout, len(SCORED), eeg, eog, first=NEXT * i))
        rec.with_name(f"{rec.stem}_1.txt").write_text("\r\n".join(digits[stage] for stage in SCORED) + "\r\n\r\n")
        rec.with_name(f"{rec.stem}_2.txt").write_text("0\n" * len(SCORED))
        group, *folders = place.split("/")[:-1]
        nights.append(("-".join((group, *folders)), f"{group}-{folders[0]}", SCORED))
    return nights


FAR = "wake more than 30 min from sleep"


def build_sleepedfx(raw: Path) -> list[Night]:
    """Wake long before and after sleep; the hypnogram is filled with "?" far past the end of the signal."""
    core = [stage for stage in RK if stage != "W"]
    first, last = core.index("N1"), len(core) - 1 - core[::-1].index("REM")
    sleep = core[first : last + 1]
    stages = ["W"] * 65 + sleep + ["W"] * 70
    truth = [FAR] * 5 + ["W"] * 60 + sleep + ["W"] * 60 + [FAR] * 10
    text = {"unscored": "?", "REM": "R", "N1": "1", "N2": "2", "N3": "3", "N4": "4"}
    marks = [
        Mark(30 * i, 30 * n, "Movement time" if stage == "movement" else f"Sleep stage {text.get(stage, stage)}")
        for i, n, stage in write.bouts(stages)
    ]
    marks.append(Mark(30 * len(stages), 6900, "Sleep stage ?"))
    nights = [
        ("cassette", "SC4001E0", "SC4001EC"),
        ("cassette", "SC4002E0", "SC4002EV"),
        ("telemetry", "ST7011J0", "ST7011JP"),
    ]
    for i, (folder, psg, scoring) in enumerate(nights):
        place = raw / "sleep-edfx" / "1.0.0" / f"sleep-{folder}"
        signals = wires(EDFX, len(stages), "EEG Fpz-Cz", "EOG horizontal", first=NEXT * i)
        write.write_edf(place / f"{psg}-PSG.edf", signals, Plan(record_s=30))
        write.write_edf_hypnogram(place / f"{scoring}-Hypnogram.edf", marks)
    return [("SC4001", "SC400", truth), ("SC4002", "SC400", truth), ("ST7011", "ST701", truth)]


BUILD: dict[str, Callable[[Path], list[Night]]] = {
    "shhs1": nsrr("shhs", SHHS, "EEG", "EOG(L)", [("shhs1", "shhs1-200001"), ("shhs1", "shhs1-200002")]),
    "p2018": build_p2018,
    "mros1": nsrr(
        "mros",
        MROS.format("A", "ROC", "LOC"),
        *("C4", "LOC"),
        [("visit1", "mros-visit1-aa0001"), ("visit1", "mros-visit1-aa0002")],
        ("A1", "A2"),
    ),
    "mros2": nsrr(
        "mros",
        MROS.format("M", "E2", "E1"),
        *("C4", "E1"),
        [("visit2", "mros-visit2-aa0001"), ("visit2", "mros-visit2-aa0007")],
        ("M1", "M2"),
    ),
    "mesa": nsrr("mesa", MESA, "EEG1", "EOG-L", [("", "mesa-sleep-0001"), ("", "mesa-sleep-0002")]),
    "abc": nsrr(
        "abc",
        ABC,
        *("F4", "E1"),
        [("baseline", "abc-baseline-900001"), ("month09", "abc-month09-900001"), ("month18", "abc-month18-900002")],
        ("M1", "M2"),
    ),
    "ccshs": nsrr(
        "ccshs", CLEVELAND, "C4", "LOC", [("", "ccshs-trec-1800001"), ("", "ccshs-trec-1800002")], ("A1", "A2")
    ),
    "cfs": nsrr("cfs", CLEVELAND, "C4", "LOC", [("", "cfs-visit5-800002"), ("", "cfs-visit5-800010")], ("A1", "A2")),
    "hmc": build_hmc,
    "isruc": build_isruc,
    "sleepedfx": build_sleepedfx,
}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, list[Night]]]:
    """raw("shhs1") writes that data set's nights once: the raw folder and what is in it."""
    built: dict[str, tuple[Path, list[Night]]] = {}

    def get(name: str) -> tuple[Path, list[Night]]:
        if name not in built:
            folder = tmp_path_factory.mktemp(name)
            built[name] = (folder, BUILD[name](folder))
        return built[name]

    return get


def pieces_of(name: str, raw: Path, id: str | None = None) -> list[Recording]:
    """What the data set reads for a recording (the first one unless told)."""
    data = DATASETS[name]
    root = data.root(raw)
    source = next(s for s in data.find(root) if id in (None, s.id))
    read = data.read(root, source)
    assert isinstance(read, list)
    return read


def epochs_of(pieces: list[Recording]) -> dict[float, tuple[str | Drop, list[np.ndarray]]]:
    """The epochs of pieces as recorded: start second -> label, and each channel's samples at its own rate."""
    out = {}
    for piece in pieces:
        for k in range(int(piece.duration / 30 + 1e-9)):
            start = piece.start + 30 * k
            cut = [
                signal[round(30 * k * rate) : round(30 * (k + 1) * rate)]
                for signal, rate in zip(piece.signals, piece.rates, strict=True)
            ]
            out[round(start, 6)] = (piece.track.at(start, start + 30), cut)
    return out


# --- every set -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_sources_and_subjects(name: str, raw) -> None:
    folder, nights = raw(name)
    data = DATASETS[name]
    sources = data.find(data.root(folder))
    assert [(s.id, s.subject) for s in sources] == [(id, subject) for id, subject, _ in nights]
    for source in sources:
        assert all((data.root(folder) / file).is_file() for file in source.files)


@pytest.mark.parametrize("name", SETS)
def test_every_epoch_carries_its_own_stage(name: str, raw) -> None:
    folder, nights = raw(name)
    for night, (id, _, stages) in enumerate(nights):
        epochs = epochs_of(pieces_of(name, folder, id))
        assert [start / 30 for start in epochs] == list(range(len(stages)))
        assert [str(label) for label, _ in epochs.values()] == stages
        for i, (label, signals) in enumerate(epochs.values()):
            assert isinstance(label, Drop) == (stages[i] in ("unscored", "movement", FAR))
            for channel, signal in zip(("EEG", "EOG"), signals, strict=True):
                np.testing.assert_allclose(signal, write.tone(channel, NEXT * night + i, len(signal) / 30), atol=0.6)


@pytest.mark.parametrize("name", SETS)
def test_declaration(name: str) -> None:
    data = DATASETS[name]
    recipe = data.recipe
    assert (recipe.window_s, recipe.hop_s, recipe.fs, recipe.band) == (30, 30, 100, (0.3, 35))
    assert (recipe.names, recipe.unit, recipe.samples) == (("EEG", "EOG"), "uV", 3000)
    assert data.task == "sleep"
    assert set(data.tasks["sleep"]) == set(data.labels)
    assert set(data.tasks["sleep"].values()) == {"W", "N1", "N2", "N3", "REM"}
    assert data.tasks["sleep"].get("N4", "N3") == "N3"


def test_the_margin_of_wake_is_in_the_recipe() -> None:
    assert DATASETS["sleepedfx"].recipe.options == {"wake_margin_s": 1800.0}


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("shhs1", (125, 50)),
        ("p2018", (200, 200)),
        ("mros1", (256, 256)),
        ("cfs", (128, 128)),
        ("sleepedfx", (100, 100)),
    ],
)
def test_channels_keep_their_rates(name: str, rates: tuple[float, float], raw) -> None:
    (piece,) = pieces_of(name, raw(name)[0])
    assert piece.rates == rates
    assert piece.channels == ("EEG", "EOG")
    assert piece.unit == "uV"


def test_visits_of_mros_are_the_same_people() -> None:
    assert DATASETS["mros1"].same_people == ("mros2",)
    assert DATASETS["mros2"].same_people == ("mros1",)


def test_mros_subjects_without_believable_staging_are_left_out_with_the_reason(tmp_path: Path) -> None:
    psg = tmp_path / "mros" / "polysomnography"
    for i, subject in enumerate(("aa0001", "aa2033", "aa2180")):  # the third has no XML, which is not an error here
        night = wires(MROS.format("A", "ROC", "LOC"), 3, "C4", "LOC", ("A1", "A2"), first=NEXT * i)
        write.write_edf(psg / "edfs" / "visit1" / f"mros-visit1-{subject}.edf", night)
    for subject in ("aa0001", "aa2033"):
        xml = psg / "annotations-events-nsrr" / "visit1" / f"mros-visit1-{subject}-nsrr.xml"
        xml.parent.mkdir(parents=True, exist_ok=True)
        xml.write_text(write.nsrr_xml(["W", "N1", "N2"]))
    domain = Domain.open(prepare("mros1", tmp_path, tmp_path / "store").path)
    assert list(domain.subject_names) == ["aa0001"]
    reasons = {entry["subject"]: entry["reason"] for entry in domain.manifest["skipped"]}
    assert set(reasons) == {"aa2033", "aa2180"}
    assert "staging in its XML is wrong" in reasons["aa2033"]
    assert "could not be exported" in reasons["aa2180"]


# --- through the engine to a store ---------------------------------------------------------------------------------


def assert_tones(windows: np.ndarray, epochs: Sequence[int]) -> None:
    """Windows (n, 2, 3000) at 100 Hz are the tones of these epochs, sample by sample: a window that begins one sample
    late is off by 11 to 79 degrees. What is left is the band-pass near 22 Hz (2 %) and its memory of corners and ends,
    of which the middle is free."""
    middle = slice(600, -600)
    for window, epoch in zip(windows, epochs, strict=True):
        for channel, signal in zip(("EEG", "EOG"), window, strict=True):
            expected = write.tone(channel, epoch, 100)
            np.testing.assert_allclose(signal[middle], expected[middle], atol=0.04 * write.AMPLITUDE[channel])


@pytest.mark.parametrize("name", SETS)
def test_prepare_gives_every_scored_epoch_and_counts_the_rest(name: str, raw, tmp_path: Path) -> None:
    folder, nights = raw(name)
    done = prepare(name, folder, tmp_path)
    domain = Domain.open(done.path)
    dropped = Counter(stage for _, _, stages in nights for stage in stages if stage in ("unscored", "movement", FAR))
    assert domain.manifest["dropped"] == done.dropped == dropped
    assert domain.manifest["skipped"] == []
    for night, (id, subject, stages) in enumerate(nights):
        rows = np.flatnonzero(domain.recordings == list(domain.recording_names).index(id))
        kept = [i for i, stage in enumerate(stages) if stage not in dropped]
        assert [domain.label_names[label] for label in domain.labels[rows]] == [stages[i] for i in kept]
        assert domain.positions[rows].tolist() == [3000 * i for i in kept]
        assert {domain.subject_names[k] for k in domain.subjects[rows]} == {subject}
        assert_tones(domain.windows[rows], [NEXT * night + i for i in kept])
    view = get_task("sleep").view(domain)
    merged = Counter("N3" if s == "N4" else s for _, _, stages in nights for s in stages if s not in dropped)
    assert view.classes == ("W", "N1", "N2", "N3", "REM")
    assert Counter(view.classes[y] for y in view.y) == merged
    assert not view.dropped


def test_a_true_night_of_eight_hours(tmp_path: Path) -> None:
    """SHHS1 as recorded: 14 signals at 125, 50, 10 and 1 Hz, 960 epochs, and 17 s at the end that are no epoch."""
    rng = np.random.default_rng(0)
    stages = np.repeat(rng.choice(list(write.NSRR_CONCEPT), 400), rng.integers(1, 9, 400))[:960].tolist()
    psg = tmp_path / "shhs" / "polysomnography"
    signals = wires(SHHS, 961, "EEG", "EOG(L)")
    for wire in signals:
        wire.samples = wire.samples[: round((960 * 30 + 17) * wire.fs)]
    write.write_edf(psg / "edfs" / "shhs1" / "shhs1-200001.edf", signals)
    xml = psg / "annotations-events-nsrr" / "shhs1" / "shhs1-200001-nsrr.xml"
    xml.parent.mkdir(parents=True)
    xml.write_text(write.nsrr_xml(stages))
    domain = Domain.open(prepare("shhs1", tmp_path, tmp_path / "store").path)
    kept = [i for i, stage in enumerate(stages) if stage not in ("unscored", "movement")]
    assert len(stages) == 960
    assert domain.windows.shape == (len(kept), 2, 3000)
    assert [domain.label_names[label] for label in domain.labels] == [stages[i] for i in kept]
    assert domain.positions.tolist() == [3000 * i for i in kept]
    assert_tones(domain.windows, kept)
    assert domain.manifest["dropped"] == {s: stages.count(s) for s in ("movement", "unscored")}


def test_skip_bad_leaves_a_night_out_and_says_why(tmp_path: Path) -> None:
    BUILD["hmc"](tmp_path)
    break_file(next(tmp_path.rglob("SN002_sleepscoring.txt")), "Sleep stage N3", "Sleep stage N8")
    with pytest.raises(DataError, match=r"SN002_sleepscoring\.txt: line \d+ .*unknown sleep stage 'Sleep stage N8'"):
        prepare("hmc", tmp_path, tmp_path / "store")
    domain = Domain.open(prepare("hmc", tmp_path, tmp_path / "store", skip_bad=True).path)
    assert list(domain.recording_names) == ["SN001"]
    (skipped,) = domain.manifest["skipped"]
    assert skipped["id"] == "SN002"
    assert "SN002_sleepscoring.txt: line" in skipped["reason"]


# --- time ----------------------------------------------------------------------------------------------------------


def write_hmc(raw: Path, signals: list[Wire], marks: Sequence[Mark], plan: Plan | None = None) -> Path:
    folder = raw / "hmc" / "recordings"
    write.write_edf(folder / "SN001.edf", signals, plan)
    write.write_edf_hypnogram(folder / "SN001_sleepscoring.edf", marks)
    return raw


def test_a_gap_in_the_signal_is_not_bridged(tmp_path: Path) -> None:
    """EDF+D: 47 s are missing from 417 s on; what is left of the epochs at both edges is not cut."""
    signals = wires(HMC, len(AASM), "EEG C4-M1", "EOG E1-M2")
    onsets = [s for s in range(30 * len(AASM)) if not 417 <= s < 464]
    for wire in signals:
        wire.samples = np.delete(wire.samples, np.s_[417 * 256 : 464 * 256])
    write_hmc(tmp_path, signals, hmc_marks(AASM), Plan(onsets=onsets))
    pieces = pieces_of("hmc", tmp_path)
    assert [piece.start for piece in pieces] == [0, 480]
    epochs = epochs_of(pieces)
    assert sorted(epochs) == [30.0 * i for i in range(len(AASM)) if i not in (13, 14, 15)]
    for start, (label, (eeg, eog)) in epochs.items():
        i = round(start / 30)
        assert label == AASM[i]
        np.testing.assert_allclose(eeg, write.tone("EEG", i, 256), atol=0.02)
        np.testing.assert_allclose(eog, write.tone("EOG", i, 256), atol=0.02)
    done = cut(pieces, DATASETS["hmc"].recipe)
    kept = [i for i in range(len(AASM)) if i not in (13, 14, 15) and AASM[i] != "unscored"]
    assert done.labels == [AASM[i] for i in kept]
    assert done.positions.tolist() == [3000 * i for i in kept]
    assert_tones(done.windows, kept)


@pytest.mark.parametrize("origin", [7.0, 37.0, 12.5])
def test_epochs_are_cut_where_the_scorer_cut_them(origin: float, tmp_path: Path) -> None:
    """The first epoch begins 7 s (or 37, or 12.5 s) into the recording, and all others with it."""
    signals = wires(HMC, len(AASM), "EEG C4-M1", "EOG E1-M2", shift_s=origin)
    marks = [Mark(mark.onset + origin, mark.duration, mark.text) for mark in hmc_marks(AASM)]
    write_hmc(tmp_path, signals, marks, Plan(record_s=0.5))
    epochs = {start: epoch for start, epoch in epochs_of(pieces_of("hmc", tmp_path)).items() if start >= origin}
    assert sorted(epochs) == [origin + 30 * i for i in range(len(AASM))]
    for i, (label, (eeg, _)) in enumerate(epochs.values()):
        assert label == AASM[i]
        np.testing.assert_allclose(eeg, write.tone("EEG", i, 256), atol=0.02)


def test_a_short_hypnogram_leaves_the_rest_unscored(tmp_path: Path) -> None:
    write_hmc(tmp_path, wires(HMC, 12, "EEG C4-M1", "EOG E1-M2"), [Mark(0, 150, "Sleep stage N2")])
    labels = [label for label, _ in epochs_of(pieces_of("hmc", tmp_path)).values()]
    assert labels == ["N2"] * 5 + [Drop("unscored")] * 7
    assert Counter(type(label) for label in labels) == {str: 5, Drop: 7}


def test_a_last_epoch_that_the_signal_has_in_part_is_not_cut(tmp_path: Path) -> None:
    signals = wires(HMC, 12, "EEG C4-M1", "EOG E1-M2")
    for wire in signals:
        wire.samples = wire.samples[: 345 * 256]
    write_hmc(tmp_path, signals, [Mark(0, 360, "Sleep stage N2")])
    assert [label for label, _ in epochs_of(pieces_of("hmc", tmp_path)).values()] == ["N2"] * 11


def test_stages_beyond_the_signal_are_an_error(tmp_path: Path) -> None:
    write_hmc(tmp_path, wires(HMC, 12, "EEG C4-M1", "EOG E1-M2"), [Mark(0, 30 * 14, "Sleep stage N2")])
    with pytest.raises(
        DataError, match=r"SN001_sleepscoring\.edf: annotation 1: .* until 420 s.* signal ends at 360 s"
    ):
        pieces_of("hmc", tmp_path)


stages_of_a_night = st.lists(st.sampled_from(list(write.NSRR_CONCEPT)), min_size=1, max_size=60)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stages=stages_of_a_night.filter(lambda stages: set(stages) - {"unscored", "movement"}))
def test_both_kinds_of_xml_tell_the_same_night(stages: list[str], tmp_path: Path) -> None:
    for write_xml in (write.nsrr_xml, write.profusion_xml):
        path = tmp_path / "night.xml"
        path.write_text(write_xml(stages))
        told = [""] * len(stages)
        for stage in xml_hypnogram(path).stages:
            for i in range(round(stage.start / 30), round(stage.stop / 30)):
                told[i] = str(stage.label)
        assert told == stages


@settings(max_examples=50, deadline=None)
@given(before=st.integers(0, 90), sleep=st.lists(st.sampled_from("W1234R?"), max_size=20), after=st.integers(0, 90))
def test_wake_is_kept_for_30_minutes_around_sleep(before: int, sleep: list[str], after: int) -> None:
    """Against the same rule told epoch by epoch."""
    codes = ["W"] * before + ["1", *sleep, "2"] + ["W"] * after
    events = [Event(30 * i, 30, f"Sleep stage {code}", f"annotation {i}") for i, code in enumerate(codes)]
    hypnogram = Hypnogram.of(Path("night.edf"), events, sleepedfx._CODES).around_sleep(1800)
    asleep = [i for i, code in enumerate(codes) if code in "1234R"]
    near = [asleep[0] - 60 <= i <= asleep[-1] + 60 for i in range(len(codes))]
    told = {round(s.start / 30): s.label for s in hypnogram.stages}
    assert [told[i] == "W" for i in range(len(codes))] == [c == "W" and n for c, n in zip(codes, near, strict=True)]
    assert [told[i] == FAR for i in range(len(codes))] == [c == "W" and not n for c, n in zip(codes, near, strict=True)]


def test_a_night_without_sleep_has_no_wake_around_it(tmp_path: Path) -> None:
    hypnogram = Hypnogram.of(tmp_path, [Event(0, 300, "Sleep stage W", "annotation 1")], sleepedfx._CODES)
    with pytest.raises(DataError, match="no sleep"):
        hypnogram.around_sleep(1800)


# --- bad scoring ---------------------------------------------------------------------------------------------------


def nsrr_events(*events: str) -> str:
    body = "".join(events)
    return f"<PSGAnnotation><EpochLength>30</EpochLength><ScoredEvents>{body}</ScoredEvents></PSGAnnotation>"


def stage(concept: str, start: object, duration: object) -> str:
    return write.nsrr_event("Stages|Stages", concept, start, duration)  # type: ignore[arg-type]


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><PSGAnnotation><EpochLength>&b;</EpochLength></PSGAnnotation>'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            nsrr_events(stage("Wake|0", 0, 30), stage("Stage 7 sleep|7", 30, 60)),
            r"<ScoredEvent> 2 \(30 s\): unknown .*7",
        ),
        (nsrr_events(stage("Wake|0", 0, 60), stage("REM sleep|5", 30, 60)), r"<ScoredEvent> 2: .*30 s overlaps the W"),
        (nsrr_events(stage("Wake|0", 0, 60), stage("Wake|0", 30, 60)), r"<ScoredEvent> 2: .*overlaps"),
        (nsrr_events(stage("Wake|0", 0, 0)), r"<ScoredEvent> 1: .*for 0 s cannot be"),
        (nsrr_events(stage("Wake|0", -30, 60)), r"<ScoredEvent> 1: .*-30 s"),
        (nsrr_events(stage("Wake|0", "nan", 30)), r"<ScoredEvent> 1: .*nan s"),
        (nsrr_events(stage("Wake|0", "soon", 30)), r"<ScoredEvent> 1: a stage without a number"),
        (nsrr_events(stage("", 0, 30)), r"unknown sleep stage ''"),
        (nsrr_events(stage("Unscored|9", 0, 3000)), "no scored epoch among 1"),
        (nsrr_events(), "no scored epoch among 0"),
        (nsrr_events(stage("Wake|0", 0, 30)).replace(">30<", ">20<", 1), "epochs of '20' s"),
        (
            write.profusion_xml(["W", "N1"]).replace("<SleepStage>1<", "<SleepStage>7<"),
            r"epoch 2 \(30 s\): unknown .*'7'",
        ),
        (write.profusion_xml(["W"]).replace(">0<", "><"), r"epoch 1 \(0 s\): unknown sleep stage ''"),
        (write.profusion_xml(["unscored"] * 4), "no scored epoch among 4"),
        ("<html><body>Sign in</body></html>", "<html> is neither NSRR"),
        ("<PSGAnnotation><ScoredEvents>", "not well-formed XML"),
        (BOMB, "refused"),
    ],
)
def test_bad_xml(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "shhs1-200001-nsrr.xml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"shhs1-200001-nsrr\.xml: .*{message}|{message}") as error:
        xml_hypnogram(path)
    assert path.name in str(error.value)


def break_file(path: Path, old: str, new: str) -> None:
    text = path.read_bytes()
    assert old.encode() in text
    path.write_bytes(text.replace(old.encode(), new.encode(), 1))


@pytest.mark.parametrize(
    ("name", "file", "old", "new", "message"),
    [
        ("hmc", "SN001_sleepscoring.edf", "Sleep stage N3", "Sleep stage N9", r"annotation \d+ .*unknown .*N9"),
        (
            "hmc",
            "SN001_sleepscoring.edf",
            "+60\x1530\x14",
            "+40\x1530\x14",
            r"annotation 3: .*overlaps the W of annotation 2",
        ),
        ("hmc", "SN002_sleepscoring.txt", "Sleep stage N3", "Sleep stage 3", r"line \d+ .*unknown .*stage 3"),
        ("hmc", "SN002_sleepscoring.txt", " 60, 30,", " 60, x,", r"line 5: onset or duration"),
        ("hmc", "SN002_sleepscoring.txt", " 60, 30,", " 60, 45,", r"line 6: .*overlaps .*line 5"),
        ("isruc", "8_1.txt", "0\r\n0\r\n", "0\r\n\r\n", r"line 2 \(30 s\): unknown sleep stage ''"),
        ("isruc", "8_1.txt", "5\r\n", "4\r\n", r"line 22 \(630 s\): unknown sleep stage '4'"),
        ("sleepedfx", "SC4001EC-Hypnogram.edf", "Sleep stage 4", "Sleep stage 7", r"annotation 5 .*unknown .*stage 7"),
        ("p2018", "tr03-0005.arousal", "N3", "N5", r"mark at sample \d+ .*unknown .*N5"),
    ],
)
def test_bad_scoring(name: str, file: str, old: str, new: str, message: str, tmp_path: Path) -> None:
    BUILD[name](tmp_path)
    path = sorted(tmp_path.rglob(file))[0]
    break_file(path, old, new)
    data = DATASETS[name]
    root = data.root(tmp_path)
    source = next(s for s in data.find(root) if any(f.endswith(file) for f in s.files))
    with pytest.raises(DataError, match=rf"{file}: {message}"):
        data.read(root, source)


def test_two_different_stages_on_one_sample_contradict(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mark at sample 6000: stage 'W' from 30 s for 0 s cannot be"):
        p2018.change_points(tmp_path, [(0, "W"), (6000, "W"), (6000, "N1")], 200, 12000)
    twice = p2018.change_points(tmp_path, [(0, "W"), (6000, "N1"), (6000, "N1")], 200, 12000)
    assert [(stage.start, stage.stop, stage.label) for stage in twice.stages] == [(0, 30, "W"), (30, 60, "N1")]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("shhs1", "shhs1-200001-*.xml"),
        ("hmc", "SN001_sleepscoring.*"),
        ("isruc", "subgroupI/8/8_1.txt"),
        ("sleepedfx", "SC4001EC-Hypnogram.edf"),
        ("p2018", "tr03-0005.arousal"),
    ],
)
def test_a_recording_without_scoring_is_an_error(name: str, pattern: str, tmp_path: Path) -> None:
    BUILD[name](tmp_path)
    for path in tmp_path.rglob(pattern):
        path.unlink()
    with pytest.raises(DataError, match="needs one scoring file, found none"):
        pieces_of(name, tmp_path)


def test_two_hypnograms_of_a_night_are_an_error(tmp_path: Path) -> None:
    build_sleepedfx(tmp_path)
    path = next(tmp_path.rglob("SC4001EC-Hypnogram.edf"))
    path.with_name("SC4001EH-Hypnogram.edf").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"found SC4001EC-Hypnogram\.edf, SC4001EH-Hypnogram\.edf"):
        pieces_of("sleepedfx", tmp_path)


# --- bad signals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "label"), [("mros1", "A2"), ("mesa", "EOG-L"), ("isruc", "F4-A1"), ("shhs1", "EEG")])
def test_a_missing_channel_says_what_the_file_has(name: str, label: str, tmp_path: Path) -> None:
    BUILD[name](tmp_path)
    path = next(p for p in sorted(tmp_path.rglob("*")) if p.suffix in (".edf", ".rec"))
    break_file(path, label.ljust(16), "Gone".ljust(16))
    with pytest.raises(DataError, match=r"no channel .*looked for .*the file has .*'Gone'"):
        pieces_of(name, tmp_path)


@pytest.mark.parametrize("name", ["shhs1", "isruc", "sleepedfx", "p2018"])
def test_a_truncated_signal_is_an_error(name: str, tmp_path: Path) -> None:
    BUILD[name](tmp_path)
    data = DATASETS[name]
    root = data.root(tmp_path)
    source = data.find(root)[0]
    path = root / source.files[1 if name == "p2018" else 0]
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(DataError, match=path.stem):
        data.read(root, source)


def test_masks_with_two_stages_at_once_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "tr-arousal.mat"
    write_masks(path, [(1, "W"), (6000, "N1")], 12000)
    with h5py.File(path, "r+") as file:
        file["data/sleep_stages/rem"][0, 100] = 1
    with pytest.raises(DataError, match=r"tr-arousal\.mat: sample 100 has 2 sleep stages"):
        p2018.mask_marks(path)


def test_a_source_cannot_lead_out_of_the_raw_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leads out"):
        DATASETS["hmc"].read(tmp_path, Source("SN001", "SN001", ("../SN001.edf", "../SN001_sleepscoring.edf")))


# --- real files ----------------------------------------------------------------------------------------------------


def test_real_sleepedfx_hypnogram(shared_raw) -> None:
    """Counted from the bytes of the file, without a library."""
    path = shared_raw("samples") / "samples" / "sleepedfx" / "SC4001EC-Hypnogram.edf"
    seconds: Counter[str] = Counter()
    for tal in path.read_bytes()[512:].split(b"\x00"):
        if b"\x15" in tal:
            _, _, rest = tal.partition(b"\x15")
            duration, text, *_ = rest.split(b"\x14")
            seconds[text.decode()] += int(duration)
    hypnogram = edf_hypnogram(path, sleepedfx._CODES)
    read: Counter[str] = Counter()
    for s in hypnogram.stages:
        read[str(s.label)] += round(s.stop - s.start)
    names = {"1": "N1", "2": "N2", "3": "N3", "4": "N4", "R": "REM", "?": "unscored"}
    assert read == {names.get(text.split()[-1], text.split()[-1]): n for text, n in seconds.items()}
    assert sum(read.values()) == 86400
    kept = hypnogram.around_sleep(1800)
    wake = [(s.start, s.stop) for s in kept.stages if s.label == "W"]
    assert wake[0] == (28830, 30630)  # sleep begins at 30630 s
    assert wake[-1] == (52260, 54060)  # and ends at 52260 s
    asleep = [s for s in hypnogram.stages if s.label in ("N1", "N2", "N3", "N4", "REM")]
    assert [s for s in kept.stages if s.label in ("N1", "N2", "N3", "N4", "REM")] == asleep


def test_real_p2018_marks(shared_raw) -> None:
    folder = shared_raw("samples") / "samples" / "p2018"
    marks = p2018.arousal_marks(folder / "tr03-0005.arousal")
    assert Counter(code for _, code in marks) == {"N1": 37, "W": 29, "N2": 26, "N3": 5, "R": 3}
    assert marks[:3] == [(72000, "W"), (120000, "N1"), (132000, "W")]
    assert all(sample % 6000 == 0 for sample, _ in marks)
    hypnogram = p2018.change_points(folder / "tr03-0005.arousal", marks, 200, 5147000)
    assert hypnogram.stages[0].start == 360
    assert hypnogram.stages[-1].stop == 5147000 / 200


def test_real_p2018_masks_agree_with_the_grid_of_the_marks(shared_raw) -> None:
    """Samples of each stage from the masks themselves; boundaries on the 30 s grid once MATLAB's count is undone."""
    path = shared_raw("samples") / "samples" / "p2018" / "tr04-0029-arousal.mat"
    marks = p2018.mask_marks(path)
    assert all(sample % 6000 == 0 for sample, _ in marks)
    with h5py.File(path) as file:
        samples = {name: int(node[()].sum()) for name, node in file["data/sleep_stages"].items()}
        total = file["data/sleep_stages/wake"].shape[1]
    hypnogram = p2018.change_points(path, marks, 200, total)
    read: Counter[str] = Counter()
    for s in hypnogram.stages:
        read[str(s.label)] += round((s.stop - s.start) * 200)
    names = {"wake": "W", "nonrem1": "N1", "nonrem2": "N2", "nonrem3": "N3", "rem": "REM", "undefined": "unscored"}
    for name, label in names.items():
        assert abs(read[label] - samples[name]) <= 1
