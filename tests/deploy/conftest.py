"""Small models, trained once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sscf.data.arrays import ArrayDomain
from sscf.data.simulate import SimulatedDomain, simulate_domain
from sscf.data.tasks import Task, TaskView, get_task
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.fitted import Settings
from sscf.model import Model, fit_model
from sscf.rules.methods import get_method


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def domain_of(
    simulated: SimulatedDomain, subjects: np.ndarray | list[int], windows: np.ndarray | None = None
) -> ArrayDomain:
    """Some subjects of a simulated domain, each one recording; `windows` in place of its own."""
    rows = np.isin(simulated.subjects, subjects)
    return ArrayDomain(
        simulated.name,
        (simulated.windows if windows is None else windows)[rows],
        simulated.labels[rows],
        simulated.classes,
        subjects=np.unique(simulated.subjects[rows], return_inverse=True)[1],
        fs=simulated.fs,
        channels=simulated.channels,
        unit=simulated.unit,
    )


def small_settings(method: str = "sscf", *, k: int = 3, normalisation: str = "center", **train: object) -> Settings:
    values: dict[str, object] = {"epochs": 3, "batch_size": 64, "lr": 3e-3, "device": "cpu", "validation": 0.3, **train}
    return Settings(
        get_method(method),
        TrainConfig.model_validate(values),
        SSCFConfig(k=k),
        normalisation,
        backbone_params={"width": 8, "hidden": 8},
    )


@pytest.fixture(scope="session")
def har_domains() -> list[SimulatedDomain]:
    """Three simulated domains of 60 subjects and three families of dynamics."""
    return [simulate_domain("har", i, subjects=60, windows=16, families=3) for i in range(3)]


@pytest.fixture(scope="session")
def har_model(har_domains: list[SimulatedDomain]) -> Model:
    """Trained on 40 subjects of each domain; the other 20, drawn evenly, are new to it."""
    task = get_task("har")
    return fit_model([task.view(domain_of(d, known_subjects())) for d in har_domains], small_settings())


def known_subjects() -> np.ndarray:
    return np.flatnonzero(np.arange(60) % 3 != 2)


def new_subjects() -> np.ndarray:
    return np.flatnonzero(np.arange(60) % 3 == 2)


@pytest.fixture(scope="session")
def har_file(har_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "har.sscf"
    har_model.save(path)
    return path


@pytest.fixture(scope="session")
def sleep_model() -> Model:
    """A sequence model of two channels at 100 Hz, hardly trained, with the recipe of the sleep sets."""
    from dataclasses import replace

    from sscf.data.recording import Channel

    simulated = [
        replace(d, labels=np.arange(len(d.labels), dtype=np.int32) % 5)
        for d in (simulate_domain("sleep", i, subjects=4, windows=12) for i in range(2))
    ]
    task = Task("sleep", get_task("sleep").classes, backbone="cnn_transformer", sequence=4)
    views: list[TaskView] = [task.view(domain_of(d, np.arange(4))) for d in simulated]
    settings = Settings(
        get_method("sscf"),
        TrainConfig(epochs=1, batch_size=4, device="cpu"),
        SSCFConfig(k=2),
        backbone_params={"width": 8, "heads": 2, "max_sequence": 4},
    )
    model = fit_model(views, settings)
    channels = (Channel("EEG", ("EEG", "C4-M1")), Channel("EOG", ("EOG", "E1-M2")))
    model.recipe = replace(model.recipe, band=(0.3, 35.0), channels=channels)
    return model


@pytest.fixture(scope="session")
def sleep_file(sleep_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "sleep.sscf"
    sleep_model.save(path)
    return path
