"""ISRUC-Sleep: 100 patients (subgroup I), 8 subjects with two nights each (II), 10 healthy subjects (III).

`subgroupI/8/8.rec` is an EDF file under another name; `8_1.txt` beside it is the hypnogram of the first expert, one
digit per epoch (0 W, 1 N1, 2 N2, 3 N3, 5 REM). Subgroup II has a folder per night: `subgroupII/3/1/1.rec` and
`subgroupII/3/2/2.rec` are nights of one subject. The second expert (`_2.txt`) is not used.
"""

from __future__ import annotations

import re
from pathlib import Path

from sscf.data.datasets._sleep import (
    AASM,
    Hypnogram,
    files_of,
    per_epoch,
    sleep_recipe,
    sleep_task,
    source_of,
)
from sscf.data.datasets.base import DataSet
from sscf.data.readers import read_edf
from sscf.data.recording import Recording, Source

_CODES = {"0": "W", "1": "N1", "2": "N2", "3": "N3", "5": "REM"}
_RECIPE = sleep_recipe(eeg=("F4-A1", "F4-M1"), eog=("LOC-A2", "E1-M2"))
_SUBGROUP = re.compile(r"sub[-_ ]?group[-_ ]?(i{1,3}|[123])", re.IGNORECASE)
_NUMERAL = {"1": "I", "2": "II", "3": "III"}


def _find(root: Path) -> list[Source]:
    sources = []
    for rec in sorted(path for path in root.rglob("*") if path.suffix.casefold() in (".rec", ".edf")):
        folders = rec.relative_to(root).parts[:-1]
        for depth, folder in enumerate(folders):
            if match := _SUBGROUP.fullmatch(folder):
                subgroup = _NUMERAL.get(match[1], match[1].upper())
                below = folders[depth + 1 :] or (rec.stem,)
                scoring = rec.with_name(f"{rec.stem}_1.txt")
                files = [rec, scoring] if scoring.is_file() else [rec]
                sources.append(source_of(root, "-".join((subgroup, *below)), f"{subgroup}-{below[0]}", *files))
                break
    return sources


def _read(root: Path, source: Source) -> list[Recording]:
    rec, txt = files_of(root, source)
    # A blank line inside would move every later stage by an epoch, so it counts as an (unknown) stage.
    lines = txt.read_text(encoding="latin-1").rstrip().splitlines()
    hypnogram = Hypnogram.of(txt, per_epoch(lines, "line"), _CODES)
    return hypnogram.label(read_edf(rec, _RECIPE.channels))


DATASET = DataSet(
    name="isruc",
    title="ISRUC-Sleep",
    task="sleep",
    subjects=118,
    rate="200",
    channels="F4-A1; LOC-A2",
    labels=AASM,
    folders=("ISRUC_Sleep", "ISRUC-Sleep", "ISRUC"),
    recipe=_RECIPE,
    find=_find,
    read=_read,
    tasks=sleep_task(AASM),
    citation="Khalighi et al., ISRUC-Sleep: a comprehensive public dataset for sleep researchers, Computer Methods and "
    "Programs in Biomedicine 124:180-192, 2016",
    licence="as published by its authors; research use",
    access="https://sleeptight.isr.uc.pt/",
)
