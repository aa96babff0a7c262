"""How fast a trained model answers: ONNX Runtime against torch, batch 1 and 256, and what calibration costs.

    python bench/inference.py [--rounds 30] [--backbones cnn_bilstm,cnn_transformer]

One core. What is compared takes turns, round by round, and is timed in CPU seconds, so that other work on the machine
touches all alike; a ratio is the median over rounds. Weights are random: speed does not depend on them. The smallest
input of a sleep net is a sequence of 20 epochs, whose convolutions keep both runtimes equally busy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from sscf.core import SpectralCalibration
from sscf.data.arrays import ArrayDomain
from sscf.data.tasks import Task
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.fitted import Settings
from sscf.export import export_onnx, onnx_runner
from sscf.model import Model, fit_model
from sscf.nn import Backbone, find
from sscf.nn.base import Tapped
from sscf.rules.methods import get_method

# channels, samples, windows of a sequence, as the tasks have them; a sequence counts as one
SHAPES = {
    "cnn_bilstm": (3, 128, 1),
    "cnn_transformer": (2, 3000, 20),
    "sleepeegnet": (2, 3000, 20),
    "lgsleepnet": (2, 3000, 20),
}
GOAL_ONNX, GOAL_CALIBRATION = 2.0, 3.0


def model_of(backbone: str) -> Model:
    """A model of full size, trained for one step."""
    channels, samples, sequence = SHAPES[backbone]
    n = 4 * max(sequence, 4)
    x = np.random.default_rng(0).normal(size=(n, channels, samples)).astype(np.float32)
    task = Task("bench", ("a", "b", "c", "d"), backbone=backbone, sequence=sequence)
    domain = ArrayDomain("one", x, np.arange(n) % 4, task.classes, subjects=np.arange(n) * 4 // n, fs=100.0)
    train = TrainConfig(epochs=1, steps_per_epoch=1, batch_size=2, device="cpu", validation=0.25)
    return fit_model([task.view(domain)], Settings(get_method("sscf"), train, SSCFConfig(k=4)))


def without_calibration(network: Backbone) -> Backbone:
    import copy

    plain = copy.deepcopy(network)
    for module in find(plain, Tapped):
        if isinstance(module.after, SpectralCalibration):
            module.after = torch.nn.Identity()
    return plain


def turns(runs: dict[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, list[float]]:
    """CPU seconds per call of each run in each round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(repeats):
                run()
            if turn:
                seconds[name].append((time.process_time() - start) / repeats)
    return seconds


def ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def bench(backbone: str, rounds: int) -> None:
    model = model_of(backbone)
    channels, samples, sequence = SHAPES[backbone]
    calibrated = model.fitted.model.eval()
    plain = without_calibration(calibrated).eval()
    with TemporaryDirectory() as folder:
        agreement = export_onnx(model, Path(folder) / "model.onnx", windows=6 * sequence)
        run = onnx_runner((Path(folder) / "model.onnx").read_bytes())
        bare = replace(model, fitted=replace(model.fitted, model=plain))
        export_onnx(bare, Path(folder) / "plain.onnx", windows=6 * sequence)
        run_plain = onnx_runner((Path(folder) / "plain.onnx").read_bytes())
    print(f"{backbone} ({channels} x {samples}" + (f", sequences of {sequence}" if sequence > 1 else "") + ")")
    print(f"  largest difference of a probability, ONNX against torch: {agreement.error:.1e}")
    for batch in (1, 256 if sequence == 1 else 256 // sequence):
        x = torch.randn(batch, *((sequence,) if calibrated.sequence else ()), channels, samples)
        numbers = x.numpy()
        with torch.inference_mode():
            found = turns(
                {
                    "torch": lambda x=x: calibrated(x).softmax(-1),
                    "torch, no calibration": lambda x=x: plain(x).softmax(-1),
                    "onnx": lambda numbers=numbers: run(numbers),
                    "onnx, no calibration": lambda numbers=numbers: run_plain(numbers),
                },
                rounds,
                repeats=20 if batch * sequence == 1 else 1,
            )
        ms = {name: 1000 * statistics.median(values) for name, values in found.items()}
        unit = "window" if sequence == 1 else "sequence"
        print(
            f"  batch of {batch} {unit}{'s' if batch > 1 else ''}: "
            + ", ".join(f"{n} {v:.2f} ms" for n, v in ms.items())
        )
        faster = ratio(found["torch"], found["onnx"])
        goal = f" (goal at least {GOAL_ONNX:g})" if batch == sequence == 1 else ""
        print(f"    ONNX Runtime is {faster:.2f} times as fast as torch{goal}")
        for kind in ("torch", "onnx"):
            cost = ratio(found[kind], found[f"{kind}, no calibration"])
            limit = f" (limit {GOAL_CALIBRATION:g})" if sequence == 1 and batch == 1 else ""
            share = 100 * (1 - 1 / cost)
            print(
                f"    {kind}: calibration takes {share:.0f} % of the time, the net is {cost:.2f} times as slow{limit}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--backbones", default="cnn_bilstm,cnn_transformer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for backbone in arguments.backbones.split(","):
        bench(backbone, arguments.rounds)


if __name__ == "__main__":
    main()
