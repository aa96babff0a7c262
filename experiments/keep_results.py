"""Keep the records of an experiment's runs in results/: JSON only, nothing of the machine but its versions and times.

    python experiments/keep_results.py experiments/ecg-small.toml RUNS --store STORE [--lean]

Keeps exactly the runs of the spec, as results/NAME/{plan.json,records,meta}. `--lean` leaves out scores of single
subjects and training curves, which the tables of a study do not need.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from sscf.experiment.config import Experiment
from sscf.experiment.plan import make_plan
from sscf.files import canonical_json, read_json, write_text

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--store", required=True)
    parser.add_argument("--lean", action="store_true")
    arguments = parser.parse_args()
    experiment = Experiment.load(arguments.spec)
    plan = make_plan(experiment.model_copy(update={"store": arguments.store}))
    value = plan.to_json()
    value["experiment"]["store"] = "../store/" + Path(arguments.store).name
    out = ROOT / "results" / experiment.name
    shutil.rmtree(out, ignore_errors=True)
    write_text(out / "plan.json", canonical_json(value) + "\n")
    kept = 0
    for run in plan.runs:
        source = arguments.runs / "records" / f"{run.id}.json"
        if not source.exists():
            continue
        record, meta = read_json(source), read_json(arguments.runs / "meta" / f"{run.id}.json")
        if arguments.lean:
            record["scores"]["per_subject"] = []
            record["history"] = record["stage1_history"] = None
        meta.pop("started", None)
        meta["environment"].pop("platform", None)
        write_text(out / "records" / f"{run.id}.json", canonical_json(record) + "\n")
        write_text(out / "meta" / f"{run.id}.json", canonical_json(meta) + "\n")
        kept += 1
    print(f"{out.relative_to(ROOT)}: {kept} of {len(plan.runs)} runs")


if __name__ == "__main__":
    main()
