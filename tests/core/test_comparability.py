"""Comparability: valid p-values for what could be source data, small ones for what could not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from sscf.core import Comparability
from sscf.core.comparability import LEAST_WINDOWS, REFERENCE_SIZE
from sscf.errors import InputError


def source(n: int, seed: int = 0, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Distances that differ by stratum; stratum 3 is rare."""
    rng = np.random.default_rng(seed)
    strata = rng.choice(4, n, p=[0.5, 0.3, 0.195, 0.005])
    return rng.gamma(4.0, 1.0 + strata) + shift, strata


def test_pvalues_by_their_definition() -> None:
    distances, strata = source(900)
    fitted = Comparability.fit(distances, strata, k=4)
    assert np.bincount(strata)[3] < LEAST_WINDOWS
    new, where = source(50, seed=1)
    for d, k, p in zip(new, where, fitted.pvalue(new, where).tolist(), strict=True):
        reference = distances if k == 3 else distances[strata == k]  # too few of stratum 3: all together
        assert p == pytest.approx((1 + np.sum(reference >= d)) / (len(reference) + 1), rel=1e-12)


@pytest.mark.parametrize("n", [800, 30_000])
def test_pvalues_of_exchangeable_windows_are_uniform(n: int) -> None:
    """At every level the share of p-values below lies within binomial bounds, whether or not all distances are kept."""
    new, where = source(20_000, seed=1)
    p = Comparability.fit(*source(n), k=4).pvalue(new, where).numpy()[where < 3]
    assert 0 < p.min() <= p.max() <= 1
    for level in (0.01, 0.05, 0.2, 0.5, 0.9):
        # The reference is a sample too: its quantile at a level has this standard error.
        spread = np.sqrt(level * (1 - level) * (1 / len(p) + 1 / min(n * 0.195, REFERENCE_SIZE)))
        assert np.mean(p <= level) == pytest.approx(level, abs=4 * spread)


def test_pvalues_are_valid_on_average_even_for_few_windows() -> None:
    rng = np.random.default_rng(0)
    below = 0
    for _ in range(2000):
        values = rng.random(LEAST_WINDOWS + 1)
        fitted = Comparability.fit(values[1:], np.zeros(LEAST_WINDOWS, int), k=1)
        below += float(fitted.pvalue(values[:1], [0])) <= 0.1  # type: ignore[arg-type]
    assert below <= stats.binom.ppf(0.9999, 2000, 0.1)
    assert below >= stats.binom.ppf(0.0001, 2000, 10 / 101)


def test_shifted_windows_are_flagged() -> None:
    fitted = Comparability.fit(*source(20_000), k=4)
    new, where = source(2000, seed=1, shift=8.0)
    p = fitted.pvalue(new, where)
    assert (p[where == 0] <= 0.05).double().mean() > 0.9
    assert (p <= 0.05).double().mean() > 5 * 0.05
    assert fitted.pvalue([1e9], [2]).item() == 1 / (REFERENCE_SIZE + 1)  # type: ignore[arg-type]


def test_what_is_no_number_is_not_comparable() -> None:
    fitted = Comparability.fit(*source(900), k=4)
    smallest = fitted.pvalue(np.array([1e9]), np.array([0]))
    for value in (np.nan, np.inf):
        assert torch.equal(fitted.pvalue(np.array([value]), np.array([0])), smallest)


def test_what_is_kept_is_bounded_and_spans_the_distances() -> None:
    distances, strata = source(100_000)
    fitted = Comparability.fit(torch.from_numpy(distances).float(), torch.from_numpy(strata), k=4)
    assert fitted.sizes.tolist() == [REFERENCE_SIZE] * 3 + [int((strata == 3).sum())] + [REFERENCE_SIZE]
    kept = fitted.reference[:REFERENCE_SIZE].numpy()
    assert np.quantile(distances[strata == 0], 0.999) < kept[-1] <= distances[strata == 0].max() * (1 + 1e-6)
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(kept, q) == pytest.approx(np.quantile(distances[strata == 0], q), rel=0.01)


def test_mix_shift_is_the_chi_square_test() -> None:
    distances, strata = source(3000)
    fitted = Comparability.fit(distances, strata, k=5)  # stratum 4 occurs in neither
    same, moved = source(500, seed=1)[1], np.random.default_rng(0).choice(4, 500, p=[0.2, 0.2, 0.3, 0.3])
    for new in (same, moved):
        table = np.stack([np.bincount(strata, minlength=4), np.bincount(new, minlength=4)])
        shift = fitted.mix_shift(new)
        assert shift.pvalue == pytest.approx(
            stats.chi2_contingency(table, correction=False).pvalue, rel=1e-9, abs=1e-300
        )
        share = table / table.sum(axis=1, keepdims=True)
        assert shift.total_variation == pytest.approx(np.abs(share[0] - share[1]).sum() / 2)
        np.testing.assert_allclose(shift.new.numpy()[:4], share[1])
        np.testing.assert_allclose(shift.source.numpy()[:4], share[0])
    assert fitted.mix_shift(same).pvalue > 0.01
    assert fitted.mix_shift(moved).pvalue < 1e-6


def test_one_stratum_cannot_shift() -> None:
    shift = Comparability.fit(np.ones(10), np.zeros(10, int), k=1).mix_shift(np.zeros(3, int))
    assert (shift.pvalue, shift.total_variation) == (1.0, 0.0)


def test_tensors_and_back() -> None:
    fitted = Comparability.fit(*source(5000), k=4)
    tensors, settings = fitted.to_tensors()
    back = Comparability.from_tensors(tensors, settings)
    new, where = source(100, seed=1)
    assert torch.equal(back.pvalue(new, where), fitted.pvalue(new, where))
    assert torch.equal(back.mix, fitted.mix)
    assert back.k == 4
    wrong = [
        ({"reference": tensors["reference"]}, "expected tensors reference, sizes, mix"),
        ({**tensors, "reference": tensors["reference"].flip(0)}, "must ascend"),
        ({**tensors, "reference": tensors["reference"][1:]}, "add up"),
        ({**tensors, "reference": -tensors["reference"].flip(0)}, "finite and not negative"),
        ({**tensors, "reference": tensors["reference"].float()}, "float64"),
        ({**tensors, "mix": tensors["mix"][:2]}, r"mix \(K,\)"),
        ({**tensors, "mix": -tensors["mix"]}, "must not be negative"),
    ]
    for content, message in wrong:
        with pytest.raises(InputError, match=message):
            Comparability.from_tensors(content, {})
    with pytest.raises(InputError, match="no settings"):
        Comparability.from_tensors(tensors, {"colour": "red"})


@pytest.mark.parametrize(
    ("distances", "strata", "message"),
    [
        (np.ones(3), np.zeros(2, int), r"distances \(3,\) and strata \(2,\) must both be \(N,\)"),
        (np.ones(3), np.array([0, 1, 4]), "strata run from 0 to 3, got 0 to 4"),
        (np.ones(3), np.array([0, -1, 3]), "strata run from 0 to 3, got -1 to 3"),
        (np.ones(3), np.zeros(3), "strata must be integers"),
        (np.array([1, np.nan]), np.zeros(2, int), "finite and not negative"),
        (np.array([1, -1.0]), np.zeros(2, int), "finite and not negative"),
        (np.ones(0), np.zeros(0, int), "at least one window"),
    ],
)
def test_bad_input(distances: np.ndarray, strata: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Comparability.fit(distances, strata, k=4)


def test_no_new_windows() -> None:
    fitted = Comparability.fit(*source(900), k=4)
    assert fitted.pvalue(np.ones(0), np.zeros(0, int)).shape == (0,)
    with pytest.raises(InputError, match="no windows to compare"):
        fitted.mix_shift(np.zeros(0, int))
