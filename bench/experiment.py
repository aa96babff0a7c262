"""The engine's cost: two processes against one, the engine against a bare call, and how time grows.

python bench/experiment.py [--seconds 30]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from sscf.data.simulate import simulate
from sscf.data.store import open_store
from sscf.data.tasks import get_task
from sscf.demo import SIZES, TRAIN, demo_experiment
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.engines import run_local
from sscf.experiment.fitted import Settings
from sscf.experiment.plan import make_plan
from sscf.experiment.runs import execute
from sscf.experiment.train import fit
from sscf.rules.methods import get_method


def timed(action) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="length of the run the engine's overhead is taken on")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        simulate("har", base / "store", seed=0, domains=4, **SIZES["har"])
        experiment = demo_experiment("har", base / "store")
        short = experiment.model_copy(update={"train": TRAIN["har"].model_copy(update={"epochs": 6})})
        plan = make_plan(short)
        one = timed(lambda: run_local(base / "one", base / "store", plan.runs, jobs=1))
        two = timed(lambda: run_local(base / "two", base / "store", plan.runs, jobs=2))
        print(f"demo grid ({len(plan.runs)} runs): two processes take {two / one:.2f} of the time of one")

        erm = make_plan(short.model_copy(update={"methods": ["erm"], "targets": ["sim-har-a"], "seeds": 1})).runs[0]
        epoch = timed(lambda: execute(base / "probe", base / "store", erm)) / 6
        epochs = max(6, round(arguments.seconds / epoch))
        spec = replace(erm, train={**erm.train, "epochs": epochs, "patience": None})
        bare = timed(lambda: execute(base / "bare", base / "store", spec))
        engine = timed(lambda: run_local(base / "engine", base / "store", [spec]))
        print(f"engine over a bare call on a run of {bare:.0f} s: {100 * (engine / bare - 1):+.1f} %")

        growth(base / "store")


def growth(store: Path) -> None:
    """Seconds of both stages relative to the first line, as one thing at a time grows."""
    views = [get_task("har").view(domain) for domain in open_store(store).values()][:3]
    base = {"k": 4, "frame": 16}

    def seconds(sscf: dict, steps: int = 20, width: int = 16) -> float:
        train = TrainConfig(epochs=1, steps_per_epoch=steps, batch_size=96)
        settings = Settings(
            get_method("sscf"),
            train=train,
            sscf=SSCFConfig.model_validate({**base, **sscf}),
            backbone_params={"width": width, "hidden": 32},
        )
        return min(timed(lambda: fit(views, settings, 0)) for _ in range(2))

    first = seconds({})
    print("time of both stages relative to K = 4, frame 16, 16 channels, 20 steps of 96 windows:")
    for label, value in [
        ("40 steps (twice the windows)", seconds({}, steps=40)),
        ("80 steps (four times)", seconds({}, steps=80)),
        ("K = 1", seconds({"k": 1})),
        ("K = 16", seconds({"k": 16})),
        ("K = 64", seconds({"k": 64})),
        ("frame 4", seconds({"frame": 4})),
        ("frame 64", seconds({"frame": 64})),
        ("32 channels", seconds({}, width=32)),
        ("64 channels", seconds({}, width=64)),
    ]:
        print(f"  {label:32s}{value / first:6.2f}")


if __name__ == "__main__":
    main()
