"""A model to take elsewhere: trained on all domains at hand, in one file that holds all it takes to use it.

The file is safetensors with JSON in its header: weights, anchors, what held-out source windows look like, and how a
recording becomes windows. Reading it executes nothing and opens no other file.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sscf import __version__
from sscf.core import SpectralCalibration
from sscf.data.datasets.base import Recipe
from sscf.data.normalise import Normaliser, is_zero_shot
from sscf.data.recording import Channel
from sscf.data.tasks import Task, TaskView
from sscf.errors import ConfigError, FileError, InputError, SSCFError
from sscf.experiment.fitted import Fitted, Settings
from sscf.experiment.loader import evaluation_batches
from sscf.experiment.train import OWN_NETWORK, Progress, fit, split_views
from sscf.files import canonical_json, read_tensors, write_bytes
from sscf.nn import Backbone, find
from sscf.protocol import confusion, macro_f1
from sscf.reference import Measured, Reference, Spectra

FORMAT, SCHEMA = "sscf-model", 1
_KEY = "sscf"  # of the header
BATCH_NUMBERS = 1 << 16  # samples of a channel per batch: keeps the memory of a night's prediction small
LARGEST_BATCH = 512  # windows


class Windows(Protocol):
    """What can be judged: a Domain, or anything that gives its windows (n, C, T) row by row."""

    @property
    def name(self) -> str: ...
    @property
    def fs(self) -> float: ...
    @property
    def channels(self) -> tuple[str, ...]: ...
    @property
    def windows(self) -> Any: ...
    @property
    def statistics(self) -> Any: ...


@dataclass(frozen=True)
class Judged:
    """What a model says of n windows.

    probabilities : (n, classes) float64.
    strata   : (n,) int64, -1 for a model without calibration.
    pvalues  : (n,) float64, comparability with held-out source windows; NaN where nothing was held out.
    measured : what the p-values come from; None where nothing was held out.
    log_power : (n, C, F) float32 spectra of the channels, when asked for.
    """

    probabilities: np.ndarray
    strata: np.ndarray
    pvalues: np.ndarray
    measured: Measured | None = None
    log_power: np.ndarray | None = None


@dataclass
class Model:
    """A trained network, how recordings become its windows, and what its source data looked like.

    fitted  : network, settings, classes, normalisation, anchors, history.
    recipe  : how a recording becomes windows: channels and their spellings, unit, rate, band, window, hop.
    task    : name of the task.
    sources : for each domain trained on: name, windows, subjects, fingerprint, simulated, validation (macro-F1).
    reference : held-out source windows; None when nothing was held out.
    """

    fitted: Fitted
    recipe: Recipe
    task: str
    sources: list[dict[str, Any]]
    reference: Reference | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.fitted.classes

    # --- use ---

    @cached_property
    def _exact(self) -> Backbone:
        """The network in double precision: what a window gets does not depend on the batch it comes in."""
        network = copy.deepcopy(self.fitted.model).eval().requires_grad_(False)
        return network if self.fitted.device.type == "mps" else network.double()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_exact"}

    def check(self, domain: Windows) -> None:
        """Raise InputError unless the domain's windows are what the network takes."""
        shape, wanted = domain.windows.shape[1:], (len(self.fitted.channels), self.fitted.length)
        if tuple(shape) != wanted or abs(domain.fs - self.fitted.fs) > 1e-6 * self.fitted.fs:
            raise InputError(
                f"{domain.name}: windows of {shape[0]} channels x {shape[1]} samples at {domain.fs:g} Hz; the model "
                f"takes {wanted[0]} ({', '.join(self.fitted.channels)}) x {wanted[1]} at {self.fitted.fs:g} Hz"
            )
        theirs, ours = getattr(domain, "unit", ""), self.recipe.unit
        if theirs and ours and theirs != ours:
            raise InputError(f"{domain.name}: windows in {theirs}, the model takes {ours}: prepare them in {ours}")

    def view(self, domain: Windows) -> TaskView:
        """All windows of a domain, their labels not looked at."""
        task = Task(self.task, self.classes, sequence=self.fitted.sequence)
        n = len(domain.windows)
        return TaskView(task, domain, np.arange(n), np.zeros(n, np.int64), {}, "")  # type: ignore[arg-type]

    def judge(self, what: Windows | TaskView, *, batch_size: int | None = None, keep_spectra: bool = False) -> Judged:
        """Classes, strata and comparability of all windows of a domain, or of a view's.

        batch_size : windows at a time, a matter of speed and memory alone.
        keep_spectra : also keep the spectra of the channels.
        """
        yardstick = self.reference
        out = self._judge(what, yardstick.spectra if yardstick else None, batch_size, keep_spectra)
        if yardstick is None or out.measured is None:
            return out
        return replace(out, pvalues=yardstick.comparability(out.measured))

    def _judge(
        self,
        what: Windows | TaskView,
        spectra: Spectra | None,
        batch_size: int | None = None,
        keep_spectra: bool = False,
    ) -> Judged:
        """All but the p-values."""
        view = what if isinstance(what, TaskView) else self.view(what)
        self.check(view.domain)
        n, width, calibrated = len(view), len(self.fitted.channels), self.fitted.calibration is not None
        probabilities = np.empty((n, len(self.classes)))
        strata, tap = np.full(n, -1), np.full(n, np.nan)
        structure, channels = np.empty(n), np.empty((n, width))
        kept = np.empty((n, width, spectra.frame // 2 + 1), np.float32) if spectra and keep_spectra else None
        for x, rows in self._batches(view, batch_size):
            seen = rows >= 0
            to = rows[seen]
            found, distances = self._run(x)
            probabilities[to] = found[seen]
            if distances is not None:
                strata[to], tap[to] = distances[seen].argmin(axis=1), distances[seen].min(axis=1)
            if spectra is not None:
                log_power = spectra.log_power(x.flatten(0, -3)[torch.from_numpy(seen).to(x.device)])
                structure[to], channels[to] = spectra.distances(log_power)
                if kept is not None:
                    kept[to] = log_power.numpy()
        measured = None
        if spectra is not None:
            measured = Measured(tap if calibrated else None, structure, channels, np.maximum(strata, 0))
        return Judged(probabilities, strata, np.full(n, np.nan), measured, kept)

    def _batches(self, view: TaskView, batch_size: int | None = None) -> Iterator[tuple[Tensor, np.ndarray]]:
        """Normalised windows (b, ..., C, T) in working precision, and the row of the view of each, -1 for context."""
        size = batch_size or min(LARGEST_BATCH, max(1, BATCH_NUMBERS // self.fitted.length))
        normaliser = self.fitted.normaliser(view)
        dtype = next(self._exact.parameters()).dtype
        batches = evaluation_batches(
            view, normaliser, max(1, size // self.fitted.sequence), self.fitted.sequence, self.fitted.device
        )
        for x, positions in batches:
            yield x.to(dtype), positions.ravel()

    @torch.inference_mode()
    def _run(self, x: Tensor) -> tuple[np.ndarray, np.ndarray | None]:
        """Probabilities (m, classes) and distances (m, K) of the m windows of a batch."""
        found: list[Tensor] = []
        calibrations = find(self._exact, SpectralCalibration)
        hooks = [c.register_forward_pre_hook(lambda c, args: found.append(c.distances(args[0]))) for c in calibrations]
        try:
            probabilities = self._exact(x).softmax(dim=-1).flatten(0, -2)
        finally:
            for hook in hooks:
                hook.remove()
        return probabilities.cpu().numpy(), found[0].cpu().numpy() if found else None

    # --- file ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all; the same model gives the same bytes."""
        from safetensors.torch import save

        if self.fitted.backbone_name == OWN_NETWORK:
            raise ConfigError(
                "a model around a network of your own cannot be saved: the file holds no code. Save its state_dict, or "
                "use one of the built-in backbones"
            )
        own, notes = self.fitted.to_tensors()
        tensors = {f"fitted.{name}": tensor for name, tensor in own.items()}
        reference = None
        if self.reference is not None:
            more, reference = self.reference.to_tensors()
            tensors |= {f"reference.{name}": tensor.cpu().contiguous() for name, tensor in more.items()}
        header = {
            "fitted": notes,
            "recipe": self.recipe.to_json(),
            "task": self.task,
            "sources": self.sources,
            "reference": reference,
            "versions": self.versions,
        }
        whole = {"format": FORMAT, "schema": SCHEMA, "model": header, "digest": _digest(tensors, header)}
        # One key: safetensors writes several in an order of its own.
        write_bytes(path, save(tensors, metadata={_KEY: canonical_json(whole)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a file of `save`. One that is truncated, foreign, changed or from a newer sscf is a FileError."""
        path = Path(path)
        tensors, header = _read(path)
        try:
            own = {name.removeprefix("fitted."): t for name, t in tensors.items() if name.startswith("fitted.")}
            more = {name.removeprefix("reference."): t for name, t in tensors.items() if name.startswith("reference.")}
            reference = None if header["reference"] is None else Reference.from_tensors(more, header["reference"])
            model = cls(
                fitted=Fitted.from_tensors(own, header["fitted"]),
                recipe=_recipe(header["recipe"]),
                task=header["task"],
                sources=header["sources"],
                reference=reference,
                versions=header["versions"],
            )
            _check_parts(model)
            return model
        except (SSCFError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise FileError(f"{path}: damaged model file ({type(error).__name__}: {error})") from error


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a model file whose checksum is right."""
    tensors, metadata = read_tensors(path, "a model file")
    try:
        header = json.loads(metadata.get(_KEY, "null"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise FileError(f"{path}: damaged model file ({error})") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileError(f"{path}: not a model file (no format '{FORMAT}' in its header); 'sscf fit' makes one")
    schema = header.get("schema")
    if schema != SCHEMA:
        remedy = "update sscf" if isinstance(schema, int) and schema > SCHEMA else "train it again with 'sscf fit'"
        raise FileError(f"{path}: model file of schema {schema}, this sscf reads {SCHEMA}: {remedy}")
    if set(header) != {"format", "schema", "model", "digest"} or not isinstance(header["model"], dict):
        raise FileError(f"{path}: damaged model file (unknown or missing keys in its header)")
    try:
        digest = _digest(tensors, header["model"])
    except (TypeError, ValueError) as error:  # numbers or tensors of a kind we do not write
        raise FileError(f"{path}: damaged model file ({error})") from error
    if digest != header["digest"]:
        raise FileError(f"{path}: the content does not match its checksum: the file was changed or damaged")
    return tensors, header["model"]


def _digest(tensors: dict[str, Tensor], header: dict[str, Any]) -> str:
    digest = hashlib.sha256(canonical_json(header).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}{tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


_SOURCE = {"name", "windows", "subjects", "fingerprint", "simulated", "validation"}


def _check_parts(model: Model) -> None:
    """Raise InputError unless the parts of a model fit together."""
    fitted, recipe, calibration = model.fitted, model.recipe, model.fitted.calibration
    made = (len(recipe.channels), recipe.samples, recipe.fs)
    if made != (taken := (len(fitted.channels), fitted.length, fitted.fs)):
        raise InputError(f"the recipe makes windows (channels, samples, Hz) {made}, the network takes {taken}")
    if not is_zero_shot(kind := fitted.settings.normalisation) or (kind == "source" and not fitted.source_normaliser):
        raise InputError(f"normalisation '{kind}' without its statistics")
    if (reference := model.reference) is not None:
        k = None if reference.tap is None else reference.tap.k
        if k != (None if calibration is None else calibration.k) or reference.channels.k != len(fitted.channels):
            raise InputError("the reference is of other strata or channels than the network's")
    if not all(isinstance(source, dict) and set(source) == _SOURCE for source in model.sources):
        raise InputError(f"the sources must say {', '.join(sorted(_SOURCE))}")


def _recipe(value: dict[str, Any]) -> Recipe:
    channels = tuple(Channel(c["name"], tuple(c["aliases"])) for c in value["channels"])
    band = None if value["band"] is None else tuple(value["band"])
    return Recipe(**{**value, "channels": channels, "band": band})


# --- training ---------------------------------------------------------------------------------------------------------


def fit_model(
    views: Sequence[TaskView], settings: Settings, seed: int = 0, *, progress: Progress | None = None, **how: Any
) -> Model:
    """Train a method on all the domains given and measure what their held-out subjects look like.

    `how` goes to `sscf.experiment.train.fit`.
    """
    if not is_zero_shot(settings.normalisation):
        raise ConfigError(
            f"normalisation '{settings.normalisation}' needs a whole data set of the place where the model is used; "
            "choose one that a window or a recording has by itself: none, center, window, recording, source"
        )
    recipe = recipe_of(views)
    model = Model(
        fitted=replace(fit(views, settings, seed, progress=progress, **how), checkpoints=[]),
        recipe=recipe,
        task=views[0].task.name,
        sources=[
            {
                "name": view.name,
                "windows": len(view),
                "subjects": len(np.unique(view.subjects)),
                "fingerprint": view.fingerprint,
                "simulated": view.domain.simulated,
                "validation": None,
            }
            for view in views
        ],
        versions={"sscf": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    training, held_out = split_views(views, settings.train.validation, seed)
    if held_out:
        model.reference = _measure(model, training, held_out)
    return model


def _measure(model: Model, training: list[TaskView], held_out: list[TaskView]) -> Reference:
    """The reference of held-out windows; notes the validation score of every source on the way."""
    spectra = Spectra.fit(_some_windows(model, training), model.fitted.length)
    calibration = model.fitted.calibration
    measured = []
    for view in held_out:
        one = model._judge(view, spectra)
        predicted = one.probabilities.argmax(axis=1)
        note = next(source for source in model.sources if source["name"] == view.name)
        note["validation"] = float(macro_f1(confusion(view.y, predicted, len(view.classes))))
        assert one.measured is not None
        measured.append(one.measured)
    subjects = np.concatenate([view.subjects.astype(np.int64) + (i << 32) for i, view in enumerate(held_out)])
    return Reference.fit(spectra, Measured.joined(measured), subjects, 1 if calibration is None else calibration.k)


_SPECTRA_WINDOWS = 2000  # of every domain, evenly drawn: enough for a mean and a standard deviation


def _some_windows(model: Model, views: list[TaskView]) -> Iterator[Tensor]:
    for view in views:
        rows = np.unique(np.linspace(0, len(view) - 1, min(_SPECTRA_WINDOWS, len(view))).astype(int))
        normaliser: Normaliser = model.fitted.normaliser(view)
        for part in np.array_split(rows, -(-len(rows) // 256)):
            yield torch.from_numpy(normaliser.apply(view.read(part), view.recordings[part]))


def recipe_of(views: Sequence[TaskView]) -> Recipe:
    """How a recording becomes windows like those of the views: rate, unit and band they share, all known spellings.

    Domains in different units or bands do not fit together. Windows that came without a recipe (simulated, or written
    from arrays) are taken not to have been filtered.
    """
    first = views[0].domain
    recipes = [view.domain.manifest.get("recipe") or {} for view in views]
    for view in views:
        if view.domain.unit != first.unit:
            raise ConfigError(
                f"domains '{first.name}' (in {first.unit or 'no unit'}) and '{view.name}' (in "
                f"{view.domain.unit or 'no unit'}) do not fit together"
            )
    bands = {json.dumps(recipe.get("band")) for recipe in recipes}
    if len(bands) > 1:
        raise ConfigError(f"the domains were filtered differently: bands {', '.join(sorted(bands))} (Hz)")
    channels = []
    for i, name in enumerate(first.channels):
        spellings = [view.domain.channels[i] for view in views]
        for recipe in recipes:
            spellings += recipe["channels"][i]["aliases"] if recipe.get("channels") else []
        channels.append(Channel(name, tuple(dict.fromkeys([name, *spellings]))))
    band = json.loads(bands.pop())
    samples = first.windows.shape[-1]
    return Recipe(
        window_s=samples / first.fs,
        hop_s=first.hop / first.fs,
        fs=first.fs,
        channels=tuple(channels),
        unit=first.unit,
        band=None if band is None else tuple(band),
    )
