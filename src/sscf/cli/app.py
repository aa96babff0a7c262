"""The app and its commands, in the order a newcomer meets them."""

from __future__ import annotations

import importlib

import typer

app = typer.Typer(
    name="sscf",
    help="Time-series classifiers that work on data sets they have never seen.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True)) -> None:
    if version:
        from sscf import __version__

        typer.echo(f"sscf {__version__}")
        raise typer.Exit


for _room in ("experiment", "data", "methods", "report", "model"):
    importlib.import_module(f"sscf.cli.{_room}").register(app)
