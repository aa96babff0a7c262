"""Fabricated runs for the report's tests: schema-true, random, and never to be taken for results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sscf.files import hash_json, write_json

STRATA = {"sscf": "kmeans", "global-anchor": "global", "domain-anchor": "domain", "sscf+coral": "kmeans"}
HAR = ("MotionSense", "UCIHAR", "USCHAD", "WISDM")
CLASSES = ("walking", "stairs", "sitting", "standing")


def make_spec(task: str, target: str, domains: Sequence[str], method: str, seed: int, **changes: Any) -> dict[str, Any]:
    """A whole spec; `changes` may hold `k` for the calibration and any key of the spec."""
    strata = STRATA.get(method, "none")
    k = changes.pop("k", 4)
    spec: dict[str, Any] = {
        "task": task,
        "target": target,
        "sources": [name for name in domains if name != target],
        "method": method,
        "seed": seed,
        "backbone": "cnn_bilstm",
        "strata": strata,
        "rule": "coral" if method.endswith("coral") else "erm" if strata != "none" else method,
        "rule_params": {},
        "selection": "source-val",
        "normalisation": "center",
        "sscf": None if strata == "none" else {"k": k, "frame": 16, "hop": 8, "reading": "amplitude", "tap": "stage1"},
        "train": {"epochs": 30, "batch_size": 128, "lr": 0.001, "patience": 5},
        "max_windows": None,
        "data": {name: hash_json(name) for name in (*domains, target)},
        "code": "0.1.0",
        "protocol": "lodo",
    }
    return {**spec, **changes}


def make_record(spec: dict[str, Any], classes: Sequence[str], score: float | None = None) -> dict[str, Any]:
    """A done record with random scores around a level that the method sets (or with the given macro-F1)."""
    rng = np.random.default_rng(int(hash_json(spec), 16) % 2**32)
    target = np.random.default_rng(int(hash_json(spec["target"]), 16) % 2**32)
    level = {"erm": 0.60, "coral": 0.62, "irm": 0.58, "sscf": 0.68, "sscf+coral": 0.67}.get(spec["method"], 0.63)
    k = (spec["sscf"] or {}).get("k") if spec["strata"] == "kmeans" else {"global": 1, "domain": 3}.get(spec["strata"])
    k = 8 if k == "auto" else k  # what such a run would have chosen
    f1 = float(np.clip(level + target.normal(0, 0.12) + rng.normal(0, 0.012) - (0.05 if k == 1 else 0), 0.05, 0.99))
    f1 = round(f1 if score is None else score, 6)
    n, c = 400, len(classes)
    confusion = np.full((c, c), n * (1 - f1) / c / max(c - 1, 1))
    np.fill_diagonal(confusion, n * f1 / c)
    per_class = [float(np.clip(f1 + d, 0, 1)) for d in np.linspace(-0.1, 0.1, c)]
    epochs = np.arange(int(rng.integers(12, 25)))
    strata = None
    if k:
        counts = rng.integers(50, 400, k)
        shares = {name: rng.integers(5, 100, k).tolist() for name in spec["sources"]}
        by_class = {name: rng.integers(5, 100, k).tolist() for name in classes}
        strata = {"counts": counts.tolist(), "by_domain": shares, "by_class": by_class, "target": counts.tolist()}
    return {
        "schema": 1,
        "id": hash_json(spec),
        "status": "done",
        "reason": None,
        "spec": spec,
        "zero_shot": spec["normalisation"] != "dataset",
        "oracle": spec["selection"] == "oracle",
        "simulated": False,
        "classes": list(classes),
        "scores": {
            "macro_f1": f1,
            "accuracy": round(min(f1 + 0.04, 1.0), 6),
            "kappa": round(f1 - 0.1, 6),
            "per_class_f1": dict(zip(classes, per_class, strict=True)),
            "missing_classes": [],
            "confusion": confusion.round().astype(int).tolist(),
            "n": n,
            "interval": [round(f1 - 0.03, 6), round(f1 + 0.03, 6)],
            "per_subject": {f"s{i}": {"macro_f1": f1, "accuracy": f1, "n": 40} for i in range(10)},
        },
        "validation": {"macro_f1": round(0.8 + 0.01 * float(rng.normal()) + 0.005 * (k or 0), 6), "epoch": 9},
        "ranks": [
            {"rank": r, "macro_f1": round(f1 - 0.07 * (r - 1), 6), "accuracy": round(f1 - 0.05 * (r - 1), 6)}
            for r in range(1, (k or 0) + 1)
        ],
        "chosen": {"k": k} if k else {},
        "candidates": [],
        "strata": strata,
        "strata_agreement": None,
        "history": {
            "loss": (1.4 * np.exp(-epochs / 6) + 0.1).round(4).tolist(),
            "validation": (0.85 - 0.5 * np.exp(-epochs / 4)).round(4).tolist(),
        },
        "stage1_history": None,
        "psd_domains": [*spec["sources"], spec["target"]],
        "embedding_domains": [*spec["sources"], spec["target"]],
        "parameters": 120000,
    }


def make_arrays(record: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays such as a run leaves; without calibration only the predictions and the embedding."""
    rng = np.random.default_rng(seed)
    c, domains = len(record["classes"]), len(record["psd_domains"])
    n, m, bins, length = 600, 500, 9, 128
    truth = np.repeat(rng.integers(0, c, n // 12 + 1), 12)[:n]
    predictions = np.where(rng.random(n) < 0.75, truth, rng.integers(0, c, n))
    domain, category = rng.integers(0, domains, m), rng.integers(0, c, m)
    centres = rng.normal(0, 2, (c, 2))
    arrays: dict[str, Any] = {
        "target_labels": truth.astype(np.int64),
        "target_predictions": predictions.astype(np.int64),
        "target_recordings": np.repeat([0, 1], [n // 3, n - n // 3]).astype(np.int32),
        "target_positions": np.concatenate([np.arange(n // 3), np.arange(n - n // 3)]).astype(np.int64) * 3000,
        "embedding": (centres[category] + rng.normal(0, 0.7, (m, 2)) + domain[:, None] * 0.3).astype(np.float32),
        "embedding_domain": domain,
        "embedding_class": category,
        "embedding_stratum": np.full(m, -1),
    }
    if record["strata"] is None:
        return arrays
    k = len(record["strata"]["counts"])
    frequency = np.arange(bins) / 16
    shape = np.exp(-((frequency[None] - np.linspace(0.02, 0.4, k)[:, None]) ** 2) / 0.01) + 0.1
    shape /= shape.sum(1, keepdims=True)
    spread = np.array([0.5, 0.75, 1.0, 1.3, 1.9])
    before = np.stack([np.exp(-frequency * (4 + 3 * d)) * (1 + d) for d in range(domains)])
    distance = np.abs(np.subtract.outer(np.arange(domains), np.arange(domains))).astype(float)
    t = np.arange(length)
    waves = np.stack([np.sin(t * (0.1 + 0.05 * e)) * (1 + e) + rng.normal(0, 0.2, length) for e in range(4)])
    return arrays | {
        "target_strata": rng.integers(0, k, n),
        "anchors": np.repeat(shape[:, None], 8, axis=1) * 3,
        "stratum_psd": shape[:, None] * spread[None, :, None],
        "frequencies": frequency,
        "domain_psd_before": before,
        "domain_psd_after": before.mean(0, keepdims=True) * (1 + 0.05 * np.arange(domains))[:, None],
        "domain_distance_before": distance,
        "domain_distance_after": distance * 0.2,
        "example_before": waves.astype(np.float32),
        "example_after": (waves / waves.std(1, keepdims=True)).astype(np.float32),
        "example_domain": np.arange(4) % domains,
        "example_class": np.arange(4) % c,
        "embedding_stratum": rng.integers(0, k, m),
    }


def write_runs(
    path: Path,
    records: Sequence[dict[str, Any]],
    *,
    arrays: bool | Callable[[dict[str, Any]], bool] = False,
    planned: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write a folder of runs; `planned` are specs without a record; `arrays` says which records have some."""
    for i, record in enumerate(records):
        (path / "records").mkdir(parents=True, exist_ok=True)
        (path / "meta").mkdir(exist_ok=True)
        (path / "records" / f"{record['id']}.json").write_text(json.dumps(record, sort_keys=True))
        meta = {
            "time": {"stage1_s": 1.5, "train_s": 12.25, "evaluate_s": 0.5},
            "environment": {"python": "3.11.9", "torch": "2.0", "sscf": "0.1.0", "platform": "test", "device": "cpu"},
            "started": "2026-01-01T00:00:00Z",
            "command": "sscf run experiment.toml --out runs",
        }
        (path / "meta" / f"{record['id']}.json").write_text(json.dumps(meta, sort_keys=True))
        if record["status"] == "done" and (arrays(record) if callable(arrays) else arrays):
            folder = path / "arrays" / record["id"]
            folder.mkdir(parents=True)
            for name, value in make_arrays(record, i).items():
                np.save(folder / f"{name}.npy", value)
    specs = [record["spec"] for record in records] + list(planned)
    plan = {
        "schema": 1,
        "experiment": {"task": specs[0]["task"], "fabricated": "for tests"},
        "runs": [{"id": hash_json(spec), "spec": spec} for spec in specs],
    }
    write_json(path / "plan.json", plan)
    return path


def fail(record: dict[str, Any], reason: str) -> dict[str, Any]:
    """The same run, failed."""
    return {
        **record,
        "status": "failed",
        "reason": reason,
        "scores": None,
        "ranks": [],
        "strata": None,
        "history": None,
    }


def har_records(
    methods: Sequence[str] = ("erm", "coral", "irm", "global-anchor", "domain-anchor", "sscf"),
    seeds: int = 3,
    ks: Sequence[int] = (2, 4, 8),
    domains: Sequence[str] = HAR,
    classes: Sequence[str] = CLASSES,
    task: str = "har",
    **changes: Any,
) -> list[dict[str, Any]]:
    """Leave-one-domain-out runs of some methods, SSCF at several K."""
    return [
        make_record(make_spec(task, target, domains, method, seed, k=k, **changes), classes)
        for method in methods
        for k in (ks if method == "sscf" else (4,))
        for target in domains
        for seed in range(seeds)
    ]


@pytest.fixture(scope="session")
def fab() -> Any:
    """The functions of this file (test files cannot import it)."""
    return SimpleNamespace(**{name: value for name, value in globals().items() if not name.startswith("_")})


@pytest.fixture(scope="session")
def har_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HAR runs with arrays for seed 0, a failed and a missing run."""
    records = har_records()
    records[-1] = fail(records[-1], "loss became NaN at epoch 3 <b>&</b>")
    lost = records.pop(0)
    folder = tmp_path_factory.mktemp("har")
    return write_runs(folder, records, arrays=lambda r: r["spec"]["seed"] == 0, planned=[lost["spec"]])
