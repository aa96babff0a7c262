"""Scores from predictions, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def confusion(truth: np.ndarray, predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Counts (C, C): rows are the truth, columns the prediction."""
    return np.bincount(truth * n_classes + predicted, minlength=n_classes**2).reshape(n_classes, n_classes)


def f1_by_class(matrix: np.ndarray) -> np.ndarray:
    """F1 (..., C) of confusion matrices (..., C, C); 0 where a class was neither there nor predicted."""
    hits = np.diagonal(matrix, axis1=-2, axis2=-1)
    total = matrix.sum(axis=-1) + matrix.sum(axis=-2)
    return np.divide(2.0 * hits, total, out=np.zeros(hits.shape), where=total > 0)


def macro_f1(matrix: np.ndarray) -> np.ndarray:
    """Mean F1 (...) over all classes of the task, also those the data lack."""
    return f1_by_class(matrix).mean(axis=-1)


def accuracy(matrix: np.ndarray) -> float:
    return float(np.trace(matrix) / max(matrix.sum(), 1))


def cohen_kappa(matrix: np.ndarray) -> float:
    """Agreement beyond chance; 0 when truth and prediction are one and the same single class."""
    n = max(matrix.sum(), 1)
    expected = float(matrix.sum(axis=0) @ matrix.sum(axis=1)) / n**2
    return 0.0 if expected == 1 else float((np.trace(matrix) / n - expected) / (1 - expected))


def scores(
    truth: np.ndarray, predicted: np.ndarray, subjects: np.ndarray, classes: Sequence[str], *, draws: int = 1000
) -> dict[str, Any]:
    """All scores of one evaluation, as JSON values.

    Macro-F1 averages over the classes of the task; those the truth lacks count as 0 and are in `missing_classes`.
    `interval` is the 95 % bootstrap interval of macro-F1 over subjects (None with fewer than two).
    """
    n_classes = len(classes)
    names, code = np.unique(subjects, return_inverse=True)
    per_subject = np.zeros((len(names), n_classes, n_classes), np.int64)
    np.add.at(per_subject, (code, truth, predicted), 1)
    matrix = per_subject.sum(axis=0)
    present = matrix.sum(axis=1) > 0
    f1 = f1_by_class(matrix)
    return {
        "macro_f1": float(f1.mean()),
        "accuracy": accuracy(matrix),
        "kappa": cohen_kappa(matrix),
        "per_class_f1": {c: float(f1[i]) if present[i] else None for i, c in enumerate(classes)},
        "missing_classes": [c for i, c in enumerate(classes) if not present[i]],
        "confusion": matrix.tolist(),
        "n": int(matrix.sum()),
        "interval": bootstrap_interval(per_subject, draws),
        "per_subject": {
            str(name): {"macro_f1": float(macro_f1(m)), "accuracy": accuracy(m), "n": int(m.sum())}
            for name, m in zip(names, per_subject, strict=True)
        },
    }


def bootstrap_interval(per_subject: np.ndarray, draws: int = 1000, seed: int = 0) -> list[float] | None:
    """95 % interval of macro-F1 when subjects, (S, C, C) confusion matrices, are drawn with replacement."""
    n = len(per_subject)
    if n < 2:
        return None
    rng = np.random.default_rng(seed)
    flat = per_subject.reshape(n, -1).astype(float)
    values = []
    for start in range(0, draws, 100):  # a bounded number at a time: thousands of subjects are common
        weights = rng.multinomial(n, np.full(n, 1 / n), size=min(100, draws - start))
        values.append(macro_f1((weights @ flat).reshape(-1, *per_subject.shape[1:])))
    low, high = np.quantile(np.concatenate(values), [0.025, 0.975])
    return [float(low), float(high)]


def risk_coverage(correct: np.ndarray, confidence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Error rate among the most confident windows, against their share: (coverage (n,), risk (n,))."""
    order = np.argsort(-confidence, kind="stable")
    count = np.arange(1, len(order) + 1)
    return count / len(order), np.cumsum(~correct[order].astype(bool)) / count
