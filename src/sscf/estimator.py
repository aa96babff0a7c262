"""The scikit-learn face of it all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from sscf.data.arrays import ArrayDomain
from sscf.data.tasks import Task, TaskView
from sscf.errors import ConfigError, InputError
from sscf.experiment.config import AUTO_K, SSCFConfig, TrainConfig, check
from sscf.experiment.fitted import Settings
from sscf.experiment.stages import Make, Stages
from sscf.experiment.train import split_rows
from sscf.files import hash_json
from sscf.model import Judged, fit_model
from sscf.nn import BACKBONES, Backbone, build, tap_output, wrap
from sscf.rules.methods import get_method

SHORTEST = 16  # samples; shorter windows are continued by their last value, or the network has nothing to pool
PER_STRATUM = 8  # training windows; k="auto" asks for no more strata than have as many on average
SMALL = {"width": 16, "hidden": 32}  # the built-in network, sized for data that fit in memory


class SSCFClassifier(ClassifierMixin, BaseEstimator):
    """Classifier of time series windows that is meant for data sets it has not seen.

    A network is trained with structure-stratified spectral calibration: windows of all domains are grouped into strata
    of comparable spectra, and every window's feature map is calibrated to the mean spectrum of its stratum.

    Parameters
    ----------
    method : str
        "sscf", or any other name of `sscf methods`: "erm", "coral", "sscf+coral", "global-anchor", ...
    k : int or "auto"
        Number of strata; "auto" tries 1, 2, 4 and 8 and keeps the one that does best on held-out windows.
    frame : int
        Welch frame in samples of the feature map; shortened to the map where windows are short.
    backbone : str or nn.Module
        "cnn_bilstm", or a network of your own (B, C, T) -> (B, classes), whose last `nn.Linear` is the classifier. Both
        stages of training start from copies of it.
    tap : str, optional
        Where in the network maps are calibrated: the name of a submodule whose output is (B, C, L). Default: the first
        tap of the built-in network; a network of your own must say it.
    backbone_params : dict, optional
        Options of the built-in network: width, hidden, stride, dropout.
    normalisation : str
        "center" (each window and channel minus its mean), "window" (and divided by its standard deviation), "source"
        (by mean and standard deviation of the training windows) or "none".
    epochs, batch_size, lr : how long and how fast both networks are trained.
    validation : float
        Share of the windows held out, to choose the epoch and k and to know what comparable windows look like. Too few
        windows for that: nothing is held out, and the last epoch is kept.
    device : "auto", "cpu", "cuda", ...
    random_state : int, RandomState or None

    Attributes
    ----------
    classes_ : (n_classes,) labels.
    model_ : sscf.model.Model, the trained model; `model_.save("model.sscf")` for `sscf predict` and `sscf export`.
    k_ : number of strata, 0 for a method without calibration.
    n_features_in_ : channels, or samples where X was given in two dimensions.

    Examples
    --------
    >>> import numpy as np, sscf
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 2
    >>> X = np.sin(np.arange(64) * np.where(y, 0.3, 0.9)[:, None])[:, None] + 0.1 * rng.normal(size=(60, 1, 64))
    >>> sscf.SSCFClassifier(k=2, epochs=5, random_state=0).fit(X, y).predict(X[:4])
    array([0, 1, 0, 1])
    """

    def __init__(
        self,
        method: str = "sscf",
        k: int | str = "auto",
        frame: int = 16,
        backbone: str | nn.Module = "cnn_bilstm",
        tap: str | None = None,
        backbone_params: dict[str, Any] | None = None,
        normalisation: str = "center",
        epochs: int = 30,
        batch_size: int = 32,
        lr: float = 3e-3,
        validation: float = 0.2,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.k = k
        self.frame = frame
        self.backbone = backbone
        self.tap = tap
        self.backbone_params = backbone_params
        self.normalisation = normalisation
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.validation = validation
        self.device = device
        self.random_state = random_state

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_domain: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> SSCFClassifier:
        """Train on windows of one or several domains.

        Parameters
        ----------
        X : (n, channels, samples), or (n, samples) for one channel
        y : (n,) labels
        sample_domain : (n,) the data set each window comes from; without it all are one domain
        groups : (n,) the subject each window comes from: subjects are held out whole; without it windows are. The same
            subject may be in several domains
        """
        x, y = validate_data(self, X, y, allow_nd=True, dtype=np.float32)
        check_classification_targets(y)
        x = _windows(x)
        if len(x) < 2:
            raise InputError(f"n_samples = {len(x)}: at least 2 windows are needed, there is 1 sample")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"at least 2 classes are needed, all windows are of class {self.classes_[0]!r}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        views = self._views(x, codes, _column(sample_domain, len(x)), _column(groups, len(x)))
        with torch.random.fork_rng(devices=[]):  # training seeds PyTorch; the caller's numbers go on as before
            settings = self._settings(views, seed)
            self.model_ = fit_model(views, settings, seed, stages=_Memory(), network=self._network(x.shape))
        calibration = self.model_.fitted.calibration
        self.k_ = 0 if calibration is None else calibration.k
        self.n_iter_ = len(self.model_.fitted.history["loss"])
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Label (n,) of every window."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Probability (n, n_classes) of every class."""
        return self._judge(X).probabilities

    def strata(self, X: ArrayLike) -> np.ndarray:
        """Stratum (n,) each window is matched with; -1 for a method without calibration."""
        return self._judge(X).strata

    def comparability(self, X: ArrayLike) -> np.ndarray:
        """p-value (n,) of every window: how unusual it would be among windows held out of training, by its distance to
        the anchor of its stratum and by the spectra of its channels. Even for windows like those of the training
        domains, close to 0 for windows like none of them.
        """
        judged = self._judge(X)
        if self.model_.reference is None:
            raise ConfigError("comparability needs windows held out in training: validation > 0, and enough windows")
        return judged.pvalues

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # The test set of scikit-learn's checks is points in the plane: as windows of two samples they differ mostly in
        # their level and scale, which centring and calibration take away on purpose.
        tags.classifier_tags.poor_score = True
        return tags

    # --- inside ---

    def _judge(self, X: ArrayLike) -> Judged:
        check_is_fitted(self)
        x = _windows(validate_data(self, X, reset=False, allow_nd=True, dtype=np.float32))
        fitted = self.model_.fitted
        if x.shape[1:] != (len(fitted.channels), fitted.length):
            raise InputError(
                f"windows of {x.shape[1]} channels x {x.shape[2]} samples; fitted on {len(fitted.channels)} channels x "
                f"{fitted.length} samples"
            )
        domain = ArrayDomain("given", x, np.zeros(len(x), np.int32), self.model_.classes, fs=fitted.fs)
        return self.model_.judge(domain)

    def _views(
        self, x: np.ndarray, codes: np.ndarray, domains: np.ndarray | None, groups: np.ndarray | None
    ) -> list[TaskView]:
        # Labels may be of any type and look alike as text; the network's classes are numbered where they do.
        names = tuple(map(str, self.classes_.tolist()))
        names = names if len(set(names)) == len(names) else tuple(f"{i}: {name}" for i, name in enumerate(names))
        task = Task("own", names)
        views = []
        for name in [None] if domains is None else np.unique(domains):
            rows = np.arange(len(x)) if name is None else np.flatnonzero(domains == name)
            subjects = None if groups is None else np.unique(groups[rows], return_inverse=True)[1]
            label = "all" if name is None else str(name)
            domain = ArrayDomain(label, x[rows], codes[rows], names, subjects=subjects)
            if groups is not None:
                domain.subject_names = tuple(map(str, np.unique(groups[rows])))
            views.append(task.view(domain))
        if groups is not None:
            _link(views)
        return views

    def _settings(self, views: list[TaskView], seed: int) -> Settings:
        method = get_method(self.method)
        if self.normalisation == "recording":
            raise ConfigError("normalisation 'recording' needs recordings, X has windows: use 'window', or 'sscf fit'")
        held_out = 0.0 if any(_tiny(view) for view in views) else self.validation
        train = check(
            TrainConfig,
            {
                "epochs": self.epochs,
                "batch_size": max(2, len(views), self.batch_size),
                "lr": self.lr,
                "validation": held_out,
                "device": self.device,
                "patience": None,
            },
            "SSCFClassifier",
        )
        rows = [training for training, _ in split_rows(views, held_out, seed)]
        if not all(map(len, rows)):  # all subjects of a small domain would be held out, with those of a larger one
            held_out, rows = 0.0, [view.index for view in views]
            train = train.model_copy(update={"validation": 0.0})
        windows = sum(map(len, rows))
        k: Any = self.k
        if k == "auto":
            k = [one for one in AUTO_K if one == 1 or one * PER_STRATUM <= windows] if held_out else 1
        frame = self.frame
        if method.calibrated:
            frame = min(frame, self._map_length(views[0].domain.windows.shape, len(views[0].classes)))
        return Settings(
            method,
            train,
            check(SSCFConfig, {"k": k, "frame": frame, "tap": self.tap}, "SSCFClassifier"),
            normalisation=self.normalisation,
            selection="source-val" if held_out else "last",
            backbone=self.backbone if isinstance(self.backbone, str) else None,
            backbone_params=self._options(),
        )

    def _options(self) -> dict[str, Any]:
        if not isinstance(self.backbone, str):
            return {}
        return (
            {**SMALL, **(self.backbone_params or {})} if self.backbone == "cnn_bilstm" else self.backbone_params or {}
        )

    def _build(self, shape: tuple[int, ...], n_classes: int) -> Backbone:
        """A network for windows (n, C, T)."""
        if isinstance(self.backbone, nn.Module):
            if self.tap is None:
                raise ConfigError(
                    "a network of your own needs `tap`: the name of a submodule that gives maps (B, C, L)"
                )
            network = wrap(self.backbone, self.tap)
            if network.last_linear.out_features != n_classes:
                raise ConfigError(f"the network gives {network.last_linear.out_features} classes, y has {n_classes}")
            return network
        if self.backbone in BACKBONES and BACKBONES[self.backbone].sequence:
            raise ConfigError(
                f"backbone '{self.backbone}' takes sequences of consecutive windows: prepare a store and use 'sscf fit'"
            )
        return build(self.backbone, in_channels=shape[1], length=shape[2], n_classes=n_classes, **self._options())

    def _map_length(self, shape: tuple[int, ...], n_classes: int) -> int:
        network = self._build(shape, n_classes).eval()
        with torch.no_grad():
            return tap_output(network, self.tap or network.taps[0], torch.zeros(1, *shape[1:])).shape[-1]

    def _network(self, shape: tuple[int, ...]) -> Callable[[], Backbone] | None:
        network = self._build(shape, len(self.classes_))
        return (lambda: copy.deepcopy(network)) if isinstance(self.backbone, nn.Module) else None


def _windows(x: np.ndarray) -> np.ndarray:
    """Validated X as (n, C, T), with T of at least `SHORTEST`."""
    if x.ndim == 2:
        x = x[:, None]
    if x.ndim != 3:
        raise InputError(f"X must be (n, channels, samples) or (n, samples), got {x.ndim} dimensions")
    samples = x.shape[2]
    if samples < 2:
        raise InputError(f"n_features = {samples}: windows need at least 2 samples, one has no spectrum")
    if samples < SHORTEST:
        x = np.pad(x, ((0, 0), (0, 0), (0, SHORTEST - samples)), mode="edge")
    return np.ascontiguousarray(x)


def _tiny(view: TaskView) -> bool:
    """Whether a domain is too small to hold anything out: few windows of a class, or one subject."""
    counts = np.bincount(view.y)
    return counts[counts > 0].min() < 5 or len(np.unique(view.subjects)) < 2


def _link(views: list[TaskView]) -> None:
    """Note which domains share subjects: these are held out of all of them together."""
    people = [set(view.domain.subject_names) for view in views]
    for view, own in zip(views, people, strict=True):
        sharing = [
            other.name for other, theirs in zip(views, people, strict=True) if other is not view and own & theirs
        ]
        view.domain.manifest["same_people"] = sharing


def _column(values: ArrayLike | None, n: int) -> np.ndarray | None:
    if values is None:
        return None
    column = np.asarray(values)
    if column.shape != (n,):
        raise InputError(f"sample_domain and groups must have shape ({n},), got {column.shape}")
    if missing := [i for i, value in enumerate(column.tolist()) if value is None or value != value]:
        raise InputError(f"sample_domain and groups must be known for every window, that of window {missing[0]} is not")
    return column


class _Memory(Stages):
    """The auxiliary encoder, trained once for all k."""

    def __init__(self) -> None:
        super().__init__(".")
        self._kept: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}

    def get(self, key: dict[str, Any], make: Make) -> tuple[dict[str, Tensor], dict[str, Any]]:
        name = hash_json(json.loads(json.dumps(key)))
        if name not in self._kept:
            tensors, notes = make()
            self._kept[name] = {n: t.detach().clone() for n, t in tensors.items()}, notes
        return self._kept[name]
