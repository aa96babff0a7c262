from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sscf.report.panels import Panel, make_panels
from sscf.report.records import load_runs
from sscf.report.tables import (
    Table,
    ablation_table,
    classes_table,
    granularity_table,
    make_tables,
    methods_table,
    overview_table,
    paper_differences,
    rank_table,
    to_csv,
    to_latex,
    to_markdown,
)


def panels_of(fab: Any, folder: Path, records: list[dict[str, Any]], planned: list[Any] | None = None) -> list[Panel]:
    return make_panels(load_runs(fab.write_runs(folder, records, planned=planned or [])))


def line(table: Table, label: str) -> dict[str, Any]:
    found = next(line for line in table.lines if line.label == label and not line.reported)
    return dict(zip(table.columns, found.entries, strict=True))


def scores(records: list[dict[str, Any]], metric: str, **where: Any) -> list[float]:
    return [
        record["scores"][metric]
        for record in sorted(records, key=lambda record: record["spec"]["seed"])
        if all(record["spec"][key] == value for key, value in where.items())
    ]


@pytest.mark.parametrize("metric", ["macro_f1", "accuracy"])
def test_mean_spread_average_and_worst(fab: Any, tmp_path: Path, metric: str) -> None:
    records = fab.har_records(methods=["erm", "coral"], seeds=4)
    (panel,) = panels_of(fab, tmp_path, records)
    entries = line(methods_table(panel, metric), "CORAL")
    by_target = {name: 100 * np.array(scores(records, metric, method="coral", target=name)) for name in fab.HAR}
    for name, values in by_target.items():
        assert entries[name].mean == pytest.approx(values.mean())
        assert entries[name].std == pytest.approx(values.std(ddof=1))
        assert entries[name].n == 4
    by_seed = np.mean(list(by_target.values()), axis=0)
    assert entries["average"].mean == pytest.approx(by_seed.mean())
    assert entries["average"].std == pytest.approx(by_seed.std(ddof=1))
    worst = min(by_target, key=lambda name: by_target[name].mean())
    assert entries["worst"].mean == pytest.approx(by_target[worst].mean())
    assert entries["worst"].hint == worst


def test_columns_follow_the_paper(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm"], seeds=1, domains=["zeta", "wisdm", "motionsense"])
    (panel,) = panels_of(fab, tmp_path, records)
    assert panel.columns == ("motionsense", "wisdm", "zeta")


def test_missing_and_failed_runs_are_shown(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm", "coral"], seeds=3)
    coral = [record for record in records if record["spec"]["method"] == "coral"]
    by_target = {name: [r for r in coral if r["spec"]["target"] == name] for name in fab.HAR}
    a, b, c, d = fab.HAR
    gone = [by_target[b][0], *by_target[c]]
    kept = [r for r in records if r not in gone and r not in (by_target[a][2], *by_target[d])]
    kept += [fab.fail(by_target[a][2], "broke"), *(fab.fail(r, "broke") for r in by_target[d])]
    (panel,) = panels_of(fab, tmp_path, kept, [r["spec"] for r in gone])
    entries = line(methods_table(panel, "macro_f1"), "CORAL")
    assert entries[a].note == "2/3 seeds, 1 failed"
    assert entries[b].note == "2/3 seeds"
    assert (entries[c].mean, entries[c].text) == (None, "missing")
    assert (entries[d].mean, entries[d].text) == (None, "failed")
    assert (entries["average"].mean, entries["average"].text) == (None, "2/4 targets")
    assert entries["worst"].mean is None
    assert not any(entry.best for entry in entries.values())
    text = to_markdown(methods_table(panel, "macro_f1"))
    assert all(note in text for note in ("2/3 seeds, 1 failed", "missing", "failed", "2/4 targets"))


def test_average_uses_only_seeds_that_all_targets_have(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm"], seeds=3, domains=["A", "B"])
    lost = next(r for r in records if r["spec"]["target"] == "A" and r["spec"]["seed"] == 1)
    kept = [r for r in records if r is not lost]
    (panel,) = panels_of(fab, tmp_path, kept, [lost["spec"]])
    average = line(methods_table(panel, "macro_f1"), "ERM")["average"]
    pairs = [scores(kept, "macro_f1", seed=seed) for seed in (0, 2)]
    assert average.mean == pytest.approx(100 * np.mean(pairs))
    assert average.note == "2/3 seeds"


def test_best_is_bold_and_only_where_it_may_be(fab: Any, tmp_path: Path) -> None:
    def at(method: str, score: float, **changes: Any) -> list[dict[str, Any]]:
        specs = [fab.make_spec("har", target, ["A", "B"], method, 0, **changes) for target in ("A", "B")]
        return [fab.make_record(spec, fab.CLASSES, score) for spec in specs]

    records = at("erm", 0.5) + at("coral", 0.6) + at("irm", 0.60000001)
    records += at("erm", 0.9, normalisation="dataset") + at("erm", 0.95, selection="oracle")
    (panel,) = panels_of(fab, tmp_path, records)
    table = methods_table(panel, "macro_f1")
    best = {row.label for row in table.lines if row.entries[0].best}
    assert best == {"CORAL", "IRM"}  # equal as printed; the higher rows used the target
    marks = {row.label: row.marks for row in table.lines}
    assert marks["ERM (normalisation=dataset)"] == "†"
    assert marks["ERM (selection=oracle)"] == "‡"
    assert marks["ERM"] == ""
    text = to_markdown(table)
    assert "**60.00**" in text
    assert "**95.00**" not in text
    assert "Not zero-shot" in text
    assert "Oracle" in text


def test_settings_that_differ_are_named(fab: Any, tmp_path: Path) -> None:
    short = {"epochs": 2, "batch_size": 128, "lr": 0.001, "patience": 5}
    records = fab.har_records(methods=["erm", "coral"], seeds=1) + fab.har_records(
        methods=["irm"], seeds=1, train=short
    )
    (panel,) = panels_of(fab, tmp_path, records)
    assert [row.label for row in panel.rows] == ["ERM", "CORAL", "IRM (epochs=2)"]


def test_sweep_is_one_row_with_k_chosen_on_sources(fab: Any, tmp_path: Path) -> None:
    """K by best mean source validation per target, ties to the smaller; scores on the target play no part."""
    validation = {("A", 2): 0.8, ("A", 4): 0.8, ("B", 2): 0.7, ("B", 4): 0.9}
    records = []
    for (target, k), value in validation.items():
        for seed in range(2):
            spec = fab.make_spec("har", target, ["A", "B"], "sscf", seed, k=k)
            record = fab.make_record(spec, fab.CLASSES, 0.9 if (target, k) in (("A", 4), ("B", 2)) else 0.5)
            records.append({**record, "validation": {"macro_f1": value, "epoch": 1}})
    (panel,) = panels_of(fab, tmp_path, records)
    (row,) = panel.main
    assert row.label == "SSCF"
    assert row.note == "K chosen on source validation: 2 for A; 4 for B"
    assert line(methods_table(panel, "macro_f1"), "SSCF")["average"].mean == pytest.approx(50)
    table = granularity_table(panel, panel.sweeps[0], "macro_f1")
    assert [found.label for found in table.lines] == ["K = 2", "K = 4"]
    assert line(table, "K = 4")["A"].mean == pytest.approx(90)


def test_sweep_is_found_under_names_of_the_users(fab: Any, tmp_path: Path) -> None:
    records = []
    for k in (2, 8):
        for target in ("A", "B"):
            spec = {**fab.make_spec("har", target, ["A", "B"], "sscf", 0, k=k), "method": f"my-{k}"}
            records.append(fab.make_record(spec, fab.CLASSES))
    (panel,) = panels_of(fab, tmp_path, records)
    assert [row.k for row in panel.sweeps[0]] == [2, 8]
    assert [row.label for row in panel.main] == ["SSCF"]
    assert panel.reference is panel.main[0]


def test_runs_that_choose_k_themselves_are_the_main_row(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["sscf"], seeds=1, ks=[2, 4, "auto"])
    (panel,) = panels_of(fab, tmp_path, records)
    (row,) = panel.main
    assert row.k == "auto"
    assert {run.k for run in row.runs.values()} == {8}
    assert len(panel.sweeps[0]) == 2


def test_ablation_and_rank_layouts(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm", "coral", "global-anchor", "domain-anchor", "sscf"], seeds=2, ks=[4])
    (panel,) = panels_of(fab, tmp_path, records)
    table = ablation_table(panel, "macro_f1")
    assert table is not None
    assert [found.label for found in table.lines] == [
        "no calibration",
        "one anchor",
        "anchor per data set",
        "strata (SSCF)",
    ]
    sscf = next(row for row in panel.rows if row.method == "sscf")
    ranks = rank_table(panel, sscf, "accuracy")
    assert [found.label for found in ranks.lines] == ["R = 1", "R = 2", "R = 3", "R = 4"]
    wanted = [
        r["ranks"][2]["accuracy"] for r in records if r["spec"]["method"] == "sscf" and r["spec"]["target"] == "WISDM"
    ]
    assert line(ranks, "R = 3")["WISDM"].mean == pytest.approx(100 * np.mean(wanted))
    assert (
        ablation_table(panels_of(fab, tmp_path / "b", fab.har_records(methods=["erm"], seeds=1))[0], "macro_f1") is None
    )


def test_classes_are_averaged_where_they_exist(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm"], seeds=1, domains=["A", "B"])
    lacking = records[0]["scores"]
    lacking["per_class_f1"]["stairs"] = None
    lacking["missing_classes"] = ["stairs"]
    (panel,) = panels_of(fab, tmp_path, records)
    table = classes_table(panel)
    assert table is not None
    assert line(table, "ERM")["stairs"].mean == pytest.approx(100 * records[1]["scores"]["per_class_f1"]["stairs"])
    assert "A has no windows of class stairs." in table.notes


def test_overview_joins_left_out_and_external_targets(fab: Any, tmp_path: Path) -> None:
    inner, outer = ["SHHS1", "P2018", "MROS1", "MROS2", "MESA"], ["ABC", "CCSHS", "CFS", "HMC", "ISRUC", "Sleep-EDFx"]
    stages = ("W", "N1", "N2", "N3", "REM")
    records = fab.har_records(methods=["erm", "sscf"], seeds=2, ks=[4], domains=inner, task="sleep", classes=stages)
    for method in ("erm", "sscf"):
        for target in outer:
            for seed in range(2):
                spec = fab.make_spec("sleep", target, inner, method, seed, protocol="external")
                records.append(fab.make_record(spec, stages))
    lodo, external = panels_of(fab, tmp_path, records)
    table = overview_table(lodo, external, "macro_f1", with_paper=True)
    assert table.columns == ("average", *outer, "average")
    entries = next(found for found in table.lines if found.label == "SSCF" and not found.reported).entries
    by_seed = [np.mean(scores(records, "macro_f1", method="sscf", protocol="lodo", seed=seed)) for seed in range(2)]
    assert entries[0].mean == pytest.approx(100 * np.mean(by_seed))
    theirs = next(found for found in table.lines if found.label == "SSCF" and found.reported)
    assert [entry.mean for entry in theirs.entries] == [69.37, 71.96, 81.04, 77.12, 72.49, 74.76, 73.33, 75.12]
    assert sum(found.reported for found in table.lines) == 8
    text = to_latex(table)
    assert r"\multicolumn{1}{c}{leave one domain out} & \multicolumn{7}{c}{external targets}" in text
    assert r"\cmidrule(lr){2-2} \cmidrule(lr){3-9}" in text
    assert any(found.id == table.id for found in make_tables([lodo, external], True))


def test_paper_rows_are_told_apart(fab: Any, tmp_path: Path) -> None:
    (panel,) = panels_of(fab, tmp_path, fab.har_records(methods=["erm", "sscf"], seeds=2, ks=[4, 8]))
    table = methods_table(panel, "macro_f1", with_paper=True)
    theirs = [found for found in table.lines if found.reported]
    assert [found.label for found in theirs] == ["Baseline", "CORAL", "MMD", "IRM", "SSCF"]
    assert [entry.mean for entry in theirs[-1].entries] == [98.59, 90.41, 89.14, 99.56, 94.43, 89.14]
    assert not any(entry.best for found in theirs for entry in found.entries)
    assert "reported in the paper" in to_markdown(table)
    assert to_csv(table).count("reported in the paper") == 5
    assert not any(found.reported for found in methods_table(panel, "macro_f1").lines)
    assert any("Seeds: 2 here, 5 in the paper." in text for text in paper_differences([panel]))
    sweep = granularity_table(panel, panel.sweeps[0], "macro_f1", with_paper=True)
    assert sum(found.reported for found in sweep.lines) == 8


def test_simulated_data_is_never_beside_the_paper(fab: Any, tmp_path: Path) -> None:
    records = [{**record, "simulated": True} for record in fab.har_records(methods=["erm", "coral"], seeds=1)]
    (panel,) = panels_of(fab, tmp_path, records)
    table = methods_table(panel, "macro_f1", with_paper=True)
    assert not any(found.reported for found in table.lines)
    assert "(simulation)" in table.title
    assert "Simulated data" in to_markdown(table)
    assert "Simulated data" in to_latex(table)
    assert paper_differences([panel]) == []


NASTY = ["<script>alert(1)</script>", "a & b_c%", r"x\y|z*#${}~^", "two\nlines", "=1+1"]


def test_names_are_escaped(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(
        methods=["erm", "coral"], seeds=1, domains=NASTY, classes=("p|q", "<b>"), task="t_1 & <i>"
    )
    (panel,) = panels_of(fab, tmp_path, records)
    for table in make_tables([panel], True):
        text = to_latex(table)
        body = text[text.index(r"\toprule") :]
        rows = [row for row in body.splitlines() if row.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.columns)}
        bare = re.sub(r"\\[&%$#_{}]|\\\\|\$[^$]*\$|\\[a-z]+(\{\})?", "", text.split("\n", 1)[1])
        assert not re.search(r"[%#_^~<>|]", re.sub(r"\\label\{.*\}", "", bare)), bare
        assert bare.count("{") == bare.count("}")
        assert "<script" not in to_markdown(table)
        grid = [row for row in to_markdown(table).splitlines() if row.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in grid} == {len(table.columns) + 2}
        assert re.fullmatch(r"[a-z0-9-]+", table.id)
    grid_rows = [*csv.reader(io.StringIO(to_csv(methods_table(panel, "macro_f1"))))]
    assert {len(row) for row in grid_rows} == {3 + 4 * (len(NASTY) + 2)}
    assert f"{NASTY[0]} mean" in grid_rows[0]


def test_latex_needs_no_other_package_and_takes_no_label_for_an_option(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm", "sscf", "[mine]", "*mine"], seeds=2)
    (panel,) = panels_of(fab, tmp_path, records)
    for table in make_tables([panel], True):
        text = to_latex(table)
        assert set(re.findall(r"[^\x00-\x7f]", text)) <= set("“”"), table.id  # the others are unknown to LaTeX
        assert not re.search(r"\\\\\s*[\[*]", text), table.id


def test_csv_holds_the_numbers(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm"], seeds=2)
    (panel,) = panels_of(fab, tmp_path, records)
    (row,) = csv.DictReader(io.StringIO(to_csv(methods_table(panel, "macro_f1"))))
    values = scores(records, "macro_f1", target="WISDM")
    assert float(row["WISDM mean"]) == pytest.approx(100 * np.mean(values), abs=1e-4)
    assert float(row["WISDM std"]) == pytest.approx(100 * np.std(values, ddof=1), abs=1e-4)
    assert row["WISDM n"] == "2"
