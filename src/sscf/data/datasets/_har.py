"""What the accelerometer data sets share: their recipe and the classes of the HAR tasks."""

from __future__ import annotations

from sscf.data.datasets.base import Recipe
from sscf.data.recording import Channel

CHANNELS = (Channel("acc_x"), Channel("acc_y"), Channel("acc_z"))

# 128 samples at 50 Hz with half overlap, as UCIHAR hands them out; gravity stays in, no filter. The values are specific
# force in g, as Android, UCIHAR and USC-HAD have it: a sensor at rest reads +1 g along the axis that points up.
RECIPE = Recipe(window_s=2.56, hop_s=1.28, fs=50, channels=CHANNELS, unit="g")


def tasks(
    walking: tuple[str, ...],
    upstairs: tuple[str, ...] = (),
    downstairs: tuple[str, ...] = (),
    stairs: tuple[str, ...] = (),
    jogging: tuple[str, ...] = (),
    sitting: tuple[str, ...] = (),
    standing: tuple[str, ...] = (),
    dropped: tuple[str, ...] = (),
) -> dict[str, dict[str, str | None]]:
    """The maps own label -> class of `har`, `har3` and `har6`; a set takes part with the classes it has.

    `stairs` are own labels that do not say which way, which `har6` drops. Every own label is named once, if only as
    dropped.
    """
    both = (*upstairs, *downstairs, *stairs)
    unused = dict.fromkeys((*jogging, *dropped))
    return {
        "har": {**_each(walking=walking, stairs=both, sitting=sitting, standing=standing), **unused},
        "har3": {**_each(walking=walking, stairs=both, still=(*sitting, *standing)), **unused},
        "har6": {
            **_each(walking=walking, upstairs=upstairs, downstairs=downstairs, jogging=jogging),
            **_each(sitting=sitting, standing=standing),
            **dict.fromkeys((*stairs, *dropped)),
        },
    }


def _each(**classes: tuple[str, ...]) -> dict[str, str | None]:
    return {label: name for name, labels in classes.items() for label in labels}
