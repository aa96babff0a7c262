"""The model file: all of the model is in it, and nothing but data; whatever is wrong with one is said."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.deploy.conftest import domain_of, known_subjects, new_subjects, small_settings

from sscf.data.simulate import SimulatedDomain, simulate_domain
from sscf.data.tasks import get_task
from sscf.errors import ConfigError, FileError, InputError
from sscf.model import Model, _digest, fit_model, recipe_of
from sscf.protocol import macro_f1


def parts(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    with safe_open(str(path), framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["sscf"])  # noqa: SIM118


def test_a_loaded_model_says_the_same(har_model: Model, har_file: Path, har_domains: list[SimulatedDomain]) -> None:
    new = domain_of(har_domains[0], new_subjects())
    before, after = har_model.judge(new), Model.load(har_file).judge(new)
    np.testing.assert_array_equal(after.probabilities, before.probabilities)
    np.testing.assert_array_equal(after.strata, before.strata)
    np.testing.assert_array_equal(after.pvalues, before.pvalues)


@pytest.mark.parametrize(
    ("method", "normalisation"), [("erm", "source"), ("instance-norm", "window"), ("domain-anchor", "recording")]
)
def test_every_kind_of_model_can_be_saved(
    method: str, normalisation: str, har_domains: list[SimulatedDomain], tmp_path: Path
) -> None:
    views = [get_task("har3").view(domain_of(d, np.arange(8))) for d in har_domains[:2]]
    model = fit_model(views, small_settings(method, normalisation=normalisation, epochs=1))
    model.save(tmp_path / "one.sscf")
    again = Model.load(tmp_path / "one.sscf")
    again.save(tmp_path / "two.sscf")
    assert (tmp_path / "one.sscf").read_bytes() == (tmp_path / "two.sscf").read_bytes()
    assert again.sources == model.sources
    new = domain_of(har_domains[2], np.arange(4))
    np.testing.assert_array_equal(again.judge(new).probabilities, model.judge(new).probabilities)
    assert (again.judge(new).strata == -1).all() == (method != "domain-anchor")


def test_the_same_training_gives_the_same_bytes(har_domains: list[SimulatedDomain], tmp_path: Path) -> None:
    for name in ("a", "b"):
        views = [get_task("har").view(domain_of(d, np.arange(10))) for d in har_domains[:2]]
        fit_model(views, small_settings(epochs=1)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_validation_scores_are_of_subjects_held_out(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    from sklearn.metrics import f1_score

    from sscf.experiment.train import split_views

    views = [get_task("har").view(domain_of(d, known_subjects())) for d in har_domains]
    training, held_out = split_views(views, 0.3, 0)
    assert not set(training[0].subjects) & set(held_out[0].subjects)
    for view, source in zip(held_out, har_model.sources, strict=True):
        predicted = har_model.judge(view).probabilities.argmax(axis=1)
        expected = f1_score(view.y, predicted, average="macro", labels=range(4), zero_division=0)
        assert source["validation"] == pytest.approx(expected)
    assert macro_f1(np.eye(4)) == 1


def test_what_is_in_the_header(har_file: Path) -> None:
    tensors, whole = parts(har_file)
    header = whole["model"]
    assert whole["format"] == "sscf-model"
    assert header["fitted"]["classes"] == ["walking", "stairs", "sitting", "standing"]
    assert header["recipe"]["fs"] == 50
    assert header["recipe"]["unit"] == "g"
    assert [c["name"] for c in header["recipe"]["channels"]] == ["acc_x", "acc_y", "acc_z"]
    assert set(header["versions"]) == {"sscf", "torch", "python"}
    assert tensors["fitted.anchors.power"].shape[0] == 3


# --- what is wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_truncated(har_file: Path, tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.sscf"
    path.write_bytes(har_file.read_bytes()[:size])
    with pytest.raises(FileError, match=r"cut\.sscf: truncated"):
        Model.load(path)


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9, 0.999])
def test_any_changed_byte_is_noticed(har_file: Path, tmp_path: Path, place: float) -> None:
    data = bytearray(har_file.read_bytes())
    data[int(place * len(data))] ^= 1
    path = tmp_path / "changed.sscf"
    path.write_bytes(data)
    with pytest.raises(FileError):
        Model.load(path)


def rewritten(source: Path, path: Path, change, *, sign: bool = True) -> Path:
    """A copy with another header; `sign` gives it the right checksum, as a forger would."""
    tensors, whole = parts(source)
    change(whole["model"], whole)
    if sign:
        whole["digest"] = _digest(tensors, whole["model"])
    save_file(tensors, str(path), metadata={"sscf": json.dumps(whole)})
    return path


def test_a_changed_header_is_noticed(har_file: Path, tmp_path: Path) -> None:
    path = rewritten(har_file, tmp_path / "m", lambda h, m: h["fitted"]["classes"].reverse(), sign=False)
    with pytest.raises(FileError, match="does not match its checksum"):
        Model.load(path)


def test_newer_and_foreign_files(har_file: Path, tmp_path: Path) -> None:
    newer = rewritten(har_file, tmp_path / "newer", lambda h, m: m.update(schema=2))
    with pytest.raises(FileError, match="schema 2, this sscf reads 1: update sscf"):
        Model.load(newer)
    foreign = tmp_path / "foreign"
    save_file({"weight": torch.zeros(2)}, str(foreign))
    with pytest.raises(FileError, match="not a model file"):
        Model.load(foreign)
    with pytest.raises(FileError, match="no such file"):
        Model.load(tmp_path / "nowhere")


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_a_pickle_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bomb.sscf").write_bytes(pickle.dumps(Bomb()))
    torch.save({"bomb": Bomb()}, tmp_path / "torch.sscf")
    for name in ("bomb.sscf", "torch.sscf"):
        with pytest.raises(FileError):
            Model.load(name)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda h, m: h["fitted"].update(backbone_name="os.system"),
        lambda h, m: h["fitted"].update(backbone_name="../../evil"),
        lambda h, m: h["fitted"]["settings"]["method"].update(rule="antigravity"),
        lambda h, m: h["fitted"].update(tap="classifier"),
        lambda h, m: h["fitted"].update(channels=["only one"]),
        lambda h, m: h["fitted"]["settings"]["backbone_params"].update(width=9),
        lambda h, m: h["fitted"].pop("classes"),
        lambda h, m: h["recipe"].update(options="x", surprise=1),
        lambda h, m: h["reference"].update(frame=8),
        lambda h, m: h["fitted"]["anchors"].update(frame=1),
        lambda h, m: h["recipe"].update(fs=100.0),
        lambda h, m: h["recipe"].update(window_s=5.12),
        lambda h, m: h["recipe"]["channels"].pop(),
        lambda h, m: h["fitted"].update(length=256),
        lambda h, m: h["fitted"]["settings"].update(normalisation="source"),
        lambda h, m: h["fitted"]["settings"].update(normalisation="magic"),
        lambda h, m: h.update(sources=["sim-har-a"]),
    ],
)
def test_a_forged_file_is_refused(har_file: Path, tmp_path: Path, change) -> None:
    with pytest.raises(FileError, match="damaged model file"):
        Model.load(rewritten(har_file, tmp_path / "forged", change))


def test_what_we_never_write_is_refused(har_file: Path, tmp_path: Path) -> None:
    tensors, whole = parts(har_file)
    half = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    not_a_number = {**whole, "model": {**whole["model"], "versions": float("nan")}}
    headers = [json.dumps(whole), json.dumps(not_a_number), "[" * 100_000 + "]" * 100_000]
    for content, header in zip([half, tensors, tensors], headers, strict=True):
        save_file(content, str(tmp_path / "odd.sscf"), metadata={"sscf": header})
        with pytest.raises(FileError, match=r"odd\.sscf: damaged model file"):
            Model.load(tmp_path / "odd.sscf")


def test_reading_opens_no_other_file(har_file: Path) -> None:
    import os
    import sys

    Model.load(har_file)  # whatever is imported on first use is there now
    opened: list[str] = []

    def watch(event: str, arguments: tuple) -> None:
        if event == "open" and active:
            opened.append(str(arguments[0]))

    active = True
    sys.addaudithook(watch)
    Model.load(har_file)
    active = False
    assert {os.path.realpath(path) for path in opened} <= {os.path.realpath(har_file)}


def test_windows_that_do_not_fit_are_refused(har_model: Model) -> None:
    ecg = simulate_domain("ecg", 0, subjects=1, windows=2)
    with pytest.raises(InputError, match=r"the model takes 3 \(acc_x, acc_y, acc_z\) x 128 at 50 Hz"):
        har_model.judge(domain_of(ecg, [0]))


def test_a_model_must_be_usable_elsewhere(har_domains: list[SimulatedDomain]) -> None:
    view = get_task("har").view(domain_of(har_domains[0], np.arange(6)))
    with pytest.raises(ConfigError, match="choose one that a window or a recording has by itself"):
        fit_model([view], small_settings(normalisation="dataset"))


def test_recipes_are_joined(tmp_path: Path) -> None:
    from sscf.data.store import Domain, write_domain
    from sscf.data.tasks import Task

    rng = np.random.default_rng(0)

    def view(name: str, alias: str, band: list[float] | None = None, unit: str = "uV"):
        recipe = {"channels": [{"name": "EEG", "aliases": [alias]}], "band": band}
        x, y = rng.normal(size=(4, 1, 50)), [0, 1, 0, 1]
        path = write_domain(tmp_path / name, x, y, y, ["a", "b"], 100, channels=["EEG"], unit=unit, recipe=recipe)
        return Task("t", ("a", "b")).view(Domain.open(path))

    band = [0.3, 35.0]
    joined = recipe_of([view("one", "C4-M1", band), view("two", "Fpz-Cz", band)])
    assert joined.channels[0].spellings == ("EEG", "C4-M1", "Fpz-Cz")
    assert joined.band == (0.3, 35.0)
    with pytest.raises(ConfigError, match="filtered differently"):
        recipe_of([view("one", "C4-M1", band), view("three", "C4-M1", None)])
    with pytest.raises(ConfigError, match=r"in uV.*in mV"):
        recipe_of([view("one", "C4-M1", band), view("four", "C4-M1", band, "mV")])
