"""WFDB records and annotations by wfdb."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sscf.data.readers.common import Signals, check_signal, choose_channels, inside, unit_factor
from sscf.data.recording import Channel
from sscf.errors import DataError, require


@dataclass(frozen=True)
class Marks:
    """Annotations of a WFDB record: sample numbers (n,), symbols ("N", "V", "+"), notes ("(AFIB"), and their rate."""

    samples: NDArray[np.int64]
    symbols: list[str]
    notes: list[str]
    fs: float | None


def read_wfdb(path: str | Path, channels: Sequence[Channel], unit: str = "mV") -> Signals:
    """Wanted channels of a WFDB record; `path` is the record with or without ".hea"."""
    wfdb = require("wfdb", "data")
    record = Path(path).with_suffix("") if Path(path).suffix == ".hea" else Path(path)
    hea = record.with_name(record.name + ".hea")
    lines = _header_lines(hea)
    labels = _signal_names(lines)
    chosen = choose_channels(labels, channels, hea)
    wanted = sorted({i for pair in chosen for i in pair if i is not None})
    _check_rate(hea, lines)
    _check_length(hea, lines)
    try:
        if "." in lines[0].split()[0]:
            with tempfile.TemporaryDirectory() as folder:
                data = wfdb.rdrecord(str(_mend_header(hea, lines, Path(folder))), channels=wanted)
        else:
            data = wfdb.rdrecord(str(record), channels=wanted)
    except Exception as error:
        raise DataError(f"{hea}: not a readable WFDB record ({type(error).__name__}: {error})") from error
    if data.p_signal.shape[0] != data.sig_len:
        raise DataError(f"{hea}: promises {data.sig_len} samples, the signal file has {data.p_signal.shape[0]}")
    column = {
        i: (data.p_signal[:, k] * unit_factor(data.units[k], unit, f"{hea}: channel {labels[i]!r}")).astype(np.float32)
        for k, i in enumerate(wanted)
    }
    signals = []
    for channel, (plus, minus) in zip(channels, chosen, strict=True):
        signal = column[plus] if minus is None else column[plus] - column[minus]
        check_signal(signal, channel.name, hea, float(data.fs))
        signals.append(signal)
    fs = float(data.fs)
    names = tuple(channel.name for channel in channels)
    pieces = ((0.0, 0.0, len(signals[0]) / fs),)
    return Signals(signals, (fs,) * len(signals), names, unit, labels, pieces, {"comments": list(data.comments or [])})


def wfdb_comments(path: str | Path) -> list[str]:
    """The comment lines ("#...") of a WFDB header, without the sign."""
    record = Path(path).with_suffix("") if Path(path).suffix == ".hea" else Path(path)
    lines = _header_lines(record.with_name(record.name + ".hea"), comments=True)
    return [line[1:].strip() for line in lines if line.startswith("#")]


def wfdb_annotations(path: str | Path, extension: str) -> Marks:
    """Annotations of a WFDB record; `path` is the record without extension, `extension` e.g. "atr"."""
    wfdb = require("wfdb", "data")
    file = Path(f"{path}.{extension}")
    if not file.is_file():
        raise DataError(f"{file}: no such file")
    if file.read_bytes()[-2:] != b"\0\0":
        raise DataError(f"{file}: cut short: it does not end in the two zero bytes that close WFDB annotations")
    try:
        marks = wfdb.rdann(str(path), extension)
    except Exception as error:
        raise DataError(f"{file}: not readable WFDB annotations ({type(error).__name__}: {error})") from error
    samples = np.asarray(marks.sample, np.int64)
    if len(samples) and (np.diff(samples) < 0).any():
        i = int(np.argmax(np.diff(samples) < 0)) + 1
        raise DataError(f"{file}: annotation {i} at sample {samples[i]} lies before the one in front of it")
    notes = [(note or "").strip("\x00 ") for note in marks.aux_note]
    return Marks(samples, list(marks.symbol), notes, None if marks.fs is None else float(marks.fs))


def _header_lines(hea: Path, comments: bool = False) -> list[str]:
    if not hea.is_file():
        raise DataError(f"{hea}: no such file")
    lines = [line.strip() for line in hea.read_text(encoding="latin-1").splitlines()]
    lines = [line for line in lines if line and (comments or not line.startswith("#"))]
    if not lines:
        raise DataError(f"{hea}: an empty WFDB header")
    return lines


def _signal_names(lines: list[str]) -> tuple[str, ...]:
    """What follows the eight fields of each signal line (wfdb's header parser takes longer than reading a record)."""
    return tuple(line.split(maxsplit=8)[8].strip() if len(line.split()) > 8 else "" for line in lines[1:])


# Bits of a sample in the formats of fixed size, and how a signal line writes format, samples per frame and offset.
_BITS = {"80": 8, "16": 16, "61": 16, "160": 16, "24": 24, "32": 32, "212": 12}
_RATE = re.compile(r"[/(]")  # ends the rate: a counter's rate or first value may follow
_FORMAT = re.compile(r"(\d+)(?:x(\d+))?(?::\d+)?(?:\+(\d+))?$")


def _check_rate(hea: Path, lines: list[str]) -> None:
    """wfdb takes 250 Hz, the default of the format, where it does not understand what stands there."""
    rate = [*lines[0].split(), "250", "250", "250"][2]
    try:
        good = 0 < float(_RATE.split(rate)[0]) < math.inf
    except ValueError:
        good = False
    if not good:
        raise DataError(f"{hea}: a rate of {rate!r} Hz cannot be")


def _check_length(hea: Path, lines: list[str]) -> None:
    """A signal file shorter than the header says is an error here, with the position; wfdb's would not tell."""
    fields = lines[0].split()
    if len(fields) < 4 or not fields[3].isdigit():
        return  # the header does not say how many samples there are
    samples, fs = int(fields[3]), float(_RATE.split(fields[2])[0])
    frame: dict[str, tuple[int, int]] = {}  # file -> bits of a frame, bytes in front
    for line in lines[1:]:
        name, kind, *_ = [*line.split(), "", ""]
        match = _FORMAT.match(kind)
        if match is None or match[1] not in _BITS:
            return
        bits, offset = frame.get(name, (0, int(match[3] or 0)))
        frame[name] = (bits + _BITS[match[1]] * int(match[2] or 1), offset)
    for name, (bits, offset) in frame.items():
        size = inside(hea.parent, name).stat().st_size - offset
        if size * 8 < bits * samples:
            last = max(0, size * 8 // bits)
            raise DataError(
                f"{hea.parent / name}: cut short: {hea.name} promises {samples} samples, it ends after {last} "
                f"({last / fs:g} s)"
            )


def _mend_header(hea: Path, lines: list[str], folder: Path) -> Path:
    """Some headers name the record with its extension ("E00015.mat 12 500"), which wfdb rejects: read a mended copy."""
    first, *rest = lines
    name = first.split()[0].split(".")[0]
    comments = [line for line in _header_lines(hea, comments=True) if line.startswith("#")]
    (folder / f"{name}.hea").write_text("\n".join([name + first[len(first.split()[0]) :], *rest, *comments]) + "\n")
    for file in {line.split()[0] for line in rest}:
        (folder / file).symlink_to(inside(hea.parent, file))
    return folder / name
