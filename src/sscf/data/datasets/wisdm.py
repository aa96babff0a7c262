"""WISDM (2019): a phone in the trouser pocket, 51 subjects, 18 activities of three minutes, nominally 20 Hz, in m/s^2.

The rate is that of the time stamps, not the nominal one: it is 19.9 Hz for most phones, but 25 and 50 Hz occur. Each
run of one activity is brought to a regular grid by a cubic spline through the samples at their own times, at 50 Hz
or, for a faster phone, at the multiple of 50 Hz above its rate, which the engine then brings down to 50 without
aliases.

The clock jumps between activities, also backwards, so runs are laid out one after the other and never joined. Within
a run a step of more than 0.2 s (three samples lost at 20 Hz: a heel strike may lie in there) splits it. Time that
goes back within a run, or stands still with another value, is an error; a line written twice counts once.

Up and down the stairs are one activity here: `har6`, which tells them apart, drops it.
"""

from __future__ import annotations

import io
import math
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sscf.data.datasets._har import RECIPE, tasks
from sscf.data.datasets.base import DataSet
from sscf.data.recording import Recording, Source, Whole
from sscf.data.signal import by_time
from sscf.errors import DataError

# activity_key.txt; there is no N.
_NAMES = (
    *("walking", "jogging", "stairs", "sitting", "standing", "typing", "teeth", "soup", "chips", "pasta"),
    *("drinking", "sandwich", "kicking", "catch", "dribbling", "writing", "clapping", "folding"),
)
ACTIVITIES = dict(zip("ABCDEFGHIJKLMOPQRS", _NAMES, strict=True))
GAP_S = 0.2

_ROW = np.dtype([("subject", "i4"), ("code", "U4"), ("time", "i8"), ("x", "f8"), ("y", "f8"), ("z", "f8")])
_FILE = re.compile(r"data_(\d+)_accel_phone\.txt")


def find(root: Path) -> list[Source]:
    files = sorted(root.glob("raw/phone/accel/data_*_accel_phone.txt"))
    return [
        Source(match[1], match[1], (path.relative_to(root).as_posix(),))
        for path in files
        if (match := _FILE.fullmatch(path.name))
    ]


def read(root: Path, source: Source) -> list[Recording]:
    path = root / source.files[0]
    rows = _rows(path, int(source.subject))
    new_run = np.flatnonzero(rows["code"][1:] != rows["code"][:-1]) + 1
    pieces, start = [], 0.0
    for first, last in pairwise([0, *new_run.tolist(), len(rows)]):
        run = rows[first:last]
        code = str(run["code"][0])
        if code not in ACTIVITIES:
            raise DataError(f"{path}: line {first + 1}: activity {code!r}; known are {', '.join(ACTIVITIES)}")
        seconds = (run["time"] - run["time"][0]) / 1e9
        acceleration = np.stack([run[axis] for axis in "xyz"])
        try:
            regular = by_time(seconds, acceleration, RECIPE.fs, max_gap=GAP_S)
        except DataError as error:
            raise DataError(f"{path}: activity {code} from line {first + 1} on: {error}") from error
        for at, signals, fs in regular:
            pieces.append(Recording(signals, fs, RECIPE.names, "m/s^2", Whole(ACTIVITIES[code]), start + at))
        start += math.ceil(seconds[-1]) + 10.0  # what lies between two activities is not known: clearly apart
    return pieces


def _rows(path: Path, subject: int) -> NDArray[np.void]:
    """The lines `subject,code,nanoseconds,x,y,z;` of a file without those written twice in a row."""
    try:
        text = path.read_text(encoding="ascii").rstrip()
        if text and not text.endswith(";"):
            raise DataError(f"{path}: cut short: line {len(text.splitlines())} does not end in ';'")
        rows = np.loadtxt(io.StringIO(text.replace(";", "")), delimiter=",", dtype=_ROW, ndmin=1)
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
    labels=_NAMES,
    folders=("wisdm-dataset", "wisdm"),
    marker="raw/phone/accel/data_*_accel_phone.txt",
    recipe=RECIPE,
    find=find,
    read=read,
    citation="G. M. Weiss, K. Yoneda, T. Hayajneh: Smartphone and Smartwatch-Based Biometrics Using Activities of "
    "Daily Living. IEEE Access 7, 2019.",
    licence="as published by its authors; research use",
    access="open: UCI Machine Learning Repository, 'WISDM Smartphone and Smartwatch Activity and Biometrics Dataset'",
    tasks=tasks(
        walking=("walking",),
        stairs=("stairs",),
        jogging=("jogging",),
        sitting=("sitting",),
        standing=("standing",),
        dropped=_NAMES[5:],
    ),
)
