"""Reading raw files: EDF, WFDB, MATLAB, CSV, XLSX, XML. Every defect is a DataError that names file and position.

Only the wanted channels are read, as float32 and in the wanted unit. Heavy libraries are imported on first use.
"""

from __future__ import annotations

from sscf.data.readers.common import Annotation, Signals, check_signal, choose_channels, inside, unit_factor
from sscf.data.readers.edf import edf_annotations, edf_labels, read_edf
from sscf.data.readers.tables import read_csv, read_mat, read_table, read_xlsx, safe_xml, table_columns
from sscf.data.readers.wfdb import Marks, read_wfdb, wfdb_annotations, wfdb_comments
from sscf.data.recording import Channel
from sscf.errors import DataError

__all__ = [
    "Annotation",
    "Channel",
    "DataError",
    "Marks",
    "Signals",
    "check_signal",
    "choose_channels",
    "edf_annotations",
    "edf_labels",
    "inside",
    "read_csv",
    "read_edf",
    "read_mat",
    "read_table",
    "read_wfdb",
    "read_xlsx",
    "safe_xml",
    "table_columns",
    "unit_factor",
    "wfdb_annotations",
    "wfdb_comments",
]
