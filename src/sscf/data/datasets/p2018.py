"""PhysioNet/CinC Challenge 2018 ("You Snooze You Win"), the 994 scored training records; one record per subject.

`training/tr03-0005/` holds `tr03-0005.hea`, `.mat` (WFDB format 16 with a MATLAB header) and `.arousal`: WFDB marks
whose text is a stage ("W", "N1", ...) where a stage begins, "(name" or "name)" where an arousal begins or ends. A
stage lasts until the next; the last until the end of the record. Where `.arousal` is missing, the masks of
`tr03-0005-arousal.mat` (MATLAB 7.3) are read instead.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sscf.data.datasets._sleep import (
    AASM,
    UNSCORED,
    Event,
    Hypnogram,
    files_of,
    sleep_recipe,
    sleep_task,
    source_of,
)
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_mat, read_wfdb, wfdb_annotations
from sscf.data.recording import Recording, Source
from sscf.errors import DataError

_CODES = {"W": "W", "N1": "N1", "N2": "N2", "N3": "N3", "R": "REM", "U": UNSCORED}
_MASKS = {"wake": "W", "nonrem1": "N1", "nonrem2": "N2", "nonrem3": "N3", "rem": "R", "undefined": "U"}
_RECIPE = sleep_recipe(eeg=("C3-M2",), eog=("E1-M2",))


def _find(root: Path) -> list[Source]:
    sources = []
    for hea in sorted(root.rglob("tr*.hea")):
        scorings = (hea.with_suffix(".arousal"), hea.with_name(f"{hea.stem}-arousal.mat"))
        scoring = [path for path in scorings if path.is_file()][:1]
        sources.append(source_of(root, hea.stem, hea.stem, hea, hea.with_suffix(".mat"), *scoring))
    return sources


def _read(root: Path, source: Source) -> list[Recording]:
    hea, _, scoring = files_of(root, source, signals=2)
    signals = read_wfdb(hea, _RECIPE.channels, unit="uV")
    marks = arousal_marks(scoring) if scoring.suffix == ".arousal" else mask_marks(scoring)
    return change_points(scoring, marks, signals.rates[0], len(signals.signals[0])).label(signals)


def arousal_marks(path: Path) -> list[tuple[int, str]]:
    """(sample, stage code) of every stage mark of a `.arousal` file; marks of arousals and breathing are left out."""
    marks = wfdb_annotations(path.with_suffix(""), "arousal")
    pairs = zip(marks.samples, marks.notes, strict=True)
    return [(int(sample), note) for sample, note in pairs if note[:1] != "(" and note[-1:] != ")"]


def mask_marks(path: Path) -> list[tuple[int, str]]:
    """(sample, stage code) of every stage change in the masks of a `-arousal.mat` file."""
    masks = read_mat(path, [f"data/sleep_stages/{name}" for name in _MASKS])
    stages = np.stack([np.ravel(masks[f"data/sleep_stages/{name}"]) for name in _MASKS])
    if (at := np.flatnonzero(stages.sum(axis=0) != 1)).size:
        raise DataError(f"{path}: sample {at[0]} has {stages[:, at[0]].sum():g} sleep stages, expected one")
    stage = stages.argmax(axis=0)
    codes = list(_MASKS.values())
    # The masks count samples from 1, as MATLAB does, with the numbers of the marks: they begin one sample early.
    changes = np.flatnonzero(np.diff(stage)) + 1
    return [(0, codes[stage[0]]), *((int(i) + 1, codes[stage[i]]) for i in changes if i + 1 < len(stage))]


def change_points(path: Path, marks: list[tuple[int, str]], fs: float, samples: int) -> Hypnogram:
    """Stages that last until the next mark; several marks on one sample must agree."""
    events = []
    stops = [*(sample for sample, _ in marks[1:]), samples]
    for i, ((start, code), stop) in enumerate(zip(marks, stops, strict=True)):
        if start == stop and i + 1 < len(marks) and marks[i + 1][1] == code:
            continue
        events.append(Event(start / fs, (stop - start) / fs, code, f"mark at sample {start}"))
    return Hypnogram.of(path, events, _CODES)


DATASET = DataSet(
    name="p2018",
    title="PhysioNet/CinC Challenge 2018",
    task="sleep",
    subjects=994,
    rate="200",
    channels="C3-M2; E1-M2",
    labels=AASM,
    folders=(
        "challenge-2018",
        "you-snooze-you-win-the-physionet-computing-in-cardiology-challenge-2018-1.0.0",
        "p2018",
    ),
    recipe=_RECIPE,
    find=_find,
    read=_read,
    tasks=sleep_task(AASM),
    citation="Ghassemi et al., You Snooze, You Win: the PhysioNet/Computing in Cardiology Challenge 2018, "
    "Computing in Cardiology 45, 2018; Goldberger et al., PhysioBank, PhysioToolkit, and PhysioNet, "
    "Circulation 101(23):e215-e220, 2000",
    licence="PhysioNet open access, as published by its authors",
    access="https://physionet.org/content/challenge-2018/1.0.0/ (training)",
)
