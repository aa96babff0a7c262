from __future__ import annotations

import re
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sscf.report.figures import (
    COLOURS,
    DASHES,
    INK,
    KINDS,
    MARKERS,
    Figure,
    _look,
    _one_per_domain,
    draw,
    draw_all,
    panel_figures,
    run_figures,
)
from sscf.report.panels import make_panels
from sscf.report.records import load_runs
from sscf.report.statistics import compare, rank_methods

SVG = "{http://www.w3.org/2000/svg}"


def figures_of(folder: Path) -> list[Figure]:
    found = []
    for panel in make_panels(load_runs(folder)):
        found += [*panel_figures(panel, compare(panel), rank_methods(panel)), *run_figures(panel, folder)]
    return found


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def sleep_runs(fab: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One calibrated and one plain run per target, with every array."""
    stages, sets = ("W", "N1", "N2", "N3", "REM"), ["SHHS1", "MESA"]
    records = fab.har_records(["erm", "coral", "sscf"], seeds=1, ks=[2, 4], domains=sets, task="sleep", classes=stages)
    return fab.write_runs(tmp_path_factory.mktemp("sleep"), records, arrays=True)


def first_of_each_kind(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.kind: figure for figure in reversed(figures)}


def test_every_kind_is_drawn_twice_the_same(sleep_runs: Path) -> None:
    figures = first_of_each_kind(figures_of(sleep_runs))
    assert set(figures) == set(KINDS)
    for kind, figure in figures.items():
        svg = draw(figure, sleep_runs)
        assert svg is not None, kind
        assert svg == draw(figure, sleep_runs), kind
        root = ET.fromstring(svg)
        assert root.tag == f"{SVG}svg"
        assert not list(root.iter(f"{SVG}image")), f"{kind} is not vector"
        assert not re.search(r"\b20\d\d-\d\d-\d\d", svg), f"{kind} holds a date"
        assert len(texts(svg)) > 2


def test_ids_are_unique(har_runs: Path) -> None:
    figures = figures_of(har_runs)
    assert len({figure.id for figure in figures}) == len(figures)
    assert all(re.fullmatch(r"[a-z0-9-]+", figure.id) for figure in figures)


def test_curves_show_the_scores(fab: Any, tmp_path: Path) -> None:
    """The curve over K is at the height its mean asks for, read back from the SVG."""
    records = fab.har_records(methods=["sscf"], seeds=3, ks=[2, 4, 8], domains=["A", "B"])
    folder = fab.write_runs(tmp_path, records)
    figure = next(figure for figure in figures_of(folder) if figure.kind == "granularity")
    mean, std = figure.payload["curves"]["A"][1]
    values = [r["scores"]["macro_f1"] for r in records if r["spec"]["target"] == "A" and r["spec"]["sscf"]["k"] == 4]
    assert mean == pytest.approx(np.mean(values))
    assert std == pytest.approx(np.std(values, ddof=1))
    svg = draw(figure, folder)
    assert svg is not None
    assert {"2", "4", "8", "number of strata K", "A", "B", "average"} <= set(texts(svg))


def test_ranks_stand_beside_the_lines_of_their_methods() -> None:
    payload = {"labels": ("a", "b", "c", "d"), "ranks": (1.0, 2.0, 3.0, 4.0), "critical": 2.0}
    shown = texts(draw(Figure("x", "ranking", {}, "", payload), Path()) or "")
    assert [text.split() for text in shown if len(text.split()) == 2] == [
        ["a", "1.00"],
        ["b", "2.00"],
        ["3.00", "c"],
        ["4.00", "d"],
    ]


def test_arrays_that_are_absent_or_foreign_leave_figures_out(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["sscf"], seeds=1, ks=[4], domains=["A", "B"])
    folder = fab.write_runs(tmp_path, records)
    assert {figure.kind for figure in figures_of(folder)} == {"scores", "rank", "confusion", "training"}
    (folder / "arrays" / records[0]["id"]).mkdir(parents=True)
    figures = [figure for figure in figures_of(folder) if figure.run]
    assert {figure.kind for figure in figures} == {"strata", "calibration", "distance", "embedding"}
    assert [draw(figure, folder) for figure in figures] == [None] * len(figures)


def test_names_are_text_in_svg(fab: Any, tmp_path: Path) -> None:
    names = ["<script>x</script>", "a & b_c%", "$\\frac{1}{2}$", "_hidden", "中文"]
    records = fab.har_records(["erm", "sscf"], seeds=1, ks=[4], domains=names, classes=("<b>", "$q$"))
    folder = fab.write_runs(tmp_path, records, arrays=lambda r: r["spec"]["target"] == names[0])
    for kind, figure in first_of_each_kind(figures_of(folder)).items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            svg = draw(figure, folder)
        assert svg is not None
        assert "<script" not in svg
        shown = texts(svg)  # parses, so the markup is whole
        if kind == "scores":
            assert set(names) <= {text.strip() for text in shown}


def test_colours_come_with_another_sign() -> None:
    """Whoever sees no colours tells lines by dash or marker."""
    assert len(set(COLOURS)) == len(set(MARKERS)) == len({str(dash) for dash in DASHES}) == len(COLOURS)
    assert INK not in COLOURS
    looks = [tuple(map(str, _look(i).values())) for i in range(40)]
    assert len({look[1:] for look in looks}) == 40  # marker and dash alone tell them apart


def test_parallel_drawing_gives_the_same_bytes(har_runs: Path) -> None:
    figures = [figure for figure in figures_of(har_runs) if figure.kind in ("confusion", "scores", "rank")][:25]
    assert draw_all(figures, har_runs, jobs=2) == draw_all(figures, har_runs, jobs=1)


def test_hypnogram_keeps_gaps(fab: Any, tmp_path: Path) -> None:
    """A recording with a gap of ten epochs: the line must be broken there."""
    records = fab.har_records(["erm"], seeds=1, domains=["A"], task="sleep", classes=("W", "N1", "N2", "N3", "REM"))
    folder = fab.write_runs(tmp_path, records, arrays=True)
    place = folder / "arrays" / records[0]["id"]
    n = 40
    epochs = np.r_[np.arange(20), np.arange(30, 50)]
    for name, value in {
        "target_labels": np.arange(n) % 5,
        "target_predictions": np.arange(n) % 5,
        "target_recordings": np.zeros(n, np.int32),
        "target_positions": epochs * 3000,
    }.items():
        np.save(place / f"{name}.npy", value)
    figure = next(figure for figure in figures_of(folder) if figure.kind == "hypnogram")
    svg = draw(figure, folder)
    assert svg is not None
    assert "predicted (100 % of epochs agree)" in texts(svg)
    steps = [path.get("d", "") for path in ET.fromstring(svg).iter(f"{SVG}path") if path.get("d", "").count("L") > 60]
    assert [path.count("M") for path in steps] == [2, 2]


def test_examples_come_from_all_domains() -> None:
    assert _one_per_domain(np.array([0, 0, 0, 1, 1, 2]), 4) == [0, 1, 3, 5]
    assert _one_per_domain(np.repeat(np.arange(7), 2), 4) == [0, 2, 4, 12]  # the target's is never left out
    assert _one_per_domain(np.array([], dtype=int), 4) == []
