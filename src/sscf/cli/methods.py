"""`sscf methods`: what can be trained, from which paper, with which hyper-parameters."""

from __future__ import annotations

from typing import Any

import typer


def register(app: typer.Typer) -> None:
    """Add this module's commands to the app."""
    app.command("methods")(methods)


def methods(
    name: str = typer.Argument("", help="One method, e.g. coral or sscf+coral; all of them if left out."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """List methods and rules: papers, hyper-parameters, defaults and search ranges."""
    import json

    from sscf.rules.methods import METHODS, get_method

    described = [_describe(get_method(one)) for one in ([name] if name else METHODS)]
    if as_json:
        typer.echo(json.dumps(described, indent=1, ensure_ascii=False))
    elif name:
        _print_one(described[0])
    else:
        _print_all(described)


def _describe(method: Any) -> dict[str, Any]:
    """A method as plain values."""
    from sscf.rules import RULES

    rule = RULES[method.rule]
    parameters = {
        key: {
            "default": method.rule_params.get(key, info.default),
            "search": info.json_schema_extra["search"],
            "meaning": info.description,
        }
        for key, info in rule.Params.model_fields.items()
    }
    return {
        "name": method.name,
        "title": method.title or rule.title,
        "calibration": method.strata,
        **({"overrides": dict(method.overrides)} if method.overrides else {}),
        "backbone": method.backbone or "the task's",
        "rule": method.rule,
        "paper": rule.paper,
        "needs_domains": rule.needs_domains,
        "parameters": parameters,
    }


def _print_all(described: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("method", "what", "calibration", "rule", "hyper-parameters", title="Methods", title_justify="left")
    for one in described:
        parameters = ", ".join(f"{key}={_short(value['default'])}" for key, value in one["parameters"].items())
        table.add_row(one["name"], one["title"], one["calibration"], one["rule"], parameters)
    console.print(table)
    console.print(
        "Combine: sscf+RULE, global-anchor+RULE, domain-anchor+RULE; readings: sscf:amplitude|algorithm|equations."
    )
    console.print("Papers, meanings and search ranges of one of them: sscf methods NAME", markup=False)


def _print_one(one: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for key, value in one.items():
        if key != "parameters":
            console.print(f"{key.replace('_', ' '):14} {value}", markup=False, highlight=False)
    if one["parameters"]:
        table = Table("hyper-parameter", "default", "search", "meaning")
        for key, value in one["parameters"].items():
            search = ", ".join(map(_short, value["search"])) or "-"
            table.add_row(key, _short(value["default"]), search, value["meaning"])
        console.print(table)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_short, value)) + ")"
    return str(value)
