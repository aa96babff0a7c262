"""`sscf fit`, `sscf info`, `sscf predict`, `sscf diagnose`, `sscf export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sscf.data.tasks import TaskView
    from sscf.experiment.fitted import Settings
    from sscf.predict import Reading

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file of 'sscf fit'.")]
Fs = Annotated[float | None, typer.Option(help="Rate of .csv and .npy files, Hz.")]
Time = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of .csv files with seconds, instead of --fs.")]
Unit = Annotated[str | None, typer.Option(help="Unit of .csv and .npy files. [default: the model's]")]
Spelling = Annotated[
    list[str] | None,
    typer.Option(
        "--channel", metavar="NAME=LABEL", help="Label of one of the model's channels in the files. May be repeated."
    ),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the app."""
    app.command("fit")(fit)
    app.command("info")(info)
    app.command("predict")(predict)
    app.command("diagnose")(diagnose)
    app.command("export")(export)


def fit(
    store: Annotated[Path, typer.Argument(help="Store of prepared domains; all are trained on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write.")] = Path("model.sscf"),
    task: Annotated[str | None, typer.Option(help="Task (name or .toml). [default: the one the domains name]")] = None,
    data: Annotated[list[str] | None, typer.Option("--data", help="A domain to train on; may be repeated.")] = None,
    method: Annotated[str, typer.Option(help="What to train; 'sscf methods' lists it.")] = "sscf",
    spec: Annotated[
        Path | None, typer.Option(help="Experiment (TOML) to take training and calibration settings from.")
    ] = None,
    k: Annotated[str | None, typer.Option(help="Number of strata, or auto.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Most passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=2, help="Windows (or sequences) per batch.")] = None,
    normalisation: Annotated[str | None, typer.Option(help="none, center, window, recording or source.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Network. [default: the task's]")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Option of the network, such as width=16."),
    ] = None,
    max_windows: Annotated[int | None, typer.Option(min=1, help="Most windows of a domain, drawn evenly.")] = None,
    seed: Annotated[int, typer.Option(help="Of split, weights and batches.")] = 0,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, ...")] = None,
) -> None:
    """Train on all domains of a store and write one model file."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sscf.model import fit_model

    changes = {"epochs": epochs, "batch_size": batch_size, "device": device}
    settings, task, max_windows = _settings(
        spec, method, k, changes, normalisation, backbone, _pairs(option, "--option"), task, max_windows
    )
    views = _views(store, task, data, max_windows)
    torch.set_num_threads(settings.train.threads)
    console = Console(highlight=False)
    shown: dict[str, Any] = {}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:

        def tell(state: dict[str, Any]) -> None:
            note = f"epoch {state['epoch']}  loss {state['loss']:.3f}  validation {state['validation']:.3f}"
            if state["epoch"] == 1 or not shown:
                shown["at"] = bar.add_task(state["stage"], total=state["epochs"], note=note)
            bar.update(shown["at"], completed=state["epoch"], note=note)

        model = fit_model(views, settings, seed, progress=tell)
    model.save(out)
    for line in card(model):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"model: {out} ({out.stat().st_size / 1e6:.2f} MB)", markup=False, soft_wrap=True)


def _settings(
    spec: Path | None,
    method: str,
    k: str | None,
    changes: dict[str, Any],
    normalisation: str | None,
    backbone: str | None,
    options: dict[str, str],
    task: str | None,
    max_windows: int | None,
) -> tuple[Settings, str | None, int | None]:
    """Settings of the spec, changed by the options; and the task and cap, from the options or the spec."""
    from sscf.experiment.config import Experiment, SSCFConfig, TrainConfig, check, merged
    from sscf.experiment.fitted import Settings
    from sscf.rules.methods import get_method

    base = Experiment.load(spec) if spec else None
    train = merged(
        base.train if base else TrainConfig(), {n: v for n, v in changes.items() if v is not None}, "command line"
    )
    calibration = base.sscf if base else SSCFConfig()
    if k is not None:
        calibration = merged(calibration, {"k": int(k) if k.isdecimal() else k}, "command line")
    params = dict(base.backbone_params if base else {})
    params |= {name: _number(value) for name, value in options.items()}
    kind = normalisation or (base.normalisation if base else "center")
    check(Experiment, {"task": "", "methods": ["erm"], "normalisation": kind}, "command line")
    selection = base.selection if base and base.selection != "oracle" else "source-val"
    if train.validation == 0:
        selection = "last"
    settings = Settings(
        get_method(method), train, calibration, kind, selection, backbone or (base.backbone if base else None), params
    )
    return settings, task or (base.task if base else None), max_windows or (base.max_windows if base else None)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _views(store: Path, task: str | None, data: list[str] | None, max_windows: int | None) -> list[TaskView]:
    from sscf.data.store import open_store
    from sscf.errors import ConfigError
    from sscf.experiment.plan import open_views

    domains = open_store(store)
    for name in data or []:
        if name not in domains:
            raise ConfigError(f"no domain '{name}' in {store}; there are: {', '.join(domains)}")
    names = data or list(domains)
    if task is None:
        named = {domains[name].manifest.get("task", "") for name in names}
        if len(named) != 1 or not (task := named.pop()):
            raise ConfigError(f"{store}: its domains do not name one task: give --task")
    return list(open_views(store, task, names, max_windows).values())


def _pairs(values: list[str] | None, option: str) -> dict[str, str]:
    from sscf.errors import ConfigError

    pairs = [value.partition("=") for value in values or []]
    for (name, equals, text), value in zip(pairs, values or [], strict=True):
        if not (name and equals and text):
            raise ConfigError(f"{option} {value}: expected NAME=VALUE")
    return {name.strip(): text.strip() for name, _, text in pairs}


def card(model: Any) -> list[str]:
    """The lines of a model card."""
    fitted, recipe, reference = model.fitted, model.recipe, model.reference
    s = fitted.settings
    parameters = sum(p.numel() for p in fitted.model.parameters())
    hop = "" if recipe.hop == recipe.samples else f", every {recipe.hop_s:g} s"
    low, high = recipe.band or (None, None)
    edges = [f"from {low:g} Hz" if low else "", f"up to {high:g} Hz" if high else ""]
    band = " ".join(edge for edge in edges if edge) or "not filtered"
    lines = [
        f"task            {model.task}: {', '.join(model.classes)}",
        f"method          {s.method.name} ({fitted.backbone_name}, {parameters} parameters)",
    ]
    if (calibration := fitted.calibration) is not None:
        counts = ", ".join(map(str, calibration.anchors.counts.tolist()))
        lines += [
            f"calibration     K = {calibration.k}, reading {calibration.reading}, frame {calibration.frame}, hop "
            f"{calibration.hop}, at tap {fitted.tap}; source windows by stratum: {counts}"
        ]
    lines += [
        f"windows         {recipe.window_s:g} s{hop}: {len(recipe.channels)} x {recipe.samples} at {recipe.fs:g} Hz"
        + (f", sequences of {fitted.sequence}" if fitted.sequence > 1 else ""),
        f"signal          in {recipe.unit or 'no unit'}, {band}, normalisation {s.normalisation}",
    ]
    for channel in recipe.channels:
        others = [spelling for spelling in channel.spellings if spelling != channel.name]
        lines.append(f"channel         {channel.name}" + (f" (also {', '.join(others)})" if others else ""))
    for source in model.sources:
        score = "" if source["validation"] is None else f", held-out macro-F1 {100 * source['validation']:.1f}"
        simulated = ", simulated, not recorded" if source["simulated"] else ""
        lines.append(
            f"trained on      {source['name']}: {source['windows']} windows of {source['subjects']} subjects{score}"
            f"{simulated} [{source['fingerprint']}]"
        )
    lines.append(f"training        epoch {fitted.validation['epoch']} of {len(fitted.history['loss'])} kept")
    if reference is not None:
        held = f"{len(reference.shares)} subjects" if len(reference.shares) else "windows"
        lines.append(f"comparability   measured against {held} held out of training")
    else:
        lines.append("comparability   not known: nothing was held out of training")
    lines.append("made with       " + ", ".join(f"{name} {version}" for name, version in model.versions.items()))
    return lines


def info(model: ModelFile) -> None:
    """Print the card of a model: what it tells apart, what it takes, what it was trained on."""
    from sscf.model import Model

    for line in card(Model.load(model)):
        typer.echo(line)


def predict(
    model: ModelFile,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="EDF, WFDB (.hea), CSV or NumPy files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("predictions"),
    abstain: Annotated[
        float | None, typer.Option(metavar="P", help="Leave windows with a comparability of at most P unlabelled.")
    ] = None,
    fs: Fs = None,
    time: Time = None,
    unit: Unit = None,
    channel: Spelling = None,
    picture: Annotated[
        bool | None, typer.Option("--picture/--no-picture", help="Draw a picture. [default: for sleep]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Windows at a time; changes no result.")] = None,
) -> None:
    """Predict recordings: a CSV file each, for sleep also a hypnogram (EDF+) and a picture."""
    from rich.console import Console
    from rich.markup import escape

    from sscf.model import Model
    from sscf.predict import is_hypnogram, output_names, predict_file, write_csv, write_hypnogram, write_picture

    console = Console(highlight=False)
    loaded, reading = Model.load(model), _reading(fs, time, unit, channel)
    for file, name in zip(files, output_names(files, out), strict=True):
        with console.status(escape(str(file)), spinner="line"):
            done = predict_file(loaded, file, reading, abstain=abstain, batch_size=batch_size)
            write_csv(done, out / f"{name}.csv")
            if is_hypnogram(done):
                write_hypnogram(done, out / f"{name}.hypnogram.edf")
            if picture or (picture is None and is_hypnogram(done)):
                write_picture(done, out / f"{name}.png")
        counts = [f"{c} {int((done.labels == i).sum())}" for i, c in enumerate(done.classes)]
        if done.abstained:
            counts.append(f"unlabelled {done.abstained}")
        console.print(
            f"{out / name}.csv: {len(done.labels)} windows: {', '.join(counts)}", markup=False, soft_wrap=True
        )


def _reading(fs: float | None, time: str | None, unit: str | None, channel: list[str] | None) -> Reading:
    from sscf.predict import Reading

    return Reading(fs, time, unit, _pairs(channel, "--channel"))


def diagnose(
    model: ModelFile,
    data: Annotated[
        list[Path], typer.Argument(metavar="DATA...", help="A prepared domain, or recordings as for predict.")
    ],
    page: Annotated[Path | None, typer.Option(help="HTML page with pictures to write.")] = None,
    json: Annotated[Path | None, typer.Option(help="JSON file with the numbers to write.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Status 3 also for a shift.")] = False,
    fs: Fs = None,
    time: Time = None,
    unit: Unit = None,
    channel: Spelling = None,
) -> None:
    """Is this data comparable to what the model was trained on? Status 0 if it is, 3 if it is not."""
    from rich.console import Console

    from sscf.diagnose import diagnose as examine
    from sscf.files import write_json, write_text
    from sscf.model import Model

    console = Console(highlight=False)
    loaded = Model.load(model)
    with console.status("reading", spinner="line"):
        found = examine(loaded, _data(data, loaded, _reading(fs, time, unit, channel)))
    for line in found.words():
        console.print(line, markup=False, soft_wrap=True)
    worst = sorted(found.recordings, key=lambda r: -max(r.outside))
    for r in worst[:10] if len(worst) > 1 else []:
        parts = [f"{f.name} {100 * share:.0f} %" for f, share in zip(found.findings, r.outside, strict=True)]
        console.print(f"  {r.name}: outside {', '.join(parts)}", markup=False, soft_wrap=True)
    if json is not None:
        write_json(json, found.to_json())
    if page is not None:
        from sscf.diagnose_page import page as render

        write_text(page, render(found, loaded))
        console.print(f"page: {page}", markup=False, soft_wrap=True)
    raise typer.Exit(0 if found.verdict == "comparable" or (found.comparable and not strict) else 3)


def _data(paths: list[Path], model: Any, reading: Reading) -> list[Any]:
    from sscf.data.store import MANIFEST, Domain, open_store
    from sscf.errors import ConfigError

    out: list[Any] = []
    for path in paths:
        if not path.is_dir():
            out.append(reading.open(path, model.recipe))
        elif (path / MANIFEST).is_file():
            out.append(Domain.open(path))
        else:
            names = list(open_store(path))
            if len(names) > 1:
                raise ConfigError(f"{path} is a store of {', '.join(names)}: give one of them, {path / names[0]}")
            out.append(Domain.open(path / names[0]))
    return out


def export(
    model: ModelFile,
    onnx: Annotated[Path | None, typer.Option(help="ONNX file to write.")] = None,
    torch: Annotated[Path | None, typer.Option(help="Program of torch.export (.pt2) to write.")] = None,
    windows: Annotated[int, typer.Option(min=6, help="Random and extreme windows to compare on.")] = 240,
) -> None:
    """Write the model for other runtimes and compare it with the original. Preprocessing is not in the graph."""
    from sscf.errors import ConfigError
    from sscf.export import export_onnx, export_torch
    from sscf.model import Model

    if onnx is None and torch is None:
        raise ConfigError("nothing to do: give --onnx FILE or --torch FILE")
    loaded = Model.load(model)
    for path, write in ((onnx, export_onnx), (torch, export_torch)):
        if path is not None:
            found = write(loaded, path, windows=windows)
            typer.echo(
                f"{path} ({path.stat().st_size / 1e6:.2f} MB): on {found.windows} random and extreme windows the "
                f"largest difference of a probability is {found.error:.1e}, all classes"
                + (" and strata" if loaded.fitted.calibration is not None else "")
                + " are the same"
            )
