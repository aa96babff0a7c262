"""Your own data: a TOML recipe of a few lines makes a data set that takes part in every experiment.

name = "gym"                            # of the domain
task = "har"                            # for people; any task whose classes the labels name can use it
format = "csv"                          # csv, edf, wfdb, mat or npy
files = "*/session*.csv"                # glob below the raw folder
subject = "^([^/]+)/"                   # regular expression on the path below the raw folder; group 1 is the subject
channels = ["x", "y", "z"]              # or {EEG = ["C4-M1", "C4 - M1"]}: name = [spellings and derivations]
rate = 100                              # Hz of csv, mat and npy files, or time = "column in seconds"
unit = "m/s^2"                          # of the files; edf and wfdb say themselves
store = { fs = 50, window = 2.56, hop = 1.28, unit = "g" }   # band = [0.3, 35] if wanted
[labels]
classes = ["walking", "stairs", "sitting", "standing"]
column = "activity"                     # where labels are, see `Labels`
map = { walk = "walking", up = "stairs", down = "stairs", lie = false }    # false: drop and count
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sscf.data import readers
from sscf.data.datasets.base import DataSet, Recipe
from sscf.data.recording import Channel, Drop, Intervals, PerWindow, Recording, Source, Track, Whole
from sscf.data.signal import by_time
from sscf.data.tasks import explain
from sscf.errors import ConfigError, DataError


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Labels(_Strict):
    """Where labels come from: exactly one of

    pattern     : regular expression on the path; group 1 is the label of the whole recording.
    table       : CSV file below the raw folder with a row per recording: `key` (path or file name) and `column`.
    column      : (csv) column of the data file with a label at every sample.
    file        : file beside each recording, "{stem}" is its name without suffix: CSV with `start`, `stop` (seconds),
                  `label`; or, with `every` = seconds one label per line.
    annotations : true for the EDF+ annotations of the file itself; the extension ("atr") for WFDB notes or symbols.
    """

    classes: tuple[str, ...] = Field(min_length=1)
    map: dict[str, str | Literal[False]] = Field(default_factory=dict)
    pattern: str | None = None
    table: str | None = None
    key: str = "file"
    column: str | None = None
    file: str | None = None
    every: float | None = Field(None, gt=0)
    annotations: bool | str | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Labels:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes: a class is named twice in {', '.join(self.classes)}")
        given = [name for name in ("pattern", "table", "file", "annotations") if getattr(self, name)]
        if self.column and not self.table:
            given.append("column")
        if len(given) != 1:
            raise ValueError(f"one of pattern, table, column, file, annotations is needed, got {given or 'none'}")
        wrong = sorted({to for to in self.map.values() if to} - set(self.classes))
        if wrong:
            raise ValueError(f"map leads to {', '.join(wrong)}; the classes are {', '.join(self.classes)}")
        return self

    @field_validator("pattern")
    @classmethod
    def _group(cls, value: str | None) -> str | None:
        return value if value is None else _one_group(value)


class Store(_Strict):
    """What the windows are: rate in Hz, window and hop in seconds (hop = window when left out), unit, band in Hz."""

    fs: float = Field(gt=0)
    window: float = Field(gt=0)
    hop: float | None = Field(None, gt=0)
    unit: str | None = None
    band: tuple[float, float] | None = None

    @model_validator(mode="after")
    def _samples(self) -> Store:
        for name, seconds in (("window", self.window), ("hop", self.hop)):
            if seconds is not None and round(seconds * self.fs) < 1:
                raise ValueError(f"a {name} of {seconds:g} s has no sample at {self.fs:g} Hz")
        return self


class OwnRecipe(_Strict):
    """A user's recipe, validated. See the module's text for an example."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    task: str = ""
    format: Literal["csv", "edf", "wfdb", "mat", "npy"]
    files: str
    subject: str
    channels: dict[str, tuple[str, ...]] | tuple[str, ...]
    rate: float | None = Field(None, gt=0)
    time: str | None = None
    max_gap: float = Field(1.0, gt=0)
    unit: str = ""
    delimiter: str = Field(",", min_length=1, max_length=1)
    variable: str | None = None
    layout: Literal["time-by-channel", "channel-by-time"] = "time-by-channel"
    columns: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    store: Store
    labels: Labels
    licence: str = "your own"
    citation: str = ""

    @field_validator("subject")
    @classmethod
    def _group(cls, value: str) -> str:
        return _one_group(value)

    @field_validator("files")
    @classmethod
    def _below(cls, value: str) -> str:
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("must be a path below the raw folder")
        return value

    @field_validator("channels")
    @classmethod
    def _some(cls, value: dict[str, tuple[str, ...]] | tuple[str, ...]) -> dict[str, tuple[str, ...]] | tuple[str, ...]:
        if not value:
            raise ValueError("at least one channel is needed")
        if len(set(value)) != len(value):
            raise ValueError("a channel is named twice")
        return value

    @model_validator(mode="after")
    def _fits_format(self) -> OwnRecipe:
        if self.format in ("csv", "mat", "npy") and (self.rate is None) == (self.time is None):
            raise ValueError(f"format {self.format!r} needs either rate (Hz) or, for csv, time (a column in seconds)")
        if self.time and self.format != "csv":
            raise ValueError("time is for format 'csv'")
        if self.format == "mat" and not self.variable:
            raise ValueError("format 'mat' needs variable, the name of the signals in the file")
        if self.labels.column and not self.labels.table and self.format != "csv":
            raise ValueError("labels.column without labels.table is for format 'csv'")
        return self

    @property
    def wanted(self) -> tuple[Channel, ...]:
        if isinstance(self.channels, Mapping):
            return tuple(Channel(name, spellings) for name, spellings in self.channels.items())
        return tuple(Channel(name) for name in self.channels)


def _one_group(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from error
    if groups != 1:
        raise ValueError(f"needs one group in parentheses, has {groups}")
    return pattern


class OwnData(DataSet):
    """A data set declared by a recipe: it lies at the raw folder itself."""

    def locate(self, raw: Path) -> Path | None:
        return Path(raw).resolve() if Path(raw).is_dir() else None

    def root(self, raw: Path) -> Path:
        root = self.locate(raw)
        if root is None:
            raise DataError(f"{raw}: no such folder")
        return root


def load_recipe(path: str | os.PathLike[str]) -> OwnData:
    """The data set a TOML recipe describes; a wrong key or value is a ConfigError that says what is allowed."""
    path = Path(path)
    try:
        own = OwnRecipe.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error})") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, OwnRecipe)}") from error
    store = own.store
    recipe = Recipe(
        window_s=store.window,
        hop_s=store.hop or store.window,
        fs=store.fs,
        channels=own.wanted,
        unit=store.unit or own.unit,
        band=store.band,
        options=own.model_dump(mode="json"),  # anything that changes in the recipe makes a new domain
    )
    return OwnData(
        name=own.name,
        title=own.name,
        task=own.task,
        subjects=0,
        rate=f"{own.rate:g}" if own.rate else "",
        channels="; ".join(recipe.names),
        labels=own.labels.classes,
        folders=(),
        recipe=recipe,
        find=partial(_find, own),
        read=partial(_read, own),
        citation=own.citation,
        licence=own.licence,
        access=f"the recipe looks for {own.files}",
    )


# --- finding and reading -------------------------------------------------------------------------------------------


def _find(own: OwnRecipe, root: Path) -> list[Source]:
    sources = []
    for path in sorted(path for path in root.glob(own.files) if not path.is_dir()):
        relative = path.relative_to(root).as_posix()
        readers.inside(root, relative)  # a link that leads out of the raw folder stops everything
        match = re.search(own.subject, relative)
        if match is None:
            raise DataError(f"{path}: subject = {own.subject!r} does not match {relative!r}")
        if match[1] is None:
            raise DataError(f"{path}: subject = {own.subject!r} finds no subject in {relative!r}")
        files = [relative]
        if own.format == "wfdb":
            files += [p.relative_to(root).as_posix() for p in sorted(path.parent.glob(f"{path.stem}.*")) if p != path]
        if own.labels.file:
            files.append((PurePosixPath(relative).parent / own.labels.file.replace("{stem}", path.stem)).as_posix())
        if own.labels.table:
            files.append(own.labels.table)
        identity = relative.removesuffix(path.suffix)
        sources.append(Source(identity, match[1], tuple(files)))
    return sources


def _read(own: OwnRecipe, root: Path, source: Source) -> list[Recording]:
    path = readers.inside(root, source.files[0])
    unit = own.store.unit or own.unit
    names = tuple(channel.name for channel in own.wanted)
    if own.format in ("edf", "wfdb"):
        read = readers.read_edf if own.format == "edf" else readers.read_wfdb
        signals = read(path, own.wanted, unit)
        return signals.recordings(_track(own, root, source, path, signals.rates[0]))
    if own.time:
        return _timed(own, path, names, _track(own, root, source, path, 0.0))
    assert own.rate is not None
    values = _array(own, path)
    for name, signal in zip(names, values, strict=True):
        readers.check_signal(signal, name, path, own.rate)
    return [Recording(values, own.rate, names, own.unit, _track(own, root, source, path, own.rate))]


def _array(own: OwnRecipe, path: Path) -> NDArray[Any]:
    """(C, T) signals of a csv, mat or npy file."""
    if own.format == "csv":
        wanted = [_spelling(own, channel, path) for channel in own.wanted]
        return readers.read_csv(path, wanted, delimiter=own.delimiter)
    if own.format == "mat":
        values = np.asarray(readers.read_mat(path, [own.variable or ""])[own.variable or ""])
    else:
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: not a readable .npy file ({error})") from error
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        raise DataError(f"{path}: expected numbers in two dimensions, got {values.dtype} {values.shape}")
    values = values if own.layout == "channel-by-time" else values.T
    columns = own.columns or tuple(range(len(own.wanted)))
    if len(columns) != len(own.wanted) or max(columns) >= len(values):
        raise DataError(f"{path}: columns {columns} for {len(own.wanted)} channels; the file has {len(values)}")
    return values[list(columns)]


def _spelling(own: OwnRecipe, channel: Channel, path: Path) -> str:
    """The name by which a csv file has a channel."""
    header = readers.table_columns(path, own.delimiter)
    (index, minus) = readers.choose_channels(header, [channel], path)[0]
    if minus is not None:
        raise DataError(f"{path}: channel {channel.name!r}: derivations are for edf and wfdb")
    return header[index]


def _timed(own: OwnRecipe, path: Path, names: tuple[str, ...], track: Track) -> list[Recording]:
    wanted = [_spelling(own, channel, path) for channel in own.wanted]
    times, *signals = readers.read_csv(path, [own.time or "", *wanted], delimiter=own.delimiter)
    try:
        pieces = by_time(times - times[0], np.stack(signals), own.store.fs, max_gap=own.max_gap)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return [Recording(values, rate, names, own.unit, track, start) for start, values, rate in pieces]


# --- labels --------------------------------------------------------------------------------------------------------


def _translate(own: OwnRecipe, label: str, where: str) -> str | Drop:
    to = own.labels.map.get(label, label if label in own.labels.classes else None)
    if to is None:
        known = ", ".join([*own.labels.map, *own.labels.classes])
        raise DataError(f"{where}: label {label!r} is neither a class nor in labels.map; known are {known}")
    return to or Drop(f"label {label!r}")


def _track(own: OwnRecipe, root: Path, source: Source, path: Path, fs: float) -> Track:
    labels = own.labels
    if labels.pattern:
        match = re.search(labels.pattern, source.files[0])
        if match is None:
            raise DataError(f"{path}: labels.pattern = {labels.pattern!r} does not match {source.files[0]!r}")
        return Whole(_translate(own, match[1], str(path)))
    if labels.table:
        return Whole(_from_table(own, root, source, path))
    if labels.file:
        return _from_file(own, readers.inside(root, source.files[-1]))
    if labels.annotations:
        return _from_annotations(own, path)
    rows = readers.read_table(path, delimiter=own.delimiter)
    if not rows:
        raise DataError(f"{path}: no rows")
    if own.time:
        times = readers.read_csv(path, [own.time], delimiter=own.delimiter)[0].tolist()
    else:
        times = [i / fs for i in range(len(rows))]
    step = (times[-1] - times[0]) / max(1, len(times) - 1)
    return _runs(own, [t - times[0] for t in times] + [times[-1] - times[0] + step], _column(own, rows, path), path)


def _column(own: OwnRecipe, rows: list[dict[str, str]], path: Path) -> list[str]:
    name = own.labels.column or ""
    if rows and name not in rows[0]:
        raise DataError(f"{path}: no column {name!r}; the file has {', '.join(map(repr, rows[0]))}")
    return [row[name] for row in rows]


def _runs(own: OwnRecipe, edges: list[float], values: list[str], path: Path) -> Intervals:
    """Intervals of equal neighbouring labels; label i holds from edge i to edge i + 1."""
    known = {value: _translate(own, value, str(path)) for value in dict.fromkeys(values)}
    first = [i for i in range(len(values)) if i == 0 or values[i] != values[i - 1]]
    starts, stops = [edges[i] for i in first], [edges[i] for i in [*first[1:], len(values)]]
    return Intervals(starts, stops, [known[values[i]] for i in first])


def _from_table(own: OwnRecipe, root: Path, source: Source, path: Path) -> str | Drop:
    table = readers.inside(root, own.labels.table or "")
    rows = readers.read_table(table, delimiter=own.delimiter)
    column, key = own.labels.column or "label", own.labels.key
    for name in (column, key):
        if rows and name not in rows[0]:
            raise DataError(f"{table}: no column {name!r}; the file has {', '.join(map(repr, rows[0]))}")
    names = {source.files[0], source.id, path.name, path.stem}
    found = {row[column] for row in rows if row[key] in names}
    if len(found) != 1:
        raise DataError(f"{table}: {len(found)} labels for {source.files[0]!r} in column {key!r}, expected one")
    return _translate(own, found.pop(), str(table))


def _from_file(own: OwnRecipe, file: Path) -> Track:
    if own.labels.every:
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: not a text file ({error})") from error
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return PerWindow(
            [_translate(own, line, f"{file}: line {i}") for i, line in enumerate(lines, 1)], own.labels.every
        )
    rows = readers.read_table(file, delimiter=own.delimiter)
    try:
        spans = [(float(row["start"]), float(row["stop"]), row["label"]) for row in rows]
    except (KeyError, ValueError) as error:
        raise DataError(f"{file}: needs columns start, stop (seconds) and label ({error})") from error
    try:
        starts, stops, names = zip(*spans, strict=True) if spans else ((), (), ())
        return Intervals(starts, stops, [_translate(own, name, str(file)) for name in names])
    except DataError as error:
        raise DataError(f"{file}: {error}" if str(file) not in str(error) else str(error)) from error


def _from_annotations(own: OwnRecipe, path: Path) -> Track:
    """Annotations that are classes or in the map; one without duration holds until the next such."""
    known = {*own.labels.classes, *own.labels.map}
    if own.format == "edf":
        marks = [(a.onset, a.duration, a.text) for a in readers.edf_annotations(path) if a.text in known]
    elif own.format == "wfdb" and isinstance(own.labels.annotations, str):
        found = readers.wfdb_annotations(path.with_suffix(""), own.labels.annotations)
        fs = found.fs or readers.read_wfdb(path, own.wanted, own.store.unit or "").rates[0]
        texts = [note or symbol for note, symbol in zip(found.notes, found.symbols, strict=True)]
        marks = [(s / fs, None, text) for s, text in zip(found.samples.tolist(), texts, strict=True) if text in known]
    else:
        raise DataError(f"{path}: labels.annotations is true for edf, or an extension such as 'atr' for wfdb")
    if not marks:
        raise DataError(f"{path}: no annotation is a class or in labels.map")
    ends = [start for start, _, _ in marks[1:]] + [float("inf")]
    stops = [end if length is None else start + length for (start, length, _), end in zip(marks, ends, strict=True)]
    return Intervals([m[0] for m in marks], stops, [_translate(own, m[2], str(path)) for m in marks])
