"""Runs: same spec, same bytes; interrupted, resumed, shared by two drivers, refused before training."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sscf.data.store import write_domain
from sscf.errors import ConfigError, FileError
from sscf.experiment.config import Experiment, SSCFConfig, TrainConfig
from sscf.experiment.driver import drive, survey
from sscf.experiment.engines import run_dask, run_local
from sscf.experiment.plan import RunSpec, make_plan
from sscf.experiment.runs import Runs, execute
from sscf.files import read_json

DRIVER = """
import sys
from sscf.experiment.config import Experiment
from sscf.experiment.driver import drive
from sscf.experiment.plan import make_plan
from sscf.files import read_json
if __name__ == "__main__":
    plan = make_plan(Experiment.model_validate(read_json(sys.argv[1])))
    sys.exit(drive(plan, sys.argv[2], jobs=2))
"""


def contents(folder: Path) -> dict[str, bytes]:
    """Everything of a folder of runs that must not depend on time, machine or history."""
    paths = [*folder.glob("records/*.json"), *folder.glob("arrays/*/*.npy")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def start_driver(experiment: Experiment, folder: Path, tmp_path: Path) -> subprocess.Popen:
    spec = tmp_path / "experiment.json"
    spec.write_text(experiment.model_dump_json())
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    return subprocess.Popen([sys.executable, str(script), str(spec), str(folder)], stdout=subprocess.DEVNULL)


def run_all(experiment: Experiment, folder: Path) -> None:
    plan = make_plan(experiment)
    Runs(folder).add(plan)
    for spec in plan.runs:
        assert execute(folder, experiment.store or "", spec) == "done"


def test_the_same_spec_gives_the_same_bytes(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    experiment = tiny(tiny_store(), methods=["erm", "mixup", "domain-anchor", "sscf+coral"], targets=["c"])
    run_all(experiment, tmp_path / "one")
    run_all(experiment, tmp_path / "two")
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert len(one) > 20
    assert one == two


def test_local_and_dask_give_the_same_records(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    experiment = tiny(tiny_store(), targets=["b"])
    plan = make_plan(experiment)
    run_local(tmp_path / "local", experiment.store or "", plan.runs, jobs=2)
    run_dask(tmp_path / "dask", experiment.store or "", plan.runs, jobs=1)
    assert len(plan.runs) == 2
    assert contents(tmp_path / "local") == contents(tmp_path / "dask")
    assert all(Runs(tmp_path / "dask").done(spec.id) for spec in plan.runs)


def test_killed_at_random_and_resumed(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    """Kill the driver, then a worker, at random moments; what is asked for again ends as if nothing had happened."""
    experiment = tiny(tiny_store(), methods=["erm", "sscf"], targets=["a", "c"])
    run_all(experiment, tmp_path / "whole")
    folder = tmp_path / "killed"
    rng = random.Random(5)
    for attempt in range(4):
        driver = start_driver(experiment, folder, tmp_path)
        deadline = time.monotonic() + 60
        while not list(folder.glob("locks/*.lock")) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 1.5))
        if attempt % 2 == 0:
            driver.send_signal(signal.SIGKILL)
        else:
            _kill_one_run(driver.pid)
        driver.wait()
        for path in folder.glob("records/*.json"):
            json.loads(path.read_text())  # a record that is visible is whole
    drive(make_plan(experiment), folder, jobs=2)
    assert contents(folder) == contents(tmp_path / "whole")


def _kill_one_run(driver: int) -> None:
    psutil = pytest.importorskip("psutil")
    try:
        family = psutil.Process(driver).children(recursive=True)
        # The runs are the children of the fork server.
        runs = [p for p in family if p.ppid() != driver]
        if runs:
            runs[0].kill()
    except psutil.NoSuchProcess:
        pass


def test_a_killed_run_is_recorded_and_the_rest_go_on(
    tiny_store: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny(tiny_store(), methods=["erm", "coral"], targets=["c"])
    plan = make_plan(experiment)
    victim = plan.runs[0]
    events: list[tuple[str, str]] = []

    def report(run: str, event: dict) -> None:
        events.append((run, event["state"]))
        if run == victim.id and event["state"] == "progress":
            _kill_one_run(os.getpid())

    run_local(tmp_path / "runs", experiment.store or "", plan.runs, jobs=1, report=report)
    record = Runs(tmp_path / "runs").record(victim.id)
    assert record is not None
    assert record["status"] == "failed"
    assert "SIGKILL" in record["reason"]
    assert record["spec"] == victim.to_json()
    assert Runs(tmp_path / "runs").done(plan.runs[1].id)
    assert (plan.runs[1].id, "done") in events
    # Asking again does just the one that failed.
    again: list[str] = []
    run_local(tmp_path / "runs", experiment.store or "", plan.runs, report=lambda run, event: again.append(run))
    assert set(again) == {victim.id}
    assert Runs(tmp_path / "runs").done(victim.id)


def test_a_loss_that_is_not_a_number_is_a_failed_run(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    experiment = tiny(tiny_store(), methods=["erm"], targets=["c"], train=TrainConfig(epochs=3, lr=1e30))
    (spec,) = make_plan(experiment).runs
    assert execute(tmp_path / "runs", experiment.store or "", spec) == "failed"
    record = Runs(tmp_path / "runs").record(spec.id)
    assert record is not None
    assert "the loss is nan" in record["reason"]
    assert record["scores"] is None


def test_a_full_disk_loses_nothing(
    tiny_store: Callable, tiny: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny(tiny_store(), methods=["sscf"], targets=["c"])
    (spec,) = make_plan(experiment).runs
    folder = tmp_path / "runs"
    real = os.fsync
    for full_from in (0, 1, 4, 9):  # writes that succeed before the disk is full
        calls = iter(range(1000))

        def fsync(descriptor: int, calls=calls, full_from=full_from) -> None:
            if next(calls) >= full_from:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        monkeypatch.setattr("sscf.files.os.fsync", fsync)
        with pytest.raises(OSError, match="No space left"):
            execute(folder, experiment.store or "", spec)
        assert not Runs(folder).done(spec.id)
        assert not list(folder.rglob("*.tmp"))
    monkeypatch.setattr("sscf.files.os.fsync", real)
    assert execute(folder, experiment.store or "", spec) == "done"
    run_all(experiment, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


def test_two_drivers_share_a_folder(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    experiment = tiny(tiny_store(), methods=["erm", "coral", "sscf"], targets=["b"])
    folder = tmp_path / "runs"
    drivers = [start_driver(experiment, folder, tmp_path) for _ in range(2)]
    assert [driver.wait(timeout=240) for driver in drivers] == [0, 0]
    run_all(experiment, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")
    # The work was done once: every run left one note of when it started.
    assert len(list(folder.glob("meta/*.json"))) == len(make_plan(experiment).runs)


def test_auxiliary_encoders_are_shared(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    methods = ["sscf", "global-anchor", "domain-anchor", {"name": "k3", "method": "sscf", "sscf": {"k": 3}}]
    experiment = tiny(tiny_store(), methods=methods, targets=["a"])
    run_all(experiment, tmp_path / "runs")
    assert len(list((tmp_path / "runs" / "stages").glob("*.safetensors"))) == 1


def test_external_targets_share_one_model(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    methods = ["erm", "psdnorm", "sscf"]
    experiment = tiny(tiny_store(domains="abcd"), methods=methods, targets=[], external=["c", "d"], data=["a", "b"])
    plan = make_plan(experiment)
    assert {(spec.target, spec.protocol) for spec in plan.runs} == {("c", "external"), ("d", "external")}
    run_all(experiment, tmp_path / "runs")
    # Three models and one auxiliary encoder for six runs.
    assert len(list((tmp_path / "runs" / "stages").glob("*.safetensors"))) == 4
    records = [Runs(tmp_path / "runs").record(spec.id) or {} for spec in plan.runs]
    for one, other in zip(records[:3], records[3:], strict=True):
        assert one["spec"]["method"] == other["spec"]["method"]
        assert one["history"] == other["history"]


def test_evaluation_at_every_rank(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    experiment = tiny(tiny_store(), methods=["sscf"], targets=["a"], sscf=SSCFConfig(k=3, frame=8))
    run_all(experiment, tmp_path / "runs")
    (path,) = (tmp_path / "runs" / "records").glob("*.json")
    record = read_json(path)
    assert [one["rank"] for one in record["ranks"]] == [1, 2, 3]
    assert record["ranks"][0]["macro_f1"] == record["scores"]["macro_f1"]
    arrays = tmp_path / "runs" / "arrays" / record["id"]
    predicted, truth = np.load(arrays / "target_predictions.npy"), np.load(arrays / "target_labels.npy")
    assert (predicted == truth).mean() == pytest.approx(record["scores"]["accuracy"])
    assert np.bincount(np.load(arrays / "target_strata.npy"), minlength=3).tolist() == record["strata"]["target"]


def test_oracle_is_marked(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    experiment = tiny(tiny_store(), methods=["erm"], targets=["a"])
    run_all(experiment, tmp_path / "honest")
    run_all(experiment.model_copy(update={"selection": "oracle"}), tmp_path / "oracle")
    (honest,), (oracle,) = ([read_json(p) for p in (tmp_path / n / "records").glob("*")] for n in ("honest", "oracle"))
    assert (honest["oracle"], honest["zero_shot"]) == (False, True)
    assert (oracle["oracle"], oracle["zero_shot"]) == (True, False)
    assert oracle["scores"]["macro_f1"] >= honest["scores"]["macro_f1"]


def test_dataset_normalisation_is_not_zero_shot(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    run_all(tiny(tiny_store(), methods=["erm"], targets=["a"], normalisation="dataset"), tmp_path / "runs")
    (path,) = (tmp_path / "runs" / "records").glob("*.json")
    assert read_json(path)["zero_shot"] is False


def test_survey_tells_what_is_missing(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    experiment = tiny(tiny_store(), methods=["erm"])
    plan = make_plan(experiment)
    runs = Runs(tmp_path / "runs")
    runs.add(plan)
    execute(tmp_path / "runs", experiment.store or "", plan.runs[0])
    runs.fail(plan.runs[1], "broken")
    with runs.lock(plan.runs[2].id):
        states = {one["id"]: one["state"] for one in survey(tmp_path / "runs")}
    assert [states[spec.id] for spec in plan.runs] == ["done", "failed", "running"]


def test_ids_depend_on_everything(tiny_store: Callable, tiny: Callable) -> None:
    store = tiny_store()

    def ids(**changes: object) -> set[str]:
        return {spec.id for spec in make_plan(tiny(store, targets=["a"], methods=["sscf"], **changes)).runs}

    variants = [
        ids(),
        ids(seeds=[7]),
        ids(normalisation="window"),
        ids(max_windows=50),
        ids(sscf=SSCFConfig(k=3, frame=8)),
        ids(train=TrainConfig(epochs=3)),
        ids(selection="last"),
    ]
    assert len(set().union(*variants)) == len(variants)
    before = ids()
    x = np.zeros((16, 2, 64), np.float32) + np.arange(64)
    shutil.rmtree(store / "b")
    write_domain(store / "b", x, np.arange(16) % 2, ["s"] * 8 + ["t"] * 8, ("slow", "fast"), 32.0, name="b")
    assert ids() != before


def test_spec_round_trip(tiny_store: Callable, tiny: Callable) -> None:
    for spec in make_plan(tiny(tiny_store())).runs:
        again = RunSpec.from_json(json.loads(json.dumps(spec.to_json())))
        assert again == spec
        assert again.id == spec.id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["ermm"]}, "unknown method 'ermm'"),
        ({"targets": ["z"]}, "no domain 'z'"),
        ({"data": ["a", "q"]}, "no domain 'q'"),
        ({"data": ["a"]}, "at least two domains"),
        ({"data": ["a", "b"], "methods": ["coral"]}, "needs 2 source domains"),
        ({"sscf": {"k": 5000, "frame": 8}}, "k = 5000"),
        ({"methods": ["erm", "erm"]}, "named twice"),
        ({"backbone": "resnet"}, "no backbone 'resnet'"),
        ({"task": "har3"}, "har3"),
        ({"store": None}, "no store given"),
        ({"train": {"batch_size": 2}, "data": ["a", "b", "c", "d"]}, "no domain 'd'"),
    ],
)
def test_refused_before_anything_is_trained(tiny_store: Callable, tiny: Callable, changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(tiny(tiny_store(), **changes))


def test_a_class_without_a_source_is_refused(tiny_store: Callable, tiny: Callable) -> None:
    store = tiny_store()
    for name in "ab":
        x = np.random.default_rng(0).standard_normal((16, 2, 64)).astype(np.float32)
        subjects = [f"s{i // 4}" for i in range(16)]
        shutil.rmtree(store / name)
        write_domain(store / name, x, np.zeros(16, int), subjects, ("slow", "fast"), 32.0, name=name)
    with pytest.raises(ConfigError, match=r"class 'fast'.* none of the sources a, b"):
        make_plan(tiny(store, targets=["c"]))


def test_empty_and_foreign_stores_are_refused(tiny_store: Callable, tiny: Callable, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises((ConfigError, FileError), match="no prepared domain"):
        make_plan(tiny(tmp_path / "empty"))
    store = tiny_store()
    manifest = store / "a" / "manifest.json"
    manifest.write_text(json.dumps({**read_json(manifest), "schema": 99}))
    with pytest.raises(FileError, match="99"):
        make_plan(tiny(store))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('task = "har"\nmethods = ["erm"]\nseed = 3\n', "unknown key 'seed'.*seeds"),
        ('task = "har"\nmethods = ["erm"]\n[train]\nepoch = 3\n', "unknown key 'train.epoch'.*epochs"),
        ('task = "har"\nmethods = ["erm"]\n[train]\nlr = -1.0\n', "train.lr"),
        ('task = "har"\nmethods = ["erm"]\n[sscf]\nreading = "loud"\n', "amplitude"),
        ('task = "har"\nmethods = ["erm"]\nnormalisation = "zscore"\n', "center"),
        ('task = "har"\n', "'methods' is missing"),
        ("task = ", "not valid TOML"),
    ],
)
def test_wrong_spec_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"(?s)spec.toml.*{message}"):
        Experiment.load(path)
