"""`sscf datasets`, `sscf prepare`, `sscf verify`, `sscf inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sscf.data.datasets.base import DataSet
    from sscf.data.inspect import Seen
    from sscf.data.prepare import Prepared


def register(app: typer.Typer) -> None:
    """Add this module's commands to the app."""
    app.command("datasets")(datasets)
    app.command("prepare")(prepare)
    app.command("inspect")(inspect)
    app.command("verify")(verify)


def datasets(
    raw: Annotated[Path | None, typer.Option(help="Folder to look for downloaded data sets in.")] = None,
) -> None:
    """List the data sets: task, subjects, rate, channels, where to get them, and what is found under --raw."""
    from rich.console import Console
    from rich.table import Table

    from sscf.data.datasets import DATASETS
    from sscf.errors import DataError

    if raw is not None and not raw.is_dir():
        raise DataError(f"{raw}: no such folder")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("name", "task", "subjects", "Hz", "channels", "found" if raw else "access"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "task"))
    for dataset in DATASETS.values():
        last = _found(dataset, raw) if raw else dataset.access
        table.add_row(dataset.name, dataset.task, str(dataset.subjects), dataset.rate, dataset.channels, last)
    Console(markup=False).print(table)


def _found(dataset: DataSet, raw: Path) -> str:
    from sscf.errors import DataError

    root = dataset.locate(raw)
    if root is None:
        return "-"
    where = root.relative_to(raw.resolve()).as_posix() if root != raw.resolve() else "."
    try:
        n = len(dataset.find(root))
    except DataError as error:
        return f"{where}, not usable: {error}"
    return f"{n or 'no'} recording{'' if n == 1 else 's'} in {where}"


def prepare(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Data sets by name, or recipes of your own (.toml).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Store to write the domains to.")] = Path("store"),
    raw: Annotated[Path | None, typer.Option(help="Folder with the downloaded data sets.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Recordings at a time.")] = 1,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out recordings that cannot be used, and list them.")
    ] = False,
    simulate: Annotated[
        str | None, typer.Option(metavar="har|ecg|sleep", help="Write simulated domains instead.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
) -> None:
    """Turn raw recordings into a store of windows. Interrupted, it goes on where it was when asked again."""
    from sscf.data.datasets import get
    from sscf.errors import ConfigError

    if simulate is not None:
        if what:
            raise ConfigError("--simulate makes its own domains: give no data sets with it")
        _simulate(simulate, out, seed)
        return
    if not what:
        raise ConfigError(
            "nothing to prepare: name data sets ('sscf datasets' lists them), a recipe, or --simulate har"
        )
    if raw is None:
        raise ConfigError("--raw is needed: the folder with the downloaded data sets")
    if not raw.is_dir():
        raise ConfigError(f"--raw {raw}: no such folder")
    chosen: list[DataSet] = []
    for name in what:
        if name.endswith(".toml"):
            from sscf.data.recipe import load_recipe

            chosen.append(load_recipe(name))
        else:
            chosen.append(get(name))
    for dataset in chosen:
        dataset.root(raw)  # what is not there is said before hours of work
    _prepare_all(chosen, raw, out, jobs, skip_bad)


def _prepare_all(chosen: list[DataSet], raw: Path, out: Path, jobs: int, skip_bad: bool) -> None:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from sscf.data.prepare import prepare as run

    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>14}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        for dataset in chosen:
            task = bar.add_task(dataset.name, total=None, rate="")

            def tell(_: str, done: int, total: int, task=task) -> None:
                speed = bar.tasks[task].speed
                bar.update(task, completed=done, total=total, rate=f"{speed:.1f} rec/s" if speed else "")

            prepared = run(dataset, raw, out, jobs=jobs, skip_bad=skip_bad, progress=tell)
            bar.console.print(_told(prepared), markup=False, highlight=False, soft_wrap=True)


def _told(done: Prepared) -> str:
    fresh = f"{done.computed} computed" if done.computed else "nothing had changed"
    lines = [f"{done.path}: {done.windows} windows of {done.recordings} recordings ({fresh})"]
    lines += [f"  dropped {n}: {reason}" for reason, n in sorted(done.dropped.items(), key=lambda item: -item[1])]
    lines += [f"  left out {entry['id']}: {entry['reason']}" for entry in done.skipped[:10]]
    if len(done.skipped) > 10:
        lines.append(f"  left out {len(done.skipped) - 10} more: see 'skipped' in {done.path / 'manifest.json'}")
    return "\n".join(lines)


def _simulate(kind: str, out: Path, seed: int) -> None:
    from rich.console import Console

    from sscf.data.simulate import simulate

    console = Console(highlight=False, markup=False, soft_wrap=True)
    with console.status(f"simulating {kind}"):
        paths = simulate(kind, out, seed=seed)
    for path in paths:
        console.print(f"{path} (simulated)")


def inspect(
    store: Annotated[Path, typer.Argument(help="A store, or one domain of it.")],
    task: Annotated[str | None, typer.Option(help="Count classes of this task (name or .toml).")] = None,
    subjects: Annotated[bool, typer.Option("--subjects", help="Count windows of every subject.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw example windows and class spectra to this .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show what a store holds: windows by domain, class and subject; what was dropped and left out; a picture."""
    from rich.console import Console
    from rich.table import Table

    from sscf.data.inspect import picture as draw
    from sscf.data.inspect import see
    from sscf.data.store import MANIFEST, Domain, open_store
    from sscf.data.tasks import get_task
    from sscf.errors import ConfigError

    if (store / MANIFEST).is_file():
        domain = Domain.open(store)
        domains = {domain.name: domain}
    else:
        domains = open_store(store)
    wanted = get_task(task) if task else None
    all_seen = [see(domain, wanted) for domain in domains.values()]
    console = Console(highlight=False, markup=False)

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("domain", "windows", "of", "subjects", "recs", "dropped", "left out"):
        table.add_column(
            heading, justify="left" if heading in ("domain", "of") else "right", no_wrap=heading in ("domain", "of")
        )
    for name, domain in domains.items():
        m = domain.manifest
        shape = f"{len(domain.channels)} x {m['samples']} at {domain.fs:g} Hz {domain.unit}".rstrip()
        counts = (len(domain.subject_names), len(domain.recording_names), sum(m["dropped"].values()), len(m["skipped"]))
        table.add_row(name, str(len(domain)), shape, *map(str, counts))
    console.print(table)
    if simulated := [name for name, domain in domains.items() if domain.simulated]:
        console.print(f"simulated, not recorded: {', '.join(simulated)}", soft_wrap=True)

    if wanted is not None:
        unfit = [seen.domain for seen in all_seen if seen.view.task is not wanted]
        for domain in unfit:
            try:
                wanted.view(domain)
            except ConfigError as error:  # why it does not fit
                if len(unfit) == len(all_seen):
                    raise
                console.print(f"{error}. Its own labels are counted.", soft_wrap=True)
    for heading in dict.fromkeys(seen.view.task.name for seen in all_seen):
        group = [seen for seen in all_seen if seen.view.task.name == heading]
        console.print(f"\nwindows by class ({heading})", style="italic", soft_wrap=True)
        console.print(_class_table(group, console))
        for seen in group:
            if seen.view.missing:
                console.print(f"{seen.domain.name} has no window of {', '.join(seen.view.missing)}", soft_wrap=True)
    for seen in all_seen:
        for reason, n in seen.domain.manifest["dropped"].items():
            console.print(f"{seen.domain.name}: {n} dropped when prepared: {reason}", soft_wrap=True)
        if seen.domain.manifest["notes"]:
            console.print(f"{seen.domain.name}: {seen.domain.manifest['notes']}", soft_wrap=True)
        if subjects:
            counted = ", ".join(f"{who} {n}" for who, n in seen.per_subject.items())
            console.print(f"{seen.domain.name}: windows by subject: {counted}", soft_wrap=True)
    if picture is not None:
        draw(domains, picture, wanted)
        console.print(f"picture: {picture}", soft_wrap=True)


def _class_table(group: list[Seen], console: Console) -> Table:
    """Windows by domain and class; with a row for each class where there are too many for the width."""
    from rich.measure import Measurement
    from rich.table import Table

    classes = list(dict.fromkeys(name for seen in group for name in seen.view.classes))
    rows = [["domain", *classes, "not in task", "per subject"]]
    for seen in group:
        counts = ["-" if (n := seen.view.counts.get(name)) is None else str(n) for name in classes]
        each = sorted(seen.per_subject.values())
        spread = f"{each[0]}..{each[len(each) // 2]}..{each[-1]}"
        rows.append([seen.domain.name, *counts, str(sum(seen.view.dropped.values())), spread])

    def table(cells: list[list[str]]) -> Table:
        made = Table(box=None, header_style="bold", pad_edge=False)
        for column in cells[0]:
            made.add_column(column, justify="left" if column == "domain" else "right")
        for row in cells[1:]:
            made.add_row(*row)
        return made

    wide = table(rows)
    fits = Measurement.get(console, console.options.update(max_width=10_000), wide).maximum <= console.width
    return wide if fits else table([list(column) for column in zip(*rows, strict=True)])


def verify(store: Annotated[Path, typer.Argument(help="A store, or one domain of it.")]) -> None:
    """Recompute the hashes of a store; status 1 when something has changed since it was prepared."""
    from sscf.data.store import verify as check

    problems = check(store)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{store}: intact")
