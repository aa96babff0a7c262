"""MATLAB files, tables and XML."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from sscf.data.readers.common import plain
from sscf.errors import DataError, require


def read_mat(path: str | Path, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Variables of a MATLAB file, version 4, 5 or 7.3; the axes of 7.3 arrays are turned to MATLAB's order."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with open(path, "rb") as stream:
        hdf5 = b"MATLAB 7.3" in stream.read(128)
    try:
        found = _read_mat73(path, names) if hdf5 else _read_mat5(path, names)
    except Exception as error:
        raise DataError(f"{path}: not a readable MATLAB file ({type(error).__name__}: {error})") from error
    for name in names or ():
        if name not in found:
            raise DataError(f"{path}: no variable {name!r}; the file has {', '.join(sorted(found)) or 'none'}")
    return found


def _read_mat5(path: Path, names: Sequence[str] | None) -> dict[str, Any]:
    from scipy.io import loadmat, whosmat

    found = loadmat(path, variable_names=names, squeeze_me=False)
    out = {name: value for name, value in found.items() if not name.startswith("__")}
    return out if not names or set(names) <= set(out) else {name: None for name, *_ in whosmat(path)}


def _read_mat73(path: Path, names: Sequence[str] | None) -> dict[str, Any]:
    h5py = require("h5py", "data")
    out: dict[str, Any] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and (not names or name in names):
            out[name] = np.asarray(node[()]).T

    with h5py.File(path) as file:
        file.visititems(visit)
        if names and not set(names) <= set(out):
            return dict.fromkeys(file)
    return out


def read_csv(
    path: str | Path, columns: Sequence[str | int], *, delimiter: str = ",", header: bool = True
) -> NDArray[np.float64]:
    """Numeric columns of a text table as (len(columns), rows), chosen by name (needs a header) or number."""
    path = Path(path)
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            names = next(csv.reader(stream, delimiter=delimiter), []) if header else []
            known = [plain(name) for name in names]
            use = []
            for column in columns:
                if isinstance(column, str) and plain(column) not in known:
                    raise DataError(f"{path}: no column {column!r}; the file has {', '.join(map(repr, names))}")
                use.append(known.index(plain(column)) if isinstance(column, str) else column)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*input contained no data.*")
                rows = np.loadtxt(stream, delimiter=delimiter, usecols=use, ndmin=2, quotechar='"')
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (ValueError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a table of numbers ({error})") from error
    if not len(rows):
        raise DataError(f"{path}: no rows")
    return rows.T


def table_columns(path: str | Path, delimiter: str = ",") -> list[str]:
    """The names in the first line of a text table."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            return [name.strip() for name in next(csv.reader(stream, delimiter=delimiter), [])]
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a text table ({error})") from error


def read_table(path: str | Path, *, delimiter: str = ",", columns: Sequence[str] | None = None) -> list[dict[str, str]]:
    """Rows of a text table as dictionaries; `columns` names them when the file has no header line."""
    path = Path(path)
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter)
            names = list(columns) if columns else [name.strip() for name in next(reader, [])]
            rows = []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise DataError(f"{path}: line {reader.line_num} has {len(row)} fields, expected {len(names)}")
                rows.append({name: value.strip() for name, value in zip(names, row, strict=True)})
            return rows
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a text table ({error})") from error


def read_xlsx(path: str | Path) -> list[dict[str, str]]:
    """Rows of the first sheet of an Excel file as dictionaries of text; the first row names the columns."""
    openpyxl = require("openpyxl", "data")
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        rows = [["" if cell is None else str(cell).strip() for cell in row] for row in book.worksheets[0].values]
        book.close()
    except Exception as error:
        raise DataError(f"{path}: not a readable Excel file ({type(error).__name__}: {error})") from error
    names, *body = rows or [[]]
    return [dict(zip(names, row, strict=False)) for row in body if any(row)]


def safe_xml(path: str | Path) -> ElementTree.Element:
    """The root of an XML file. A document type is refused, and with it entities: no file can blow up or reach out."""
    scan = expat.ParserCreate()

    def refuse(*_: Any) -> None:
        raise DataError(f"{path}: line {scan.CurrentLineNumber}: refused, it declares a document type or entities")

    scan.StartDoctypeDeclHandler = refuse
    try:
        text = Path(path).read_bytes()
        scan.Parse(text, True)
        return ElementTree.fromstring(text)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (expat.ExpatError, ElementTree.ParseError) as error:
        raise DataError(f"{path}: not well-formed XML ({error})") from error
