from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sscf.errors import FileError
from sscf.report.panels import make_panels
from sscf.report.records import load_runs, read_array


@pytest.fixture
def one(fab: Any, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    record = fab.har_records(methods=["sscf"], seeds=1, ks=[4])[0]
    return fab.write_runs(tmp_path / "runs", [record]), record


def rewrite(folder: Path, record: dict[str, Any], **changes: Any) -> None:
    (folder / "records" / f"{record['id']}.json").write_text(json.dumps({**record, **changes}))


def test_done_failed_and_missing(fab: Any, tmp_path: Path) -> None:
    done, failed, missing = fab.har_records(methods=["erm"], seeds=1)[:3]
    folder = fab.write_runs(tmp_path, [done, fab.fail(failed, "no memory")], planned=[missing["spec"]])
    runs = load_runs(folder)
    assert {run.id: run.status for run in runs.records} == {
        done["id"]: "done",
        failed["id"]: "failed",
        missing["id"]: "missing",
    }
    assert [run.id for run in runs.records] == sorted(run.id for run in runs.records)
    assert runs.by_id[failed["id"]].reason == "no memory"
    assert runs.by_id[done["id"]].scores.macro_f1 == done["scores"]["macro_f1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 2}, "schema 2"),
        ({"status": "half"}, "status"),
        ({"scores": None}, "no scores"),
        ({"scores": {"accuracy": 0.5}}, "macro_f1"),
        ({"id": "another"}, "renamed"),
    ],
)
def test_a_bad_record_is_named(one: tuple[Path, dict[str, Any]], changes: dict[str, Any], said: str) -> None:
    folder, record = one
    rewrite(folder, record, **changes)
    with pytest.raises(FileError, match=said) as error:
        load_runs(folder)
    assert record["id"] in str(error.value)


def test_what_is_no_folder_of_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such folder"):
        load_runs(tmp_path / "nowhere")
    with pytest.raises(FileError, match="no records and no plan"):
        load_runs(tmp_path)
    (tmp_path / "plan.json").write_text('{"runs": [{"id": "x"}]}')
    with pytest.raises(FileError, match="spec"):
        load_runs(tmp_path)


def test_an_id_cannot_leave_the_folder(one: tuple[Path, dict[str, Any]]) -> None:
    folder, record = one
    (folder / "records" / "..json").write_text(json.dumps({**record, "id": "."}))
    with pytest.raises(FileError):
        load_runs(folder)


def test_arrays_are_read_without_pickle(one: tuple[Path, dict[str, Any]]) -> None:
    folder, record = one
    place = folder / "arrays" / record["id"]
    place.mkdir(parents=True)
    assert read_array(folder, record["id"], "anchors") is None
    np.save(place / "anchors.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match=r"anchors\.npy"):
        read_array(folder, record["id"], "anchors")
    (place / "anchors.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(FileError, match=r"anchors\.npy"):
        read_array(folder, record["id"], "anchors")


def test_versions_of_data_never_share_a_panel(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm"], seeds=1)
    other = {**records[0]["spec"]["data"], "WISDM": "changed"}
    records += fab.har_records(methods=["coral"], seeds=1, data=other)
    panels = make_panels(load_runs(fab.write_runs(tmp_path, records)))
    assert len(panels) == 2
    assert all(panel.data and panel.data in panel.title for panel in panels)
    assert [len(panel.rows) for panel in panels] == [1, 1]


def test_protocol_limit_and_task_make_panels(fab: Any, tmp_path: Path) -> None:
    records = fab.har_records(methods=["erm"], seeds=1)
    records += fab.har_records(methods=["erm"], seeds=1, max_windows=500)
    records += fab.har_records(methods=["erm"], seeds=1, protocol="external")
    records += fab.har_records(methods=["erm"], seeds=1, task="har3")
    panels = make_panels(load_runs(fab.write_runs(tmp_path, records)))
    assert len({panel.id for panel in panels}) == len({panel.title for panel in panels}) == 4
    assert any("at most 500 windows" in panel.title for panel in panels)


def test_one_target_with_several_sources_gets_several_columns(fab: Any, tmp_path: Path) -> None:
    few = [fab.make_record(fab.make_spec("har", "A", ["A", "B"], "erm", 0), fab.CLASSES)]
    many = [fab.make_record(fab.make_spec("har", "A", ["A", "B", "C"], "erm", 0), fab.CLASSES)]
    (panel,) = make_panels(load_runs(fab.write_runs(tmp_path, few + many)))
    assert panel.columns == ("A ← B", "A ← B, C")


def test_k_is_the_number_of_strata_a_run_ended_with(fab: Any, tmp_path: Path) -> None:
    records = [r for r in fab.har_records(["domain-anchor", "sscf"], seeds=1, ks=[4]) if r["spec"]["target"] == "WISDM"]
    records[0]["chosen"] = {"k": 1}  # one anchor for each of three domains
    runs = load_runs(fab.write_runs(tmp_path, records))
    assert {record.spec.method: record.k for record in runs.records} == {"domain-anchor": 3, "sscf": 4}
