"""Recordings of any length as windows, read and processed block by block: memory does not grow with the recording.

`SignalFile` reads stretches of the wanted channels of a file; `FileDomain` makes windows of them as `signal.cut` would,
each block with a margin on both sides that is long enough for the filters to have forgotten where it began.
"""

from __future__ import annotations

import csv
import math
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sscf.data.datasets.base import Recipe
from sscf.data.readers import choose_channels, read_wfdb, unit_factor
from sscf.data.readers.edf import _edf_pieces, _open_edf
from sscf.data.readers.tables import read_csv
from sscf.data.readers.wfdb import _check_length, _check_rate, _header_lines, _signal_names
from sscf.data.recording import Channel
from sscf.data.signal import _fraction, bandpass, by_time, resample
from sscf.data.store import Statistics
from sscf.data.writing import _Sums
from sscf.errors import ConfigError, DataError, require

BLOCK_S = 1800.0  # seconds processed at a time
_CSV_ROWS = 100_000  # lines parsed at a time

Read = Callable[[int, int], NDArray[np.float32]]


@dataclass(frozen=True)
class Piece:
    """A continuous stretch: its start in seconds, and for each channel its samples, its rate and how to read them.

    read[c](a, b) gives samples [a, b) of channel c as float32, in the wanted unit.
    """

    start: float
    samples: tuple[int, ...]
    rates: tuple[float, ...]
    read: tuple[Read, ...]


@dataclass(frozen=True)
class SignalFile:
    """The wanted channels of a file, not yet read; `begin` is the moment it began, where the file says so."""

    path: Path
    pieces: tuple[Piece, ...]
    begin: Any = None


def open_signals(
    path: str | Path, recipe: Recipe, *, fs: float | None = None, time: str | None = None, unit: str | None = None
) -> SignalFile:
    """Open an EDF, WFDB (.hea), CSV or NumPy (.npy) file for the channels and the unit of a recipe.

    fs   : Hz of a CSV or NumPy file.
    time : column of a CSV file with seconds, instead of `fs`; samples may be uneven.
    unit : of a CSV or NumPy file; the recipe's when not given. EDF and WFDB say theirs themselves.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    kind = path.suffix.lower()
    if kind in (".edf", ".rec"):
        return _edf(path, recipe.channels, recipe.unit)
    if kind == ".hea":
        return _wfdb(path, recipe.channels, recipe.unit)
    factor = unit_factor(unit or recipe.unit, recipe.unit, path)
    if kind == ".csv" and time is not None:
        return _timed_csv(path, recipe, time, factor)
    if kind not in (".csv", ".npy"):
        raise DataError(f"{path}: not a kind of file we read; there are .edf, .hea (WFDB), .csv and .npy")
    if fs is None or not fs > 0:
        raise ConfigError(f"{path}: a {kind} file does not say its rate: give --fs (Hz), or for a .csv --time COLUMN")
    return (_csv if kind == ".csv" else _npy)(path, recipe.channels, fs, factor)


# --- formats ---------------------------------------------------------------------------------------------------------


def _edf(path: Path, channels: Sequence[Channel], unit: str) -> SignalFile:
    edf = _open_edf(path)
    labels = [signal.label for signal in edf.signals]
    chosen = choose_channels(labels, channels, path)
    header = int(edf.bytes_in_header_record)
    sizes = [signal.samples_per_data_record for signal in edf._signals]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    where = {id(signal): i for i, signal in enumerate(edf._signals)}
    per_record = int(offsets[-1])

    def reader(index: int) -> Read:
        signal = edf.signals[index]
        (dmin, dmax), (pmin, pmax) = signal.digital_range, signal.physical_range
        if dmin == dmax or pmin == pmax:
            raise DataError(f"{path}: channel {signal.label!r} has an empty range ({pmin:g}..{pmax:g}, {dmin}..{dmax})")
        factor = unit_factor(signal.physical_dimension, unit, f"{path}: channel {signal.label!r}")
        gain = (pmax - pmin) / (dmax - dmin)
        first, n = int(offsets[where[id(signal)]]), signal.samples_per_data_record

        def read(a: int, b: int) -> NDArray[np.float32]:
            # Read, not mapped: pages of a mapped file stay with the process, and a night's are a gigabyte.
            low, high = a // n, -(-b // n)
            with open(path, "rb") as stream:
                stream.seek(header + 2 * low * per_record)
                records = np.fromfile(stream, "<i2", (high - low) * per_record).reshape(-1, per_record)
            digital = records[:, first : first + n].reshape(-1)[a - low * n : b - low * n]
            out = digital.astype(np.float32)
            out *= np.float32(gain * factor)
            out += np.float32((pmin - dmin * gain) * factor)
            return out

        return read

    pairs = [(reader(plus), None if minus is None else reader(minus)) for plus, minus in chosen]
    rates = tuple(float(edf.signals[plus].sampling_frequency) for plus, _ in chosen)
    for (plus, minus), rate in zip(chosen, rates, strict=True):
        if minus is not None and float(edf.signals[minus].sampling_frequency) != rate:
            raise DataError(f"{path}: {labels[plus]!r} minus {labels[minus]!r}: a derivation needs one rate")
    pieces = []
    for start, first, seconds in _edf_pieces(edf, path):
        skip = [round(first * rate) for rate in rates]
        reads = tuple(_shifted(_minus(*pair), s) for pair, s in zip(pairs, skip, strict=True))
        pieces.append(Piece(start, tuple(round(seconds * rate) for rate in rates), rates, reads))
    return SignalFile(path, tuple(pieces), _edf_begin(edf))


def _edf_begin(edf: Any) -> Any:
    import datetime

    try:
        return datetime.datetime.combine(edf.startdate, edf.starttime)
    except ValueError:  # an anonymised date ("X")
        return None


def _minus(plus: Read, minus: Read | None) -> Read:
    return plus if minus is None else lambda a, b: plus(a, b) - minus(a, b)


def _shifted(read: Read, by: int) -> Read:
    return lambda a, b: read(a + by, b + by)


def _wfdb(path: Path, channels: Sequence[Channel], unit: str) -> SignalFile:
    lines = _header_lines(path)
    if "." in lines[0].split()[0]:  # wfdb cannot read such a header in stretches
        whole = read_wfdb(path, channels, unit)
        return _arrays(path, [(0.0, list(whole.signals), whole.rates[0])])
    wfdb = require("wfdb", "data")
    record = str(path.with_suffix(""))
    labels = _signal_names(lines)
    chosen = choose_channels(labels, channels, path)
    _check_rate(path, lines)
    _check_length(path, lines)
    try:
        header = wfdb.rdheader(record)
        units = {  # of the channels we need: the others may be in litres or per cent
            i: unit_factor(str(header.units[i]), unit, f"{path}: channel {labels[i]!r}")
            for i in {index for pair in chosen for index in pair if index is not None}
        }
        fs, length = float(header.fs), int(header.sig_len)
    except (ValueError, TypeError, IndexError, OSError) as error:
        raise DataError(f"{path}: not a readable WFDB header ({type(error).__name__}: {error})") from error

    def reader(index: int) -> Read:
        def read(a: int, b: int) -> NDArray[np.float32]:
            try:
                part = wfdb.rdrecord(record, sampfrom=a, sampto=b, channels=[index]).p_signal[:, 0]
            except Exception as error:
                raise DataError(
                    f"{path}: not a readable WFDB record at sample {a} ({type(error).__name__}: {error})"
                ) from error
            return (part * units[index]).astype(np.float32)

        return read

    reads = tuple(_minus(reader(p), None if m is None else reader(m)) for p, m in chosen)
    return SignalFile(path, (Piece(0.0, (length,) * len(reads), (fs,) * len(reads), reads),))


def _npy(path: Path, channels: Sequence[Channel], fs: float, factor: float) -> SignalFile:
    def load() -> NDArray[Any]:
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: not a readable .npy file ({error})") from error
        return values[None] if values.ndim == 1 else values

    values = load()
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        raise DataError(f"{path}: expected numbers (channels, samples), got {values.dtype} {values.shape}")
    if len(values) != len(channels):
        hint = "; turn it over" if values.shape[1] == len(channels) else ""
        names = ", ".join(channel.name for channel in channels)
        raise DataError(f"{path}: {len(values)} channels (rows), the model takes {len(channels)}: {names}{hint}")
    n = values.shape[1]

    def reader(c: int) -> Read:
        # Mapped anew each time, so that what was read does not stay.
        return lambda a, b: (load()[c, a:b] * factor).astype(np.float32)

    reads = tuple(reader(c) for c in range(len(channels)))
    return SignalFile(path, (Piece(0.0, (n,) * len(reads), (fs,) * len(reads), reads),))


def _csv(path: Path, channels: Sequence[Channel], fs: float, factor: float) -> SignalFile:
    """Parsed once, some lines at a time, into a temporary file of numbers."""
    columns = _csv_columns(path, channels)
    spill = tempfile.TemporaryFile(prefix="sscf-csv-")  # noqa: SIM115 - closed with the reader
    n = 0
    try:
        for rows in _csv_chunks(path, columns):
            spill.write((rows * factor).astype(np.float32).data)
            n += len(rows)
        spill.flush()
    except BaseException:
        spill.close()
        raise
    width = len(columns)

    def reader(c: int) -> Read:
        def read(a: int, b: int) -> NDArray[np.float32]:
            spill.seek(4 * width * a)
            return np.fromfile(spill, np.float32, width * (b - a)).reshape(-1, width)[:, c].copy()

        return read

    reads = tuple(reader(c) for c in range(width))
    piece = Piece(0.0, (n,) * width, (fs,) * width, reads)
    weakref.finalize(piece, spill.close)
    return SignalFile(path, (piece,))


def _csv_columns(path: Path, channels: Sequence[Channel]) -> list[int]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            names = [name.strip() for name in next(csv.reader(stream), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a text table ({error})") from error
    chosen = choose_channels(names, channels, path)
    if any(minus is not None for _, minus in chosen):
        raise DataError(f"{path}: derivations (A - B) are for EDF and WFDB; the columns are {', '.join(names)}")
    return [plus for plus, _ in chosen]


def _csv_chunks(path: Path, columns: list[int]) -> Iterator[NDArray[np.float64]]:
    import warnings

    line = 1
    with open(path, encoding="utf-8-sig", newline="") as stream:
        next(stream)
        while True:
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=".*input contained no data.*")
                    rows = np.loadtxt(
                        stream, delimiter=",", usecols=columns, ndmin=2, max_rows=_CSV_ROWS, quotechar='"'
                    )
            except (ValueError, UnicodeDecodeError) as error:
                raise DataError(f"{path}: after line {line}: not a table of numbers ({error})") from error
            if not len(rows):
                return
            yield rows
            line += len(rows)


def _timed_csv(path: Path, recipe: Recipe, time: str, factor: float) -> SignalFile:
    """Uneven samples: the whole file is needed for the spline through them."""
    times, *signals = read_csv(path, [time, *_csv_columns(path, recipe.channels)])
    try:
        pieces = by_time(times - times[0], np.stack(signals) * factor, recipe.fs, max_gap=1.0)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return _arrays(path, [(start, list(values), rate) for start, values, rate in pieces])


def _arrays(path: Path, pieces: Sequence[tuple[float, list[NDArray[np.float32]], float]]) -> SignalFile:
    def reader(signal: NDArray[np.float32]) -> Read:
        return lambda a, b: signal[a:b]

    made = [
        Piece(start, tuple(map(len, signals)), (rate,) * len(signals), tuple(map(reader, signals)))
        for start, signals, rate in pieces
    ]
    return SignalFile(path, tuple(made))


# --- windows ---------------------------------------------------------------------------------------------------------


class FileDomain:
    """The windows of one recording, made when they are read; to the loader it is a domain like any other.

    windows : (N, C, T), its shape alone.    positions : (N,) first sample at `fs`.    starts : (N,) seconds.
    """

    def __init__(self, file: SignalFile, recipe: Recipe) -> None:
        self.file, self.recipe = file, recipe
        self.name, self.fs, self.hop, self.unit = str(file.path), recipe.fs, recipe.hop, recipe.unit
        self.channels = recipe.names
        self._blocks: OrderedDict[tuple[int, int], NDArray[np.float32]] = OrderedDict()
        self._size = [self._block_size(piece) for piece in file.pieces]
        lengths = [self._length(piece) for piece in file.pieces]
        counts = [max(0, (length - recipe.samples) // recipe.hop + 1) for length in lengths]
        if not sum(counts):
            longest = max(lengths, default=0) / recipe.fs
            raise DataError(f"{file.path}: {longest:g} s long, shorter than one window of {recipe.window_s:g} s")
        self._lengths = lengths
        self._piece = np.repeat(np.arange(len(counts)), counts)
        self._first = np.concatenate([np.arange(n) * recipe.hop for n in counts])
        begin = np.array([round(piece.start * recipe.fs) for piece in file.pieces])
        self.positions = begin[self._piece] + self._first
        self.starts = np.array([piece.start for piece in file.pieces])[self._piece] + self._first / recipe.fs
        n = len(self._piece)
        self.recordings = np.zeros(n, np.int32)
        self.subjects = self.recordings
        self.recording_names = self.subject_names = (file.path.stem,)
        self.windows = np.broadcast_to(np.float32(0), (n, len(recipe.channels), recipe.samples))

    def __len__(self) -> int:
        return len(self._piece)

    @cached_property
    def statistics(self) -> Statistics:
        """Of all windows of the recording, by a pass over it."""
        sums = _Sums(1, len(self.channels))
        for start in range(0, len(self), 64):
            rows = np.arange(start, min(start + 64, len(self)))
            sums.add(self.read(rows), self.recordings[rows])
        table = sums.table()
        return Statistics(table[:-1, 0], table[:-1, 1], table[-1, 0], table[-1, 1])

    def read(self, rows: ArrayLike, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The windows (n, C, T) of these rows; quickest when they ascend."""
        index = np.asarray(rows, np.intp)
        if out is None:
            out = np.empty((len(index), *self.windows.shape[1:]), np.float32)
        for place, row in zip(out, index, strict=True):
            self._window(int(self._piece[row]), int(self._first[row]), place)
        return out

    def _window(self, piece: int, start: int, out: NDArray[np.float32]) -> None:
        size, done = self._size[piece], 0
        while done < out.shape[1]:
            number, offset = divmod(start + done, size)
            part = self._block(piece, number)[:, offset : offset + out.shape[1] - done]
            out[:, done : done + part.shape[1]] = part
            done += part.shape[1]

    def _block(self, piece: int, number: int) -> NDArray[np.float32]:
        """Samples [number * size, (number + 1) * size) of a piece at the store's rate; the last two blocks are kept."""
        key = (piece, number)
        if key not in self._blocks:
            while len(self._blocks) >= 2:
                self._blocks.popitem(last=False)
            self._blocks[key] = self._process(piece, number)
        return self._blocks[key]

    def _process(self, number_of_piece: int, number: int) -> NDArray[np.float32]:
        piece, size = self.file.pieces[number_of_piece], self._size[number_of_piece]
        stop = min((number + 1) * size, self._lengths[number_of_piece])
        out = np.empty((len(self.channels), stop - number * size), np.float32)
        for c, rate in enumerate(piece.rates):
            unit = _coinciding(rate, self.fs)
            # Blocks begin where a sample of the file and one of the store coincide; so must the margin.
            margin = unit[0] * -(-round(self._margin_s(rate) * self.fs) // unit[0])
            begin = max(0, number * size - margin)
            a = begin // unit[0] * unit[1]
            b = min(piece.samples[c], math.ceil((stop + margin) * rate / self.fs))
            signal = piece.read[c](a, b)
            if not np.isfinite(np.sum(signal, dtype=np.float64)):
                bad = a + int(np.argmin(np.isfinite(signal)))
                at = f"sample {bad} ({piece.start + bad / rate:g} s)"
                raise DataError(f"{self.name}: channel {self.channels[c]!r} has a value that is not a number at {at}")
            x = resample(signal, rate, self.fs)
            x = bandpass(x, self.fs, self.recipe.band) if self.recipe.band else x
            out[c] = x[number * size - begin : stop - begin]
        return out

    def _margin_s(self, rate: float) -> float:
        """Seconds after which resampling and band-pass have forgotten the edge, to float32 precision."""
        low, high = self.recipe.band or (None, None)
        ringing = 20 / low if low else (20 / high if high else 0.0)
        return ringing + 200 / min(rate, self.fs)

    def _block_size(self, piece: Piece) -> int:
        """Samples of a block at the store's rate: about `BLOCK_S`, in all channels a whole number of their samples."""
        unit = math.lcm(*(_coinciding(rate, self.fs)[0] for rate in piece.rates))
        return unit * max(1, round(BLOCK_S * self.fs / unit))

    def _length(self, piece: Piece) -> int:
        """Samples of the piece at the store's rate."""
        pairs = zip(piece.samples, piece.rates, strict=True)
        return min(n * up // down for n, (up, down) in ((n, _coinciding(rate, self.fs)) for n, rate in pairs))


def _coinciding(rate: float, to: float) -> tuple[int, int]:
    """(up, down): `up` samples at rate `to` last as long as `down` at `rate`, the smallest such numbers."""
    ratio = (_fraction(to) / _fraction(rate)).limit_denominator(20_000)
    return ratio.numerator, ratio.denominator
