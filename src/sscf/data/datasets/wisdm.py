"""WISDM (2019): a phone in the trouser pocket, 51 subjects, 18 activities of three minutes, nominally 20 Hz, in m/s^2.

The rate is that of the time stamps, not the nominal one: it is 19.9 Hz for most phones, but 25 and 50 Hz occur. Each run of
one activity is brought to a regular grid by a cubic spline through the samples at their own times, at 50 Hz or, for a
faster phone, at the multiple of 50 Hz above its rate, from which the engine comes down with its anti-alias filter.

The clock jumps between activities, also backwards, so runs are laid out one after the other and never joined. Within a run
a step of more than 0.2 s (three samples lost at 20 Hz: a heel strike may lie in there) splits it. Time that goes back
within a run, or stands still with another value, is an error; a line written twice counts once.

Up and down the stairs are one activity here, so WISDM takes no part in `har6`.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sscf.data.datasets._har import RECIPE, tasks
from sscf.data.datasets.base import DataSet
from sscf.data.recording import Recording, Source, Whole
from sscf.errors import DataError

# activity_key.txt; there is no N.
ACTIVITIES = {
    **{"A": "walking", "B": "jogging", "C": "stairs", "D": "sitting", "E": "standing", "F": "typing", "G": "teeth"},
    **{"H": "soup", "I": "chips", "J": "pasta", "K": "drinking", "L": "sandwich", "M": "kicking", "O": "catch"},
    **{"P": "dribbling", "Q": "writing", "R": "clapping", "S": "folding"},
}
GAP_S = 0.2

_ROW = np.dtype([("subject", "i4"), ("code", "U4"), ("time", "i8"), ("x", "f8"), ("y", "f8"), ("z", "f8")])
_FILE = re.compile(r"data_(\d+)_accel_phone\.txt")


def find(root: Path) -> list[Source]:
    files = sorted(root.glob("raw/phone/accel/data_*_accel_phone.txt"))
    subjects = [match[1] for path in files if (match := _FILE.fullmatch(path.name))]
    return [
        Source(subject, subject, (path.relative_to(root).as_posix(),))
        for subject, path in zip(subjects, files, strict=True)
    ]


def read(root: Path, source: Source) -> list[Recording]:
    path = root / source.files[0]
    rows = _rows(path, int(source.subject))
    new_run = np.flatnonzero(rows["code"][1:] != rows["code"][:-1]) + 1
    pieces, start = [], 0.0
    for first, last in zip([0, *new_run], [*new_run, len(rows)], strict=True):
        run = rows[first:last]
        code = str(run["code"][0])
        if code not in ACTIVITIES:
            raise DataError(f"{path}: line {first + 1}: activity {code!r}; known are {', '.join(ACTIVITIES)}")
        seconds = (run["time"] - run["time"][0]) / 1e9
        if (np.diff(seconds) <= 0).any():
            line = first + int(np.argmax(np.diff(seconds) <= 0)) + 2
            raise DataError(f"{path}: line {line}: time does not go forward within activity {code}")
        acceleration = np.stack([run[axis] for axis in "xyz"]) / 9.80665
        gaps = np.flatnonzero(np.diff(seconds) > GAP_S) + 1
        for a, b in zip([0, *gaps], [*gaps, len(run)], strict=True):
            if b - a > 3:  # a cubic needs four points
                signals, fs = regular(seconds[a:b], acceleration[:, a:b])
                at = start + float(seconds[a])
                pieces.append(Recording(signals, fs, RECIPE.names, "g", Whole(ACTIVITIES[code]), at))
        start += float(seconds[-1]) + 10.0  # whatever lies between two activities is not known: clearly apart
    return pieces


def regular(seconds: NDArray[np.float64], signals: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Signals (C, n) at uneven times (n,) on a regular grid from the first time on, and its rate: 50 Hz or a multiple."""
    from scipy.interpolate import make_interp_spline

    rate = (len(seconds) - 1) / (seconds[-1] - seconds[0])
    fs = RECIPE.fs * max(1.0, np.ceil(rate / RECIPE.fs - 0.05))
    count = int((seconds[-1] - seconds[0]) * fs + 1e-6) + 1
    grid = seconds[0] + np.arange(count) / fs
    return make_interp_spline(seconds, signals, k=3, axis=1)(grid), float(fs)


def _rows(path: Path, subject: int) -> NDArray[np.void]:
    """The lines `subject,code,nanoseconds,x,y,z;` of a file without those written twice in a row."""
    try:
        text = path.read_text(encoding="ascii").replace(";", "")
        rows = np.loadtxt(io.StringIO(text), delimiter=",", dtype=_ROW, ndmin=1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not lines of 'subject,activity,time,x,y,z;' ({error})") from error
    if not len(rows):
        raise DataError(f"{path}: no lines")
    if (rows["subject"] != subject).any():
        line = int(np.argmax(rows["subject"] != subject))
        raise DataError(f"{path}: line {line + 1}: subject {rows['subject'][line]} in the file of subject {subject}")
    twice = rows[1:] == rows[:-1]
    return rows[np.concatenate([[True], ~twice])] if twice.any() else rows


DATASET = DataSet(
    name="wisdm",
    title="WISDM Smartphone and Smartwatch Activity and Biometrics",
    task="har",
    subjects=51,
    rate="20 (20 to 50)",
    channels="phone accelerometer, trouser pocket",
    labels=tuple(ACTIVITIES.values()),
    folders=("wisdm-dataset", "wisdm"),
    marker="raw/phone/accel/data_*_accel_phone.txt",
    recipe=RECIPE,
    find=find,
    read=read,
    citation="G. M. Weiss, K. Yoneda, T. Hayajneh: Smartphone and Smartwatch-Based Biometrics Using Activities of Daily "
    "Living. IEEE Access 7, 2019.",
    licence="as published by its authors; research use",
    access="open: UCI Machine Learning Repository, 'WISDM Smartphone and Smartwatch Activity and Biometrics Dataset'",
    tasks=tasks(
        walking=("walking",),
        stairs=("stairs",),
        jogging=("jogging",),
        sitting=("sitting",),
        standing=("standing",),
        dropped=tuple(ACTIVITIES.values())[5:],
        har6=False,
    ),
)
