"""The estimator: scikit-learn's own checks, and that it is at home in pipelines, searches and cross-validation."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from sscf import SSCFClassifier
from sscf.errors import ConfigError, InputError
from sscf.experiment.train import split_views
from sscf.model import Model


def tones(n: int = 90, seed: int = 0, channels: int = 2, samples: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Windows of three rhythms in noise, at random phase and gain."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    phase, gain = rng.uniform(0, 6, (n, channels, 1)), np.exp(0.3 * rng.normal(size=(n, 1, 1)))
    x = np.sin(np.array([0.3, 0.8, 1.6])[y][:, None, None] * np.arange(samples) + phase)
    return gain * (x + 0.2 * rng.normal(size=x.shape)), np.array(["slow", "middle", "fast"])[y]


def quick(**changes: object) -> SSCFClassifier:
    return SSCFClassifier(**{"k": 2, "epochs": 4, "random_state": 0, **changes})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
def test_passes_the_checks_of_scikit_learn() -> None:
    results = check_estimator(quick(epochs=2), on_fail=None, on_skip=None)
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert not failed
    assert collections.Counter(r["status"] for r in results)["passed"] > 40


def test_learns_with_its_defaults_and_chooses_k_by_held_out_windows() -> None:
    x, y = tones()
    model = SSCFClassifier(random_state=0).fit(x, y)
    assert model.score(*tones(60, seed=1)) > 0.9
    assert model.k_ in (1, 2, 4, 8)
    tried = model.model_.fitted.candidates
    assert [one["k"] for one in tried] == [1, 2, 4, 8]
    best = max(one["score"] for one in tried)
    assert model.k_ == next(one["k"] for one in tried if one["score"] == best)  # ties go to the smaller


def test_two_dimensions_are_one_channel() -> None:
    x, y = tones(channels=1)
    flat, deep = quick().fit(x[:, 0], y), quick().fit(x, y)
    np.testing.assert_array_equal(flat.predict_proba(x[:, 0]), deep.predict_proba(x))
    assert flat.n_features_in_ == 64


def test_probabilities_do_not_depend_on_the_batch() -> None:
    x, y = tones()
    model = quick().fit(x, y)
    p = model.predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    order = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_allclose(model.predict_proba(x[order]), p[order], atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(x[:1]), p[:1], atol=1e-12)


def test_a_fit_is_reproducible_and_survives_clone_and_pickle() -> None:
    x, y = tones()
    model = quick().fit(x, y)
    np.testing.assert_array_equal(clone(model).fit(x, y).predict_proba(x), model.predict_proba(x))
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - what joblib does with estimators
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))


def test_domains_and_groups() -> None:
    x, y = tones(120)
    domain = np.array(["a", "b"])[np.arange(120) // 60]
    who = np.arange(120) // 6
    model = quick(method="sscf+coral").fit(x, y, sample_domain=domain, groups=who)
    assert [(s["name"], s["windows"], s["subjects"]) for s in model.model_.sources] == [("a", 60, 10), ("b", 60, 10)]
    assert quick().fit(x, y).model_.sources[0]["name"] == "all"
    with pytest.raises(ConfigError, match="needs 2 or more source domains"):
        quick(method="coral").fit(x, y)
    with pytest.raises(InputError, match=r"shape \(120,\)"):
        quick().fit(x, y, groups=who[:5])
    for unknown in (None, np.nan):
        with pytest.raises(InputError, match="must be known for every window, that of window 3 is not"):
            quick().fit(x, y, sample_domain=np.array([*domain[:3], unknown, *domain[4:]], object))


def test_groups_are_held_out_whole() -> None:
    """A window's twin in another group cannot help: with one group there is nothing to hold out."""
    x, y = tones(60)
    alone = quick().fit(x, y, groups=np.zeros(60, int))
    assert alone.model_.reference is None
    with pytest.raises(ConfigError, match="held out"):
        alone.comparability(x)
    several = quick().fit(x, y, groups=np.arange(60) // 6)
    assert several.model_.reference is not None
    assert len(several.model_.reference.shares) == 2  # a fifth of ten groups


def test_a_subject_in_two_domains_is_held_out_of_both() -> None:
    x, y = tones(120)
    domain, who = np.arange(120) // 60, np.arange(120) // 6 % 10
    model = quick()
    model.classes_, codes = np.unique(y, return_inverse=True)
    views = model._views(x.astype(np.float32), codes, domain, who)
    for seed in range(10):
        training, held_out = split_views(views, 0.2, seed)
        assert {s for v in held_out for s in v.subjects}.isdisjoint({s for v in training for s in v.subjects})
    assert quick().fit(x, y, sample_domain=domain, groups=who).model_.reference is not None
    apart = model._views(x.astype(np.float32), codes, domain, np.arange(120) // 6)
    assert [v.domain.manifest["same_people"] for v in apart] == [[], []]


def test_fitting_leaves_the_random_numbers_of_others_alone() -> None:
    x, y = tones(30)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    quick().fit(x, y)
    assert torch.equal(torch.rand(3), expected)


def test_pipeline_grid_search_and_leave_one_group_out() -> None:
    x, y = tones(150)
    who = np.arange(150) // 3 % 3
    scores = cross_val_score(quick(epochs=25), x, y, groups=who, cv=LeaveOneGroupOut())
    assert scores.shape == (3,)
    assert scores.mean() > 0.8
    double = make_pipeline(FunctionTransformer(lambda v: 2 * v), quick(epochs=25)).fit(x, y)
    assert double.score(x, y) > 0.8
    search = GridSearchCV(quick(), {"k": [1, 2]}, cv=2).fit(x, y)
    assert search.best_params_["k"] in (1, 2)


def test_metadata_routing() -> None:
    x, y = tones(90)
    domain, who = np.arange(90) // 45, np.arange(90) // 3 % 3
    with sklearn.config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(sample_domain=True, groups=True)
        scores = cross_val_score(
            model, x, y, cv=LeaveOneGroupOut(), params={"sample_domain": domain, "groups": who}, error_score="raise"
        )
        piped = make_pipeline(model).fit(x, y, sample_domain=domain, groups=who)
    assert scores.shape == (3,)
    assert len(piped[-1].model_.sources) == 2


def test_a_network_of_your_own() -> None:
    torch.manual_seed(0)  # of the network's weights
    x, y = tones()
    net = nn.Sequential(
        *(nn.Conv1d(2, 8, 9, padding=4), nn.ReLU(), nn.Conv1d(8, 8, 5), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)),
    )
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    model = quick(backbone=net, tap="1", epochs=25, lr=1e-2).fit(x, y)
    assert model.score(x, y) > 0.8
    assert model.k_ == 2
    assert all(bool((net.state_dict()[name] == tensor).all()) for name, tensor in before.items())  # left as it was
    with pytest.raises(ConfigError, match="cannot be saved"):
        model.model_.save("unused.sscf")
    with pytest.raises(ConfigError, match="needs `tap`"):
        quick(backbone=net).fit(x, y)
    with pytest.raises(ConfigError, match="gives 3 classes, y has 2"):
        quick(backbone=net, tap="1").fit(x[y != "slow"], y[y != "slow"])


def test_its_model_is_a_model_file(tmp_path) -> None:
    x, y = tones()
    model = quick().fit(x, y)
    model.model_.save(tmp_path / "own.sscf")
    again = Model.load(tmp_path / "own.sscf")
    assert again.classes == ("fast", "middle", "slow")
    assert again.task == "own"


def test_comparability_tells_windows_of_another_kind() -> None:
    x, y = tones(300)
    model = quick(epochs=8).fit(x, y)
    known = model.comparability(tones(200, seed=5)[0])
    assert (known <= 0.1).mean() < 0.25
    strange = np.random.default_rng(0).normal(size=(50, 2, 64)).cumsum(axis=2)
    assert (model.comparability(strange) <= 0.1).mean() > 0.9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backbone": "cnn_transformer"}, "sequences of consecutive windows"),
        ({"backbone": "resnet"}, "no backbone 'resnet'"),
        ({"k": "many"}, "k"),
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"normalisation": "recording"}, "use 'window'"),
        ({"normalisation": "dataset"}, "whole data set"),
        ({"epochs": 0}, "epochs"),
        ({"backbone_params": {"depth": 3}}, "no option 'depth'"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, object], message: str) -> None:
    x, y = tones(30)
    with pytest.raises(ConfigError, match=message):
        quick(**changes).fit(x, y)


def test_wrong_windows_are_named() -> None:
    x, y = tones(30)
    model = quick().fit(x, y)
    with pytest.raises(InputError, match="2 channels x 32 samples; fitted on 2 channels x 64"):
        model.predict(x[:, :, :32])
    with pytest.raises(ValueError, match="n_features"):
        quick().fit(x[:, 0, :1], y)
    with pytest.raises(InputError, match="at least 2 classes"):
        quick().fit(x, np.zeros(30))
    with pytest.raises(InputError, match="4 dimensions"):
        quick().fit(x[:, :, None], y)
