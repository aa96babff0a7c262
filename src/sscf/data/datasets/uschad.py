"""USC-HAD: a MotionNode on the front right hip, 14 subjects, 12 activities, 5 trials each, 100 Hz.

The activity is the number in the file name (`a3t2.mat`: activity 3, trial 2). The strings inside are spelt in many
ways, and in `Subject14/a3t2.mat` both string and number are those of another activity.

Walking left and right are walking in a circle on the level: they are `walking` like walking forward. Standing in an
elevator is neither still nor walking and is dropped, as are jumping and sleeping.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from sscf.data.datasets._har import RECIPE, tasks
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_mat
from sscf.data.recording import Recording, Source, Whole
from sscf.errors import DataError

_LABELS = (
    *("Walking Forward", "Walking Left", "Walking Right", "Walking Upstairs", "Walking Downstairs", "Running Forward"),
    *("Jumping Up", "Sitting", "Standing", "Sleeping", "Elevator Up", "Elevator Down"),
)
_TRIAL = re.compile(r"Subject(\d+)/a(\d+)t(\d+)\.mat")


def find(root: Path) -> list[Source]:
    trials = []
    for path in root.glob("Subject*/a*t*.mat"):
        file = path.relative_to(root).as_posix()
        match = _TRIAL.fullmatch(file)
        if match is None or not 1 <= int(match[2]) <= len(_LABELS):
            raise DataError(f"{path}: not a trial of USC-HAD; expected a name such as Subject1/a3t2.mat, a1 to a12")
        trials.append((int(match[1]), int(match[2]), int(match[3]), file))
    return [Source(f"Subject{s}-a{a}t{t}", f"{s}", (file,)) for s, a, t, file in sorted(trials)]


def read(root: Path, source: Source) -> Recording:
    path = root / source.files[0]
    readings = read_mat(path, ["sensor_readings"])["sensor_readings"]
    if readings.ndim != 2 or readings.shape[1] != 6:
        raise DataError(f"{path}: sensor_readings is {readings.shape}, expected 6 columns (acc x, y, z, gyro x, y, z)")
    match = _TRIAL.fullmatch(source.files[0])
    assert match is not None  # find made the name
    signals = np.ascontiguousarray(readings[:, :3].T, np.float64)
    return Recording(signals, 100.0, RECIPE.names, "g", Whole(_LABELS[int(match[2]) - 1]))


DATASET = DataSet(
    name="uschad",
    title="USC-HAD",
    task="har",
    subjects=14,
    rate="100",
    channels="accelerometer, front right hip",
    labels=_LABELS,
    folders=("USC-HAD", "uschad"),
    marker="Subject*/a*t*.mat",
    recipe=RECIPE,
    find=find,
    read=read,
    citation="M. Zhang, A. A. Sawchuk: USC-HAD: A Daily Activity Dataset for Ubiquitous Activity Recognition Using "
    "Wearable Sensors. UbiComp 2012 Workshop on Situation, Activity and Goal Awareness.",
    licence="as published by its authors; research use",
    access="open: USC Signal and Image Processing Institute, 'USC-HAD'",
    tasks=tasks(
        walking=_LABELS[:3],
        upstairs=("Walking Upstairs",),
        downstairs=("Walking Downstairs",),
        jogging=("Running Forward",),
        sitting=("Sitting",),
        standing=("Standing",),
        dropped=("Jumping Up", "Sleeping", "Elevator Up", "Elevator Down"),
    ),
)
