"""paper.json against the paper's text, read here in another way than it was made."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from sscf.report.paper import domain_order, family, paper, reported, same_domain, slips_of

_SHARED = Path(os.environ.get("SSCF_SHARED", Path(__file__).resolve().parents[3] / "shared" / "data"))
PAPER = _SHARED.parent / "paper"
ROMAN = ["I", "II", "III", "IV", "V"]


@pytest.fixture(scope="module")
def text() -> str:
    found = sorted(PAPER.glob("*.txt"))
    if not found:
        pytest.skip(f"the paper's text is not there: {PAPER}/*.txt")
    return found[0].read_text(encoding="utf-8")


def environment(text: str, label: str) -> str:
    """The table environment that holds a label."""
    place = text.index(rf"\label{{{label}}}")
    return text[text.rindex(r"\begin{table", 0, place) : text.index(r"\end{table", place)]


def rows_of(latex: str) -> list[tuple[str, list[list[float]]]]:
    """(first cells, [[mean, std], ...]) of every row with numbers."""
    body = re.sub(
        r"\\(?:textbf|mathbf|multirow\{2\}\{\*\})|[{}$]|\\small", "", latex[latex.index(r"\begin{tabular}") :]
    )
    rows = []
    for row in body.split("\\\\"):
        cells = [cell.strip() for cell in row.split("&")]
        values = [[float(part) for part in cell.split(r"\pm")] for cell in cells if r"\pm" in cell]
        if values:
            rows.append((" ".join(cells[: len(cells) - len(values)]), values))
    return rows


def half(table: dict[str, Any], latex: str) -> str:
    """Two of the paper's tables hold arrhythmia above and HAR below."""
    if r"\textbf{Human Activity Recognition}" not in latex:
        return latex
    top, bottom = latex.split(r"\textbf{Human Activity Recognition}")
    return top if table["task"] == "ecg" else r"\begin{tabular}" + bottom


def numbered() -> list[dict[str, Any]]:
    return [table for table in paper()["tables"] if table["kind"] != "datasets"]


@pytest.mark.parametrize("table", numbered(), ids=lambda table: table["id"])
def test_every_number_is_the_papers(table: dict[str, Any], text: str) -> None:
    found = rows_of(half(table, environment(text, table["label"])))
    ours = []
    for row in table["rows"]:
        name = str(row.get("name", row.get("rank", row.get("granularity"))))
        for metric, short in (("accuracy", "ACC"), ("macro_f1", "MF1")):
            if metric in row:
                ours.append((name, short, row[metric]))
    assert [values for _, _, values in ours] == [values for _, values in found]
    both = len(ours) == 2 * len(table["rows"])
    for (name, short, _), (head, _) in zip(ours, found, strict=True):
        if both:
            assert short in head.split()
            if short == "ACC":
                assert name in re.sub(r"\\\w+(\[.*?\])?", " ", head)
        else:
            assert name in head


@pytest.mark.parametrize("table", numbered(), ids=lambda table: table["id"])
def test_columns_are_the_papers(table: dict[str, Any], text: str) -> None:
    latex = environment(text, table["label"])
    head = latex[latex.index(r"\begin{tabular}") :].split(r"\midrule")[0]
    columns = [name for name in table["columns"] if "average" not in name.lower()]
    if r"\textbf{ABC}" in head:
        assert re.findall(r"\\textbf\{(ABC|CCSHS|CFS|HMC|ISRUC|Sleep-EDFx)\}", head) == columns
        return
    numerals = "I--" + ROMAN[len(columns) - 1]
    captions = re.findall(rf"{numerals} correspond to ([^.]*), respectively", text)
    names = [[name.strip() for name in re.split(r",\s*(?:and\s+)?", caption)] for caption in captions]
    assert any(all(same_domain(a, b) for a, b in zip(columns, n, strict=True)) for n in names if len(n) == len(columns))
    own = re.findall(rf"{numerals} correspond to ([^.]*), respectively", latex)
    if own:
        assert all(same_domain(a, b) for a, b in zip(columns, re.split(r",\s*(?:and\s+)?", own[0]), strict=True))


def test_nothing_is_left_out(text: str) -> None:
    stored = sum(len(row[m]) for t in numbered() for row in t["rows"] for m in ("macro_f1", "accuracy") if m in row)
    assert stored == len(re.findall(r"\d\.\d\d?\s*\$?\s*\\pm", text)) == 1072
    labels = {table["label"] for table in paper()["tables"]}
    environments = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", text, re.S)
    assert len(environments) == len(labels) == 18
    assert all(labels & set(re.findall(r"\\label\{([^}]*)\}", found)) for found in environments)


@pytest.mark.parametrize("task", ["sleep", "ecg", "har"])
def test_data_sets_are_the_papers(task: str, text: str) -> None:
    table = next(t for t in paper()["tables"] if t["id"] == f"{task}-datasets")
    latex = environment(text, table["label"]).replace(r"\textbf", "").replace("{", "").replace("}", "")
    body = [row.strip() for row in latex.split("\\\\")]
    for row in table["rows"]:
        name, *values = row["values"]
        line = next(found for found in body if re.search(rf"(^|\s){re.escape(name)}\s*&", found))
        cells = [cell.strip() for cell in line[line.index(name) :].split("&")]
        expected = [name, *("---" if v is None else f"{v:,}" if isinstance(v, int) else v for v in values)]
        assert cells == expected


def test_rank_tables_know_their_k(text: str) -> None:
    for table in numbered():
        if table["kind"] == "rank":
            printed = re.search(r"Structural Granularity = (\d+)", environment(text, table["label"]))
            assert printed is not None
            assert int(printed[1]) == table.get("printed_k", table["k"])


def table_of(name: str) -> dict[str, Any]:
    return next(table for table in paper()["tables"] if table["id"] == name)


def row_of(name: str, key: str, value: Any) -> dict[str, Any]:
    return next(row for row in table_of(name)["rows"] if row[key] == value)


def test_slips_are_in_the_numbers() -> None:
    """Each slip we speak of can be seen in the stored numbers."""
    assert (
        table_of("har-rank-lodo")["rows"][0]["macro_f1"] == row_of("har-granularity-lodo", "granularity", 4)["macro_f1"]
    )
    eight = table_of("sleep-rank-lodo-k8")["rows"][0]["macro_f1"]
    assert eight[3][0] == 68.59
    assert row_of("sleep-lodo", "name", "Ours")["macro_f1"][3][0] == 69.59
    assert row_of("sleep-granularity-lodo", "granularity", 8)["macro_f1"][3][0] == 69.59
    assert round(sum(mean for mean, _ in eight[:-1]) / 5 + 0.2, 2) == eight[-1][0]
    one = row_of("ecg-granularity-lodo", "granularity", 1)
    assert one["macro_f1"] == row_of("ecg-lodo-macro-f1", "name", "Ours")["macro_f1"]
    three = row_of("sleep-granularity-external", "granularity", 3)
    for metric in ("macro_f1", "accuracy"):
        assert three[metric][4] == three[metric][5]
    mmd, ours = (row_of("sleep-lodo", "name", name) for name in ("MMD", "Ours"))
    assert (mmd["macro_f1"][1][0], ours["macro_f1"][1][0]) == (75.29, 71.13)
    assert (mmd["accuracy"][1][0], ours["accuracy"][1][0]) == (77.58, 75.68)
    assert len(paper()["slips"]) == 5
    assert all(table_of(name) for slip in paper()["slips"] for name in slip["tables"])


def test_spread_of_an_average_is_the_mean_spread() -> None:
    """What the page says about the paper's averages holds for every row."""
    for table in numbered():
        for row in table["rows"]:
            for metric in ("macro_f1", "accuracy"):
                if metric in row:
                    values = row[metric][1:-1] if table["columns"][0] == "LODO average" else row[metric][:-1]
                    assert abs(sum(std for _, std in values) / len(values) - row[metric][-1][1]) < 0.02


def test_matching_of_tasks_and_domains() -> None:
    assert [family(name) for name in ("har", "har3", "ecg", "sleep-20", "hard", "my")] == [
        "har",
        "har",
        "ecg",
        "sleep",
        None,
        None,
    ]
    assert same_domain("mit_bih", "MIT-BIH")
    assert same_domain("sleepedfx", "Sleep-EDFx")
    assert not same_domain("mros1", "MROS2")
    assert not same_domain("a & b_c%", "ABC")
    order = domain_order("har")
    assert sorted(["zzz", "wisdm", "ucihar"], key=order) == ["ucihar", "wisdm", "zzz"]
    (found,) = reported("har3", "methods", "macro_f1", {"a": "ucihar", "b": "elsewhere"})
    assert found["rows"][0][1] == {"a": [82.74, 0.46]}
    assert not found["complete"]
    assert reported("custom", "methods", "macro_f1", {"a": "ucihar"}) == []
    assert slips_of(["har"], "rank")
    assert not slips_of(["custom"])
