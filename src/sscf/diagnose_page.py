"""The page of a diagnosis: one HTML file that opens from disk and needs nothing else."""

from __future__ import annotations

import base64
import io
from importlib.resources import files
from typing import Any

import numpy as np

from sscf import __version__
from sscf.diagnose import Diagnosis
from sscf.errors import require
from sscf.model import Model
from sscf.reference import LEVEL

_SOURCE, _NEW, _LINE = "#9aa5b1", "#1f6f8b", "#b5403a"
_MOST_ROWS = 500


def page(diagnosis: Diagnosis, model: Model) -> str:
    """The page as text."""
    jinja2 = require("jinja2", "report")
    rows = sorted(diagnosis.recordings, key=lambda r: -max(r.outside))
    colours = {"comparable": "#2e7d4f", "shifted": "#a87200", "not comparable": "#b5403a"}
    text = files("sscf.report").joinpath("templates", "diagnosis.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(text)
    fitted = model.fitted
    card = [
        f"{model.task}: {', '.join(model.classes)}",
        f"{fitted.settings.method.name}, {fitted.backbone_name}",
        "trained on " + ", ".join(f"{s['name']} ({s['windows']} windows)" for s in model.sources),
    ]
    return template.render(
        d=diagnosis,
        words=diagnosis.words(),
        colour=colours[diagnosis.verdict],
        pictures=pictures(diagnosis, model),
        tested=[finding.name for finding in diagnosis.findings],
        rows=rows[:_MOST_ROWS],
        more=len(rows) > _MOST_ROWS,
        percent=lambda share: f"{100 * share:.1f}",
        level=f"{100 * LEVEL:g}",
        card=card,
        version=__version__,
    )


def pictures(diagnosis: Diagnosis, model: Model) -> list[dict[str, str]]:
    """Captions and SVGs in base64: distances, strata, spectra, and risk where labels are known."""
    require("matplotlib", "report")
    drawn = [_shares(diagnosis, model)]
    if diagnosis.mix is not None:
        drawn.append(_strata(diagnosis))
    drawn.append(_spectra(diagnosis, model))
    if diagnosis.risk is not None:
        drawn.append(_risk(diagnosis))
    return drawn


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _packed(figure: Any, caption: str) -> dict[str, str]:
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "sscf", "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return {"caption": caption, "data": base64.b64encode(stream.getvalue()).decode()}


def _shares(diagnosis: Diagnosis, model: Model) -> dict[str, str]:
    """Share outside of each recording beside that of each held-out subject, for everything tested."""
    assert model.reference is not None
    new = np.array([r.outside for r in diagnosis.recordings])
    held_out = model.reference.shares.numpy()[:, -new.shape[1] :]
    figure = _figure(9, 3)
    axes = figure.subplots()
    rng = np.random.default_rng(0)  # of the jitter alone
    for i in range(new.shape[1]):
        for shift, values, colour in ((-0.17, held_out[:, i], _SOURCE), (0.17, new[:, i], _NEW)):
            x = i + shift + rng.uniform(-0.09, 0.09, len(values))
            axes.plot(x, 100 * values, ".", color=colour, alpha=0.7)
    axes.axhline(100 * LEVEL, color=_LINE, linewidth=0.8)
    axes.set_xticks(range(new.shape[1]), [finding.name for finding in diagnosis.findings])
    axes.set_ylabel("windows outside, %")
    axes.set_ylim(-2, 102)
    return _packed(figure, "Windows outside: each held-out source subject (grey) and each new recording (blue).")


def _strata(diagnosis: Diagnosis) -> dict[str, str]:
    assert diagnosis.mix is not None
    source, new = 100 * diagnosis.mix.source.numpy(), 100 * diagnosis.mix.new.numpy()
    figure = _figure(9, 2.8)
    mix, pvalues = figure.subplots(1, 2)
    place = np.arange(len(source))
    mix.bar(place - 0.2, source, 0.4, color=_SOURCE, label="source")
    mix.bar(place + 0.2, new, 0.4, color=_NEW, label="new")
    mix.set_xticks(place)
    mix.set_xlabel("stratum")
    mix.set_ylabel("windows, %")
    mix.legend(frameon=False)
    pvalues.hist(diagnosis.pvalues, bins=np.linspace(0, 1, 21), color=_NEW, density=True)
    pvalues.axhline(1, color=_LINE, linewidth=0.8)
    pvalues.set_xlabel("p-value of a window")
    pvalues.set_yticks([])
    return _packed(figure, "Left: mix of strata. Right: p-values; comparable windows are spread evenly (red line).")


def _spectra(diagnosis: Diagnosis, model: Model) -> dict[str, str]:
    assert model.reference is not None
    spectra = model.reference.spectra
    hertz = np.arange(spectra.frame // 2 + 1) / spectra.frame * model.recipe.fs
    width = len(model.recipe.names)
    figure = _figure(9, 2.6 * -(-width // 3))
    grid = figure.subplots(-(-width // 3), min(width, 3), squeeze=False, sharex=True).ravel()
    to_db = 10 / np.log(10)
    for c, (axes, name) in enumerate(zip(grid, model.recipe.names, strict=False)):
        mean, std = spectra.mean[c].numpy(), spectra.std[c].numpy()
        axes.fill_between(hertz, to_db * (mean - 2 * std), to_db * (mean + 2 * std), color=_SOURCE, alpha=0.4)
        low, middle, high = np.quantile(diagnosis.log_power[:, c], (0.05, 0.5, 0.95), axis=0) * to_db
        axes.plot(hertz, middle, color=_NEW)
        axes.plot(hertz, low, hertz, high, color=_NEW, linewidth=0.6, linestyle="--")
        axes.set_title(name, fontsize=10, parse_math=False)
        axes.set_xlabel("Hz")
    for axes in grid[width:]:
        axes.set_visible(False)
    grid[0].set_ylabel("power, dB")
    caption = (
        "Spectra as the network gets them: source mean ± 2 standard deviations (grey); new data, median and 5 to 95 % "
        "(blue)."
    )
    return _packed(figure, caption)


def _risk(diagnosis: Diagnosis) -> dict[str, str]:
    assert diagnosis.risk is not None
    coverage, error = diagnosis.risk
    few = max(20, len(error) // 100)  # the first few windows say nothing
    figure = _figure(9, 2.6)
    axes = figure.subplots()
    axes.plot(100 * coverage[few:], 100 * error[few:], color=_NEW)
    axes.set_xlabel("windows kept, most comparable first, %")
    axes.set_ylabel("errors, %")
    axes.set_ylim(bottom=0)
    return _packed(figure, "Risk against coverage, from the labels of the data.")
