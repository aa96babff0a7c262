"""Chapman University and Shaoxing People's Hospital: 10,646 patients, one 12-lead ECG of 10 s each, 500 Hz; lead II.

Official form: `Diagnostics.xlsx` and `ECGDataDenoised/*.csv` (microvolts, no header, columns I, II, III, aVR, aVL,
aVF, V1..V6). Reduced form: `labels.csv` and WFDB files in `records/`. Some official files are all zero, have leads of
NaN or are cut short: such a file is an error (`--skip-bad` leaves it out and lists it), whichever lead is hit.

AF is atrial *flutter* here and AFIB fibrillation; sinus irregularity is SA in the diagnoses, SI in the list of names.
The own label is the rhythm or, in sinus rhythm, the first beat finding of ectopy or else of conduction. Findings on
shape alone (ST-T, voltage, axis, Q waves, hypertrophy) do not count.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from sscf.data.datasets._ecg import recipe
from sscf.data.datasets.base import DataSet
from sscf.data.readers import check_signal, inside, read_csv, read_table, read_wfdb, read_xlsx
from sscf.data.recording import Recording, Source, Whole
from sscf.errors import DataError

_RECIPE = recipe("II")
_TABLES = ("Diagnostics.xlsx", "labels.csv")
_FS, _ROWS, _LEADS = 500.0, 5000, 12

AF = ("AFIB", "AF")
OTHER = ("SB", "ST", "SA", "SI", "SVT", "AT", "AVNRT", "AVRT", "SAAWR")
ECTOPY = (
    *("VPB", "APB", "JPT", "JPS", "VB", "ABI", "VET", "VEB", "JEB", "VFW", "WAVN"),
    *("3AVB", "2AVB", "2AVB1", "2AVB2"),
)
CONDUCTION = ("WPW", "VPE", "LBBB", "RBBB", "LFBBB", "LBBBB", "IVB", "IDC", "FQRS", "AVB", "1AVB", "PRIE", "LRRI")
SHAPE = (
    *("NONE", "TWC", "TWO", "STTC", "STTU", "STDD", "STE", "LVHV", "LVH", "RVH", "RAH", "RAHV", "ALS", "ARS", "AQW"),
    *("CCR", "CR", "ERV", "LVQRSAL", "LVQRSCL", "LVQRSLL", "MI", "MIBW", "MIFW", "MILW", "MISW", "PWC", "QTIE", "UW"),
)


def decide(rhythm: str, beats: list[str]) -> str:
    """The finding that decides a record; a code that is not known is a DataError.

    >>> decide("AF", ["VPB"]), decide("SR", ["RBBB", "APB"]), decide("SR", ["RBBB"]), decide("SR", ["TWC"])
    ('AF', 'APB', 'RBBB', 'SR')
    """
    if rhythm not in (*AF, *OTHER, "SR"):
        raise DataError(f"rhythm {rhythm!r} is not known; known are {', '.join((*AF, *OTHER, 'SR'))}")
    for code in beats:
        if code not in SHAPE and code not in ECTOPY and code not in CONDUCTION:
            raise DataError(f"beat finding {code!r} is not known")
    if rhythm != "SR":
        return rhythm
    return next((code for code in (*ECTOPY, *CONDUCTION) if code in beats), "SR")


def find(root: Path) -> list[Source]:
    table = _table(root)
    if table == "labels.csv":
        return [Source(r, r, (f"records/{r}.hea", f"records/{r}.dat", table)) for r in _diagnoses(root)]
    files = sorted(root.glob("ECGDataDenoised/*.csv"))
    return [Source(file.stem, file.stem, (file.relative_to(root).as_posix(), table)) for file in files]


def read(root: Path, source: Source) -> Recording | list[Recording]:
    path = inside(root, source.files[0])
    try:
        label = decide(*_diagnoses(root)[source.id])
    except KeyError:
        raise DataError(f"{path}: no diagnosis of {source.id} in {root / _table(root)}") from None
    except DataError as error:
        raise DataError(f"{root / _table(root)}: {source.id}: {error}") from error
    if path.suffix == ".hea":
        return read_wfdb(path, _RECIPE.channels, "mV").recordings(Whole(label))
    leads = read_csv(path, range(_LEADS), header=False)
    if leads.shape[1] != _ROWS:
        raise DataError(f"{path}: {leads.shape[1]} rows, expected {_ROWS} (10 s at 500 Hz)")
    if np.isnan(leads).any():
        lead, row = np.argwhere(np.isnan(leads))[0]
        raise DataError(
            f"{path}: {np.isnan(leads).sum()} values are NaN, the first in row {row + 1}, column {lead + 1}"
        )
    check_signal(leads[1], "II", path, _FS)
    return Recording(leads[1:2] / 1000, _FS, _RECIPE.names, "mV", Whole(label))


def _table(root: Path) -> str:
    for name in _TABLES:
        if (root / name).is_file():
            return name
    raise DataError(f"{root}: neither {' nor '.join(_TABLES)}")


def _diagnoses(root: Path) -> dict[str, tuple[str, list[str]]]:
    path = root / _table(root)
    return _read_diagnoses(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _read_diagnoses(path: Path, _changed: int) -> dict[str, tuple[str, list[str]]]:
    """Record -> rhythm and beat findings; read once per process, not once per record."""
    rows = read_xlsx(path) if path.suffix == ".xlsx" else read_table(path)
    record, rhythm, beat = ("FileName", "Rhythm", "Beat") if path.suffix == ".xlsx" else ("record", "rhythm", "beat")
    out: dict[str, tuple[str, list[str]]] = {}
    for row in rows:
        if not {record, rhythm, beat} <= row.keys():
            raise DataError(f"{path}: columns {', '.join(row)}; expected {record}, {rhythm}, {beat} among them")
        if row[record] in out:
            raise DataError(f"{path}: record {row[record]} is listed twice")
        out[row[record]] = (row[rhythm], row[beat].split())
    return out


DATASET = DataSet(
    name="chapman",
    title="Chapman University and Shaoxing People's Hospital 12-lead ECG",
    task="ecg",
    subjects=10646,
    rate="500",
    channels="II",
    labels=(*AF, *OTHER, *ECTOPY, *CONDUCTION, "SR"),
    folders=("chapman", "chapman-shaoxing", "ChapmanECG"),
    recipe=_RECIPE,
    find=find,
    read=read,
    citation="J. Zheng, J. Zhang, S. Danioko, H. Yao, H. Guo, C. Rakovski: A 12-lead electrocardiogram database for "
    "arrhythmia research covering more than 10,000 patients. Scientific Data 7, 2020.",
    licence="CC BY 4.0",
    access="open: figshare collection 4560497",
    tasks={
        "ecg": {
            **dict.fromkeys(AF, "af"),
            **dict.fromkeys((*OTHER, *ECTOPY), "other"),
            **dict.fromkeys(CONDUCTION),
            "SR": "normal",
        }
    },
)
