"""How fast raw recordings become windows, and windows become batches.

    python bench/prepare.py [--hours 8] [--venv DIR]

1. A night of 14 channels at 256 Hz (EDF+ with stages, written here) to 30 s epochs of 2 channels, 0.3-35 Hz, 100 Hz:
   our whole `prepare` (reading, hashing, filtering, cutting, writing, publishing) against the same steps with MNE,
   which is installed into an environment of its own (kept in --venv when given). MNE runs as in its tutorials
   ("defaults") and as fast as its user can make it ("lean": events made with NumPy, IIR filter after resampling); its
   polyphase resampling is left out, for it lets aliases through (-23 dB). The ratio is to the faster of the two.
   Imports are not counted, there is one thread, each run is a new process.
2. Random batches of 128 windows of a store of 100,000 against indexing the bare memory map.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
FS, WANTED = 256, ("EEG C4-M1", "EOG E1-M2")
STAGES = ("W", "N1", "N2", "N3", "R")

OURS = """
import json, sys, time
from pathlib import Path
from sscf.data.prepare import prepare
from sscf.data.recipe import load_recipe
import edfio, scipy.signal, threadpoolctl
dataset = load_recipe(sys.argv[1])
start, cpu = time.perf_counter(), time.process_time()
done = prepare(dataset, sys.argv[2], sys.argv[3])
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": peak, "windows": done.windows}))
"""

MNE = """
import json, sys, time
import numpy as np, mne
mne.set_log_level("ERROR")
path, out, how = sys.argv[1:4]
wanted = json.loads(sys.argv[4])
raw = mne.io.read_raw_edf(path, include=wanted)  # warm imports that MNE does late
import scipy.signal
start, cpu = time.perf_counter(), time.process_time()
raw = mne.io.read_raw_edf(path, include=wanted, preload=True)
if how == "defaults":
    events, ids = mne.events_from_annotations(raw, chunk_duration=30.0)
    raw.filter(0.3, 35.0)
    raw, events = raw.resample(100.0, events=events)
else:
    ids = {name: i + 1 for i, name in enumerate(sorted(set(raw.annotations.description)))}
    codes = [ids[name] for name in raw.annotations.description]
    raw.resample(100.0)
    raw.filter(0.3, 35.0, method="iir", iir_params={"order": 4, "ftype": "butter", "output": "sos"})
    events = np.stack([np.round(raw.annotations.onset * 100).astype(int), np.zeros(len(codes), int), codes], axis=1)
epochs = mne.Epochs(raw, events, ids, 0, 30 - 1 / 100, baseline=None, preload=True)
np.save(out, (epochs.get_data(copy=False) * 1e6).astype(np.float32))
np.save(out + ".labels.npy", epochs.events[:, 2])
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": peak, "windows": len(epochs)}))
"""

RECIPE = """
name = "night"
task = "sleep"
format = "edf"
files = "*.edf"
subject = "(n)"
channels = { EEG = ["EEG C4-M1"], EOG = ["EOG E1-M2"] }
unit = "uV"
store = { fs = 100, window = 30, band = [0.3, 35] }
[labels]
classes = ["W", "N1", "N2", "N3", "R"]
annotations = true
"""


def write_night(path: Path, hours: float) -> None:
    """Noise with rhythms in 14 channels at 256 Hz, and a stage every 30 s."""
    import edfio
    import numpy as np

    rng = np.random.default_rng(0)
    n = round(hours * 3600) * FS
    labels = [*WANTED, *(f"CH{i}" for i in range(12))]
    rhythm = 500 * np.sin(2 * np.pi * 10 * np.arange(FS * 10) / FS)
    signals = []
    for label in labels:
        digital = rng.normal(0, 800, FS * 600)
        digital = np.resize(np.clip(digital + np.resize(rhythm, digital.shape), -32000, 32000).astype(np.int16), n)
        limits = {"physical_range": (-3276.8, 3276.7), "physical_dimension": "uV"}
        signals.append(edfio.EdfSignal.from_digital(digital, FS, label=label, **limits))
    epochs = range(round(hours * 120))
    notes = [edfio.EdfAnnotation(30.0 * i, 30.0, STAGES[i % len(STAGES)]) for i in epochs]
    edfio.Edf(signals, annotations=notes).write(path)


def run(python: str, code: str, *args: str) -> dict[str, float]:
    """The best of three fresh processes; the page cache is warm for all alike."""
    results = []
    for _ in range(3):
        done = subprocess.run(
            [python, "-c", code, *args], env={**os.environ, **ONE_THREAD}, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return min(results, key=lambda r: r["seconds"])


def mne_python(folder: Path) -> str | None:
    """The Python of an environment with MNE, made when needed; None when it cannot be had."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "mne"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(f"MNE could not be installed, no comparison: {done.stderr.strip().splitlines()[-1]}")
        return None
    return str(python)


def night(folder: Path, hours: float, environment: Path) -> None:
    raw = folder / "raw"
    raw.mkdir()
    write_night(raw / "n.edf", hours)
    (folder / "night.toml").write_text(RECIPE)
    print(f"night: {hours:g} h, 14 channels, {FS} Hz, {(raw / 'n.edf').stat().st_size / 1e6:.0f} MB")
    # Each run into a store of its own, or the second would find nothing to do.
    fresh = OURS.replace("sys.argv[3]", "sys.argv[3] + '/' + str(time.time_ns())")
    ours = run(sys.executable, fresh, str(folder / "night.toml"), str(raw), str(folder / "stores"))
    tell("sscf prepare", ours)
    assert ours["windows"] == round(hours * 120)
    python = mne_python(environment)
    if python is None:
        return
    theirs = []
    for how in ("defaults", "lean"):
        theirs.append(run(python, MNE, str(raw / "n.edf"), str(folder / "mne.npy"), how, json.dumps(WANTED)))
        tell(f"MNE, {how}", theirs[-1])
    best = min(theirs, key=lambda r: r["seconds"])
    wall, cpu = best["seconds"] / ours["seconds"], best["cpu"] / ours["cpu"]
    print(f"  ratio {wall:.1f}, of processor time {cpu:.1f} (aim: 4); peak {ours['peak_mb']:.0f} MB (at most 700)")


def tell(what: str, r: dict[str, float]) -> None:
    spent = f"{r['seconds']:6.2f} s ({r['cpu']:5.2f} s of processor)"
    print(f"  {what:16} {spent}  {r['peak_mb']:5.0f} MB peak  {r['windows']} epochs")


def batches(folder: Path) -> None:
    import numpy as np

    from sscf.data import Domain, get_task, write_domain

    n, rng = 100_000, np.random.default_rng(0)
    x = np.broadcast_to(rng.normal(size=(1000, 3, 128)).astype(np.float32), (100, 1000, 3, 128)).reshape(n, 3, 128)
    classes = get_task("har").classes
    path = write_domain(folder / "many", x, rng.integers(0, 4, n), rng.integers(0, 50, n), classes, 50)
    view = get_task("har").view(Domain.open(path))
    bare = np.load(path / "windows.npy", mmap_mode="r")
    rows = rng.integers(0, n, (400, 128))
    out = np.empty((128, 3, 128), np.float32)
    seconds: dict[str, list[float]] = {"bare": [], "read": [], "into": []}
    for batch in [*rows[:50], *rows]:  # the first fifty warm up
        for name, gather in (
            ("bare", lambda: np.asarray(bare[batch])),  # noqa: B023
            ("read", lambda: view.read(batch)),  # noqa: B023
            ("into", lambda: view.read(batch, out)),  # noqa: B023
        ):
            start = time.perf_counter()
            gather()
            seconds[name].append(time.perf_counter() - start)
    median = {name: float(np.median(times[50:])) * 1e6 for name, times in seconds.items()}
    print(f"batches of 128 of {n} windows (3, 128): bare memory map {median['bare']:.0f} us")
    for name, what in (("read", "view.read(rows)"), ("into", "view.read(rows, out)")):
        print(f"  {what:22} {median[name]:4.0f} us, ratio {median['bare'] / median[name]:.2f} (aim: at least 0.9)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=8.0, help="length of the night")
    parser.add_argument(
        "--venv", type=Path, help="where MNE is or is to be installed; a temporary folder when not given"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        batches(folder)
        night(folder, args.hours, args.venv or folder / "venv")


if __name__ == "__main__":
    main()
