"""Evaluation: the only place where a model meets its target. Called after `fit`, never by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sscf.core import welch_power
from sscf.data.tasks import TaskView
from sscf.experiment.fitted import Fitted, probabilities, rows_of
from sscf.nn import tap_output
from sscf.protocol import confusion, macro_f1, scores
from sscf.protocol.metrics import accuracy

PICTURED = 256  # windows of a domain that pictures are made from
EMBEDDED = 150  # windows of a domain in the embedding
EXAMPLES = 2  # example waveforms of a domain and class
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def evaluate(fitted: Fitted, target: TaskView, sources: Sequence[TaskView]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores of a fitted model on its target, and the arrays that every table and figure can be made from.

    Returns
    -------
    (record, arrays) : JSON values and NumPy arrays by name; no field depends on time or machine.
    """
    if fitted.checkpoints:
        _take_oracle_checkpoint(fitted, target)
    calibration = fitted.calibration
    ranks = []
    if calibration is not None and calibration.k > 1:
        for rank in range(2, calibration.k + 1):
            calibration.rank = rank
            ranks.append(_brief(fitted, target, rank))
        calibration.rank = 1
    p = probabilities(fitted.model, fitted.batches(target), len(target), len(target.classes))
    predicted = p.argmax(axis=1)
    names = np.array(target.domain.subject_names, dtype=str)
    score = scores(target.y, predicted, names[target.subjects], target.classes)
    if calibration is not None:
        first = {"rank": 1, "macro_f1": score["macro_f1"], "accuracy": score["accuracy"]}
        ranks = [first, *ranks]
    arrays: dict[str, Any] = {
        "target_labels": target.y,
        "target_predictions": predicted,
        "target_probabilities": p,
        "target_subjects": target.subjects,
        "target_recordings": target.recordings,
        "target_positions": target.positions,
    }
    record: dict[str, Any] = {"scores": score, "ranks": ranks, "strata": None, "strata_agreement": None}
    views = [*sources, target]
    if calibration is not None:
        record["strata"], record["strata_agreement"] = _strata(fitted, views, arrays)
    _pictures(fitted, views, arrays)
    record["psd_domains"] = record["embedding_domains"] = [view.name for view in views]
    record["validation"], record["chosen"] = fitted.validation, fitted.chosen
    record["candidates"], record["history"] = fitted.candidates, fitted.history
    record["stage1_history"] = fitted.stage1_history
    record["parameters"] = sum(w.numel() for w in fitted.model.parameters())
    return record, arrays


def _take_oracle_checkpoint(fitted: Fitted, target: TaskView) -> None:
    """Asked for by the name `oracle` only: the checkpoint that does best on the target itself."""
    values = []
    for weights in fitted.checkpoints:
        fitted.model.load_state_dict(weights)
        values.append(_brief(fitted, target, 1)["macro_f1"])
    chosen = int(np.argmax(values))
    fitted.model.load_state_dict(fitted.checkpoints[chosen])
    fitted.validation = {**fitted.validation, "epoch": chosen + 1}


def _brief(fitted: Fitted, view: TaskView, rank: int) -> dict[str, Any]:
    p = probabilities(fitted.model, fitted.batches(view), len(view), len(view.classes))
    matrix = confusion(view.y, p.argmax(axis=1), len(view.classes))
    return {"rank": rank, "macro_f1": float(macro_f1(matrix)), "accuracy": accuracy(matrix)}


@torch.inference_mode()
def strata_of(fitted: Fitted, view: TaskView) -> tuple[np.ndarray, np.ndarray]:
    """Stratum (n,) int64 and distance to its anchor (n,) float32 of every window of a view."""
    calibration = fitted.calibration
    assert calibration is not None
    stratum, distance = np.empty(len(view), np.int64), np.empty(len(view), np.float32)
    for x, positions in fitted.batches(view):
        seen = positions.ravel() >= 0
        values = calibration.distances(tap_output(fitted.model, fitted.tap, x)).cpu().numpy()[seen]
        rows = positions.ravel()[seen]
        stratum[rows], distance[rows] = values.argmin(axis=1), values.min(axis=1)
    return stratum, distance


def _strata(fitted: Fitted, views: Sequence[TaskView], arrays: dict[str, Any]) -> tuple[dict[str, Any], float | None]:
    calibration = fitted.calibration
    assert calibration is not None
    k = calibration.k
    found = [strata_of(fitted, view)[0] for view in views]
    arrays["target_strata"] = found[-1]
    arrays["anchors"] = calibration.power.cpu().numpy()
    labels = np.concatenate([view.y for view in views[:-1]])
    strata = np.concatenate(found[:-1])
    summary = {
        "counts": calibration.anchors.counts.tolist(),
        "by_domain": {
            v.name: np.bincount(s, minlength=k).tolist() for v, s in zip(views[:-1], found[:-1], strict=True)
        },
        "by_class": {
            name: np.bincount(strata[labels == i], minlength=k).tolist() for i, name in enumerate(views[0].classes)
        },
        "target": np.bincount(found[-1], minlength=k).tolist(),
    }
    agreement = None
    families = [view.domain.extra.get("family") for view in views[:-1]]
    if k > 1 and all(family is not None for family in families):
        from sklearn.metrics import adjusted_rand_score

        truth = np.concatenate([f[view.index] for f, view in zip(families, views[:-1], strict=True)])  # type: ignore[index]
        agreement = float(adjusted_rand_score(truth, strata))
    return summary, agreement


@torch.inference_mode()
def _pictures(fitted: Fitted, views: Sequence[TaskView], arrays: dict[str, Any]) -> None:
    """Spectra and waveforms at the tap before and after calibration, and an embedding, from a few windows a domain."""
    calibration = fitted.calibration
    before, after, psds, strata, examples, example_of = [], [], [], [], [], []
    features, feature_of = [], []
    for number, view in enumerate(views):
        rows = np.unique(np.linspace(0, len(view) - 1, min(PICTURED, len(view))).astype(int))
        few = rows_of(view, rows)
        maps, z, order = _maps(fitted, few)
        classes = few.y[order]
        stratum = np.full(len(order), -1)
        if calibration is not None:
            calibrated = calibration(maps)
            power, power_after = (
                welch_power(m, calibration.frame, calibration.hop, center=True).cpu().numpy()
                for m in (maps, calibrated)
            )
            before.append(power.mean(axis=0))
            after.append(power_after.mean(axis=0))
            psds.append(power)
            stratum = calibration.match(maps).cpu().numpy()
            for c in range(len(view.classes)):
                for row in np.flatnonzero(classes == c)[:EXAMPLES]:
                    examples.append((maps[row, 0].cpu().numpy(), calibrated[row, 0].cpu().numpy()))
                    example_of.append((number, c))
            strata.append(stratum)
        take = np.linspace(0, len(order) - 1, min(EMBEDDED, len(order))).astype(int)
        features.append(z[take])
        feature_of.append(np.stack([np.full(len(take), number), classes[take], stratum[take]], axis=1))
    arrays["embedding"] = _pca(np.concatenate(features))
    of = np.concatenate(feature_of)
    arrays["embedding_domain"], arrays["embedding_class"], arrays["embedding_stratum"] = of.T.copy()
    if calibration is None:
        return
    arrays["frequencies"] = np.arange(calibration.frame // 2 + 1) / calibration.frame
    arrays["domain_psd_before"], arrays["domain_psd_after"] = np.mean(before, axis=1), np.mean(after, axis=1)
    arrays["domain_distance_before"], arrays["domain_distance_after"] = _distances(before), _distances(after)
    arrays["example_before"], arrays["example_after"] = (np.stack(part) for part in zip(*examples, strict=True))
    arrays["example_domain"], arrays["example_class"] = np.array(example_of).T.copy()
    shape = np.concatenate(psds[:-1]).mean(axis=1)
    shape = shape / np.maximum(shape.sum(axis=1, keepdims=True), 1e-30)
    of_stratum = np.concatenate(strata[:-1])
    empty = np.full((len(QUANTILES), shape.shape[1]), np.nan)
    arrays["stratum_psd"] = np.stack(
        [
            np.quantile(shape[of_stratum == k], QUANTILES, axis=0) if (of_stratum == k).any() else empty
            for k in range(calibration.k)
        ]
    )


def _maps(fitted: Fitted, view: TaskView) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """Maps at the tap (n, C, L), features (n, D) and the rows of the view they belong to."""
    maps, features, order = [], [], []
    for x, positions in fitted.batches(view):
        seen = positions.ravel() >= 0
        keep = torch.from_numpy(seen).to(x.device)
        maps.append(tap_output(fitted.model, fitted.tap, x).float()[keep])
        features.append(fitted.model.features(x).float().flatten(0, -2)[keep].cpu().numpy())
        order.append(positions.ravel()[seen])
    return torch.cat(maps), np.concatenate(features), np.concatenate(order)


def _pca(x: np.ndarray) -> np.ndarray:
    """First two principal components (n, 2), the sign of each fixed by its largest entry."""
    x = x.astype(np.float64) - x.mean(axis=0)
    _, vectors = np.linalg.eigh(x.T @ x)
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(2)])
    return (x @ axes).astype(np.float32)


def _distances(mean_power: Sequence[np.ndarray]) -> np.ndarray:
    """Euclidean distances (D, D) between the mean amplitude spectra of domains, relative to their mean norm."""
    amplitude = np.sqrt(np.stack(mean_power)).reshape(len(mean_power), -1)
    difference = np.linalg.norm(amplitude[:, None] - amplitude[None], axis=-1)
    return difference / max(float(np.linalg.norm(amplitude, axis=1).mean()), 1e-30)
