"""Twenty random kills of a small experiment: the driver, its runs, and a full disk. The final records must be the same.

    python bench/kills.py [--kills 20] [--seed 0]

The full disk is a tmpfs of a few hundred kilobytes; without the right to mount one that part is left out and said so.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from sscf.data.store import write_domain
from sscf.experiment.config import Experiment, SSCFConfig, TrainConfig
from sscf.experiment.driver import drive
from sscf.experiment.plan import make_plan

DRIVER = """
import sys
from sscf.experiment.config import Experiment
from sscf.experiment.driver import drive
from sscf.experiment.plan import make_plan
from sscf.files import read_json
if __name__ == "__main__":
    drive(make_plan(Experiment.model_validate(read_json(sys.argv[1]))), sys.argv[2], jobs=2)
"""


def make_experiment(folder: Path) -> Experiment:
    """Two classes of tones in noise, three domains that differ in gain."""
    rng = np.random.default_rng(0)
    for gain, name in enumerate("abc", start=1):
        y = rng.integers(0, 2, 160)
        tone = np.sin(2 * np.pi * np.where(y == 0, 2, 5)[:, None, None] * np.arange(64) / 32)
        x = gain * (tone + 0.5 * rng.standard_normal((160, 2, 64)))
        subjects = [f"s{i}" for i in np.arange(160) // 20]
        write_domain(folder / "store" / name, x.astype(np.float32), y, subjects, ("slow", "fast"), 32.0, name=name)
    (folder / "task.toml").write_text('name = "tones"\nclasses = ["slow", "fast"]\n')
    return Experiment(
        name="kills",
        task=str(folder / "task.toml"),
        store=str(folder / "store"),
        methods=["erm", "coral", "global-anchor", "sscf"],
        seeds=2,
        train=TrainConfig(epochs=3, batch_size=24),
        sscf=SSCFConfig(k=2, frame=8),
        backbone_params={"width": 4, "hidden": 4},
    )


def contents(folder: Path) -> dict[str, bytes]:
    paths = [*folder.glob("records/*.json"), *folder.glob("arrays/*/*.npy")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        experiment = make_experiment(base)
        (base / "experiment.json").write_text(experiment.model_dump_json())
        (base / "driver.py").write_text(DRIVER)
        started = time.monotonic()
        drive(make_plan(experiment), base / "whole", jobs=2)
        whole = time.monotonic() - started
        expected = contents(base / "whole")
        print(f"uninterrupted: {len(expected)} files in {whole:.1f} s")
        for number in range(arguments.kills):
            runs, full = base / "killed", rng.random() < 0.2
            if full and not _full_disk(base, runs, rng):
                full = False
            if not full:
                _kill(base, runs, rng, whole)
            done = len(list(runs.glob("records/*.json")))
            print(f"kill {number + 1}: {'full disk' if full else 'signal'}; {done} records so far")
            if len(contents(runs)) == len(expected):
                assert contents(runs) == expected, "records differ after a kill"
                shutil.rmtree(runs)  # finished in spite of the kills: begin again
        drive(make_plan(experiment), base / "killed", jobs=2)
        assert contents(base / "killed") == expected, "records differ after resuming"
        print(f"{arguments.kills} kills: the records are the same, byte for byte")


def _start(base: Path, runs: Path) -> subprocess.Popen:
    command = [sys.executable, str(base / "driver.py"), str(base / "experiment.json"), str(runs)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kill(base: Path, runs: Path, rng: random.Random, whole: float) -> None:
    driver = _start(base, runs)
    time.sleep(rng.uniform(1.0, 1.0 + whole / 2))
    family = psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []
    victims = [p for p in family if p.ppid() != driver.pid]
    if victims and rng.random() < 0.5:
        rng.choice(victims).kill()
    elif driver.poll() is None:
        driver.send_signal(signal.SIGKILL)
    driver.wait()


def _full_disk(base: Path, runs: Path, rng: random.Random) -> bool:
    """Go on with the runs on a file system that is too small for them; bring back what it held."""
    small = base / "small"
    small.mkdir(exist_ok=True)
    used = sum(path.stat().st_size for path in runs.rglob("*") if path.is_file()) if runs.exists() else 0
    size = used // 1024 * 2 + rng.randrange(200, 600)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(small)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        print("no right to mount a small file system: a signal instead")
        return False
    try:
        if runs.exists():
            shutil.copytree(runs, small / "runs")
        _start(base, small / "runs").wait()
        shutil.rmtree(runs, ignore_errors=True)
        shutil.copytree(small / "runs", runs)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    return True


if __name__ == "__main__":
    main()
