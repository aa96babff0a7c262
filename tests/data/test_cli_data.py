"""The data commands as a user meets them: what is printed, and the exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from sscf.cli import main
from sscf.data.datasets import NAMES
from sscf.data.store import Domain, open_store, write_domain


class Result(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def sscf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    monkeypatch.setenv("COLUMNS", "120")

    def run(*args: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["sscf", *map(str, args)])
        try:
            main()
            status = 0
        except SystemExit as leave:
            status = int(leave.code or 0)
        return Result(status, *capsys.readouterr())

    return run


def recipe(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "raw").mkdir()
    for subject in ("ann", "bob"):
        for label in ("walking", "sitting"):
            np.save(tmp_path / "raw" / f"{subject}_{label}.npy", rng.normal(size=(1000, 1)))
    text = """
    name = "gym"
    task = "har"
    format = "npy"
    files = "*.npy"
    subject = "^(.*)_"
    channels = ["x"]
    rate = 100
    unit = "g"
    store = { fs = 50, window = 2 }
    [labels]
    classes = ["walking", "sitting"]
    pattern = "_(.*).npy"
    """
    (tmp_path / "gym.toml").write_text(text)
    return tmp_path / "gym.toml"


def test_datasets_lists_all_and_what_is_found(sscf: Callable[..., Result], tmp_path: Path) -> None:
    listed = sscf("datasets")
    assert listed.status == 0
    assert [line.split()[0] for line in listed.out.splitlines() if line.split()[0] in NAMES] == list(NAMES)
    assert "sleepdata.org" in listed.out
    root = tmp_path / "Downloads" / "usc-had" / "Subject1"
    root.mkdir(parents=True)
    (root / "a1t1.mat").touch()
    found = sscf("datasets", "--raw", tmp_path)
    (line,) = [line for line in found.out.splitlines() if line.startswith("uschad")]
    assert "1 recording in Downloads/usc-had" in line
    assert sscf("datasets", "--raw", tmp_path / "none").status == 2


def test_datasets_lists_a_broken_download_among_the_others(sscf: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "motionsense").mkdir()
    root = tmp_path / "USC-HAD" / "Subject1"
    root.mkdir(parents=True)
    (root / "a1t1.mat").touch()
    found = sscf("datasets", "--raw", tmp_path)
    assert found.status == 0
    assert "1 recording in USC-HAD" in found.out
    (line,) = [line for line in found.out.splitlines() if line.startswith("motionsense")]
    assert "not usable" in line


def test_prepare_inspect_verify(sscf: Callable[..., Result], tmp_path: Path) -> None:
    path, store, picture = recipe(tmp_path), tmp_path / "store", tmp_path / "picture.png"
    done = sscf("prepare", path, "--raw", tmp_path / "raw", "--out", store)
    assert done.status == 0, done.err
    assert "gym: 20 windows of 4 recordings (4 computed)" in done.out
    assert "nothing had changed" in sscf("prepare", path, "--raw", tmp_path / "raw", "--out", store).out
    seen = sscf("inspect", store, "--subjects", "--picture", picture)
    assert seen.status == 0, seen.err
    assert "1 x 100 at 50 Hz g" in seen.out
    assert "windows by class (har)" in seen.out
    assert "gym has no window of stairs, standing" in seen.out
    assert "ann 10, bob 10" in seen.out
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert sscf("inspect", store / "gym", "--task", "har3").status == 0
    assert sscf("verify", store).status == 0
    with open(store / "gym" / "labels.npy", "r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x01")
    broken = sscf("verify", store)
    assert broken.status == 1
    assert "labels.npy" in broken.err


def test_bad_recordings_stop_with_status_2_or_are_listed(sscf: Callable[..., Result], tmp_path: Path) -> None:
    path = recipe(tmp_path)
    np.save(tmp_path / "raw" / "bob_sitting.npy", np.zeros((1000, 1)))
    args = ("prepare", path, "--raw", tmp_path / "raw", "--out", tmp_path / "store")
    bad = sscf(*args)
    assert bad.status == 2
    assert "bob_sitting.npy: channel 'x' is all zero" in bad.err
    assert "--skip-bad" in bad.err
    assert "Traceback" not in bad.err
    good = sscf(*args, "--skip-bad")
    assert good.status == 0
    assert "left out bob_sitting:" in good.out
    assert len(Domain.open(tmp_path / "store" / "gym")) == 15


def test_simulate(sscf: Callable[..., Result], tmp_path: Path) -> None:
    assert sscf("prepare", "--simulate", "har", "--out", tmp_path / "a", "--seed", 3).status == 0
    assert sscf("prepare", "--simulate", "har", "--out", tmp_path / "b", "--seed", 3).status == 0
    one, two = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    assert {name: d.fingerprint for name, d in one.items()} == {name: d.fingerprint for name, d in two.items()}
    assert "simulated, not recorded: sim-har-a" in sscf("inspect", tmp_path / "a").out
    assert sscf("prepare", "--simulate", "eeg", "--out", tmp_path / "c").status == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prepare"], "nothing to prepare"),
        (["prepare", "nix", "--raw", "."], "no data set 'nix'; there are shhs1"),
        (["prepare", "uschad"], "--raw is needed"),
        (["prepare", "uschad", "--raw", "/nowhere"], "no such folder"),
        (["prepare", "uschad", "--raw", "EMPTY"], "uschad: no folder 'USC-HAD'"),
        (["prepare", "none.toml", "--raw", "EMPTY"], "none.toml: no such file"),
        (["prepare", "uschad", "--simulate", "har"], "give no data sets with it"),
        (["inspect", "EMPTY"], "no prepared domain in it; make one with 'sscf prepare'"),
        (["verify", "EMPTY"], "no prepared domain"),
        (["prepare", "--simulate", "har", "--out", "FILE"], "FILE: File exists"),
        (["inspect", "STORE", "--picture", "EMPTY/p.xyz"], "p.xyz: a picture is a .png, .svg or .pdf file"),
    ],
)
def test_a_users_error_is_one_line_and_status_2(
    sscf: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    (tmp_path / "EMPTY").mkdir()
    (tmp_path / "FILE").touch()
    write_domain(tmp_path / "STORE" / "mine", np.ones((4, 1, 50)), ["a", "b"] * 2, range(4), ["a", "b"], 50)
    monkeypatch.chdir(tmp_path)
    result = sscf(*args)
    assert result.status == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_inspect_shows_every_number_of_many_classes(sscf: Callable[..., Result], tmp_path: Path) -> None:
    labels = [f"a rather long activity {i}" for i in range(14)]
    windows = np.random.default_rng(0).normal(size=(14 * 123, 1, 20))
    write_domain(tmp_path / "many", windows, labels * 123, range(len(windows)), labels, 50)
    shown = sscf("inspect", tmp_path).out
    assert "…" not in shown
    for label in labels:
        (line,) = [line for line in shown.splitlines() if line.startswith(label + " ")]
        assert line.split()[-1] == "123"


def test_inspect_says_where_the_task_does_not_fit(sscf: Callable[..., Result], tmp_path: Path) -> None:
    windows = np.random.default_rng(0).normal(size=(4, 1, 20))
    write_domain(tmp_path / "store" / "nap", windows, ["W", "N1"] * 2, range(4), ["W", "N1"], 50)
    refused = sscf("inspect", tmp_path / "store", "--task", "har")
    assert refused.status == 2
    assert "task 'har' has no map for domain 'nap'" in refused.err
    write_domain(tmp_path / "store" / "gym", windows, ["walking", "sitting"] * 2, range(4), ["walking", "sitting"], 50)
    shown = sscf("inspect", tmp_path / "store", "--task", "har")
    assert shown.status == 0
    assert "task 'har' has no map for domain 'nap'" in shown.out
    assert "Its own labels are counted." in shown.out


def test_names_are_printed_as_they_are(sscf: Callable[..., Result], tmp_path: Path) -> None:
    store = tmp_path / "[red]x[/b]"
    labels = ["[b]", r"[/i]$\no$"]
    windows = np.random.default_rng(0).normal(size=(4, 1, 50))
    write_domain(store / "<script>[u]", windows, labels * 2, range(4), labels, 50)
    shown = sscf("inspect", store, "--subjects", "--picture", store / "new" / "p.svg")
    assert shown.status == 0
    for name in ("<script>[u]", *labels, f"picture: {store}"):
        assert name in shown.out
    assert (store / "new" / "p.svg").is_file()
    assert f"{store}/s/sim-har-a" in sscf("prepare", "--simulate", "har", "--out", store / "s").out


def test_help_does_not_import_numpy() -> None:
    code = "import sys; sys.argv = ['sscf', 'prepare', '--help']\nfrom sscf.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "bad = {'numpy', 'torch', 'scipy', 'matplotlib'} & set(sys.modules)\nassert not bad, bad"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
