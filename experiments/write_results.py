"""Fill the tables of docs/results.md from the records in results/.

    python experiments/write_results.py [--check]

A table stands between `<!-- table FOLDER NAME -->` and `<!-- end -->`: it is the report's table NAME of the runs in
results/FOLDER, or one of the functions below. With --check nothing is written; status 1 if the file is out of date.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console

from sscf.files import read_json, write_text
from sscf.report import write_report
from sscf.report.statistics import clustered_interval

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- table (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    path = ROOT / "docs" / "results.md"
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        filled = BLOCK.sub(lambda m: m[1] + table(m[2], m[3], Path(folder)) + "\n" + m[4], text)
    if parser.parse_args().check:
        sys.exit(filled != text)
    write_text(path, filled)


def table(runs: str, name: str, scratch: Path) -> str:
    """The Markdown of one table."""
    own = {
        "cost": cost,
        "common": common,
        "errors": errors,
        "strata": strata,
        "anchors": anchors,
        "rest": rest,
        "validation": validation,
    }
    if name in own:
        return own[name](ROOT / "results" / runs)
    out = scratch / runs
    if not out.exists():
        write_report(ROOT / "results" / runs, out, figures=0, console=Console(file=io.StringIO()))
    if name == "sentences":
        return sentences(out)
    found = [p for p in sorted((out / "tables").glob("*.md")) if p.stem.endswith(f"-{name}")]
    found = sorted(found, key=lambda p: len(p.name))[:1]
    if not found:
        raise SystemExit(f"the report of results/{runs} has no table '{name}'")
    return found[0].read_text(encoding="utf-8").strip()


def sentences(out: Path) -> str:
    """SSCF against every other method, in points of macro-F1."""
    import csv

    lines = ["| SSCF against | points | 95 % interval | targets ahead |", "|---|---|---|---|"]
    with open(out / "statistics.csv", encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["metric"] == "macro_f1":
                points, low, high = (f"{100 * float(row[key]):+.1f}" for key in ("difference", "low", "high"))
                lines.append(f"| {row['other']} | {points} | {low} to {high} | {row['ahead']} of {row['targets']} |")
    return "\n".join(lines)


def records(folder: Path) -> list[dict]:
    """The records of finished runs."""
    found = [read_json(path) for path in sorted((folder / "records").glob("*.json"))]
    return [record for record in found if record["status"] == "done"]


def common(folder: Path) -> str:
    """Settings over folds (sources, target, seed): mean macro-F1, and the paired difference from plain `sscf`.

    The column of a data set is the mean over folds that neither train nor test on it: what may be looked at to choose
    for that target.
    """
    scores: dict[str, dict[tuple, float]] = {}
    for record in records(folder):
        spec = record["spec"]
        cell = (*spec["sources"], spec["target"], spec["seed"])
        scores.setdefault(spec["method"], {})[cell] = 100 * record["scores"]["macro_f1"]
    names = sorted({name for cells in scores.values() for cell in cells for name in cell[:-1]})
    without = " | ".join(f"without {name}" for name in names)
    lines = [
        f"| setting | folds | mean | from sscf | {without} |",
        "|:--|--:|--:|--:|" + "--:|" * len(names),
    ]
    rows = []
    for method, cells in scores.items():
        differences = [cells[cell] - scores["sscf"][cell] for cell in cells if cell in scores["sscf"]]
        gap = f"{np.mean(differences):+.1f} ± {np.std(differences, ddof=1) / len(differences) ** 0.5:.1f}"
        blind = [np.mean([score for cell, score in cells.items() if name not in cell]) for name in names]
        means = " | ".join(f"{value:.1f}" for value in blind)
        mean = np.mean(list(cells.values()))
        rows.append((mean, f"| {method} | {len(cells)} | {mean:.1f} | {gap if method != 'sscf' else ''} | {means} |"))
    return "\n".join(lines + [line for _, line in sorted(rows, reverse=True)])


def errors(folder: Path) -> str:
    """Where the errors are: of 100 windows of a target, how many of one class are taken for another."""
    confusions: dict[str, dict[str, list]] = {}
    for record in records(folder):
        method = confusions.setdefault(record["spec"]["method"], {})
        matrix = np.array(record["scores"]["confusion"], float)
        method.setdefault(record["spec"]["target"], []).append(100 * matrix / matrix.sum())
        classes = record["classes"]
    pairs = [(i, j) for i in range(len(classes)) for j in range(i + 1, len(classes))]
    heads = " | ".join(f"{classes[i]} and {classes[j]}" for i, j in pairs)
    lines = [f"| method | wrong, of 100 | {heads} |", "|:--|--:|" + "--:|" * len(pairs)]
    rows = []
    for method, targets in confusions.items():
        mean = np.mean([np.mean(matrices, axis=0) for matrices in targets.values()], axis=0)
        wrong = mean.sum() - np.trace(mean)
        cells = " | ".join(f"{mean[i, j] + mean[j, i]:.1f}" for i, j in pairs)
        rows.append((wrong, f"| {method} | {wrong:.1f} | {cells} |"))
    return "\n".join(lines + [line for _, line in sorted(rows)])


def strata(folder: Path) -> str:
    """What the four strata of SSCF hold, seed 0: shares of the source training windows, and of the target's."""
    lines: list[str] = []
    chosen = [r for r in records(folder) if r["spec"]["method"] in ("sscf", "sscf-k4") and r["spec"]["seed"] == 0]
    for record in sorted(chosen, key=lambda r: r["spec"]["target"]):
        held = record["strata"]
        if len(held["counts"]) != 4:
            continue
        if not lines:
            heads = " | ".join(record["classes"])
            lines = [
                f"| target | stratum | of the sources | {heads} | one source's share, least to most | of the target |",
                "|:--|--:|--:|" + "--:|" * (len(record["classes"]) + 2),
            ]
        counts = np.array(held["counts"], float)
        target = np.array(held["target"], float) / np.sum(held["target"])
        domains = np.array([np.array(v, float) / np.sum(v) for v in held["by_domain"].values()])
        for number, k in enumerate(np.argsort(-counts)):
            inside = np.array([held["by_class"][c][k] for c in record["classes"]], float)
            cells = " | ".join(f"{100 * v / max(inside.sum(), 1):.0f} %" for v in inside)
            spread = f"{100 * domains[:, k].min():.0f} to {100 * domains[:, k].max():.0f} %"
            lines.append(
                f"| {record['spec']['target']} | {number + 1} | {100 * counts[k] / counts.sum():.0f} % | {cells} | "
                f"{spread} | {100 * target[k]:.0f} % |"
            )
    return "\n".join(lines)


def anchors(folder: Path) -> str:
    """Each way to set anchors against each: mean difference in macro-F1, its interval, targets ahead."""
    names = {"erm": "none", "global-anchor": "one", "domain-anchor": "per data set", "sscf": "strata, K = 4"}
    scores: dict[str, dict[str, dict[int, float]]] = {name: {} for name in names}
    for record in records(folder):
        spec = record["spec"]
        if spec["method"] in names:
            scores[spec["method"]].setdefault(spec["target"], {})[spec["seed"]] = 100 * record["scores"]["macro_f1"]
    lines = ["| anchors | less those of | points | 95 % interval | targets ahead |", "|:--|:--|--:|--:|--:|"]
    pairs = [(b, a) for i, a in enumerate(names) for b in list(names)[i + 1 :]]
    for first, second in pairs:
        groups = [
            np.array([values[seed] - scores[second][target][seed] for seed in values])
            for target, values in scores[first].items()
        ]
        means = [group.mean() for group in groups]
        low, high = clustered_interval(groups) or (np.nan, np.nan)
        lines.append(
            f"| {names[first]} | {names[second]} | {np.mean(means):+.1f} | {low:+.1f} to {high:+.1f} | "
            f"{sum(mean > 0 for mean in means)} of {len(means)} |"
        )
    return "\n".join(lines)


def rest(folder: Path) -> str:
    """How many moving windows of the sources lie in the stratum of people at rest, and what share of a target does."""
    found: dict[str, list[tuple[str, float, float]]] = {}
    for record in records(folder):
        held = record["strata"]
        if held and record["spec"]["strata"] == "kmeans":
            stratum = int(np.argmax(held["by_class"]["still"]))
            moving = np.array(held["by_class"]["walking"]) + np.array(held["by_class"]["stairs"])
            values = moving[stratum] / moving.sum(), held["target"][stratum] / sum(held["target"])
            found.setdefault(record["spec"]["method"], []).append((record["spec"]["target"], *values))
    targets = sorted({target for values in found.values() for target, *_ in values})
    heads = " | ".join(f"of {target}" for target in targets)
    lines = [
        f"| method | moving source windows in the stratum of rest | {heads} |",
        "|:--|--:|" + "--:|" * len(targets),
    ]
    for method, values in sorted(found.items()):
        cells = (np.mean([share for name, _, share in values if name == target]) for target in targets)
        moving = np.mean([share for _, share, _ in values])
        lines.append(f"| {method} | {100 * moving:.1f} % | " + " | ".join(f"{100 * c:.0f} %" for c in cells) + " |")
    return "\n".join(lines)


def validation(folder: Path) -> str:
    """Mean source validation macro-F1 of every setting: what a choice may look at."""
    scores: dict[str, list[float]] = {}
    for record in records(folder):
        scores.setdefault(record["spec"]["method"], []).append(100 * record["validation"]["macro_f1"])
    lines = ["| setting | source validation |", "|:--|--:|"]
    return "\n".join(lines + [f"| {method} | {np.mean(values):.1f} |" for method, values in sorted(scores.items())])


def cost(folder: Path) -> str:
    """Runs and core-minutes of an experiment."""
    times = [sum(read_json(path)["time"].values()) for path in sorted((folder / "meta").glob("*.json"))]
    minutes = f"{sum(times) / 60:.0f} core-minutes"
    return f"{folder.name}: {len(times)} runs, {minutes} on one thread each, beside other work on two cores."


if __name__ == "__main__":
    main()
