"""Haaglanden Medisch Centrum sleep staging database; one night per subject.

`recordings/SN001.edf` with its stages in `SN001_sleepscoring.edf` (EDF+ annotations) or, where that is missing, in
`SN001_sleepscoring.txt`: Date, Time, Recording onset, Duration, Annotation, Linked channel. "Lights off" and
"Lights on" are marks, not stages.
"""

from __future__ import annotations

from pathlib import Path

from sscf.data.datasets._sleep import (
    AASM,
    UNSCORED,
    Event,
    Hypnogram,
    edf_hypnogram,
    files_of,
    is_stage,
    sleep_recipe,
    sleep_task,
    source_of,
)
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_edf
from sscf.data.recording import Recording, Source
from sscf.errors import DataError

_CODES = {
    "Sleep stage W": "W",
    "Sleep stage N1": "N1",
    "Sleep stage N2": "N2",
    "Sleep stage N3": "N3",
    "Sleep stage R": "REM",
    "Sleep stage ?": UNSCORED,
}
_RECIPE = sleep_recipe(eeg=("EEG C4-M1", "C4-M1"), eog=("EOG E1-M2", "E1-M2"))


def _find(root: Path) -> list[Source]:
    sources = []
    for edf in sorted(root.rglob("SN[0-9]*.edf")):
        if edf.stem.endswith("_sleepscoring"):
            continue
        scorings = [edf.with_name(f"{edf.stem}_sleepscoring{suffix}") for suffix in (".edf", ".txt")]
        scoring = [path for path in scorings if path.is_file()][:1]
        sources.append(source_of(root, edf.stem, edf.stem, edf, *scoring))
    return sources


def _read(root: Path, source: Source) -> list[Recording]:
    edf, scoring = files_of(root, source)
    hypnogram = txt_hypnogram(scoring) if scoring.suffix == ".txt" else edf_hypnogram(scoring, _CODES)
    return hypnogram.label(read_edf(edf, _RECIPE.channels))


def txt_hypnogram(path: Path) -> Hypnogram:
    """The stages of a `_sleepscoring.txt`."""
    events = []
    for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), start=1):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 5 or not is_stage(fields[4], _CODES):
            continue
        try:
            events.append(Event(float(fields[2]), float(fields[3]), fields[4], f"line {number}"))
        except ValueError as error:
            raise DataError(f"{path}: line {number}: onset or duration is not a number ({error})") from error
    return Hypnogram.of(path, events, _CODES)


DATASET = DataSet(
    name="hmc",
    title="Haaglanden Medisch Centrum sleep staging database",
    task="sleep",
    subjects=151,
    rate="256",
    channels="EEG C4-M1; EOG E1-M2",
    labels=AASM,
    folders=(
        "hmc-sleep-staging",
        *(f"haaglanden-medisch-centrum-sleep-staging-database-{version}" for version in ("1.1", "1.0.1", "1.0.0")),
        "hmc",
    ),
    recipe=_RECIPE,
    find=_find,
    read=_read,
    tasks=sleep_task(AASM),
    citation="Alvarez-Estevez and Rijsman, Haaglanden Medisch Centrum sleep staging database (version 1.1), PhysioNet, "
    "2022, doi:10.13026/t79q-fr32; Alvarez-Estevez and Rijsman, Inter-database validation of a deep learning approach "
    "for automatic sleep scoring, PLoS ONE 16(8):e0256111, 2021",
    licence="CC BY 4.0",
    access="https://physionet.org/content/hmc-sleep-staging/1.1/",
)
