"""The engine on a small data set of its own: same bytes however it is run, interrupted or changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sscf.data.prepare import prepare
from sscf.data.recipe import OwnData, load_recipe
from sscf.data.store import Domain, open_store, verify
from sscf.errors import DataError, SSCFError
from sscf.files import sha256_file

RECIPE = """
name = "toy"
task = "har"
format = "npy"
files = "*/*.npy"
subject = "^([^/]+)/"
channels = ["x", "y"]
rate = 100
unit = "m/s^2"
store = { fs = 50, window = 2, hop = 1, unit = "g", band = [2, 20] }
[labels]
classes = ["walking", "sitting"]
pattern = "-([a-z]+).npy"
map = { nap = false }
"""


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    folder = tmp_path / "raw"
    for subject in range(4):
        (folder / f"s{subject}").mkdir(parents=True)
        for trial, label in enumerate(("walking", "sitting", "nap")):
            np.save(folder / f"s{subject}" / f"{trial}-{label}.npy", rng.normal(size=(1000 + 10 * trial, 2)))
    (tmp_path / "toy.toml").write_text(RECIPE)
    return folder


@pytest.fixture
def toy(tmp_path: Path, raw: Path) -> OwnData:
    return load_recipe(tmp_path / "toy.toml")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_manifest_tells_where_everything_comes_from(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    done = prepare(toy, raw, tmp_path / "store")
    domain = Domain.open(done.path)
    m = domain.manifest
    assert (done.windows, done.recordings, done.computed) == (4 * 2 * 9, 12, 12)
    assert done.dropped == m["dropped"] == {"label 'nap'": 36}
    assert len(m["files"]) == 12
    assert m["files"]["s0/0-walking.npy"] == hashlib.sha256((raw / "s0/0-walking.npy").read_bytes()).hexdigest()
    assert [(s["id"], s["windows"]) for s in m["sources"][:3]] == [
        ("s0/0-walking", 9),
        ("s0/1-sitting", 9),
        ("s0/2-nap", 0),
    ]
    assert m["recipe"]["band"] == [2, 20]
    assert m["recipe_hash"] == toy.recipe.hash
    assert domain.subject_names == ("s0", "s1", "s2", "s3")
    assert len(domain.recording_names) == 8
    assert (m["samples"], m["hop"], domain.fs, domain.unit) == (100, 50, 50.0, "g")
    assert [f.name for f in (tmp_path / "store").iterdir()] == ["toy"]
    assert verify(tmp_path / "store") == []


def test_windows_agree_with_scipy_on_the_same_file(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    from scipy.signal import butter, firwin, resample_poly, sosfiltfilt

    domain = Domain.open(prepare(toy, raw, tmp_path / "store").path)
    x = np.load(raw / "s2/1-sitting.npy").T / 9.80665
    taps = firwin(801, 22.5, window=("kaiser", 9.2), fs=100)
    slow = resample_poly(x, 1, 2, axis=1, window=taps)
    expected = sosfiltfilt(butter(4, (2, 20), "bandpass", fs=50, output="sos"), slow, axis=1)
    rows = np.flatnonzero(domain.recordings == domain.recording_names.index("s2/1-sitting"))
    for row in rows[3:-3]:
        a = int(domain.positions[row])
        np.testing.assert_allclose(domain.windows[row], expected[:, a : a + 100], atol=0.02 * expected.std())


def test_two_jobs_give_the_bytes_of_one(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    prepare(toy, raw, tmp_path / "one")
    calls: list[tuple[str, int, int]] = []
    prepare(toy, raw, tmp_path / "two", jobs=2, progress=lambda *args: calls.append(args))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert calls == [("toy", done, 12) for done in range(13)]


def test_asking_again_computes_nothing_and_touches_nothing(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    path = prepare(toy, raw, tmp_path / "store").path
    before = (path / "windows.npy").stat().st_mtime_ns, (path / "windows.npy").stat().st_ino
    assert prepare(toy, raw, tmp_path / "store").computed == 0
    assert ((path / "windows.npy").stat().st_mtime_ns, (path / "windows.npy").stat().st_ino) == before


def test_a_changed_added_or_removed_file_rebuilds_just_that(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    prepare(toy, raw, tmp_path / "store")
    np.save(raw / "s1/0-walking.npy", np.random.default_rng(9).normal(size=(1500, 2)))
    assert prepare(toy, raw, tmp_path / "store").computed == 1
    (raw / "s0/0-walking.npy").rename(raw / "s0/0-sitting.npy")
    (raw / "s3/1-sitting.npy").unlink()
    assert prepare(toy, raw, tmp_path / "store").computed == 1
    prepare(toy, raw, tmp_path / "fresh")
    assert contents(tmp_path / "store") == contents(tmp_path / "fresh")


def test_a_changed_recipe_rebuilds_everything(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    prepare(toy, raw, tmp_path / "store")
    (tmp_path / "toy.toml").write_text(RECIPE.replace("hop = 1", "hop = 2"))
    changed = load_recipe(tmp_path / "toy.toml")
    assert prepare(changed, raw, tmp_path / "store").computed == 12
    assert Domain.open(tmp_path / "store" / "toy").hop == 100


def test_rows_that_were_damaged_in_the_store_are_computed_again(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    path = prepare(toy, raw, tmp_path / "store").path
    good = contents(path)
    windows = np.load(path / "windows.npy", mmap_mode="r+")
    windows[12, 0, 0] += 1
    windows.flush()
    (raw / "s3/2-nap.npy").unlink()
    prepare(toy, raw, tmp_path / "store")
    assert (path / "windows.npy").read_bytes() == good["windows.npy"]


def test_a_bad_recording_stops_or_is_listed(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    broken = np.load(raw / "s1/0-walking.npy")
    broken[40, 1] = np.nan
    np.save(raw / "s1/0-walking.npy", broken)
    (raw / "s2/1-sitting.npy").write_bytes(b"not an array")
    for jobs in (1, 2):
        with pytest.raises(DataError, match=r"(?s)(s1/0-walking|s2/1-sitting)\.npy.*--skip-bad"):
            prepare(toy, raw, tmp_path / "store", jobs=jobs)
        assert not (tmp_path / "store" / "toy").exists()
    done = prepare(toy, raw, tmp_path / "store", skip_bad=True)
    assert [entry["id"] for entry in done.skipped] == ["s1/0-walking", "s2/1-sitting"]
    assert "'y' has 1 values that are not numbers, the first at sample 40 (0.4 s)" in done.skipped[0]["reason"]
    domain = Domain.open(done.path)
    assert domain.manifest["skipped"] == done.skipped
    assert not {"s1/0-walking", "s2/1-sitting"} & set(domain.recording_names)


def test_a_file_that_cannot_be_opened_is_a_bad_recording(
    toy: OwnData, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> str:
        if path.name == "0-walking.npy" and path.parent.name == "s1":
            raise PermissionError(13, "Permission denied", str(path))
        return sha256_file(path)

    monkeypatch.setattr("sscf.data.prepare.sha256_file", refuse)
    with pytest.raises(DataError, match=r"s1/0-walking\.npy: cannot be read \(Permission denied\)"):
        prepare(toy, raw, tmp_path / "store")
    done = prepare(toy, raw, tmp_path / "store", skip_bad=True)
    assert [entry["id"] for entry in done.skipped] == ["s1/0-walking"]


def test_the_same_signal_twice_is_found(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    np.save(raw / "s3/9-walking.npy", np.load(raw / "s1/0-walking.npy"))
    with pytest.raises(DataError, match=r"s3/9-walking\.npy: the same signal as recording 's1/0-walking'"):
        prepare(toy, raw, tmp_path / "store")
    assert prepare(toy, raw, tmp_path / "store", skip_bad=True).skipped[0]["id"] == "s3/9-walking"


def test_nothing_found_and_nothing_left_say_why(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no recordings in .*looks for \*/\*\.npy"):
        prepare(toy, tmp_path / "empty", tmp_path / "store")
    for path in raw.glob("*/*-[ws]*.npy"):
        path.unlink()
    with pytest.raises(DataError, match="no window left of 4 recordings; 36 windows: label 'nap'"):
        prepare(toy, raw, tmp_path / "store")


def test_the_raw_folder_is_not_replaced_by_the_domain(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    before = contents(raw)
    raw.rename(tmp_path / "toy")
    with pytest.raises(SSCFError, match="is no prepared domain"):
        prepare(toy, tmp_path / "toy", tmp_path)
    assert contents(tmp_path / "toy") == before


def test_one_process_at_a_time(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    def meddle(*_: object) -> None:
        with pytest.raises(SSCFError, match="another process is preparing it"):
            prepare(toy, raw, tmp_path / "store")

    prepare(toy, raw, tmp_path / "store", progress=meddle)


def killed_at(event: int, toy: OwnData, raw: Path, store: Path) -> bool:
    """Prepare in a child that kills itself at its n-th file operation in the store; whether it came so far."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(name: str, args: tuple[object, ...]) -> None:
            nonlocal count
            if name in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir") and str(store) in str(args[0]):
                count += 1
                if count == event:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            prepare(toy, raw, store)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def assert_nothing_partial(store: Path) -> None:
    if any(path for path in store.iterdir() if not path.name.startswith(".")):
        assert list(open_store(store)) == ["toy"]
        assert verify(store) == []


@pytest.mark.parametrize("published", [False, True])
def test_killed_at_any_file_operation_it_goes_on_to_the_same_bytes(
    toy: OwnData, raw: Path, tmp_path: Path, published: bool
) -> None:
    """Every third operation is struck; `published`: while an older domain is being replaced."""
    before, killed, whole = tmp_path / "before", tmp_path / "killed", tmp_path / "whole"
    before.mkdir()
    if published:
        prepare(toy, raw, before)
        np.save(raw / "s1/0-walking.npy", np.random.default_rng(9).normal(size=(1500, 2)))
    prepare(toy, raw, whole)
    expected = contents(whole)
    event, seen = 1, set()
    while True:
        shutil.copytree(before, killed)
        if not killed_at(event, toy, raw, killed):
            break
        assert_nothing_partial(killed)
        seen.add(tuple(sorted(path.name.split("-")[0] for path in killed.iterdir())))
        resumed = prepare(toy, raw, killed)
        assert contents(killed) == expected
        assert resumed.computed <= (1 if published else 12)
        shutil.rmtree(killed)
        event += 3
    assert event > 30
    assert (".new", ".work") in {tuple(name for name in state if name != "toy") for state in seen}


def test_the_command_killed_at_random_moments(toy: OwnData, raw: Path, tmp_path: Path) -> None:
    store = tmp_path / "killed"
    store.mkdir()
    command = [sys.executable, "-c", "from sscf.cli import main; main()", "prepare", str(tmp_path / "toy.toml")]
    command += ["--raw", str(raw), "--out", str(store), "--jobs", "2"]
    rng = np.random.default_rng(3)
    kills = 0
    for _ in range(6):
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (store / ".work-toy").exists() and run.poll() is None:
            time.sleep(0.005)
        try:
            run.wait(rng.uniform(0, 1.2))
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            kills += 1
        assert_nothing_partial(store)
    assert kills
    assert subprocess.run(command, capture_output=True).returncode == 0
    prepare(toy, raw, tmp_path / "whole")
    assert contents(store) == contents(tmp_path / "whole")
