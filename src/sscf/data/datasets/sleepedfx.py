"""Sleep-EDF Database Expanded: 153 cassette nights of 78 subjects (SC) and 44 telemetry nights of 22 (ST).

`sleep-cassette/SC4ssNE0-PSG.edf` (ss subject, N night) with `SC4ssNEx-Hypnogram.edf`, where x is the scorer;
`sleep-telemetry/ST7ssNJ0-PSG.edf` in the same way. Stages are EDF+ annotations after Rechtschaffen and Kales. Cassettes
ran for a whole day: wake further than 30 min from sleep is dropped and counted.
"""

from __future__ import annotations

from pathlib import Path

from sscf.data.datasets._sleep import (
    MOVEMENT,
    RK,
    UNSCORED,
    edf_hypnogram,
    files_of,
    sleep_recipe,
    sleep_task,
    source_of,
)
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_edf
from sscf.data.recording import Recording, Source

WAKE_MARGIN_S = 30 * 60.0
_CODES = {
    "Sleep stage W": "W",
    "Sleep stage 1": "N1",
    "Sleep stage 2": "N2",
    "Sleep stage 3": "N3",
    "Sleep stage 4": "N4",
    "Sleep stage R": "REM",
    "Movement time": MOVEMENT,
    "Sleep stage ?": UNSCORED,
}
_RECIPE = sleep_recipe(eeg=("EEG Fpz-Cz",), eog=("EOG horizontal",), wake_margin_s=WAKE_MARGIN_S)


def _find(root: Path) -> list[Source]:
    sources = []
    for psg in sorted(root.rglob("S[CT]*-PSG.edf")):
        night = psg.name[:6]
        scorings = sorted(psg.parent.glob(f"{night}*-Hypnogram.edf"))
        sources.append(source_of(root, night, night[:5], psg, *scorings))
    return sources


def _read(root: Path, source: Source) -> list[Recording]:
    psg, scoring = files_of(root, source)
    hypnogram = edf_hypnogram(scoring, _CODES).around_sleep(WAKE_MARGIN_S)
    return hypnogram.label(read_edf(psg, _RECIPE.channels))


DATASET = DataSet(
    name="sleepedfx",
    title="Sleep-EDF Database Expanded",
    task="sleep",
    subjects=100,
    rate="100",
    channels="EEG Fpz-Cz; EOG horizontal",
    labels=RK,
    folders=("sleep-edfx", "sleep-edf-database-expanded-1.0.0", "sleepedfx"),
    recipe=_RECIPE,
    find=_find,
    read=_read,
    tasks=sleep_task(RK),
    citation="Kemp et al., Analysis of a sleep-dependent neuronal feedback loop: the slow-wave microcontinuity of the "
    "EEG, IEEE Trans Biomed Eng 47(9):1185-1194, 2000; Goldberger et al., PhysioBank, PhysioToolkit, and PhysioNet, "
    "Circulation 101(23):e215-e220, 2000",
    licence="PhysioNet open access, as published by its authors",
    access="https://physionet.org/content/sleep-edfx/1.0.0/",
)
