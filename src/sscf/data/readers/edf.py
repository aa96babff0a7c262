"""EDF and EDF+ by edfio: only the wanted channels, each at its own rate, gaps kept."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sscf.data.readers.common import Annotation, Signals, check_signal, choose_channels, unit_factor
from sscf.data.recording import Channel
from sscf.errors import DataError, require


def read_edf(path: str | Path, channels: Sequence[Channel], unit: str = "uV") -> Signals:
    """Wanted channels of an EDF or EDF+ file, each at its own rate, nothing else; gaps (EDF+D) give pieces."""
    edf = _open_edf(path)
    labels = tuple(signal.label for signal in edf.signals)
    chosen = choose_channels(labels, channels, path)
    read: dict[int, NDArray[np.float32]] = {}
    for i in {index for pair in chosen for index in pair if index is not None}:
        read[i] = _edf_physical(edf.signals[i], unit, path)
    signals, rates = [], []
    for channel, (plus, minus) in zip(channels, chosen, strict=True):
        signal, rate = read[plus], float(edf.signals[plus].sampling_frequency)
        if minus is not None:
            if edf.signals[minus].sampling_frequency != rate:
                raise DataError(
                    f"{path}: {labels[plus]!r} ({rate:g} Hz) minus {labels[minus]!r} "
                    f"({edf.signals[minus].sampling_frequency:g} Hz): a derivation needs one rate"
                )
            signal = signal - read[minus]
        check_signal(signal, channel.name, path, rate)
        signals.append(signal)
        rates.append(rate)
    names = tuple(channel.name for channel in channels)
    return Signals(signals, tuple(rates), names, unit, labels, _edf_pieces(edf, path), {})


# A time-stamped list: onset, duration if any, texts; and the one that begins each data record and only keeps the time.
_TAL = re.compile(rb"([+-]\d+(?:\.\d*)?)(?:\x15(\d+(?:\.\d*)?))?\x14([^\x00\x14][^\x00]*)\x14\x00")
_ONSET = re.compile(rb"([+-]\d+(?:\.\d*)?)\x14")


def edf_annotations(path: str | Path) -> list[Annotation]:
    """The annotations of an EDF+ file in order of onset, seconds from its start; time keeping is left out.

    All records are searched at once: a night has one record per second and a few hundred annotations.
    """
    out: list[Annotation] = []
    start = None
    for keeper in (signal for signal in _open_edf(path)._signals if signal.label == "EDF Annotations"):
        data = keeper.digital.tobytes()
        first = _ONSET.match(data)
        if start is None:
            if first is None:
                raise DataError(f"{path}: annotations cannot be read: they begin with {data[:40]!r}")
            start = float(first[1])  # the file may begin within a second
        for onset, duration, texts in _TAL.findall(data):
            for text in filter(None, texts.split(b"\x14")):
                try:
                    name = text.decode()
                except UnicodeDecodeError as error:
                    raise DataError(f"{path}: annotation at {onset.decode()} s: {error}") from error
                out.append(Annotation(float(onset) - start, float(duration) if duration else None, name))
    return sorted(out, key=lambda a: a.onset)


def edf_labels(path: str | Path) -> tuple[str, ...]:
    """The signal labels of an EDF file."""
    return tuple(signal.label for signal in _open_edf(path).signals)


def _open_edf(path: str | Path) -> Any:
    edfio = require("edfio", "data")
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    size = path.stat().st_size
    with open(path, "rb") as stream:
        head = stream.read(256)
    if len(head) < 256 or head[:8] != b"0       ":
        raise DataError(f"{path}: not an EDF file (its first 8 bytes are {head[:8]!r})")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            edf = edfio.read_edf(path, header_encoding="latin-1")
            promised = int(head[236:244])
            record = 2 * sum(signal.samples_per_data_record for signal in edf._signals)
    except Exception as error:
        raise DataError(f"{path}: not a readable EDF file of {size} bytes ({error})") from error
    body = size - edf.bytes_in_header_record
    present = body // record if record else 0
    # -1 is what a recorder writes until it is stopped in order; whole records are then all there is to know.
    if promised == -1 and body == present * record:
        promised = present
    if body != promised * record:
        raise DataError(
            f"{path}: truncated or damaged: the header promises {promised} data records "
            f"({edf.bytes_in_header_record + promised * record} bytes), the file has {size} bytes, "
            f"which end in record {present} ({present * edf.data_record_duration:g} s)"
        )
    return edf


def _edf_physical(signal: Any, unit: str, path: str | Path) -> NDArray[np.float32]:
    """Calibrated float32 samples; edfio's own calibration makes float64 of the whole night."""
    digital, (dmin, dmax), (pmin, pmax) = signal.digital, signal.digital_range, signal.physical_range
    if dmin == dmax or pmin == pmax:
        raise DataError(f"{path}: channel {signal.label!r} has an empty range ({pmin:g}..{pmax:g}, {dmin}..{dmax})")
    factor = unit_factor(signal.physical_dimension, unit, f"{path}: channel {signal.label!r}")
    gain = (pmax - pmin) / (dmax - dmin)
    out = digital.astype(np.float32)
    out *= np.float32(gain * factor)
    out += np.float32((pmin - dmin * gain) * factor)
    return out


def _edf_pieces(edf: Any, path: str | Path) -> tuple[tuple[float, float, float], ...]:
    seconds = float(edf.data_record_duration)
    records = int(edf.num_data_records)
    if not edf.reserved.startswith("EDF+D"):
        return ((0.0, 0.0, records * seconds),)
    keeper = next((s for s in edf._signals if s.label == "EDF Annotations"), None)
    if keeper is None:
        raise DataError(f"{path}: discontinuous (EDF+D) but without the annotations that say when each record begins")
    onsets = np.empty(records)
    for i, record in enumerate(keeper.digital.reshape(records, -1)):
        match = _ONSET.match(record.tobytes())
        if match is None:
            raise DataError(f"{path}: discontinuous (EDF+D) and data record {i} does not say when it begins")
        onsets[i] = float(match[1])
    onsets -= onsets[0]
    steps = np.diff(onsets)
    if (steps < seconds - 1e-3).any():
        i = int(np.argmax(steps < seconds - 1e-3)) + 1
        raise DataError(f"{path}: data record {i} begins at {onsets[i]:g} s, before the one in front of it has ended")
    first = np.concatenate([[0], np.flatnonzero(steps > seconds + 1e-3) + 1])
    stop = np.concatenate([first[1:], [records]])
    return tuple((float(onsets[a]), a * seconds, (b - a) * seconds) for a, b in zip(first, stop, strict=True))
