"""How much memory a 24 h recording takes: `sscf predict` in a process of its own, its peak measured by the system.

    python bench/memory.py [--hours 24] [--width 64]

A sleep model of full size (one epoch of training: what it says does not matter here) on an EDF file of 256 Hz.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LIMIT_MB = 500


def write_edf(path: Path, hours: float, fs: int, channels: tuple[str, ...]) -> None:
    """A long EDF file of filtered noise, written record by record: 30 s each."""
    rng = np.random.default_rng(0)
    records, n, width = round(hours * 120), 30 * fs, len(channels)
    head = f"{'0':8}{'X X X X':80}{'Startdate 01-JAN-2020 X X X':80}01.01.2022.00.00{256 * (1 + width):<8}{'':44}"
    head += f"{records:<8}{30:<8}{width:<4}"
    for values, size in (
        (channels, 16),
        (("",) * width, 80),
        (("uV",) * width, 8),
        (("-3276.8",) * width, 8),
        (("3276.7",) * width, 8),
        (("-32768",) * width, 8),
        (("32767",) * width, 8),
        (("",) * width, 80),
        ((str(n),) * width, 8),
        (("",) * width, 32),
    ):
        head += "".join(f"{value:{size}}" for value in values)
    with open(path, "wb") as stream:
        stream.write(head.encode("ascii"))
        for _ in range(records):
            noise = rng.normal(0, 300, (width, n))
            stream.write(np.clip(noise, -32768, 32767).astype("<i2").tobytes())


def peak_mb(command: list[str]) -> tuple[float, float]:
    """Peak resident memory in MB and seconds of a command."""
    start = time.perf_counter()
    code = "import resource, subprocess, sys; p = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); " + (
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(p.returncode)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return int(done.stdout) * unit / 1e6, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--width", type=int, default=64, help="of the network; 64 is that of the paper")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    sscf = [sys.executable, "-c", "from sscf.cli import main; main()"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        from sscf.data.simulate import simulate

        simulate("sleep", here / "store", domains=2, subjects=3, windows=40)
        model = here / "model.sscf"
        width = f"width={arguments.width}"
        subprocess.run(
            [
                *sscf,
                "fit",
                str(here / "store"),
                "-o",
                str(model),
                "--epochs",
                "1",
                "--batch-size",
                "2",
                "--option",
                width,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        write_edf(here / "night.edf", arguments.hours, 256, ("EEG", "EOG"))
        peak, seconds = peak_mb([*sscf, "predict", str(model), str(here / "night.edf"), "-o", str(here / "out")])
        size = (here / "night.edf").stat().st_size / 1e6
    print(f"{arguments.hours:g} h of two channels at 256 Hz ({size:.0f} MB): {peak:.0f} MB at most, {seconds:.0f} s")
    print(f"limit {LIMIT_MB} MB: {'kept' if peak <= LIMIT_MB else 'EXCEEDED'}")


if __name__ == "__main__":
    main()
