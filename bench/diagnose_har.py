"""Does diagnosis foresee how a model fares? Every domain of a store is held out in its turn, diagnosed and scored.

    python bench/diagnose_har.py --store STORE [--task har3] [--seeds 2]

For each held-out domain: what `sscf diagnose` says of it, and how far macro-F1 falls below that of held-out source
subjects. Then the rank correlation (Spearman) of several numbers with the drop, over domains and seeds, and with the
error of single subjects within a domain.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from scipy.stats import spearmanr

from sscf.data.store import open_store
from sscf.data.tasks import TaskView
from sscf.diagnose import diagnose
from sscf.experiment.config import SSCFConfig, TrainConfig
from sscf.experiment.fitted import Settings
from sscf.experiment.plan import open_views
from sscf.model import Model, fit_model
from sscf.protocol import confusion, macro_f1
from sscf.protocol.metrics import accuracy
from sscf.reference import LEVEL
from sscf.rules.methods import get_method


def train(views: list[TaskView], seed: int, epochs: int) -> Model:
    settings = Settings(
        get_method("sscf"),
        TrainConfig(epochs=epochs, batch_size=96, lr=2e-3, device="cpu", patience=None, ema=0.98),
        SSCFConfig(k=4),
        backbone_params={"width": 16, "hidden": 32},
    )
    return fit_model(views, settings, seed)


def measures(model: Model, view: TaskView) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Numbers of a held-out domain that use no label; which windows are right; the share outside of each window."""
    assert model.reference is not None
    judged = model.judge(view)
    assert judged.measured is not None
    assert model.reference.tap is not None
    outside = model.reference.pvalues(judged.measured).table <= LEVEL
    mix = model.reference.tap.mix_shift(judged.strata)
    numbers = {
        "outside strata": float(outside[:, 0].mean()),
        "outside structure": float(outside[:, 1].mean()),
        "outside, any channel": float(outside[:, 2:].any(axis=1).mean()),
        "shift of the stratum mix": mix.total_variation,
        "1 - mean comparability": 1 - float(judged.pvalues.mean()),
    }
    return numbers, judged.probabilities.argmax(axis=1) == view.y, outside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--task", default="har3")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--max-windows", type=int, default=1500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = list(open_store(arguments.store))
    views = open_views(arguments.store, arguments.task, names, arguments.max_windows)
    rows: list[dict[str, float]] = []
    drops: list[float] = []
    within: list[float] = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for target in names:
            model = train([views[name] for name in names if name != target], seed, arguments.epochs)
            source = float(np.mean([one["validation"] for one in model.sources]))
            view = views[target]
            numbers, right, outside = measures(model, view)
            predicted = model.judge(view).probabilities.argmax(axis=1)
            score = float(macro_f1(confusion(view.y, predicted, len(view.classes))))
            rows.append(numbers)
            drops.append(source - score)
            subjects = np.unique(view.subjects)
            error = [1 - right[view.subjects == one].mean() for one in subjects]
            share = [np.delete(outside[view.subjects == one], 1, axis=1).mean() for one in subjects]
            within.append(float(spearmanr(error, share).statistic))
            print(
                f"seed {seed}, held out {target}: macro-F1 {100 * score:.1f} ({100 * source:.1f} on held-out source "
                f"subjects, drop {100 * (source - score):.1f}), accuracy "
                f"{100 * accuracy(confusion(view.y, predicted, len(view.classes))):.1f}"
            )
            print("   " + ", ".join(f"{name} {value:.2f}" for name, value in numbers.items()))
            if seed == arguments.first_seed:
                found = diagnose(model, view.domain, target)
                for line in found.words():
                    print("   | " + line)
    print(f"\nrank correlation with the drop in macro-F1, {len(drops)} pairs of domain and seed:")
    for name in rows[0]:
        result = spearmanr([row[name] for row in rows], drops)
        by_domain = spearmanr(
            [np.mean([rows[i][name] for i in range(j, len(rows), len(names))]) for j in range(len(names))],
            [np.mean(drops[j :: len(names)]) for j in range(len(names))],
        )
        print(
            f"   {name}: {result.statistic:+.2f} (p = {result.pvalue:.2f}); "
            f"over the {len(names)} domains {by_domain.statistic:+.2f}"
        )
    print("rank correlation of a subject's error with its share outside, within each held-out domain:")
    for j, name in enumerate(names):
        print(f"   {name}: " + ", ".join(f"{value:+.2f}" for value in within[j :: len(names)]))


if __name__ == "__main__":
    main()
