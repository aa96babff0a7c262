"""The numbers printed in the paper: facts to be shown beside ours, never as ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def paper() -> dict[str, Any]:
    """`paper.json`: every table of the paper, in percent, and the slips known in it."""
    return json.loads(files("sscf.report").joinpath("paper.json").read_text(encoding="utf-8"))


def family(task: str) -> str | None:
    """The paper's task that one of ours belongs to ("har3" -> "har"), or None."""
    return next((name for name in ("sleep", "ecg", "har") if re.fullmatch(rf"{name}\d*([-_].*)?", task)), None)


def same_domain(ours: str, theirs: str) -> bool:
    """Whether two names mean one data set ("mit_bih" is "MIT-BIH", "sleepedfx" is "Sleep-EDFx")."""
    return _bare(ours) == _bare(theirs)


def _bare(name: str) -> str:
    bare = re.sub(r"[\s_-]", "", name.lower())
    return {"mitbihadb": "mitbih", "mitdb": "mitbih", "sleepedf": "sleepedfx", "chapmanshaoxing": "chapman"}.get(
        bare, bare
    )


def domain_order(task: str) -> Callable[[str], int]:
    """Position of a domain in the paper's tables of a task; domains that are not there come last."""
    known: list[str] = []
    for table in paper()["tables"]:
        if table["kind"] != "datasets" and table["task"] == family(task):
            known += [bare for bare in map(_bare, table["columns"]) if bare not in known]
    return lambda domain: known.index(_bare(domain)) if _bare(domain) in known else len(known)


def reported(task: str, kind: str, metric: str, columns: Mapping[str, str], **where: Any) -> list[dict[str, Any]]:
    """Tables of the paper on a task whose columns match some of ours.

    `columns` maps our column -> target domain. Each table comes with its "rows" as (row, {our column: [mean, std]}), in
    percent, the "places" of our columns in it, and whether these are "complete", that is, all of its domains.
    """
    found = []
    for table in paper()["tables"]:
        if table["kind"] != kind or table["task"] != family(task):
            continue
        if any(table.get(key) != value for key, value in where.items()):
            continue
        places = {
            ours: theirs
            for ours, target in columns.items()
            for theirs, name in enumerate(table["columns"])
            if same_domain(target, name)
        }
        rows = [
            (row, {ours: row[metric][theirs] for ours, theirs in places.items()})
            for row in table["rows"]
            if places and metric in row
        ]
        if rows:
            found.append(
                {"table": table, "rows": rows, "complete": len(places) == len(_domains(table)), "places": places}
            )
    return found


def slips_of(tasks: Iterable[str], kind: str | None = None) -> list[str]:
    """What is known to be wrong in the paper's tables on some tasks (of one kind)."""
    families = {family(task) for task in tasks}
    ids = {t["id"] for t in paper()["tables"] if t["task"] in families and kind in (None, t["kind"])}
    return [slip["text"] for slip in paper()["slips"] if ids & set(slip["tables"])]


def _domains(table: dict[str, Any]) -> list[str]:
    return [name for name in table["columns"] if "average" not in name.lower()]
