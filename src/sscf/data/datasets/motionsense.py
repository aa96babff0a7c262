"""MotionSense: an iPhone 6s in the front trouser pocket, 24 subjects, 15 trials of six activities, 50 Hz.

Two official variants hold the same trials: `A_DeviceMotion_data` (Apple's estimate of gravity and of the user's own
acceleration, whose sum is the total) and `B_Accelerometer_data` (the raw sensor). A is taken where both are found.

Sign: Apple reports the opposite of what the sensor feels, so a phone at rest reads the direction of gravity (face up
on a table: z = -1 g), and its acceleration is reversed with it; Android, UCIHAR and USC-HAD read the reaction of the
table (z = +1 g). The signals are negated here, so that the four sets mean the same. No rotation of the phone could do
that: a reversal of all three axes is a mirror image.
"""

from __future__ import annotations

import re
from pathlib import Path

from sscf.data.datasets._har import RECIPE, tasks
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_csv
from sscf.data.recording import Recording, Source, Whole
from sscf.errors import DataError

_TRIAL = re.compile(r"(dws|ups|wlk|jog|sit|std)_(\d+)/sub_(\d+)\.csv")
_VARIANTS = ("A_DeviceMotion_data", "B_Accelerometer_data")


def find(root: Path) -> list[Source]:
    for variant in _VARIANTS:
        files = [*root.glob("*_*/sub_*.csv")] if root.name == variant else [*root.rglob(f"{variant}/*_*/sub_*.csv")]
        trials = []
        for path in files:
            match = _TRIAL.fullmatch("/".join(path.parts[-2:]))
            if match is None:
                raise DataError(f"{path}: not a trial of MotionSense; expected a name such as wlk_7/sub_1.csv")
            activity, trial, subject = match[1], int(match[2]), int(match[3])
            trials.append((subject, trial, activity, path.relative_to(root).as_posix()))
        if trials:
            return [Source(f"sub_{s}-{activity}_{t}", f"{s}", (file,)) for s, t, activity, file in sorted(trials)]
    raise DataError(f"{root}: neither {' nor '.join(_VARIANTS)} with trials such as wlk_7/sub_1.csv")


def read(root: Path, source: Source) -> Recording:
    file = source.files[0]
    if _VARIANTS[1] in (root / file).parts:
        total = read_csv(root / file, ("x", "y", "z"))
    else:
        both = read_csv(root / file, [f"{part}.{axis}" for part in ("gravity", "userAcceleration") for axis in "xyz"])
        total = both[:3] + both[3:]
    activity = file.split("/")[-2].split("_")[0]
    return Recording(-total, 50.0, RECIPE.names, "g", Whole(activity))


DATASET = DataSet(
    name="motionsense",
    title="MotionSense",
    task="har",
    subjects=24,
    rate="50",
    channels="accelerometer, trouser pocket",
    labels=("wlk", "ups", "dws", "jog", "sit", "std"),
    folders=("motionsense", "motion-sense", "motion-sense-master", *_VARIANTS),
    recipe=RECIPE,
    exclude={"sub_1-sit_13": "published twice, sit_13/sub_1.csv is a copy of sit_5/sub_1.csv"},
    find=find,
    read=read,
    citation="M. Malekzadeh, R. G. Clegg, A. Cavallaro, H. Haddadi: Mobile Sensor Data Anonymization. IoTDI 2019.",
    licence="as published by its authors; research use",
    access="open: https://github.com/mmalekzadeh/motion-sense",
    tasks=tasks(
        walking=("wlk",), upstairs=("ups",), downstairs=("dws",), jogging=("jog",), sitting=("sit",), standing=("std",)
    ),
)
