"""From an experiment to its runs. Everything that can be wrong is found here, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sscf import __version__
from sscf.data.store import Domain, open_store
from sscf.data.tasks import Task, TaskView, get_task
from sscf.errors import ConfigError
from sscf.experiment.config import Experiment, MethodConfig, SSCFConfig, TrainConfig, merged
from sscf.files import hash_json
from sscf.protocol import Fold, cap_recordings, cap_rows, external, leave_k_out, leave_one_domain_out
from sscf.rules import rule_params
from sscf.rules.methods import Method, get_method


@dataclass(frozen=True)
class RunSpec:
    """One run, completely: what it is trained on, how, and what it is tested on. Its id is the hash of all this."""

    task: str
    target: str
    sources: tuple[str, ...]
    protocol: str
    method: str
    seed: int
    rule: str
    rule_params: dict[str, Any]
    strata: str
    backbone: str
    backbone_params: dict[str, Any]
    sscf: dict[str, Any] | None
    train: dict[str, Any]
    normalisation: str
    selection: str
    max_windows: int | None
    data: dict[str, str]
    code: str = __version__

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sources": list(self.sources)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunSpec:
        return cls(**{**value, "sources": tuple(value["sources"])})

    @cached_property
    def id(self) -> str:
        return hash_json(self.to_json())

    def training_key(self) -> dict[str, Any]:
        """What the trained weights depend on. The target is not in it."""
        key = self.to_json()
        for name in ("target", "protocol", "method"):
            del key[name]
        key["data"] = {name: self.data[name] for name in self.sources}
        return {"stage": "trained", **key}


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment, in the order they are worked on, and the domains they need."""

    experiment: Experiment
    runs: tuple[RunSpec, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "experiment": self.experiment.model_dump(),
            "runs": [{"id": run.id, "spec": run.to_json()} for run in self.runs],
        }


def make_plan(experiment: Experiment) -> Plan:
    """Open the data, check every setting against it, list the runs; seeds outermost, so that tables grow evenly."""
    if experiment.store is None:
        raise ConfigError('no store given: write store = "DIR" in the spec or use --store DIR')
    task = get_task(experiment.task)
    domains = _domains(experiment, Path(experiment.store))
    views = {name: task.view(domain) for name, domain in domains.items()}
    folds = _folds(experiment)
    methods = [_method(entry, experiment) for entry in experiment.methods]
    labels = [label for label, *_ in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"method '{label}' is named twice: give one of them another name")
    _check(experiment, task, views, folds, methods)
    runs = [
        _run(experiment, task, domains, fold, seed, entry)
        for seed in experiment.seed_list
        for fold in folds
        for entry in methods
    ]
    return Plan(experiment, tuple(runs), _warnings(domains, folds))


def open_views(store: str | Path, task_name: str, names: Sequence[str], max_windows: int | None) -> dict[str, TaskView]:
    """The views of some domains of a store, capped evenly over classes and subjects."""
    task = get_task(task_name)
    views = {}
    for name in names:
        view = task.view(Domain.open(Path(store) / name))
        if max_windows is not None:
            if task.sequence > 1:
                rows = cap_recordings(view.recordings, max_windows)
            else:
                rows = cap_rows(view.y, view.subjects, max_windows)
            view = replace(view, index=view.index[rows], y=view.y[rows])
        views[name] = view
    return views


def _warnings(domains: dict[str, Domain], folds: list[Fold]) -> tuple[str, ...]:
    """What a reader of the results must know: targets whose people are also in the sources."""
    found = []
    for fold in folds:
        shared = [name for name in domains[fold.target].manifest.get("same_people", ()) if name in fold.sources]
        if shared:
            found.append(f"target '{fold.target}' holds people who are also in source {', '.join(shared)}")
    return tuple(dict.fromkeys(found))


MethodEntry = tuple[str, Method, TrainConfig, SSCFConfig, MethodConfig | None]


def _domains(experiment: Experiment, store: Path) -> dict[str, Domain]:
    available = open_store(store)
    if not available:
        raise ConfigError(f"{store}: no prepared domains in this store; run `sscf prepare` first")
    wanted = [*(experiment.data or [n for n in available if n not in experiment.external]), *experiment.external]
    for name in [*wanted, *(experiment.targets or [])]:
        if name not in available:
            raise ConfigError(f"no domain '{name}' in {store}; there are: {', '.join(available)}")
    return {name: available[name] for name in wanted}


def _folds(experiment: Experiment) -> list[Fold]:
    store = list(experiment.data or [])
    if not store:
        assert experiment.store is not None
        store = [name for name in open_store(experiment.store) if name not in experiment.external]
    if len(store) < 2 and not experiment.external:
        raise ConfigError(f"leave-one-domain-out needs at least two domains, the experiment has {len(store)}")
    folds: list[Fold] = []
    if experiment.leave_out > 1:
        folds = leave_k_out(store, experiment.leave_out)
    elif experiment.targets is None:
        folds = leave_one_domain_out(store) if len(store) > 1 else []
    else:
        folds = leave_one_domain_out(store, [t for t in experiment.targets if t not in experiment.external])
    return folds + external(store, experiment.external)


def _method(entry: str | MethodConfig, experiment: Experiment) -> MethodEntry:
    if isinstance(entry, str):
        return entry, get_method(entry), experiment.train, experiment.sscf, None
    where = f"method '{entry.name}'"
    method = get_method(entry.method)
    train = merged(experiment.train, entry.train, f"{where}, train")
    sscf = merged(experiment.sscf, entry.sscf, f"{where}, sscf")
    return entry.name, method, train, sscf, entry


def _check(
    experiment: Experiment, task: Task, views: dict[str, TaskView], folds: list[Fold], methods: list[MethodEntry]
) -> None:
    from sscf.experiment.train import check_views
    from sscf.nn import BACKBONES
    from sscf.rules import RULES

    check_views(list(views.values()))
    for fold in folds:
        check_views([views[name] for name in fold.sources])
    fewest = min(len(fold.sources) for fold in folds)
    smallest = min(sum(len(views[name]) for name in fold.sources) for fold in folds)
    for label, method, train, sscf, entry in methods:
        params = {**method.rule_params, **(entry.rule_params if entry else {})}
        rule_params(method.rule, params)
        if RULES[method.rule].needs_domains > fewest:
            raise ConfigError(
                f"method '{label}' needs {RULES[method.rule].needs_domains} source domains, a fold has {fewest}"
            )
        if train.batch_size < fewest:
            raise ConfigError(f"method '{label}': batch_size {train.batch_size} is less than {fewest} source domains")
        backbone = (entry.backbone if entry else None) or method.backbone or experiment.backbone or task.backbone
        if backbone not in BACKBONES:
            raise ConfigError(f"no backbone '{backbone}'; there are: {', '.join(BACKBONES)}")
        if method.strata == "kmeans":
            largest = max(sscf.k) if isinstance(sscf.k, list) else (sscf.k if isinstance(sscf.k, int) else 1)
            if largest > smallest:
                raise ConfigError(f"method '{label}': k = {largest}, but a fold has only {smallest} source windows")
        if experiment.selection == "leave-one-source-out" and method.calibrated and fewest < 2:
            raise ConfigError("selection 'leave-one-source-out' needs at least two source domains in every fold")


def _run(
    experiment: Experiment, task: Task, domains: dict[str, Domain], fold: Fold, seed: int, entry: MethodEntry
) -> RunSpec:
    label, method, train, sscf, own = entry
    params = {**method.rule_params, **(own.rule_params if own else {})}
    settings = {**sscf.model_dump(), **method.overrides} if method.calibrated else None
    if settings is not None and method.strata != "kmeans":
        settings["k"] = 1 if method.strata == "global" else len(fold.sources)
    return RunSpec(
        task=experiment.task,
        target=fold.target,
        sources=fold.sources,
        protocol=fold.protocol,
        method=label,
        seed=seed,
        rule=method.rule,
        rule_params=params,
        strata=method.strata,
        backbone=(own.backbone if own else None) or method.backbone or experiment.backbone or task.backbone,
        backbone_params=experiment.backbone_params,
        sscf=settings,
        train=train.model_dump(),
        normalisation=(own.normalisation if own else None) or experiment.normalisation,
        selection=experiment.selection,
        max_windows=experiment.max_windows,
        data={name: domains[name].fingerprint for name in (*fold.sources, fold.target)},
    )
