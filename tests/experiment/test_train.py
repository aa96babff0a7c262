"""Two-stage training: what is trained, on what, and what is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sscf.core import Anchors, welch_power
from sscf.data.store import open_store, write_domain
from sscf.data.tasks import Task, TaskView
from sscf.errors import ConfigError
from sscf.experiment import train as train_module
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.evaluate import evaluate, strata_of
from sscf.experiment.fitted import Fitted, Settings, confusion_of
from sscf.experiment.stages import Stages
from sscf.experiment.train import _Average, fit, resolve_device, split_rows
from sscf.nn import tap_output
from sscf.protocol import macro_f1, subject_split
from sscf.rules.methods import get_method

TASK = Task("tones", ("slow", "fast"))
SMALL = {"width": 4, "hidden": 4}


@pytest.fixture
def views(tiny_store: Callable) -> list[TaskView]:
    return [TASK.view(domain) for domain in open_store(tiny_store()).values()]


def settings(method: str = "erm", *, epochs: int = 2, sscf: dict | None = None, **train: object) -> Settings:
    values = {"epochs": epochs, "batch_size": 24, **train}
    return Settings(
        get_method(method),
        train=TrainConfig.model_validate(values),
        sscf=SSCFConfig.model_validate({"k": 2, "frame": 8, **(sscf or {})}),
        backbone_params=SMALL,
    )


def test_it_learns(views: list[TaskView]) -> None:
    fitted = fit(views[:2], settings(epochs=25, lr=5e-3, ema=0.9), 0)
    assert macro_f1(confusion_of(fitted, views[2])) > 0.9
    assert fitted.history["loss"][-1] < 0.5 * fitted.history["loss"][0]


def test_anchors_come_from_the_training_rows_of_the_sources_alone(views: list[TaskView]) -> None:
    """Anchors recomputed here, from the auxiliary encoder the run kept and the rows that are not validation."""
    chosen = settings("sscf")
    kept: dict = {}

    class Spy(Stages):
        def get(self, key, make):
            kept["weights"], notes = make()
            kept["weights"] = {name: tensor.clone() for name, tensor in kept["weights"].items()}
            return kept["weights"], notes

    fitted = fit(views[:2], chosen, 3, stages=Spy("."))
    plain = fit(views[:2], replace(chosen, method=get_method("erm")), 3)
    plain.model.load_state_dict(kept["weights"])
    powers = []
    with torch.no_grad():
        for view in views[:2]:
            rows, _ = subject_split(view.y, view.subjects, 0.2, 3)
            x = view.read(rows)
            centred = torch.from_numpy(x - x.mean(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32))
            powers.append(welch_power(tap_output(plain.model.eval(), "stage1", centred), 8, 4, center=True))
    expected = Anchors.fit(torch.cat(powers), k=2, frame=8, hop=4, seed=3)
    assert fitted.calibration is not None
    assert torch.allclose(fitted.calibration.power, expected.power, rtol=1e-4)
    assert fitted.calibration.anchors.counts.sum() == sum(len(p) for p in powers)


def test_stage_two_starts_from_scratch_or_warm(views: list[TaskView], monkeypatch: pytest.MonkeyPatch) -> None:
    starts: dict[str, torch.Tensor] = {}
    loop = train_module._Trainer.train

    def spy(self, model, rule, chosen, epochs, stage):
        starts[f"{chosen.sscf.init} {stage}"] = model.lstm.weight_hh_l0.detach().clone()
        result = loop(self, model, rule, chosen, epochs, stage)
        starts[f"{chosen.sscf.init} {stage} end"] = model.lstm.weight_hh_l0.detach().clone()
        return result

    monkeypatch.setattr(train_module._Trainer, "train", spy)
    for init in ("scratch", "warm"):
        fit(views[:2], settings("sscf", sscf={"init": init}), 0)
    auxiliary_end = starts["scratch auxiliary encoder end"]
    assert torch.equal(starts["scratch training"], starts["scratch auxiliary encoder"])  # the seed's own weights
    assert not torch.equal(starts["scratch training"], auxiliary_end)
    assert torch.equal(starts["warm training"], auxiliary_end)


def test_domain_anchors_use_the_own_set_in_training_and_the_nearest_at_test(
    views: list[TaskView], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    assigned = train_module.SpectralCalibration.assigned

    def spy(self, stratum):
        seen.append(stratum.tolist())
        return assigned(self, stratum)

    monkeypatch.setattr(train_module.SpectralCalibration, "assigned", spy)
    fitted = fit(views, settings("domain-anchor", epochs=1), 0)
    assert fitted.calibration is not None
    assert fitted.calibration.k == 3
    assert seen[0] == [0] * 8 + [1] * 8 + [2] * 8
    calls = len(seen)
    stratum, distance = strata_of(fitted, views[0])
    assert len(seen) == calls
    assert stratum.shape == distance.shape == (len(views[0]),)


def test_the_best_epoch_is_kept_and_patience_ends_training(views: list[TaskView]) -> None:
    scores = iter([0.3, 0.9, 0.4, 0.5, 0.6, 0.7])
    seen: list[dict] = []

    class Scripted(train_module._Trainer):
        def score(self, model, chosen):
            seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
            return next(scores)

    trainer = Scripted(views[:2], settings(epochs=6, patience=3), 0, train_module.NoCache(), lambda event: None)
    fitted = trainer.fit(settings(epochs=6, patience=3))
    assert fitted.validation == {"macro_f1": 0.9, "epoch": 2}
    assert len(seen) == 5  # the second epoch was best, then three without a better one
    assert all(torch.equal(tensor, seen[1][name]) for name, tensor in fitted.model.state_dict().items())


def test_selection_last_keeps_the_last_epoch(views: list[TaskView]) -> None:
    fitted = fit(views[:2], replace(settings(epochs=3, patience=None), selection="last"), 0)
    assert fitted.validation["epoch"] == 3


def test_k_is_chosen_on_source_validation_ties_to_the_smaller(views: list[TaskView]) -> None:
    chosen = settings("sscf", sscf={"k": [3, 1, 2]})
    fitted = fit(views[:2], chosen, 0)
    assert [one["k"] for one in fitted.candidates] == [1, 2, 3]
    best = max(one["score"] for one in fitted.candidates)
    assert fitted.chosen["k"] == next(one["k"] for one in fitted.candidates if one["score"] == best)
    assert fitted.calibration is not None
    assert fitted.calibration.k == fitted.chosen["k"]
    assert [one["k"] for one in fit(views[:2], settings("sscf", sscf={"k": "auto"}), 0).candidates] == [1, 2, 4, 8]


def test_frame_reading_tap_and_strength_can_be_searched(views: list[TaskView]) -> None:
    lists = {
        "frame": [4, 8],
        "reading": ["amplitude", "equations"],
        "tap": ["stage1", "stage2"],
        "strength": [1.0, 0.5],
    }
    fitted = fit(views[:2], settings("sscf", epochs=1, sscf=lists), 0)
    assert len(fitted.candidates) == 16
    assert set(fitted.candidates[0]) == {"frame", "reading", "tap", "strength", "score"}


def test_average_of_weights() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.0)
        average = _Average(model, 0.5)
        for value in (1.0, 2.0, 3.0):
            model.weight.fill_(value)
            average.update()
    expected = 0.0
    for step, value in enumerate((1.0, 2.0, 3.0), start=1):
        keep = min(0.5, step / (step + 10))
        expected = keep * expected + (1 - keep) * value
    with average:
        assert float(model.weight.detach()) == pytest.approx(expected)
    assert float(model.weight.detach()) == 3.0


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 0.01},
        {"schedule": "constant"},
        {"label_smoothing": 0.1},
        {"class_weights": True},
        {"weight_decay": 0.1},
        {"precision": "bfloat16"},
        {"steps_per_epoch": 3},
        {"ema": 0.9},
    ],
)
def test_every_training_option_changes_the_weights(views: list[TaskView], changes: dict) -> None:
    skewed = [
        replace(v, index=v.index[rows], y=v.y[rows])
        for v in views[:2]
        for rows in [np.flatnonzero((v.y == 0) | (np.arange(len(v)) % 3 == 0))]
    ]
    plain, changed = fit(skewed, settings(), 0), fit(skewed, settings(**changes), 0)
    before, after = (model.model.state_dict()["stage1.conv.weight"] for model in (plain, changed))
    assert not torch.equal(before, after)
    assert np.isfinite(changed.history["loss"]).all()


def test_progress_is_told(views: list[TaskView]) -> None:
    events: list[dict] = []
    fit(views[:2], settings("sscf"), 0, progress=events.append)
    assert [(e["stage"], e["epoch"]) for e in events] == [
        ("auxiliary encoder", 1),
        ("auxiliary encoder", 2),
        ("training", 1),
        ("training", 2),
    ]


def test_nothing_to_validate_on(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((20, 2, 64)).astype(np.float32)
    for name in "ab":
        write_domain(tmp_path / "s" / name, x, np.arange(20) % 2, ["only"] * 20, TASK.classes, 32.0, name=name)
    one_subject = [TASK.view(domain) for domain in open_store(tmp_path / "s").values()]
    with pytest.raises(ConfigError, match="two subjects"):
        fit(one_subject, settings(), 0)
    with pytest.raises(ConfigError, match="selection = 'last'"):
        fit(one_subject, settings(validation=0.0), 0)
    assert fit(one_subject, replace(settings(validation=0.0), selection="last"), 0).validation["epoch"] == 2


def test_domains_that_do_not_fit_together(views: list[TaskView], tmp_path: Path) -> None:
    x = np.zeros((8, 2, 80), np.float32) + np.arange(80)
    write_domain(tmp_path / "o" / "long", x, np.arange(8) % 2, list("aabbccdd"), TASK.classes, 32.0, name="long")
    other = TASK.view(open_store(tmp_path / "o")["long"])
    with pytest.raises(ConfigError, match=r"2 channels x 64 samples.*2 x 80"):
        fit([views[0], other], settings(), 0)


def test_saved_and_loaded_models_agree(views: list[TaskView]) -> None:
    for method in ("erm", "psdnorm", "sscf", "sscf+coral"):
        fitted = fit(views[:2], replace(settings(method), normalisation="source"), 0)
        again = Fitted.from_tensors(*fitted.to_tensors())
        before, _ = evaluate(fitted, views[2], views[:2])
        after, _ = evaluate(again, views[2], views[:2])
        assert before == after


def test_sleep_sequences_end_to_end(tmp_path: Path) -> None:
    """Three sources of contiguous epochs through the sequence model, calibration and evaluation."""
    rng = np.random.default_rng(0)
    task = Task("night", ("W", "N2"), backbone="cnn_transformer", sequence=4)
    for d, name in enumerate("abc"):
        x, y, subjects, positions = [], [], [], []
        for subject in range(3):
            labels = np.repeat(rng.integers(0, 2, 5), 3)[:14]
            x.append((1 + d) * (1 + labels[:, None, None]) * rng.standard_normal((14, 2, 600)))
            y.append(labels)
            subjects += [f"{name}{subject}"] * 14
            positions.append(np.arange(14) * 600 + (np.arange(14) >= 9) * 600)  # a gap after nine epochs
        write_domain(
            tmp_path / name,
            np.concatenate(x).astype(np.float32),
            np.concatenate(y),
            subjects,
            task.classes,
            100.0,
            name=name,
            recordings=subjects,
            positions=np.concatenate(positions),
            hop=600,
        )
    views = [task.view(domain) for domain in open_store(tmp_path).values()]
    chosen = Settings(
        get_method("sscf"),
        train=TrainConfig(epochs=1, batch_size=4, validation=0.34),
        sscf=SSCFConfig(k=2, frame=8),
        backbone_params={"width": 8},
    )
    fitted = fit(views[:2], chosen, 0)
    record, arrays = evaluate(fitted, views[2], views[:2])
    assert record["scores"]["n"] == len(views[2]) == 42
    assert arrays["target_strata"].shape == (42,)
    assert set(arrays["target_strata"]) <= {0, 1}
    assert np.isfinite(arrays["target_probabilities"]).all()


def test_people_of_two_data_sets_stay_on_one_side(views: list[TaskView]) -> None:
    """Two visits of the same people (MrOS): nobody trains in one visit and validates in the other."""
    a, b, c = views
    b.domain.manifest["same_people"] = ["a"]
    b.domain.subject_names = a.domain.subject_names
    for seed in range(5):
        splits = split_rows([a, c, b], 0.3, seed)
        people = [
            [set(np.array(v.domain.subject_names)[v.subjects[rows]]) for rows in split]
            for v, split in zip([a, c, b], splits, strict=True)
        ]
        assert not (people[0][0] | people[2][0]) & (people[0][1] | people[2][1])
        assert all(len(train) and len(valid) for train, valid in splits)
        for v, (train, valid) in zip([a, c, b], splits, strict=True):
            assert np.array_equal(np.sort(np.concatenate([train, valid])), np.arange(len(v)))


@pytest.mark.parametrize("name", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device '{name}' cannot be used here"):
        resolve_device(name)
    assert resolve_device("cpu") == torch.device("cpu")
