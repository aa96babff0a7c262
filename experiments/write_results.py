"""Fill the tables of docs/results.md from the records in results/.

    python experiments/write_results.py [--check]

A table stands between `<!-- table FOLDER NAME -->` and `<!-- end -->`: it is the report's table NAME of the runs in
results/FOLDER. `cost` is the time the runs took. With --check nothing is written; status 1 if the file is out of date.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from sscf.files import read_json, write_text
from sscf.report import write_report

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
    if name == "cost":
        return cost(ROOT / "results" / runs)
    if name == "common":
        return common(ROOT / "results" / runs)
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


def common(folder: Path) -> str:
    """Mean macro-F1 over the (sources, target, seed) that all methods have; those with fewer than six are left out."""
    scores: dict[str, dict[tuple, float]] = {}
    for path in sorted((folder / "records").glob("*.json")):
        record = read_json(path)
        if record["status"] == "done":
            spec = record["spec"]
            cell = (tuple(spec["sources"]), spec["target"], spec["seed"])
            scores.setdefault(spec["method"], {})[cell] = 100 * record["scores"]["macro_f1"]
    scores = {method: cells for method, cells in scores.items() if len(cells) >= 6}
    shared = set.intersection(*map(set, scores.values()))
    ranked = sorted(scores, key=lambda m: -sum(scores[m][cell] for cell in shared))
    lines = [f"| setting | mean macro-F1 over the {len(shared)} folds all have |", "|---|---|"]
    return "\n".join(lines + [f"| {m} | {sum(scores[m][c] for c in shared) / len(shared):.1f} |" for m in ranked])


def cost(folder: Path) -> str:
    """Runs and core-minutes of an experiment."""
    times = [sum(read_json(path)["time"].values()) for path in sorted((folder / "meta").glob("*.json"))]
    return f"{len(times)} runs, {sum(times) / 60:.0f} core-minutes on one thread each, beside other work on two cores."


if __name__ == "__main__":
    main()
