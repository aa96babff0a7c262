"""St Petersburg INCART: 75 half-hour recordings of 32 patients, 12 leads, 257 Hz, beats annotated.

Rhythm changes are marked in a handful of records only, so sinus rhythm is taken where nothing else is said, except
where the header's comments name a rhythm disorder that has no mark: such a window is dropped, not guessed. Patients
are those of the header ("patient 8"); most gave two or three recordings.

The copy in the CinC Challenge 2020 (`I0002.hea`) has neither beats nor patients and a gain a thousand times too large
(306000/mV); it is refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from sscf.data.datasets._ecg import LABELS, TASKS, BeatTrack, recipe
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_wfdb, wfdb_annotations, wfdb_comments
from sscf.data.recording import Drop, Recording, Source
from sscf.errors import DataError

_RECIPE = recipe("II")
_PATIENT = re.compile(r"\bpatient\s+(\d+)", re.IGNORECASE)
_GAIN = re.compile(r"^\S+\s+\S+\s+([\d.]+)(?:\([-\d]+\))?/mV", re.MULTILINE)
# What beats cannot show. Ectopy, bigeminy and bundle branch block are in the comments too, but also in the beats.
_RHYTHM = re.compile(
    r"(?:atrial )?(?:fibrillation|flutter)|\bA-?FIB?\b|tachycardia|\bSVTA?\b|AV (?:nodal )?block|sinus node|WPW|"
    r"pre-?excitation",
    re.IGNORECASE,
)
_MAX_GAIN = 20_000  # a 16-bit sample would then reach 1.6 mV at most


def find(root: Path) -> list[Source]:
    sources = []
    for hea in sorted(root.glob("I[0-9]*.hea")):
        gain = _GAIN.search(hea.read_text(encoding="latin-1"))
        if gain and float(gain[1]) > _MAX_GAIN:
            raise DataError(
                f"{hea}: a gain of {gain[1]}/mV cannot be: this is the copy of the CinC Challenge 2020, whose gains "
                f"are a thousand times too large; use incartdb 1.0.0"
            )
        patient = _PATIENT.search("\n".join(wfdb_comments(hea)))
        if patient is None:
            raise DataError(f"{hea}: no patient number in the comments; the original header has a line '#patient 1'")
        files = tuple(f"{hea.stem}.{kind}" for kind in ("hea", "dat", "atr"))
        sources.append(Source(hea.stem, patient[1], files))
    return sources


def read(root: Path, source: Source) -> list[Recording]:
    signals = read_wfdb(root / source.id, _RECIPE.channels, "mV")
    marks = wfdb_annotations(root / source.id, "atr")
    named = _RHYTHM.search(" ".join(signals.header["comments"]))
    before = Drop(f"header says {named[0].lower()}, no rhythm is marked") if named else "(N"
    return signals.recordings(BeatTrack(marks, signals.rates[0], f"{root / source.id}.atr", before))


DATASET = DataSet(
    name="incart",
    title="St Petersburg INCART 12-lead Arrhythmia Database",
    task="ecg",
    subjects=32,
    rate="257",
    channels="II",
    labels=LABELS,
    folders=("st-petersburg-incart-12-lead-arrhythmia-database-1.0.0", "incartdb/1.0.0", "incartdb", "incart"),
    marker="I[0-9]*.hea",
    recipe=_RECIPE,
    find=find,
    read=read,
    citation="V. Tihonenko, A. Khaustov, S. Ivanov, A. Rivin, E. Yakushenko: St Petersburg INCART 12-lead Arrhythmia "
    "Database. PhysioNet 2008, doi:10.13026/C2V88N.",
    licence="ODC-By 1.0",
    access="open: https://physionet.org/content/incartdb/1.0.0/",
    tasks=TASKS,
)
