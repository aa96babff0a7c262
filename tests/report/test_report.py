"""The whole report: files, purity, size, time, command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sscf.errors import FileError
from sscf.report import to_toml, write_report


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Tags(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def small(fab: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = fab.har_records(["erm", "coral", "sscf"], seeds=2, ks=[2, 4], domains=["A", "B"])
    records[0] = fab.fail(records[0], "out of memory")
    lost = records.pop()
    return fab.write_runs(
        tmp_path_factory.mktemp("small"), records, arrays=lambda r: r["spec"]["target"] == "A", planned=[lost["spec"]]
    )


def test_same_records_same_bytes(small: Path, tmp_path: Path) -> None:
    """Whatever the folder is called and in whatever order its files were written."""
    copy = tmp_path / "elsewhere" / "copied"
    for path in sorted(small.rglob("*"), reverse=True):
        if path.is_file():
            place = copy / path.relative_to(small)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    write_report(small, tmp_path / "one", figures=24)
    page = write_report(copy, tmp_path / "two", figures=24)
    assert page == tmp_path / "two" / "index.html"
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert one == two
    assert str(tmp_path).encode() not in b"".join(two.values())
    manifest = json.loads(two["report.json"])
    assert set(manifest["files"]) == set(two) - {"report.json"}


def test_a_hash_seed_changes_nothing(small: Path, tmp_path: Path) -> None:
    code = "import sys; from sscf.report import write_report; write_report(sys.argv[1], sys.argv[2], figures=6)"
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, str(small), str(tmp_path / seed)]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"})
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_what_an_earlier_report_left_is_gone(fab: Any, small: Path, tmp_path: Path) -> None:
    write_report(small, tmp_path, figures=8)
    (tmp_path / "mine.txt").write_text("keep")
    only = fab.write_runs(tmp_path / "runs", fab.har_records(["erm"], seeds=1, domains=["A", "B"]))
    write_report(only, tmp_path, figures=8)
    assert (tmp_path / "mine.txt").exists()
    assert not list(tmp_path.glob("tables/*granularity*"))
    assert not list(tmp_path.glob("figures/rank*"))
    assert list(tmp_path.glob("tables/*"))


@pytest.mark.parametrize("text", ["[]", '{"files": ["mine.txt"]}', "no JSON"])
def test_a_foreign_report_json_is_not_overwritten(small: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(FileError, match=r"report\.json: .*choose another folder"):
        write_report(small, tmp_path, figures=0)
    assert (tmp_path / "report.json").read_text() == text
    assert (tmp_path / "mine.txt").exists()


def test_page_is_alone_and_says_what_failed(small: Path, tmp_path: Path) -> None:
    text = write_report(small, tmp_path, figures=30).read_text()
    page = Tags(text)
    loads = [(tag, attrs) for tag, attrs in page.tags if {"src", "srcset", "xlink:href"} & set(attrs) or tag == "link"]
    assert loads == []
    links = [attrs["href"] or "" for tag, attrs in page.tags if tag == "a"]
    assert all(link.startswith("#") or (tmp_path / link).is_file() for link in links)
    anchors = {attrs.get("id") for _, attrs in page.tags}
    assert all(link[1:] in anchors for link in links if link.startswith("#"))
    policy = next(attrs for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy["content"] or "")
    said = " ".join(page.words)
    assert "out of memory" in said
    assert "1 run failed and 1 run not run yet" in said
    assert "sscf report RUNS --out REPORT" in said
    assert "2 targets are too few" in said
    assert len(text.encode()) < 5_000_000


def test_simulated_data_are_announced(fab: Any, tmp_path: Path) -> None:
    records = [{**r, "simulated": True} for r in fab.har_records(["erm", "sscf"], seeds=1, ks=[4])]
    text = write_report(fab.write_runs(tmp_path / "runs", records), tmp_path / "out", figures=0).read_text()
    assert "Simulated data: these numbers show that the method runs" in text
    assert 'class="tag">paper' not in text


def test_nasty_names_are_text(fab: Any, tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "a & b_c%", "\"'><img src=x>", "../../up", "</style>"]
    records = fab.har_records(["erm", "<i>mine</i>"], seeds=1, domains=names, classes=("<b>", "y"), task="</script><t>")
    records[0] = fab.fail(records[0], "<script>alert(2)</script>")
    out = tmp_path / "out"
    page = Tags(write_report(fab.write_runs(tmp_path / "runs", records), out).read_text())
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == tags.count("style") == 1
    assert not {"img", "i", "t", "b"} & set(tags)
    assert all(not name.startswith("on") for _, attrs in page.tags for name in attrs)
    words = "".join(page.words)
    assert all(name in words for name in names[:3])
    assert all(re.fullmatch(r"[a-z0-9.-]+", path.name) for path in out.rglob("*.*") if path.is_file())
    assert all(out in path.resolve().parents for path in out.rglob("*"))


def test_experiment_is_given_as_toml(small: Path, tmp_path: Path) -> None:
    values = {
        "name": 'a "b" \\ é',
        "task": "har",
        "store": None,
        "seeds": [0, 1],
        "methods": ["erm", {"name": "x y", "method": "sscf", "sscf": {"k": [1, 2]}, "backbone": None}],
        "train": {"epochs": 3, "lr": 0.001, "patience": None, "class_weights": False},
        "backbone_params": {},
    }
    read = tomllib.loads(to_toml(values))
    assert read == {
        "name": 'a "b" \\ é',
        "task": "har",
        "seeds": [0, 1],
        "methods": ["erm", {"name": "x y", "method": "sscf", "sscf": {"k": [1, 2]}}],
        "train": {"epochs": 3, "lr": 0.001, "class_weights": False},
        "backbone_params": {},
    }
    write_report(small, tmp_path, figures=0)
    assert tomllib.loads((tmp_path / "experiment.toml").read_text())["task"] == "har"


def test_nothing_done_yet_is_a_report_too(fab: Any, tmp_path: Path) -> None:
    first, *others = fab.har_records(["erm", "sscf"], seeds=1, ks=[4])
    runs = fab.write_runs(tmp_path / "runs", [fab.fail(first, "no")], planned=[r["spec"] for r in others])
    assert "No run is done yet." in write_report(runs, tmp_path / "out").read_text()


def test_five_thousand_records(fab: Any, tmp_path: Path) -> None:
    """Under 30 s on an idle machine; processor time is what is measured, since the machine may not be idle."""
    methods = ["erm", "sscf", *(f"method{i}" for i in range(17))]
    records = fab.har_records(methods, seeds=10, ks=[1, 2, 4, 8, 16], domains=[f"set{i}" for i in range(22)])
    assert len(records) >= 5_000
    for record in records:
        record["scores"]["per_subject"] = {}
    runs = fab.write_runs(tmp_path / "runs", records)
    start = time.process_time()
    page = write_report(runs, tmp_path / "out")
    assert time.process_time() - start < 30
    assert page.stat().st_size < 5_000_000


def test_command(small: Path, tmp_path: Path) -> None:
    code = "from sscf.cli import main; main()"
    base = [sys.executable, "-c", code, "report"]
    done = subprocess.run(
        [*base, str(small), "--out", str(tmp_path / "o"), "--jobs", "1", "--figures", "4", "--no-paper"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o" / "index.html").is_file()
    wrong = subprocess.run(
        [*base, str(tmp_path / "none"), "--out", str(tmp_path / "p")], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "no such folder of runs" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_damaged_array_is_named(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "runs"
    shutil.copytree(small, copy)
    for broken in copy.glob("arrays/*/embedding.npy"):
        broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(FileError, match=r"arrays/\w+/embedding.npy: not a readable array"):
        write_report(copy, tmp_path / "out")
