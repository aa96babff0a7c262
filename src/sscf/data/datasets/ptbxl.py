"""PTB-XL: 21,799 twelve-lead ECGs of 10 s, each with SCP-ECG statements; lead II of `records100`, else of `records500`.

The own label of a record is the statement that decides it: fibrillation or flutter; else the first statement of
another rhythm or of ectopy; else the first of a conduction disorder; else sinus rhythm (SR) or a normal ECG (NORM).
Fibrillation stated together with another rhythm, a pacemaker or a complete block, and records without any statement
on the rhythm, are ambiguous and dropped. A likelihood is not looked at: PTB-XL writes 0 for "not known", which is all
rhythm statements.

The subject is the patient. Where `patient_id` is empty (it is for most rows of some reduced copies) the record stands
in for him as `ecg<id>`: there a split by subject may put two ECGs of one patient on both sides.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from sscf.data.datasets._ecg import recipe
from sscf.data.datasets.base import DataSet
from sscf.data.readers import inside, read_table, read_wfdb
from sscf.data.recording import Drop, Recording, Source, Whole
from sscf.errors import DataError

_RECIPE = recipe("II")
_TABLE = "ptbxl_database.csv"

AF = ("AFIB", "AFLT")
OTHER = (
    *("PACE", "3AVB", "2AVB", "PSVT", "SVTAC", "SVARR", "BIGU", "TRIGU", "PVC", "PAC", "PRC(S)"),
    *("SBRAD", "STACH", "SARRH"),
)
CONDUCTION = ("WPW", "CLBBB", "CRBBB", "ILBBB", "IRBBB", "IVCD", "LAFB", "LPFB", "1AVB", "LPR", "ABQRS")
SINUS = ("SR", "NORM")
_NOT_WITH_AF = frozenset(("SR", "SBRAD", "STACH", "SARRH", "PACE", "SVTAC", "PSVT", "SVARR", "2AVB", "3AVB"))


def decide(statements: set[str]) -> str | Drop:
    """The statement that decides a record, or why none does.

    >>> decide({"AFIB", "PVC", "NORM"}), decide({"SR", "PVC", "CLBBB"}), decide({"SR", "CLBBB"}), decide({"SR", "AFIB"})
    ('AFIB', 'PVC', 'CLBBB', 'fibrillation and another rhythm stated')
    """
    if statements & set(AF) and statements & _NOT_WITH_AF:
        return Drop("fibrillation and another rhythm stated")
    found = (code for code in (*AF, *OTHER, *CONDUCTION, *SINUS) if code in statements)
    return next(found, Drop("no statement on the rhythm"))


def find(root: Path) -> list[Source]:
    column = "filename_lr" if (root / "records100").is_dir() else "filename_hr"
    sources = []
    for ecg, row in _rows(root).items():
        try:
            patient, record = row["patient_id"], row[column]
            subject = f"{int(float(patient))}" if patient else f"ecg{ecg}"
        except (KeyError, ValueError) as error:
            raise DataError(f"{root / _TABLE}: ecg_id {ecg}: no usable patient_id or {column} ({error})") from error
        sources.append(Source(f"{ecg}", subject, (f"{record}.hea", f"{record}.dat", _TABLE)))
    return sources


def read(root: Path, source: Source) -> list[Recording]:
    codes = _rows(root)[int(source.id)]["scp_codes"]
    try:
        statements = ast.literal_eval(codes)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        statements = None
    if not isinstance(statements, dict):
        raise DataError(f"{root / _TABLE}: ecg_id {source.id}: scp_codes {codes!r} is not a dictionary")
    record = inside(root, source.files[0])
    return read_wfdb(record, _RECIPE.channels, "mV").recordings(Whole(decide(set(statements))))


def _rows(root: Path) -> dict[int, dict[str, str]]:
    path = root / _TABLE
    return _read_rows(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _read_rows(path: Path, _changed: int) -> dict[int, dict[str, str]]:
    """ecg_id -> row; read once per process, not once per record."""
    rows: dict[int, dict[str, str]] = {}
    for row in read_table(path):
        try:
            ecg, _ = int(row["ecg_id"]), row["scp_codes"]
        except KeyError as error:
            raise DataError(f"{path}: not the table of PTB-XL, it has no column {error}") from error
        except ValueError as error:
            raise DataError(f"{path}: not the table of PTB-XL, an ecg_id is no whole number ({error})") from error
        if ecg in rows:
            raise DataError(f"{path}: ecg_id {ecg} is listed twice")
        rows[ecg] = row
    return rows


DATASET = DataSet(
    name="ptbxl",
    title="PTB-XL",
    task="ecg",
    subjects=18869,
    rate="100 or 500",
    channels="II",
    labels=(*AF, *OTHER, *CONDUCTION, *SINUS),
    folders=(
        *("ptb-xl", "ptbxl", "ptb-xl/1.0.3", "ptb-xl-a-large-publicly-available-electrocardiography-dataset-1.0.3"),
        *(f"ptb-xl-a-large-publicly-available-electrocardiography-dataset-1.0.{i}" for i in (1, 2)),
    ),
    marker=_TABLE,
    recipe=_RECIPE,
    find=find,
    read=read,
    citation="P. Wagner, N. Strodthoff, R.-D. Bousseljot, D. Kreiseler, F. I. Lunze, W. Samek, T. Schaeffter: PTB-XL, "
    "a large publicly available electrocardiography dataset. Scientific Data 7, 2020.",
    licence="CC BY 4.0",
    access="open: https://physionet.org/content/ptb-xl/1.0.3/",
    notes="Where patient_id is empty the record stands in for the patient (subject ecg<id>): a split by subject may "
    "then put ECGs of one patient on both sides.",
    tasks={
        "ecg": {
            **dict.fromkeys(AF, "af"),
            **dict.fromkeys(OTHER, "other"),
            **dict.fromkeys(CONDUCTION),
            **dict.fromkeys(SINUS, "normal"),
        }
    },
)
