"""A trained model with all it takes to use it again: settings, classes, channels, normalisation, anchors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sscf.core import Anchors, SpectralCalibration
from sscf.data.normalise import Normaliser
from sscf.data.tasks import TaskView
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.loader import evaluation_batches
from sscf.nn import Backbone, build, find, insert
from sscf.protocol import confusion
from sscf.rules import build_rule
from sscf.rules.methods import Method

EVALUATION_BATCH = 512  # windows


@dataclass(frozen=True)
class Settings:
    """How a method is trained, apart from the data and the seed."""

    method: Method
    train: TrainConfig = field(default_factory=TrainConfig)
    sscf: SSCFConfig = field(default_factory=SSCFConfig)
    normalisation: str = "center"
    selection: str = "source-val"
    backbone: str | None = None
    backbone_params: dict[str, Any] = field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """Everything here that changes the trained weights, as JSON."""
        calibrated = self.method.calibrated
        return {
            "rule": self.method.rule,
            "rule_params": dict(self.method.rule_params),
            "strata": self.method.strata,
            "train": self.train.model_dump(),
            "sscf": self.sscf.model_dump() if calibrated else None,
            "normalisation": self.normalisation,
            "selection": self.selection,
            "backbone": self.backbone,
            "backbone_params": self.backbone_params,
        }

    def to_json(self) -> dict[str, Any]:
        method = {**{name: getattr(self.method, name) for name in _METHOD}}
        method["rule_params"], method["overrides"] = dict(self.method.rule_params), dict(self.method.overrides)
        return {
            "method": method,
            "train": self.train.model_dump(),
            "sscf": self.sscf.model_dump(),
            **{name: getattr(self, name) for name in ("normalisation", "selection", "backbone", "backbone_params")},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Settings:
        rest = {name: value[name] for name in ("normalisation", "selection", "backbone", "backbone_params")}
        train, sscf = TrainConfig.model_validate(value["train"]), SSCFConfig.model_validate(value["sscf"])
        return cls(method=Method(**value["method"]), train=train, sscf=sscf, **rest)

    def calibration(self, anchors: Anchors) -> SpectralCalibration:
        """The calibration these settings ask for."""
        s = self.sscf
        return SpectralCalibration(
            anchors,
            gradient=s.gradient,
            restore_mean=s.restore_mean,
            strength=float(s.strength),  # type: ignore[arg-type]
        )


_METHOD = ("name", "rule", "rule_params", "strata", "backbone", "overrides", "title")


@dataclass
class Fitted:
    """A trained model and what is needed to use and to judge it."""

    model: Backbone
    settings: Settings
    backbone_name: str
    n_domains: int
    classes: tuple[str, ...]
    sequence: int
    channels: tuple[str, ...]
    length: int
    fs: float
    tap: str
    source_normaliser: Normaliser | None
    validation: dict[str, Any]
    history: dict[str, list[float]]
    stage1_history: dict[str, list[float]] | None = None
    chosen: dict[str, Any] = field(default_factory=dict)
    candidates: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Tensor]] = field(default_factory=list)

    @property
    def calibration(self) -> SpectralCalibration | None:
        """The calibration inside the model, if it has one."""
        found = find(self.model, SpectralCalibration)
        return found[0] if found else None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def normaliser(self, view: TaskView) -> Normaliser:
        return Normaliser.for_domain(self.settings.normalisation, view.domain, self.source_normaliser)

    def batches(self, view: TaskView) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Normalised inputs and the rows of the view they belong to (-1: context only)."""
        size = max(1, EVALUATION_BATCH // self.sequence)
        return evaluation_batches(view, self.normaliser(view), size, self.sequence, self.device)

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and plain JSON values, for a file. Checkpoints are left behind."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        notes: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        notes["settings"] = self.settings.to_json()
        notes["n_domains"] = self.n_domains
        notes["source_normaliser"] = self.source_normaliser.to_json() if self.source_normaliser else None
        notes["anchors"] = None
        if self.calibration is not None:
            anchors, notes["anchors"] = self.calibration.anchors.to_tensors()
            tensors |= {f"anchors.{name}": tensor for name, tensor in anchors.items()}
        # Cloned: a file cannot hold two names for one memory, and the anchors are also buffers of the model.
        return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, notes

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], notes: dict[str, Any]) -> Fitted:
        """The inverse of `to_tensors`, on the CPU."""
        settings = Settings.from_json(notes["settings"])
        plain: dict[str, Any] = {name: notes[name] for name in _PLAIN}
        plain |= {name: tuple(plain[name]) for name in ("classes", "channels")}
        model = build(
            notes["backbone_name"],
            in_channels=len(plain["channels"]),
            length=plain["length"],
            n_classes=len(plain["classes"]),
            **settings.backbone_params,
        )
        rule = build_rule(
            settings.method.rule,
            dict(settings.method.rule_params),
            n_domains=notes["n_domains"],
            n_classes=len(plain["classes"]),
            feature_dim=model.feature_dim,
        )
        rule.prepare(model, plain["tap"])
        if notes["anchors"] is not None:
            own = {name.removeprefix("anchors."): t for name, t in tensors.items() if name.startswith("anchors.")}
            insert(model, plain["tap"], settings.calibration(Anchors.from_tensors(own, notes["anchors"])))
        model.load_state_dict({n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
        source = notes["source_normaliser"]
        return cls(
            model=model.eval(),
            settings=settings,
            source_normaliser=Normaliser.from_json(source) if source else None,
            n_domains=notes["n_domains"],
            **plain,
        )


_PLAIN = (
    "backbone_name",
    "classes",
    "sequence",
    "channels",
    "length",
    "fs",
    "tap",
    "validation",
    "history",
    "stage1_history",
    "chosen",
    "candidates",
)


def rows_of(view: TaskView, rows: np.ndarray) -> TaskView:
    """The view cut down to some of its rows."""
    return replace(view, index=view.index[rows], y=view.y[rows])


@torch.inference_mode()
def probabilities(model: Backbone, batches: Iterator[tuple[Tensor, np.ndarray]], n: int, n_classes: int) -> np.ndarray:
    """Class probabilities (n, classes) float32 of all rows of a view."""
    model.eval()
    out = np.empty((n, n_classes), np.float32)
    for x, positions in batches:
        seen = positions.ravel() >= 0
        values = model(x).float().softmax(dim=-1).flatten(0, -2).cpu().numpy()
        out[positions.ravel()[seen]] = values[seen]
    return out


def confusion_of(fitted: Fitted, view: TaskView) -> np.ndarray:
    """Confusion matrix of a fitted model on a view."""
    predicted = probabilities(fitted.model, fitted.batches(view), len(view), len(view.classes)).argmax(axis=1)
    return confusion(view.y, predicted, len(view.classes))
