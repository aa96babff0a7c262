"""CinC Challenge 2017: 8,528 recordings of 9 to 61 s from a hand-held device (one lead, left to right arm), 300 Hz.

A recording gives as many 10 s windows as fit, each with the recording's label: N (normal), A (fibrillation), O
(another rhythm) or ~ (too noisy to say, which the task drops). Shorter recordings give none and are counted. The
label is one for up to a minute: a window of an `A` or `O` recording need not show it.

Patients are not known, so each recording is its own subject; who gave two is on both sides of a split.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sscf.data.datasets._ecg import recipe
from sscf.data.datasets.base import DataSet
from sscf.data.readers import inside, read_table, read_wfdb
from sscf.data.recording import Recording, Source, Whole
from sscf.errors import DataError

_RECIPE = recipe("ECG")
_TABLE = "REFERENCE.csv"


def find(root: Path) -> list[Source]:
    return [Source(record, record, (f"{record}.hea", f"{record}.mat", _TABLE)) for record in _labels(root)]


def read(root: Path, source: Source) -> list[Recording]:
    signals = read_wfdb(inside(root, source.files[0]), _RECIPE.channels, "mV")
    return signals.recordings(Whole(_labels(root)[source.id]))


def _labels(root: Path) -> dict[str, str]:
    path = root / _TABLE
    return _read_labels(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _read_labels(path: Path, _changed: int) -> dict[str, str]:
    """Record -> label; read once per process, not once per record."""
    labels: dict[str, str] = {}
    for row in read_table(path, columns=("record", "label")):
        if row["record"] in labels:
            raise DataError(f"{path}: record {row['record']} is listed twice")
        labels[row["record"]] = row["label"]
    return labels


DATASET = DataSet(
    name="cinc2017",
    title="PhysioNet/CinC Challenge 2017",
    task="ecg",
    subjects=8528,
    rate="300",
    channels="one lead, hand-held (like I)",
    labels=("N", "A", "O", "~"),
    folders=("training2017", "challenge-2017/1.0.0/training", "cinc2017"),
    marker=_TABLE,
    recipe=_RECIPE,
    find=find,
    read=read,
    citation="G. D. Clifford, C. Liu, B. Moody, L. H. Lehman, I. Silva, Q. Li, A. E. Johnson, R. G. Mark: AF "
    "Classification from a Short Single Lead ECG Recording. Computing in Cardiology 2017.",
    licence="ODC-By 1.0",
    access="open: https://physionet.org/content/challenge-2017/1.0.0/",
    notes="Patients are not known: each recording is its own subject; a split by subject may not separate patients.",
    tasks={"ecg": {"N": "normal", "A": "af", "O": "other", "~": None}},
)
