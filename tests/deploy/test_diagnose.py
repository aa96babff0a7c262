"""Diagnosis against simulated truth: no alarm for comparable data at the stated rate, alarms for what is different."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from tests.deploy.conftest import domain_of, known_subjects, new_subjects, small_settings
from typer.testing import CliRunner

from sscf.cli.app import app
from sscf.data.arrays import ArrayDomain
from sscf.data.simulate import SimulatedDomain, simulate, simulate_domain
from sscf.data.store import write_domain
from sscf.data.tasks import get_task
from sscf.diagnose import ALARM, Diagnosis, _test, diagnose
from sscf.diagnose_page import page
from sscf.errors import ConfigError
from sscf.model import Model, fit_model
from sscf.reference import LEVEL, Measured, Reference


@pytest.fixture(scope="module")
def strangers(har_model: Model, har_domains: list[SimulatedDomain]) -> tuple[Measured, np.ndarray]:
    """All subjects the network was not trained on, as it measures them, and who they are: an exchangeable crowd."""
    from sscf.experiment.train import split_views

    views = [get_task("har").view(domain_of(d, known_subjects())) for d in har_domains]
    held_out = split_views(views, 0.3, 0)[1]
    fresh = [domain_of(d, new_subjects()) for d in har_domains]
    judged = [har_model.judge(view) for view in held_out] + [har_model.judge(domain) for domain in fresh]
    who = [1000 * i + view.subjects for i, view in enumerate(held_out)]
    who += [1000 * (10 + i) + domain.subjects for i, domain in enumerate(fresh)]
    return Measured.joined([one.measured for one in judged if one.measured is not None]), np.concatenate(who)


def test_false_alarms_come_at_the_stated_rate(har_model: Model, strangers: tuple[Measured, np.ndarray]) -> None:
    """Held-out and new subjects are drawn from one crowd again and again; nothing tells them apart but chance."""
    measured, who = strangers
    assert har_model.reference is not None
    names = np.unique(who)
    rng = np.random.default_rng(0)
    draws, rejections, alarms, outside = 100, 0, 0, []
    for _ in range(draws):
        order = rng.permutation(names)
        held_out, new = np.isin(who, order[:25]), np.flatnonzero(np.isin(who, order[25:35]))
        reference = Reference.fit(
            har_model.reference.spectra, measured.rows(np.flatnonzero(held_out)), who[held_out], k=3
        )
        table = reference.pvalues(measured.rows(new)).table <= LEVEL
        shares = np.array([table[who[new] == one].mean(axis=0) for one in order[25:35]])
        results = [
            _test(shares[:, i], reference.shares[:, i].numpy(), table[:, i].mean(), shares.shape[1])
            for i in range(shares.shape[1])
        ]
        rejections += any(p is not None and p <= ALARM for p, _ in results)
        alarms += any(alarm for _, alarm in results)
        outside.append([*table.mean(axis=0), (reference.comparability(measured.rows(new)) <= LEVEL).mean()])
    assert rejections <= binom.ppf(0.999, draws, ALARM)
    assert alarms <= rejections
    # The share of windows outside is 5 % on average; draws share subjects, so the bound is wider than their error.
    average, error = np.mean(outside, axis=0), np.std(outside, axis=0) / np.sqrt(draws)
    assert (np.abs(average - LEVEL) < 0.01 + 4 * error).all()


def test_p_values_of_new_subjects_are_even(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    p = np.concatenate([har_model.judge(domain_of(d, new_subjects())).pvalues for d in har_domains])
    for level in (0.05, 0.2, 0.5, 0.8):
        assert abs((p <= level).mean() - level) < 0.08


def test_new_subjects_are_comparable(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    found = diagnose(har_model, [domain_of(d, new_subjects()) for d in har_domains])
    assert found.verdict == "comparable", found.words()
    assert found.words()[0].startswith("Comparable:")
    assert len(found.recordings) == 60
    assert found.windows == 960


def broken(change: Callable[[np.ndarray], None]) -> Callable[[SimulatedDomain], np.ndarray]:
    def windows(domain: SimulatedDomain) -> np.ndarray:
        x = domain.windows.copy()
        change(x)
        return x

    return windows


def flatten(x: np.ndarray) -> None:
    x[:, 1] = 0.3


def loosen(x: np.ndarray) -> None:
    x[:, 1] = np.random.default_rng(0).normal(0, 0.3, x[:, 1].shape)


def hum(x: np.ndarray) -> None:
    x[:, 1] += 0.3 * np.sin(2 * np.pi * 15 / 50 * np.arange(x.shape[2])).astype(np.float32)


@pytest.mark.parametrize("change", [flatten, loosen, hum])
def test_a_broken_channel_is_found_and_named(
    har_model: Model, har_domains: list[SimulatedDomain], change: Callable[[np.ndarray], None]
) -> None:
    found = diagnose(har_model, [domain_of(d, new_subjects()[:6], broken(change)(d)) for d in har_domains])
    assert found.verdict == "not comparable"
    alarmed = {finding.name for finding in found.findings if finding.alarm}
    assert "channel acc_y" in alarmed
    assert not alarmed & {"channel acc_x", "channel acc_z"}  # the others are cleared
    if change is flatten:
        assert "Flat in 100 % of the windows" in " ".join(found.words())


def test_a_wrong_unit_is_found_and_named(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    d = har_domains[0]
    found = diagnose(har_model, domain_of(d, new_subjects(), d.windows * np.float32(9.80665 * 100)))
    assert found.verdict == "not comparable"
    assert "is the unit right?" in " ".join(found.words())


def test_a_new_family_of_dynamics_is_found(har_model: Model) -> None:
    """The model knows three of the simulator's four families. Known ones raise no alarm, the fourth one does."""
    crowd = [simulate_domain("har", i, subjects=48, windows=16, families=4) for i in range(3)]

    def people(*families: int) -> Diagnosis:
        members = [[np.unique(d.subjects[d.family == family])[:6] for family in families] for d in crowd]
        domains = [domain_of(d, np.concatenate(who)) for d, who in zip(crowd, members, strict=True)]
        return diagnose(har_model, domains)

    new, known = people(3), people(0, 1, 2)
    structure = next(finding for finding in new.findings if finding.name == "structure")
    assert structure.alarm
    assert structure.outside > 0.3
    assert new.verdict != "comparable"
    assert "another kind of dynamics" in new.words()[0] or new.verdict == "not comparable"
    assert known.comparable
    # People of one family alone are not the mix of people the channels were measured on; maps and structure are judged
    # within their stratum, where that does not matter.
    for family in range(3):
        assert not any(finding.alarm for finding in people(family).findings if finding.name in ("strata", "structure"))


def test_one_recording_alone(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    """A single recording cannot be tested; it takes most of its windows to raise the alarm."""
    d, who = har_domains[0], [int(new_subjects()[3])]
    reference = har_model.reference
    assert reference is not None
    few = replace(har_model, reference=replace(reference, shares=reference.shares[:5]))
    good, bad = diagnose(few, domain_of(d, who)), diagnose(few, domain_of(d, who, broken(flatten)(d)))
    assert all(finding.pvalue is None for finding in good.findings)
    assert good.comparable
    assert not bad.comparable


def test_the_rank_test_against_all_permutations() -> None:
    """Small numbers, no ties: the p-value is the share of all ways to pick the new ones whose rank sum is as large."""
    from itertools import combinations

    rng = np.random.default_rng(1)
    new, old = rng.uniform(0.2, 1, 4), rng.uniform(0, 0.8, 5)
    values = np.concatenate([new, old])
    rank = values.argsort().argsort()
    sums = [rank[list(pick)].sum() for pick in combinations(range(9), 4)]
    expected = np.mean(np.array(sums) >= rank[:4].sum())
    assert _test(new, old, 0.5, tests=2)[0] == pytest.approx(min(1, 2 * expected))


def test_held_out_subjects_of_every_domain_are_asked(har_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """More subjects than are kept, and only those of the second domain have windows outside."""
    monkeypatch.setattr("sscf.reference.MOST_SUBJECTS", 10)
    who = np.repeat(np.arange(40), 20)
    distances = np.random.default_rng(0).uniform(size=len(who)) + (who >= 20)
    assert har_model.reference is not None
    measured = Measured(distances, distances, np.stack([distances] * 3, axis=1), np.zeros(len(who), np.int64))
    shares = Reference.fit(har_model.reference.spectra, measured, who, k=1).shares.numpy()
    assert shares.shape == (10, 5)
    assert (shares[:5] == 0).all()
    assert (shares[5:].mean(axis=0) > LEVEL).all()


def test_an_uncalibrated_model_is_diagnosed_by_spectra(har_domains: list[SimulatedDomain]) -> None:
    views = [get_task("har").view(domain_of(d, known_subjects())) for d in har_domains]
    model = fit_model(views, small_settings("erm", epochs=1))
    found = diagnose(model, [domain_of(d, new_subjects()) for d in har_domains])
    assert found.findings[0].name == "structure"
    assert found.mix is None
    assert found.comparable
    assert not diagnose(model, [domain_of(d, new_subjects(), broken(flatten)(d)) for d in har_domains]).comparable
    assert page(found, model)


def test_abstaining_on_what_is_strange_lowers_the_risk(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    """Half of the recordings are spoilt. The most comparable windows are the sound ones, where errors are fewer."""
    d = har_domains[1]
    x = d.windows.copy()
    spoilt = np.isin(d.subjects, new_subjects()[::2])
    x[spoilt] = x[spoilt][:, ::-1] * 3 + np.random.default_rng(0).normal(size=x[spoilt].shape).astype(np.float32)
    found = diagnose(har_model, domain_of(d, new_subjects(), x))
    assert found.risk is not None
    coverage, error = found.risk
    sound = float((found.pvalues > 0.01).mean())
    assert 0.3 < sound < 0.6
    assert error[int(sound * len(error)) - 1] < error[-1] - 0.05
    np.testing.assert_allclose(coverage[-1], 1)


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_escapes_names(har_model: Model, har_domains: list[SimulatedDomain]) -> None:
    d = har_domains[0]
    rows = np.isin(d.subjects, new_subjects()[:3])
    evil = ArrayDomain("<script>alert(1)</script>", d.windows[rows], d.labels[rows], d.classes, fs=50.0)
    evil.recording_names = tuple(f"<img src=x onerror=alert({i})>" for i in range(len(evil.recording_names)))
    made = page(diagnose(har_model, evil), har_model)
    parsed = _Page(made)
    assert "script" not in [tag for tag, _ in parsed.tags]
    assert all(
        attributes["src"] and attributes["src"].startswith("data:") for tag, attributes in parsed.tags if tag == "img"
    )
    assert all(attributes.get("alt") for tag, attributes in parsed.tags if tag == "img")
    assert "http" not in made.replace("http://www.w3.org", "")
    assert "<script>alert(1)</script>" in parsed.text
    assert len(made) < 2_000_000


def test_the_command_speaks_to_scripts(har_file: Path, har_domains: list[SimulatedDomain], tmp_path: Path) -> None:
    folders = []
    for d in har_domains:
        new = np.isin(d.subjects, new_subjects())
        path = tmp_path / d.name
        write_domain(path, d.windows[new], d.labels[new], d.subjects[new], d.classes, d.fs, unit=d.unit)
        folders.append(str(path))
    page_file, json_file = tmp_path / "p.html", tmp_path / "d.json"
    asked = ["diagnose", str(har_file), *folders, "--page", str(page_file), "--json", str(json_file)]
    good = CliRunner().invoke(app, asked)
    assert good.exit_code == 0, good.output
    numbers = json.loads(json_file.read_text())
    assert numbers["verdict"] in ("comparable", "shifted")
    assert numbers["windows"] == 960
    assert page_file.read_text().startswith("<!doctype html>")
    strict = CliRunner().invoke(app, ["diagnose", str(har_file), *folders, "--strict"])
    assert strict.exit_code == (0 if numbers["verdict"] == "comparable" else 3)
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).normal(size=(3, 50 * 60)))
    bad = CliRunner().invoke(app, ["diagnose", str(har_file), str(tmp_path / "noise.npy"), "--fs", "50"])
    assert bad.exit_code == 3, bad.output
    assert bad.output.startswith("Not comparable")


def test_what_cannot_be_diagnosed_is_said(har_model: Model, har_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing was held out"):
        diagnose(replace(har_model, reference=None), [])
    with pytest.raises(ConfigError, match="no data"):
        diagnose(har_model, [])
    simulate("har", tmp_path, domains=2, subjects=1, windows=2)
    with pytest.raises(ConfigError, match="is a store of sim-har-a, sim-har-b: give one of them"):
        CliRunner().invoke(app, ["diagnose", str(har_file), str(tmp_path)], catch_exceptions=False)
