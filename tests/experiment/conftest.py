"""A store of three small domains that train in a second: two classes told apart by frequency, gains by domain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sscf.data.store import write_domain
from sscf.experiment.config import Experiment, SSCFConfig, TrainConfig

CLASSES = ("slow", "fast")


def make_windows(seed: int, gain: float, n: int = 96) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    t = np.arange(64) / 32
    phase = rng.uniform(0, 2 * np.pi, (n, 1, 1))
    tone = np.sin(2 * np.pi * np.where(y == 0, 2, 5)[:, None, None] * t + phase)
    x = gain * (tone + 0.3 * rng.standard_normal((n, 2, 64)))
    return x.astype(np.float32), y, np.repeat(np.arange(8), n // 8)


@pytest.fixture
def tiny_store(tmp_path: Path) -> Callable[..., Path]:
    """tiny_store("name", noise="c") writes domains a, b, c; the domain named by `noise` holds noise instead."""

    def write(folder: str = "store", noise: str | None = None, domains: str = "abc") -> Path:
        store = tmp_path / folder
        for i, name in enumerate(domains):
            x, y, subjects = make_windows(i, 1.0 + i)
            if name == noise:
                x = np.random.default_rng(99).standard_normal(x.shape).astype(np.float32) * 50
                y = y[::-1].copy()
            write_domain(store / name, x, y, [f"{name}{s}" for s in subjects], CLASSES, 32.0, name=name)
        return store

    return write


@pytest.fixture
def tiny() -> Callable[..., Experiment]:
    """tiny(store, methods=[...]) is an experiment on such a store."""

    def make(where: Path, /, **changes: object) -> Experiment:
        task = Path(where).parent / "task.toml"
        task.write_text('name = "tones"\nclasses = ["slow", "fast"]\n')
        values: dict[str, object] = {
            "task": str(task),
            "store": str(where),
            "methods": ["erm", "sscf"],
            "seeds": 1,
            "train": TrainConfig(epochs=2, batch_size=24, ema=0.9),
            "sscf": SSCFConfig(k=2, frame=8),
            "backbone_params": {"width": 4, "hidden": 4},
        }
        return Experiment.model_validate({**values, **changes})

    return make
