"""Use a model on recordings: class, stratum and comparability of every window, streamed."""

from __future__ import annotations

import csv
import datetime
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sscf.data.datasets.base import Recipe
from sscf.data.recording import Channel
from sscf.data.stream import FileDomain, open_signals
from sscf.errors import ConfigError, require
from sscf.files import write_bytes, write_text
from sscf.model import Judged, Model

SLEEP_STAGES = {"W": "W", "N1": "N1", "N2": "N2", "N3": "N3", "REM": "R"}  # class -> its name in EDF+
FROM_WAKE_TO_DEEP = ("W", "REM", "N1", "N2", "N3")


@dataclass(frozen=True)
class Prediction:
    """What a model says of one recording.

    starts : (n,) float64, seconds from its beginning.
    labels : (n,) int64, index into `classes`; -1 where the model abstains.
    judged : probabilities, strata, p-values.
    begin  : the moment it began, where the file says so.
    """

    path: Path
    classes: tuple[str, ...]
    starts: np.ndarray
    labels: np.ndarray
    judged: Judged
    window_s: float
    hop_s: float
    begin: datetime.datetime | None = None

    @property
    def abstained(self) -> int:
        return int((self.labels < 0).sum())


@dataclass(frozen=True)
class Reading:
    """How files are to be read: rate, time column and unit of files that do not say theirs, spellings of channels."""

    fs: float | None = None
    time: str | None = None
    unit: str | None = None
    spellings: Mapping[str, str] | None = None

    def open(self, path: str | os.PathLike[str], recipe: Recipe) -> FileDomain:
        """The windows of a file under a recipe."""
        if self.fs is not None and not 0 < self.fs < math.inf:
            raise ConfigError(f"the rate must be a positive number of Hz, got {self.fs:g}")
        recipe = respell(recipe, self.spellings or {})
        return FileDomain(open_signals(Path(path), recipe, fs=self.fs, time=self.time, unit=self.unit), recipe)


def respell(recipe: Recipe, spellings: Mapping[str, str]) -> Recipe:
    """The recipe with the user's own spellings of some channels, which come before all others."""
    if unknown := sorted(set(spellings) - set(recipe.names)):
        raise ConfigError(f"the model has no channel '{unknown[0]}'; its channels are {', '.join(recipe.names)}")
    channels = tuple(Channel(c.name, (spellings[c.name],)) if c.name in spellings else c for c in recipe.channels)
    return replace(recipe, channels=channels)


def predict_file(
    model: Model,
    path: str | os.PathLike[str],
    reading: Reading = Reading(),  # noqa: B008 - frozen
    *,
    abstain: float | None = None,
    batch_size: int | None = None,
) -> Prediction:
    """Predict a recording.

    abstain : windows with a comparability of at most this get no label.
    batch_size : windows at a time; the result does not depend on it.
    """
    if abstain is not None:
        if not 0 <= abstain < 1:
            raise ConfigError(f"abstain must lie in [0, 1), got {abstain:g}")
        if model.reference is None:
            raise ConfigError("this model knows no comparability: nothing was held out when it was trained")
    domain = reading.open(path, model.recipe)
    judged = model.judge(domain, batch_size=batch_size)
    labels = judged.probabilities.argmax(axis=1)
    if abstain is not None:
        labels = np.where(judged.pvalues <= abstain, -1, labels)
    recipe = model.recipe
    return Prediction(
        Path(path), model.classes, domain.starts, labels, judged, recipe.window_s, recipe.hop_s, domain.file.begin
    )


def output_names(files: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> list[str]:
    """A name for the results of each file in the folder `out`: its own without the suffix.

    Two alike are an error, and so is a recording that its own results would overwrite.
    """
    names = [Path(file).stem for file in files]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two files are called '{twice[0]}': their results would overwrite each other")
    for file, name in zip(files, names, strict=True):
        if (Path(out) / f"{name}.csv").resolve() == Path(file).resolve():
            raise ConfigError(f"{file}: its predictions would overwrite it: choose another folder with --out")
    return names


def to_csv(prediction: Prediction) -> str:
    """A line per window: start in seconds, class (empty: abstained), probabilities, stratum, comparability."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["start_s", "class", *(f"p_{name}" for name in prediction.classes), "stratum", "comparability"])
    j = prediction.judged
    for i, start in enumerate(prediction.starts):
        label, stratum, p = prediction.labels[i], j.strata[i], j.pvalues[i]
        out.writerow(
            [
                f"{start:.3f}",
                prediction.classes[label] if label >= 0 else "",
                *(f"{value:.6f}" for value in j.probabilities[i]),
                stratum if stratum >= 0 else "",
                "" if np.isnan(p) else f"{p:.6f}",
            ]
        )
    return text.getvalue()


def write_csv(prediction: Prediction, path: str | os.PathLike[str]) -> None:
    write_text(path, to_csv(prediction))


def is_hypnogram(prediction: Prediction) -> bool:
    """Whether the classes are sleep stages of consecutive epochs."""
    return set(prediction.classes) == set(SLEEP_STAGES) and prediction.hop_s == prediction.window_s


def write_hypnogram(prediction: Prediction, path: str | os.PathLike[str]) -> None:
    """An EDF+ file of annotations "Sleep stage W", ..., one per epoch; "Sleep stage ?" where the model abstains."""
    edfio = require("edfio", "data")
    if not is_hypnogram(prediction):
        raise ConfigError(
            f"a hypnogram needs the classes {', '.join(SLEEP_STAGES)}, not {', '.join(prediction.classes)}"
        )
    stages = [SLEEP_STAGES[name] for name in prediction.classes]
    annotations = [
        edfio.EdfAnnotation(float(start), prediction.window_s, f"Sleep stage {stages[k] if k >= 0 else '?'}")
        for start, k in zip(prediction.starts, prediction.labels, strict=True)
    ]
    began: dict[str, Any] = {}
    if prediction.begin is not None:
        began = {
            "starttime": prediction.begin.time(),
            "recording": edfio.Recording(startdate=prediction.begin.date()),
        }
    edf = edfio.Edf([], annotations=annotations, **began)
    stream = io.BytesIO()
    edf.write(stream)
    write_bytes(path, stream.getvalue())


def write_picture(prediction: Prediction, path: str | os.PathLike[str]) -> None:
    """A picture (PNG) of classes, probabilities and comparability over time."""
    require("matplotlib", "report")
    from matplotlib.figure import Figure

    names = list(prediction.classes)
    order = [n for n in FROM_WAKE_TO_DEEP if n in names] if set(names) == set(SLEEP_STAGES) else names
    place = np.array([order[::-1].index(name) for name in names])
    hours = prediction.starts[-1] > 7200
    t = prediction.starts / (3600 if hours else 1)
    width = prediction.window_s / (3600 if hours else 1)
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    classes, shares, pvalues = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1.4, 1))
    known = prediction.labels >= 0
    height = np.where(known, place[np.maximum(prediction.labels, 0)], np.nan)
    # A gap in the recording is a gap in the line: a point that is not a number is put there.
    gaps = np.flatnonzero(np.diff(prediction.starts) > 1.5 * prediction.hop_s) + 1
    ends = np.append(t, t[-1] + width), np.append(height, height[-1])
    x, line = (np.insert(values, gaps, np.nan) for values in ends)
    classes.step(x, line, where="post", color="#1f4e79", linewidth=1)
    classes.set_yticks(range(len(order)), order[::-1])
    classes.set_ylim(-0.5, len(order) - 0.5)
    title = prediction.path.name + (
        f"   {prediction.abstained} windows left unlabelled" if prediction.abstained else ""
    )
    classes.set_title(title, loc="left", fontsize=10, parse_math=False)
    colours = ("#e0b04c", "#9ecae1", "#4f93c4", "#1f4e79", "#c4628a", "#7a9e5f", "#8d7bb5", "#777777")
    shares.stackplot(t, prediction.judged.probabilities.T, labels=names, colors=colours)
    shares.set_ylim(0, 1)
    shares.set_ylabel("probability")
    shares.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
    p = prediction.judged.pvalues
    if np.isfinite(p).any():
        pvalues.semilogy(t, p, ".", markersize=2, color="#555555")
        pvalues.axhline(0.01, color="#b5403a", linewidth=0.8)
        pvalues.set_ylim(top=1.2)
    pvalues.set_ylabel("comparability")
    pvalues.set_xlabel("hours" if hours else "seconds")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    write_bytes(path, stream.getvalue())
