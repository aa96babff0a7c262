"""Writes nights of sleep in the true formats of the data sets, byte by byte, without the libraries that read them.

Every epoch of a night carries its number: EEG and EOG are sines of whole Hz that begin with the epoch, and whose
frequencies together tell the epoch. So what comes out of a store can be compared with what must be there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EPOCH_S = 30
AMPLITUDE = {"EEG": 40.0, "EOG": 90.0}  # uV


def hertz(channel: str, epoch: int) -> int:
    """The tone of an epoch: (EEG, EOG) tell 20 * 17 = 340 epochs apart; all far from 0.3 and 35 Hz, and below 25 Hz."""
    return 3 + (epoch % 20 if channel == "EEG" else epoch % 17)


def tone(channel: str, epoch: int, fs: float) -> NDArray[np.float64]:
    """30 s of the epoch's sine, in uV."""
    t = np.arange(round(EPOCH_S * fs)) / fs
    return AMPLITUDE[channel] * np.sin(2 * np.pi * hertz(channel, epoch) * t)


def tones(channel: str, epochs: int, fs: float, first: int = 0) -> NDArray[np.float64]:
    """A night of tones, epoch after epoch from number `first` on, in uV."""
    return np.concatenate([tone(channel, first + epoch, fs) for epoch in range(epochs)])


# --- EDF -----------------------------------------------------------------------------------------------------------


@dataclass
class Wire:
    """One EDF signal: its label, its rate, its samples in `unit`."""

    label: str
    fs: float
    samples: NDArray[np.float64]
    unit: str = "uV"
    span: float = 500.0  # physical range -span..span


@dataclass
class Mark:
    onset: float
    duration: float | None
    text: str


@dataclass
class Plan:
    """What write_edf may do beyond a plain EDF file."""

    record_s: float = 1.0
    marks: Sequence[Mark] = ()
    onsets: Sequence[float] | None = None  # of every data record: EDF+D
    plus: bool = field(init=False)

    def __post_init__(self) -> None:
        self.plus = bool(self.marks) or self.onsets is not None


def write_edf(path: Path, wires: Sequence[Wire], plan: Plan | None = None) -> Path:
    """An EDF file; EDF+C with marks, EDF+D with onsets. Each signal keeps its own rate."""
    plan = plan or Plan()
    counts = [round(wire.fs * plan.record_s) for wire in wires]
    records = min(len(wire.samples) // n for wire, n in zip(wires, counts, strict=True))
    blocks = []
    for wire, n in zip(wires, counts, strict=True):
        digital = np.rint(wire.samples[: records * n] / wire.span * 32767)
        assert np.abs(digital).max(initial=0) <= 32767
        blocks.append(digital.astype("<i2").reshape(records, n))
    head = [
        [w.label for w in wires],
        [""] * len(wires),
        [w.unit for w in wires],
        [f"{-w.span:g}" for w in wires],
        [f"{w.span:g}" for w in wires],
        ["-32767"] * len(wires),
        ["32767"] * len(wires),
        [""] * len(wires),
        [str(n) for n in counts],
        [""] * len(wires),
    ]
    if plan.plus:
        onsets = plan.onsets if plan.onsets is not None else [plan.record_s * i for i in range(records)]
        texts = [_tal(onset) for onset in onsets[:records]]
        texts[0] += b"".join(_tal(m.onset, m.duration, m.text) for m in plan.marks)
        blocks.append(_annotation_block(texts))
        _add_annotation_signal(head, blocks[-1].shape[1])
    reserved = "" if not plan.plus else "EDF+D" if plan.onsets is not None else "EDF+C"
    body = np.concatenate(blocks, axis=1).tobytes()
    return _write_edf(path, head, body, records, plan.record_s, reserved)


def write_edf_hypnogram(path: Path, marks: Sequence[Mark]) -> Path:
    """An EDF+ file of annotations alone: one data record of no length, as in Sleep-EDFx and HMC."""
    block = _annotation_block([_tal(0) + b"".join(_tal(m.onset, m.duration, m.text) for m in marks)])
    head: list[list[str]] = [[] for _ in range(10)]
    _add_annotation_signal(head, block.shape[1])
    return _write_edf(path, head, block.tobytes(), 1, 0, "EDF+C")


def _tal(onset: float, duration: float | None = None, text: str = "") -> bytes:
    length = b"" if duration is None else b"\x15" + f"{duration:g}".encode()
    return f"{onset:+.10g}".encode() + length + b"\x14" + text.encode() + b"\x14\x00"


def _annotation_block(texts: list[bytes]) -> NDArray[np.int16]:
    size = max(map(len, texts)) + 1
    size += size % 2
    return np.frombuffer(b"".join(text.ljust(size, b"\x00") for text in texts), "<i2").reshape(len(texts), -1)


def _add_annotation_signal(head: list[list[str]], samples: int) -> None:
    fields = ["EDF Annotations", "", "", "-1", "1", "-32768", "32767", "", str(samples), ""]
    for column, text in zip(head, fields, strict=True):
        column.append(text)


def _write_edf(path: Path, head: list[list[str]], body: bytes, records: int, record_s: float, reserved: str) -> Path:
    signals = len(head[0])
    first = [
        ("0", 8),
        ("X X X X", 80),
        ("Startdate 01-JAN-1985 X X X", 80),
        ("01.01.85", 8),
        ("22.00.00", 8),
        (str(256 * (signals + 1)), 8),
        (reserved, 44),
        (str(records), 8),
        (f"{record_s:g}", 8),
        (str(signals), 4),
    ]
    widths = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)
    text = "".join(value.ljust(width) for value, width in first)
    text += "".join(value.ljust(width) for column, width in zip(head, widths, strict=True) for value in column)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("ascii") + body)
    return path


# --- WFDB ----------------------------------------------------------------------------------------------------------


def write_challenge2018(folder: Path, record: str, signals: dict[str, NDArray[np.float64]], fs: int = 200) -> None:
    """`record.mat` (MATLAB 4 header, int16, one sample of each signal after the other; WFDB 16+24) and `record.hea`."""
    folder.mkdir(parents=True, exist_ok=True)
    data = np.rint(np.stack(list(signals.values()))).astype("<i2")  # 1 unit per uV
    header = struct.pack("<5i4s", 30, data.shape[0], data.shape[1], 0, 4, b"val\x00")
    (folder / f"{record}.mat").write_bytes(header + data.T.tobytes())
    lines = [f"{record} {len(data)} {fs} {data.shape[1]}"]
    for name, row in zip(signals, data, strict=True):
        checksum = int(row.sum(dtype=np.int64)) % 65536
        checksum -= 65536 if checksum > 32767 else 0
        lines.append(f"{record}.mat 16+24 1/uV 16 0 {row[0]} {checksum} 0 {name}")
    (folder / f"{record}.hea").write_text("\n".join(lines) + "\n")


def write_marks(path: Path, marks: Sequence[tuple[int, str]]) -> None:
    """WFDB annotations: SKIP to each sample, a note mark (code 22) there, its text as AUX."""
    out, now = bytearray(), 0
    for sample, text in marks:
        step, now = sample - now, sample
        out += struct.pack("<H", 59 << 10) + struct.pack("<HH", step >> 16, step & 0xFFFF)
        out += struct.pack("<H", 22 << 10)
        note = text.encode()
        out += struct.pack("<H", 63 << 10 | len(note)) + note + b"\x00" * (len(note) % 2)
    path.write_bytes(bytes(out) + b"\x00\x00")


# --- scoring -------------------------------------------------------------------------------------------------------

NSRR_CONCEPT = {
    "W": "Wake|0",
    "N1": "Stage 1 sleep|1",
    "N2": "Stage 2 sleep|2",
    "N3": "Stage 3 sleep|3",
    "N4": "Stage 4 sleep|4",
    "REM": "REM sleep|5",
    "movement": "Movement|6",
    "unscored": "Unscored|9",
}


def bouts(stages: Sequence[str]) -> list[tuple[int, int, str]]:
    """Runs of one stage: (first epoch, epochs, stage)."""
    out: list[tuple[int, int, str]] = []
    for i, stage in enumerate(stages):
        if out and out[-1][2] == stage:
            out[-1] = (out[-1][0], out[-1][1] + 1, stage)
        else:
            out.append((i, 1, stage))
    return out


def nsrr_event(kind: str, concept: str, start: float, duration: float) -> str:
    return (
        f"<ScoredEvent>\n<EventType>{kind}</EventType>\n<EventConcept>{concept}</EventConcept>\n"
        f"<Start>{start}</Start>\n<Duration>{duration}</Duration>\n</ScoredEvent>\n"
    )


def nsrr_xml(stages: Sequence[str]) -> str:
    """Recording start, breathing events that overlap everything, and one event per run of a stage."""
    events = "<ScoredEvent>\n<EventType/>\n<EventConcept>Recording Start Time</EventConcept>\n<Start>0</Start>\n"
    events += f"<Duration>{30.0 * len(stages)}</Duration>\n<ClockTime>01.01.85 22.00.00</ClockTime>\n</ScoredEvent>\n"
    events += nsrr_event("Respiratory|Respiratory", "Hypopnea|Hypopnea", 12.3, 44.5)
    events += nsrr_event("Arousals|Arousals", "Arousal|Arousal ()", 31.0, 5.0)
    for first, n, stage in bouts(stages):
        events += nsrr_event("Stages|Stages", NSRR_CONCEPT[stage], 30.0 * first, 30.0 * n)
    return (
        '<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n<PSGAnnotation>\n'
        "<SoftwareVersion>Compumedics</SoftwareVersion>\n<EpochLength>30</EpochLength>\n"
        f"<ScoredEvents>\n{events}</ScoredEvents>\n</PSGAnnotation>\n"
    )


def profusion_xml(stages: Sequence[str]) -> str:
    """One number per epoch after the scored events."""
    code = {stage: concept.rpartition("|")[2] for stage, concept in NSRR_CONCEPT.items()}
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<CMPStudyConfig>\n<EpochLength>30</EpochLength>\n<StepChannels/>\n'
        "<ScoredEventSettings/>\n<ScoredEvents>\n<ScoredEvent><Name>Hypopnea</Name><Start>12.3</Start>"
        "<Duration>44.5</Duration><Input>AIRFLOW</Input></ScoredEvent>\n</ScoredEvents>\n<SleepStages>\n"
        + "".join(f"<SleepStage>{code[stage]}</SleepStage>\n" for stage in stages)
        + "</SleepStages>\n</CMPStudyConfig>\n"
    )
