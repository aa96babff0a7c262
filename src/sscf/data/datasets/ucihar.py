"""UCIHAR: a smartphone at the waist, 30 subjects, six activities, handed out as windows of 128 samples at 50 Hz.

The windows come through unchanged (`total_acc`, in g, gravity included); train and test are put together, one
recording per subject. Positions are found from the samples that neighbouring windows share: a window that repeats the
second half of the one before it starts 64 samples later; any other starts after its end (how long after is unknown).

`har6` lacks jogging here: UCIHAR has five of its six classes.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sscf.data.datasets._har import RECIPE, tasks
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_csv
from sscf.data.recording import Source, Windows
from sscf.errors import DataError

_LABELS = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")


def _files(part: str) -> tuple[str, ...]:
    signals = (f"{part}/Inertial Signals/total_acc_{axis}_{part}.txt" for axis in "xyz")
    return (f"{part}/y_{part}.txt", f"{part}/subject_{part}.txt", *signals)


def find(root: Path) -> list[Source]:
    found = []
    for part in ("train", "test"):
        subjects = _whole(root / f"{part}/subject_{part}.txt")
        found += [(int(subject), part) for subject in np.unique(subjects)]
    return [Source(f"{part}-{subject}", f"{subject}", _files(part)) for subject, part in sorted(found)]


def read(root: Path, source: Source) -> Windows:
    # One process reads a part once, not once per subject; the times tell a changed file from the one read before.
    paths = tuple(str(root / file) for file in source.files)
    windows, activity, subjects = _part(paths, tuple(Path(path).stat().st_mtime_ns for path in paths))
    mine = np.flatnonzero(subjects == int(source.subject))
    return Windows(windows[mine], [_LABELS[i - 1] for i in activity[mine]], positions(windows[mine]))


def positions(windows: NDArray[np.floating]) -> NDArray[np.int64]:
    """First sample of each window (n, C, 128), 64 after the one before where they share samples, else 128."""
    half = windows.shape[2] // 2
    shared = (windows[1:, :, :half] == windows[:-1, :, half:]).all(axis=(1, 2))
    return np.concatenate([[0], np.cumsum(np.where(shared, half, 2 * half))]).astype(np.int64)


@lru_cache(maxsize=2)
def _part(
    paths: tuple[str, ...], _changed: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Windows (n, 3, 128), activities 1..6 and subjects of the train or the test part."""
    activity, subjects = (_whole(path) for path in paths[:2])
    signals = [_signal(path) for path in paths[2:]]
    n = len(activity)
    if not n == len(subjects) == len(signals[0]):
        raise DataError(f"{paths[0]}: {n} labels, but {len(subjects)} subjects and {len(signals[0])} windows")
    for path, signal in zip(paths[2:], signals, strict=True):
        if len(signal) != n:
            raise DataError(f"{path}: {len(signal)} windows, but {n} labels")
    windows = np.stack(signals, axis=1)
    if (unknown := (activity < 1) | (activity > 6)).any():
        line = int(np.argmax(unknown))
        raise DataError(f"{paths[0]}: line {line + 1}: activity {activity[line]}; known are 1 to 6")
    return windows, activity, subjects


def _whole(path: str | Path) -> NDArray[np.int64]:
    """The whole numbers of a file, one in each line."""
    values = read_csv(path, [0], header=False)[0]
    if (wrong := ~np.isfinite(values) | (values % 1 != 0)).any():
        line = int(np.argmax(wrong))
        raise DataError(f"{path}: line {line + 1}: {values[line]:g} is not a whole number")
    return values.astype(np.int64)


def _signal(path: str) -> NDArray[np.float64]:
    try:
        return np.loadtxt(path, usecols=range(128), ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not lines of 128 numbers ({error})") from error


DATASET = DataSet(
    name="ucihar",
    title="Human Activity Recognition Using Smartphones",
    task="har",
    subjects=30,
    rate="50",
    channels="total_acc, waist",
    labels=_LABELS,
    folders=("UCI HAR Dataset", "ucihar", "uci-har"),
    marker="train/subject_train.txt",
    recipe=RECIPE,
    find=find,
    read=read,
    citation="D. Anguita, A. Ghio, L. Oneto, X. Parra, J. L. Reyes-Ortiz: A Public Domain Dataset for Human Activity "
    "Recognition Using Smartphones. ESANN 2013.",
    licence="cite Anguita et al. 2013; as is; no commercial use",
    access="open: UCI Machine Learning Repository, 'Human Activity Recognition Using Smartphones'",
    tasks=tasks(
        walking=("WALKING",),
        upstairs=("WALKING_UPSTAIRS",),
        downstairs=("WALKING_DOWNSTAIRS",),
        sitting=("SITTING",),
        standing=("STANDING",),
        dropped=("LAYING",),
    ),
)
