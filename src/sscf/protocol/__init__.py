"""The protocol: folds, subject-safe splits, scores, selection. Knows neither networks nor rules."""

from sscf.protocol.folds import Fold, external, leave_k_out, leave_one_domain_out, leave_one_source_out
from sscf.protocol.metrics import confusion, macro_f1, risk_coverage, scores
from sscf.protocol.selection import SELECTIONS
from sscf.protocol.splits import cap_recordings, cap_rows, subject_split

__all__ = [
    "SELECTIONS",
    "Fold",
    "cap_recordings",
    "cap_rows",
    "confusion",
    "external",
    "leave_k_out",
    "leave_one_domain_out",
    "leave_one_source_out",
    "macro_f1",
    "risk_coverage",
    "scores",
    "subject_split",
]
