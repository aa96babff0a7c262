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
    from sscf.rules.base import search_range

    rule = RULES[method.rule]
    combined = "+" in method.name
    titles = [method.title, rule.title] if combined else [method.title or rule.title]
    papers = [method.paper, rule.paper] if combined else [method.paper or rule.paper]
    parameters = {
        key: {
            "default": method.rule_params.get(key, info.default),
            "search": search_range(info),
            "meaning": info.description,
        }
        for key, info in rule.Params.model_fields.items()
    }
    return {
        "name": method.name,
        "title": " + ".join(titles),
        "paper": "; ".join(papers),
        "calibration": method.strata,
        **({"overrides": dict(method.overrides)} if method.overrides else {}),
        "backbone": method.backbone or "that of the task",
        "rule": method.rule,
        "needs_domains": rule.needs_domains,
        "parameters": parameters,
    }


def _print_all(described: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("method", "what, where from, hyper-parameters = default {search}", show_lines=True)
    for one in described:
        lines = [one["title"], f"[dim]{one['paper']}[/dim]", *map(_line, one["parameters"].items())]
        table.add_row(one["name"], "\n".join(lines))
    console.print(table)
    console.print("Combine a calibration or a backbone with a rule: sscf+coral, global-anchor+irm, sleepeegnet+vrex.")
    console.print("Readings of a calibration: sscf:amplitude, sscf:algorithm, sscf:equations.")
    console.print("More about one of them: sscf methods NAME")


def _print_one(one: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for key, value in one.items():
        if key != "parameters":
            console.print(f"{key.replace('_', ' '):14} {value}", markup=False)
    if one["parameters"]:
        table = Table("hyper-parameter", "default", "search", "meaning")
        for key, value in one["parameters"].items():
            search = ", ".join(map(_short, value["search"])) or "-"
            table.add_row(key, _short(value["default"]), search, value["meaning"])
        console.print(table)


def _line(parameter: tuple[str, dict[str, Any]]) -> str:
    key, value = parameter
    search = " {" + ", ".join(map(_short, value["search"])) + "}" if value["search"] else ""
    return f"{key} = {_short(value['default'])}{search}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_short, value)) + ")"
    return str(value)
