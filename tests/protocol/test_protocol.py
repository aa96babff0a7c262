"""Folds, splits, caps, scores: against scikit-learn and by their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from sscf.errors import ConfigError
from sscf.protocol import (
    Fold,
    cap_recordings,
    cap_rows,
    confusion,
    external,
    leave_k_out,
    leave_one_domain_out,
    leave_one_source_out,
    macro_f1,
    risk_coverage,
    scores,
    subject_split,
)
from sscf.protocol.metrics import bootstrap_interval, cohen_kappa
from sscf.protocol.selection import best, candidates


def test_every_domain_is_left_out_once() -> None:
    folds = leave_one_domain_out(["a", "b", "c"])
    assert [(f.sources, f.target) for f in folds] == [(("b", "c"), "a"), (("a", "c"), "b"), (("a", "b"), "c")]
    assert leave_one_source_out(("a", "c"))[0] == Fold(("c",), "a")


def test_external_and_leave_k_out() -> None:
    assert external(["a", "b"], ["x"]) == [Fold(("a", "b"), "x", "external")]
    folds = leave_k_out(["a", "b", "c", "d"], 2)
    assert len(folds) == 12
    assert all(len(f.sources) == 2 and f.target not in f.sources for f in folds)
    assert {(f.sources, f.target) for f in folds if f.sources == ("a", "b")} == {(("a", "b"), "c"), (("a", "b"), "d")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: leave_one_domain_out(["a", "a"]), "'a' is named twice"),
        (lambda: leave_one_domain_out(["a", "b"], ["q"]), "'q' is not one of"),
        (lambda: external(["a"], ["a"]), "named twice"),
        (lambda: leave_k_out(["a", "b"], 2), "k = 2"),
        (lambda: leave_one_source_out(["a"]), "at least two"),
        (lambda: Fold((), "a"), "no source"),
        (lambda: Fold(("a",), "a"), "both a source and the target"),
    ],
)
def test_folds_that_make_no_sense(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@st.composite
def labelled_subjects(draw) -> tuple[np.ndarray, np.ndarray]:
    seed = draw(st.integers(0, 10_000))
    n_subjects, n_classes = draw(st.integers(1, 30)), draw(st.integers(1, 5))
    rng = np.random.default_rng(seed)
    subjects = np.concatenate([np.full(rng.integers(1, 20), s) for s in range(n_subjects)])
    return rng.integers(0, n_classes, len(subjects)), subjects[rng.permutation(len(subjects))]


@given(labelled_subjects(), st.floats(0.05, 0.6), st.integers(0, 1000))
@settings(max_examples=200, deadline=None)
def test_no_subject_is_on_both_sides(data: tuple[np.ndarray, np.ndarray], fraction: float, seed: int) -> None:
    y, subjects = data
    train, valid = subject_split(y, subjects, fraction, seed)
    assert not set(subjects[train]) & set(subjects[valid])
    assert np.array_equal(np.sort(np.concatenate([train, valid])), np.arange(len(y)))
    assert len(train) > 0
    assert (len(valid) > 0) == (len(np.unique(subjects)) > 1)


def test_split_keeps_the_class_mix_and_depends_on_the_seed() -> None:
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(600), 3)  # one class per subject, as with one recording per patient
    y = np.repeat(rng.choice(3, 600, p=[0.6, 0.3, 0.1]), 3)
    train, valid = subject_split(y, subjects, 0.2, 0)
    share = [np.bincount(y[rows], minlength=3) / len(rows) for rows in (train, valid)]
    assert np.abs(share[0] - share[1]).max() < 0.02
    assert len(valid) / len(y) == pytest.approx(0.2, abs=0.02)
    assert not np.array_equal(valid, subject_split(y, subjects, 0.2, 1)[1])
    assert np.array_equal(valid, subject_split(y, subjects, 0.2, 0)[1])


def test_split_refuses_a_wrong_fraction() -> None:
    with pytest.raises(ConfigError, match=r"1\.5"):
        subject_split(np.zeros(3, int), np.arange(3), 1.5, 0)


@given(labelled_subjects(), st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_cap_takes_classes_evenly(data: tuple[np.ndarray, np.ndarray], most: int) -> None:
    y, subjects = data
    rows = cap_rows(y, subjects, most)
    assert len(rows) == min(most, len(y))
    assert np.array_equal(rows, np.unique(rows))
    taken, there = np.bincount(y[rows], minlength=5), np.bincount(y, minlength=5)
    cut = taken[taken < there]  # classes that lost windows got as many as any other, give or take one
    if len(cut):
        assert cut.max() - cut.min() <= 1
        assert taken.max() - cut.min() <= 1


def test_cap_is_fair_to_subjects() -> None:
    subjects = np.concatenate([np.zeros(500, int), np.ones(50, int), np.full(50, 2)])
    rows = cap_rows(np.zeros(600, int), subjects, 90)
    assert np.bincount(subjects[rows]).tolist() == [30, 30, 30]


def test_cap_on_recordings_keeps_them_whole() -> None:
    recordings = np.repeat(np.arange(10), 30)
    rows = cap_recordings(recordings, 100)
    assert np.bincount(recordings[rows], minlength=10).tolist().count(30) == 3
    assert set(np.bincount(recordings[rows], minlength=10)) == {0, 30}


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 80))
@settings(max_examples=100, deadline=None)
def test_scores_agree_with_scikit_learn(seed: int, n_classes: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(0, n_classes, n), rng.integers(0, n_classes, n)
    classes = [f"c{i}" for i in range(n_classes)]
    labels = list(range(n_classes))
    got = scores(truth, predicted, np.arange(n) % 4, classes, draws=10)
    expected = reference.f1_score(truth, predicted, labels=labels, average=None, zero_division=0)
    assert got["macro_f1"] == pytest.approx(expected.mean())
    assert got["accuracy"] == pytest.approx(reference.accuracy_score(truth, predicted))
    assert got["confusion"] == reference.confusion_matrix(truth, predicted, labels=labels).tolist()
    for i, name in enumerate(classes):
        assert got["per_class_f1"][name] == (pytest.approx(expected[i]) if i in truth else None)
    assert got["missing_classes"] == [name for i, name in enumerate(classes) if i not in truth]
    if len(set(truth) | set(predicted)) > 1:
        assert got["kappa"] == pytest.approx(reference.cohen_kappa_score(truth, predicted))
    assert got["n"] == n == sum(one["n"] for one in got["per_subject"].values())


def test_kappa_of_a_single_class() -> None:
    assert cohen_kappa(np.array([[5, 0], [0, 0]])) == 0.0


def test_interval_is_over_subjects() -> None:
    """Two subjects, one always right and one always wrong: the interval must know that windows are not independent."""
    right, wrong = np.array([[500, 0], [0, 500]]), np.array([[0, 500], [500, 0]])
    low, high = bootstrap_interval(np.stack([right, wrong])) or (0, 0)
    assert (low, high) == (0.0, 1.0)
    assert bootstrap_interval(right[None]) is None
    many = np.stack([right // 10] * 40 + [wrong // 10] * 40)
    low, high = bootstrap_interval(many) or (0, 0)
    assert 0.38 < low < 0.42
    assert 0.58 < high < 0.62


def test_macro_f1_counts_missing_classes() -> None:
    assert macro_f1(confusion(np.array([0, 0]), np.array([0, 0]), 2)) == 0.5


def test_risk_coverage() -> None:
    coverage, risk = risk_coverage(np.array([True, False, True, True]), np.array([0.9, 0.1, 0.8, 0.5]))
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk.tolist() == [0, 0, 0, 0.25]


def test_candidates_and_ties() -> None:
    settings = {"k": [8, 2], "frame": [16, 8], "strength": 1.0}
    assert candidates(settings, ("k", "frame", "strength")) == [
        {"k": 2, "frame": 16},
        {"k": 2, "frame": 8},
        {"k": 8, "frame": 16},
        {"k": 8, "frame": 8},
    ]
    assert candidates({"k": 3}, ("k",)) == [{}]
    assert best([({"k": 1}, 0.5), ({"k": 2}, 0.7), ({"k": 4}, 0.7)]) == {"k": 2}
