"""MIT-BIH Arrhythmia Database: 48 half-hour recordings of 47 subjects, two leads, 360 Hz, rhythm and beats annotated.

Lead MLII is looked for by name (114 has its channels swapped); 102 and 104 do not have it and are left out. 201 and
202 are one subject. Paced rhythm and paced beats are `other`.
"""

from __future__ import annotations

from pathlib import Path

from sscf.data.datasets._ecg import LABELS, TASKS, BeatTrack, recipe
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_wfdb, wfdb_annotations
from sscf.data.recording import Recording, Source

_RECIPE = recipe("MLII")
_SAME_SUBJECT = {"202": "201"}


def find(root: Path) -> list[Source]:
    records = sorted(path.stem for path in root.glob("[12][0-9][0-9].hea"))
    return [
        Source(record, _SAME_SUBJECT.get(record, record), tuple(f"{record}.{kind}" for kind in ("hea", "dat", "atr")))
        for record in records
    ]


def read(root: Path, source: Source) -> list[Recording]:
    signals = read_wfdb(root / source.id, _RECIPE.channels, "mV")
    marks = wfdb_annotations(root / source.id, "atr")
    return signals.recordings(BeatTrack(marks, signals.rates[0], f"{root / source.id}.atr"))


DATASET = DataSet(
    name="mitbih",
    title="MIT-BIH Arrhythmia Database",
    task="ecg",
    subjects=47,
    rate="360",
    channels="MLII",
    labels=LABELS,
    folders=("mit-bih-arrhythmia-database-1.0.0", "mitdb/1.0.0", "mitdb", "mitbih"),
    marker="[12][0-9][0-9].hea",
    recipe=_RECIPE,
    exclude=dict.fromkeys(("102", "104"), "no lead II (the file has V5 and V2)"),
    find=find,
    read=read,
    citation="G. B. Moody, R. G. Mark: The impact of the MIT-BIH Arrhythmia Database. IEEE Engineering in Medicine and "
    "Biology 20(3), 2001.",
    licence="ODC-By 1.0",
    access="open: https://physionet.org/content/mitdb/1.0.0/",
    tasks=TASKS,
)
