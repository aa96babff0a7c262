"""Names and numbers for each medium. Names come from users and data sets: nothing in them may be taken for markup."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

_TITLES = {
    "erm": "ERM",
    "irm": "IRM",
    "mmd": "MMD",
    "coral": "CORAL",
    "dann": "DANN",
    "cdan": "CDAN",
    "codats": "CoDATS",
    "vrex": "V-REx",
    "groupdro": "GroupDRO",
    "mixup": "Mixup",
    "fishr": "Fishr",
    "sleepdg": "SleepDG",
    "psdnorm": "PSDNorm",
    "fda": "FDA",
    "mixstyle": "MixStyle",
    "instance-norm": "instance norm",
    "mldg": "MLDG",
    "deep-coral": "Deep CORAL",
    "sleepeegnet": "SleepEEGNet",
    "lgsleepnet": "LG-SleepNet",
    "sscf": "SSCF",
    "global-anchor": "global anchor",
    "domain-anchor": "domain anchor",
}
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "←": r"$\leftarrow$",
    "κ": r"$\kappa$",
    "′": "$'$",
    "–": "--",
    "—": "---",
}


def plain(name: Any) -> str:
    """A name on one line: control and formatting characters (line breaks, bidi marks) become blanks."""
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in str(name))
    return " ".join(text.split()) or "(no name)"


def method_title(method: str) -> str:
    """ "sscf+coral" -> "SSCF + CORAL"; a name we do not know stays as it is."""
    parts = []
    for part in method.split("+"):
        name, colon, reading = part.partition(":")
        parts.append(_TITLES.get(name, name) + (f" [{reading}]" if colon else ""))
    return plain(" + ".join(parts))


def latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in plain(text))


def markdown(text: str) -> str:
    """Text that Markdown shows as it is, in a table cell too."""
    escaped = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", plain(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slug(*names: Any) -> str:
    """A file name for some names: ASCII, short, and different for different names."""
    raw = "--".join(str(name) for name in names)
    safe = re.sub(r"[^A-Za-z0-9-]+", "-", raw).strip("-").lower()[:80]
    if safe == raw.lower():
        return safe
    return f"{safe or 'x'}-{hashlib.sha256(raw.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def percent(value: float, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f}"


def join(items: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"
