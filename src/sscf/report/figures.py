"""Figures of a report, as SVG text: vector, colour-blind safe, legible in black and white, the same bytes every time.

A figure is planned first (`plan_figures`, cheap, from records alone) and drawn later (`draw`), in several processes if
there are many. Colours come from Okabe and Ito; what a colour says, a marker, a line style or a text says too.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from sscf.errors import require
from sscf.report.panels import Panel, Row
from sscf.report.paper import family
from sscf.report.records import Record, read_array
from sscf.report.statistics import Comparison, Ranking
from sscf.report.tables import rank_row, ranks_of
from sscf.report.text import percent, plain, slug

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8C6D1F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1)),
    (0, (8, 3)),
    (0, (2, 4)),
    "-.",
)
INK, FAINT = "#1b1c1d", "#b9babb"  # the page replaces these two by its own, so that figures follow light and dark
_POINTS = 400  # of an embedding: enough to see, small enough to ship
_LOG_FLOOR = 1e-12

KINDS = {
    "scores": "Scores by method and target",
    "differences": "Differences and their intervals",
    "ranking": "Average ranks and critical difference",
    "granularity": "Granularity K",
    "rank": "Anchor rank R",
    "strata": "Strata and their anchors",
    "calibration": "Before and after calibration",
    "distance": "Distance between domains",
    "embedding": "Embedding of windows",
    "confusion": "Confusion matrices",
    "training": "Training curves",
    "hypnogram": "Hypnogram",
}


@dataclass(frozen=True)
class Figure:
    """A figure to be drawn. `facets` are what a reader may switch by, e.g. {"Method": "SSCF", "Target": "WISDM"}."""

    id: str
    kind: str
    facets: dict[str, str]
    alt: str
    payload: dict[str, Any] = field(default_factory=dict)
    run: str | None = None  # whose arrays it shows


# --- planning --------------------------------------------------------------------------------------------------------


def panel_figures(panel: Panel, comparisons: Sequence[Comparison], ranking: Ranking) -> Iterator[Figure]:
    """Figures about a whole panel."""
    data = {"Data": panel.title}
    rows: list[dict[str, Any]] = [
        {
            "label": row.label,
            "targets": [row.cell("macro_f1", column, 1).mean for column in panel.columns],
            "average": row.average("macro_f1", panel.columns, 1).mean,
        }
        for row in panel.main
    ]
    if any(mean is not None for row in rows for mean in row["targets"]):
        payload = {"rows": rows, "targets": list(panel.columns)}
        yield Figure(f"scores--{panel.id}", "scores", data, f"Macro-F1 by method and target, {panel.title}", payload)
    if comparisons:
        lines = [(c.other.replace(" (not zero-shot)", "†"), c.difference, c.interval, c.verdict) for c in comparisons]
        payload = {"reference": comparisons[0].reference, "lines": lines}
        alt = f"Difference of {comparisons[0].reference} to the other methods with 95 % intervals, {panel.title}"
        yield Figure(f"differences--{panel.id}", "differences", data, alt, payload)
    if ranking.critical is not None:
        payload = {"labels": ranking.labels, "ranks": ranking.ranks, "critical": ranking.critical}
        alt = f"Average ranks of methods and Nemenyi critical difference, {panel.title}"
        yield Figure(f"ranking--{panel.id}", "ranking", data, alt, payload)
    for sweep in panel.sweeps:
        title = sweep[0].family
        payload = _curves(panel, sweep) | {"x": [row.k for row in sweep], "label": "number of strata K"}
        payload["validation"] = [row.validation(panel.columns) for row in sweep]
        name = f"granularity--{panel.id}--{slug(title)}"
        yield Figure(name, "granularity", data | {"Method": title}, f"Macro-F1 of {title} against K", payload)
    for row in panel.by_interest:
        if ranks_of(row):
            yield _rank_figure(panel, row)


def _rank_figure(panel: Panel, row: Row, rank: int | None = None) -> Figure:
    """Scores at all ranks, or at one rank against the nearest anchor."""
    name = f"rank--{panel.id}--{slug(row.label)}"
    facets = {"Data": panel.title, "Method": row.family, "K": _k_text(row.runs.values()), "R": str(rank or "all")}
    if rank is None:
        ranks = ranks_of(row)
        payload = _curves(panel, [rank_row(row, r) for r in ranks])
        payload |= {"x": ranks, "label": "anchor rank R (1 is the nearest)", "validation": []}
        return Figure(name, "rank", facets, f"Macro-F1 of {row.label} against anchor rank R", payload)
    near, far = rank_row(row, 1), rank_row(row, rank)
    payload = {"rank": rank, "targets": list(panel.columns)}
    payload["nearest"] = [near.cell("macro_f1", column, 1).mean for column in panel.columns]
    payload["other"] = [far.cell("macro_f1", column, 1).mean for column in panel.columns]
    alt = f"Macro-F1 of {row.label} by target at anchor rank {rank}, against the nearest anchor"
    return Figure(f"{name}--r{rank}", "rank", facets, alt, payload)


def _k_text(runs: Iterable[Record]) -> str:
    ks = sorted({run.k for run in runs if run.k is not None})
    return "/".join(map(str, ks)) or "–"


def _curves(panel: Panel, rows: Sequence[Row]) -> dict[str, Any]:
    def points(cells: list[Any]) -> list[tuple[float | None, float | None]]:
        return [(cell.mean, cell.std) for cell in cells]

    seeds = len(panel.seeds)
    curves = {c: points([row.cell("macro_f1", c, seeds) for row in rows]) for c in panel.columns}
    average = points([row.average("macro_f1", panel.columns, seeds) for row in rows]) if len(panel.columns) > 1 else []
    return {"curves": curves, "average": average}


def run_figures(panel: Panel, runs_path: Path) -> Iterator[Figure]:
    """Figures about the runs of one method on one target: arrays of the lowest seed, scores of all seeds.

    They come target by target with the reference method first, so that a limit on their number leaves out the least.
    """
    domains = sorted({*panel.targets.values(), *(name for r in panel.records for name in r.spec.sources)})
    for row in panel.by_interest:
        yield from (_rank_figure(panel, row, rank) for rank in ranks_of(row)[1:])
        for column in panel.columns:
            runs = [run for (name, _), run in sorted(row.runs.items()) if name == column and run.done]
            if not runs:
                continue
            left = [run for run in runs if (runs_path / "arrays" / run.id).is_dir()]
            first = (left or runs)[0]
            facets = {"Data": panel.title, "Method": row.family, "Target": column}
            if first.k is not None:
                facets["K"] = _k_text(runs)
            base = {
                "domains": domains,
                "target": panel.targets[column],
                "classes": [plain(name) for name in first.classes],
                "psd_domains": list(first.psd_domains),
                "embedding_domains": list(first.embedding_domains),
            }
            suffix = f"{panel.id}--{slug(row.label)}--{slug(column)}"
            what = f"{row.label}, target {column}"

            def figure(kind: str, alt: str, run: str | None = None, **more: Any) -> Figure:
                return Figure(f"{kind}--{suffix}", kind, facets, f"{alt}: {what}", base | more, run)  # noqa: B023

            if left and first.strata is not None:
                yield figure("strata", "Spectra, anchors and contents of the strata", first.id, **_strata(first))
                yield figure("calibration", "Spectra and windows before and after calibration", first.id)
                yield figure("distance", "Distance between domains before and after calibration", first.id)
            if left:
                yield figure("embedding", "Windows by domain, class and stratum", first.id)
            confusion = [run.scores.confusion for run in runs if run.scores and run.scores.confusion]
            if confusion and len({np.shape(matrix) for matrix in confusion}) == 1:
                total = np.sum(confusion, axis=0).tolist()
                yield figure("confusion", "Confusion matrix", matrix=total, seeds=len(confusion))
            histories = [(run.spec.seed, run.history) for run in runs if run.history]
            if histories:
                yield figure("training", "Loss and source-validation score by epoch", histories=histories)
            if left and family(panel.task) == "sleep":
                yield figure("hypnogram", "Predicted and true sleep stages", first.id)


def _strata(run: Record) -> dict[str, Any]:
    assert run.strata is not None
    return {"counts": run.strata.counts, "by_domain": run.strata.by_domain, "by_class": run.strata.by_class}


# --- drawing ---------------------------------------------------------------------------------------------------------


def draw(figure: Figure, runs: Path) -> str | None:
    """The figure's SVG, or None when the run left no arrays for it."""
    matplotlib = require("matplotlib", "report")
    style = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "lines.linewidth": 1.6,
        "lines.markersize": 5,
        "svg.fonttype": "none",  # text stays text: small, searchable, read by screen readers
        "svg.hashsalt": "sscf",
        "text.parse_math": False,  # a "$" in a name is a "$"
    }
    with matplotlib.rc_context(style):
        drawn = _DRAW[figure.kind](figure.payload, lambda name: read_array(runs, figure.run or "", name))
        if drawn is None:
            return None
        stream = io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts count
            drawn.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Title": figure.alt})
    return stream.getvalue()


def draw_all(figures: Sequence[Figure], runs: Path, jobs: int = 1) -> list[str | None]:
    """Draw figures in order, in `jobs` processes where that pays for starting them."""
    if jobs < 2 or len(figures) < 24:
        return [draw(figure, runs) for figure in figures]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return list(pool.map(draw, figures, [runs] * len(figures), chunksize=4))


def _figure(
    width: float,
    height: float,
    left: float = 0.6,
    right: float = 0.15,
    top: float = 0.15,
    bottom: float = 0.5,
    **gaps: float,
) -> Any:
    """A canvas with margins in inches. They are computed, not measured: fast, and the same with every font."""
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(width, height))
    sides = {"left": left / width, "right": 1 - right / width, "bottom": bottom / height, "top": 1 - top / height}
    figure.subplots_adjust(**sides, **gaps)
    return figure


def _room(labels: Iterable[str], size: float = 9) -> float:
    """Inches that the longest of some labels takes, with a little air."""
    return 0.2 + max((len(label) for label in labels), default=0) * size * 0.0086


def _look(index: int) -> dict[str, Any]:
    """Colour, marker and dash of the n-th of some things; past the eighth the three are combined anew."""
    turn, i = divmod(index, len(COLOURS))
    return {"color": COLOURS[i], "marker": MARKERS[(i + turn) % 8], "linestyle": DASHES[(i + 2 * turn) % 8]}


def _short(name: str, length: int = 26) -> str:
    name = plain(name)
    name = f" {name}" if name.startswith("_") else name  # matplotlib would leave it out of a legend
    return name if len(name) <= length else name[: length - 1] + "…"


def _grid(axes: Any, axis: str = "y") -> None:
    axes.grid(axis=axis, color=FAINT, linewidth=0.5, alpha=0.6)
    axes.set_axisbelow(True)


def _legend(axes: Any) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, handlelength=2.6)


def _legend_room(labels: Iterable[str]) -> float:
    return 0.5 + _room(labels, 8)


def _scores(payload: dict[str, Any], _: Callable) -> Any:
    rows, targets = payload["rows"], payload["targets"]
    names = [_short(row["label"], 40) for row in rows]
    right = _legend_room([*map(_short, targets), "average"])
    figure = _figure(7.4, max(0.75 + 0.3 * len(rows), 0.5 + 0.19 * len(targets)), _room(names), right)
    axes = figure.subplots()
    for i, target in enumerate(targets):
        points = [(100 * row["targets"][i], y) for y, row in enumerate(rows) if row["targets"][i] is not None]
        look = _look(i) | {"linestyle": "none"}
        if points:
            axes.plot(*zip(*points, strict=True), label=_short(target), markerfacecolor="none", markersize=6, **look)
    averages = [(100 * row["average"], y) for y, row in enumerate(rows) if row["average"] is not None]
    if averages and len(targets) > 1:
        look = {"marker": "|", "markersize": 15, "markeredgewidth": 2.6, "linestyle": "none", "color": INK}
        axes.plot(*zip(*averages, strict=True), label="average", **look)
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("macro-F1 (%)")
    _grid(axes, "both")
    _legend(axes)
    return figure


def _differences(payload: dict[str, Any], _: Callable) -> Any:
    lines = payload["lines"]
    names = [_short(label, 46) for label, *_rest in lines]
    figure = _figure(7.4, 0.75 + 0.32 * len(lines), _room(names))
    axes = figure.subplots()
    axes.axvline(0, color=INK, linewidth=0.8)
    for y, (_label, difference, interval, verdict) in enumerate(lines):
        colour = {"ahead": COLOURS[0], "behind": COLOURS[1]}.get(verdict, COLOURS[6])
        fill = colour if verdict != "not told apart" else "none"
        if interval:
            axes.plot([100 * v for v in interval], [y, y], color=colour, linewidth=2)
        axes.plot([100 * difference], [y], marker="o", color=colour, markerfacecolor=fill, markersize=7)
    axes.set_yticks(range(len(lines)), names)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel(f"macro-F1 of {_short(payload['reference'], 40)} minus the other's (points, 95 % interval)")
    _grid(axes, "x")
    return figure


def _ranking(payload: dict[str, Any], _: Callable) -> Any:
    """Critical-difference diagram: ranks on a line, bars join what the test does not tell apart."""
    labels, ranks, critical = payload["labels"], np.array(payload["ranks"]), payload["critical"]
    order = np.argsort(ranks, kind="stable")
    k = len(ranks)
    bars = _cliques(ranks[order], critical)
    half = (k + 1) // 2
    height = 0.9 + 0.24 * (len(bars) + half)
    left, right = (_room(f"{_short(labels[i], 30)}  0.00" for i in part) for part in (order[:half], order[half:]))
    figure = _figure(7.4, height, left, right, 0.05, 0.05)
    axes = figure.subplots()
    axes.set_xlim(0.8, k + 0.2)
    axes.set_ylim(-(len(bars) + half) - 1.2, 2.1)
    axes.axis("off")
    axes.plot([1, k], [0, 0], color=INK, linewidth=1.2)
    for tick in range(1, k + 1):
        axes.plot([tick, tick], [0, 0.25], color=INK, linewidth=1)
        axes.text(tick, 0.4, str(tick), ha="center", va="bottom")
    axes.plot([1, min(1 + critical, k + 0.3)], [1.65, 1.65], color=COLOURS[1], linewidth=3, solid_capstyle="butt")
    shown = f"critical difference {critical:.2f}" + ("" if 1 + critical <= k + 0.3 else " (longer than the axis)")
    axes.text(1, 1.8, shown, color=COLOURS[1], ha="left", va="bottom", fontsize=8)
    for i, (low, high) in enumerate(bars):
        y = -0.55 - i
        axes.plot([low - 0.04, high + 0.04], [y, y], color=INK, linewidth=4, solid_capstyle="butt", alpha=0.75)
    for place, index in enumerate(order):
        leftward = place < half
        level = place if leftward else k - 1 - place
        y = -(len(bars) + 0.8 + level)
        edge = 0.85 if leftward else k + 0.15
        axes.plot([ranks[index], ranks[index], edge], [0, y, y], color=INK, linewidth=0.8)
        text = (
            f"{_short(labels[index], 30)}  {ranks[index]:.2f}"
            if leftward
            else f"{ranks[index]:.2f}  {_short(labels[index], 30)}"
        )
        axes.text(
            edge - 0.06 if leftward else edge + 0.06,
            y,
            text,
            ha="right" if leftward else "left",
            va="center",
            fontsize=8,
        )
    return figure


def _cliques(ranks: np.ndarray, critical: float) -> list[tuple[float, float]]:
    """Longest runs of sorted ranks that span less than the critical difference."""
    spans: list[tuple[int, int]] = []
    for i in range(len(ranks)):
        j = int(np.searchsorted(ranks, ranks[i] + critical, side="right")) - 1
        if j > i and not any(start <= i and j <= stop for start, stop in spans):
            spans.append((i, j))
    return [(float(ranks[i]), float(ranks[j])) for i, j in spans]


def _curve_figure(payload: dict[str, Any], _: Callable) -> Any:
    if "rank" in payload:
        return _at_rank(payload)
    figure = _figure(7.4, 3.3, 0.6, _legend_room([*map(_short, payload["curves"]), "source validation"]))
    axes = figure.subplots()
    x = np.array(payload["x"], dtype=float)

    def line(points: Sequence[tuple[float | None, float | None]], **look: Any) -> None:
        mean = np.array([np.nan if m is None else 100 * m for m, _ in points])
        std = np.array([0.0 if s is None else 100 * s for _, s in points])
        axes.fill_between(x, mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(x, mean, **look)

    for i, (name, points) in enumerate(payload["curves"].items()):
        line(points, label=_short(name), **_look(i))
    if payload["average"]:
        line(payload["average"], label="average", color=INK, linewidth=2.6)
    if payload["validation"] and all(value is not None for value in payload["validation"]):
        values = [100 * value for value in payload["validation"]]
        axes.plot(x, values, color=FAINT, linestyle=":", marker=".", label="source validation")
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.set_xlabel(payload["label"])
    axes.set_ylabel("macro-F1 (%)")
    _grid(axes)
    _legend(axes)
    return figure


def _at_rank(payload: dict[str, Any]) -> Any:
    targets = payload["targets"]
    names = [_short(name) for name in targets]
    figure = _figure(7.4, 0.75 + 0.34 * len(targets), _room(names), _legend_room(["R = 10"]))
    axes = figure.subplots()
    for y, (near, far) in enumerate(zip(payload["nearest"], payload["other"], strict=True)):
        if near is not None and far is not None:
            axes.plot([100 * near, 100 * far], [y, y], color=FAINT, linewidth=2, zorder=1)
    for i, (key, label) in enumerate((("nearest", "R = 1"), ("other", f"R = {payload['rank']}"))):
        points = [(100 * v, y) for y, v in enumerate(payload[key]) if v is not None]
        if points:
            axes.plot(*zip(*points, strict=True), **_look(i) | {"linestyle": "none"}, markersize=7, label=label)
    axes.set_yticks(range(len(targets)), names)
    axes.set_ylim(len(targets) - 0.5, -0.5)
    axes.set_xlabel("macro-F1 (%)")
    _grid(axes, "x")
    _legend(axes)
    return figure


def _strata_figure(payload: dict[str, Any], load: Callable[[str], np.ndarray | None]) -> Any:
    quantiles, frequencies, anchors = load("stratum_psd"), load("frequencies"), load("anchors")
    if quantiles is None or frequencies is None:
        return None
    k = len(quantiles)
    columns = min(k, 4)
    rows = -(-k // columns)
    counts = payload["counts"]
    shares = [(name, payload[key]) for key, name in (("by_domain", "domain"), ("by_class", "class")) if payload[key]]
    spectra = 1.55 * rows + 0.65
    bars = [0.5 + 0.24 * len(table) for _, table in shares]
    figure = _figure(7.4, spectra + sum(bars) + 0.15, 0.7, 0.1, 0.25, sum(bars) + 0.65, hspace=0.32, wspace=0.12)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for i, axes in enumerate(grid.flat):
        if i >= k:
            axes.axis("off")
            continue
        colour = COLOURS[i % len(COLOURS)]
        low, lower, median, upper, high = quantiles[i]
        axes.fill_between(frequencies, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.fill_between(frequencies, lower, upper, color=colour, alpha=0.32, linewidth=0)
        axes.plot(frequencies, median, color=colour, label="median")
        if anchors is not None:
            mean = anchors[i].mean(axis=0)
            axes.plot(
                frequencies,
                mean / max(mean.sum(), _LOG_FLOOR),
                color=INK,
                linestyle="--",
                linewidth=1.1,
                label="anchor",
            )
        total = sum(counts) or 1
        axes.set_title(f"stratum {i + 1}: {100 * counts[i] / total:.0f} %" if i < len(counts) else f"stratum {i + 1}")
        if i == 0:
            axes.legend(handlelength=1.6)
    width, height = figure.get_size_inches()
    note = "frequency at the tap (cycles per sample); bands hold 50 % and 90 % of windows"
    figure.text(0.5, (sum(bars) + 0.22) / height, note, ha="center", fontsize=8)
    grid[0][0].set_ylabel("share of power")
    edge = _room([_short(label, 20) for _, table in shares for label in table]) / width
    bottom = sum(bars)
    for (name, table), tall in zip(shares, bars, strict=True):
        bottom -= tall
        _shares(figure.add_axes((edge, (bottom + 0.22) / height, 0.96 - edge, (tall - 0.45) / height)), name, table, k)
    return figure


def _shares(axes: Any, name: str, table: dict[str, list[int]], k: int) -> None:
    """How the windows of each domain or class spread over the strata: stacked bars that bear the strata's numbers."""
    labels = list(table)
    values = np.array([table[label] for label in labels], dtype=float).reshape(len(labels), -1)
    values = values / np.maximum(values.sum(axis=1, keepdims=True), 1)
    left = np.zeros(len(labels))
    for i in range(min(k, values.shape[1])):
        colour = COLOURS[i % len(COLOURS)]
        axes.barh(
            range(len(labels)), values[:, i], left=left, color=colour, edgecolor="white", linewidth=1, height=0.72
        )
        for y, (start, share) in enumerate(zip(left, values[:, i], strict=True)):
            if share > 0.04:
                text = {"color": "white", "fontsize": 7, "ha": "center", "va": "center", "fontweight": "bold"}
                axes.text(start + share / 2, y, str(i + 1), **text)
        left += values[:, i]
    axes.set_yticks(range(len(labels)), [_short(label, 20) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "50", "100 %"])
    axes.set_title(f"strata of each {name}", loc="left", pad=3)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _calibration(payload: dict[str, Any], load: Callable[[str], np.ndarray | None]) -> Any:
    before, after, frequencies = load("domain_psd_before"), load("domain_psd_after"), load("frequencies")
    if before is None or after is None or frequencies is None:
        return None
    waves = [load(name) for name in ("example_before", "example_after", "example_domain", "example_class")]
    chosen = [] if any(wave is None for wave in waves) else _one_per_domain(np.asarray(waves[2]), 4)
    examples = len(chosen)
    names, known = payload["psd_domains"], payload["domains"]
    right = _legend_room([f"{_short(name, 18)} (target)" for name in names])
    low = 0.35 + 1.0 * examples  # inches of the example windows below the spectra
    figure = _figure(7.4, low + 2.6, 0.6, right, 0.25, low + 0.4, wspace=0.22)
    top = figure.subplots(1, 2)
    for axes, spectra, title in zip(top, (before, after), ("before calibration", "after calibration"), strict=True):
        for i, spectrum in enumerate(spectra):
            name = names[i] if i < len(names) else f"domain {i + 1}"
            look = _look(known.index(name) if name in known else i)
            label = _short(name, 18) + (" (target)" if name == payload["target"] else "")
            width = 2.6 if name == payload["target"] else 1.4
            axes.plot(
                frequencies,
                np.maximum(spectrum, _LOG_FLOOR),
                label=label,
                **look | {"linewidth": width, "markersize": 4},
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_title(title)
        axes.set_xlabel("frequency (cycles per sample)", fontsize=8)
        _grid(axes)
    limits = [axes.get_ylim() for axes in top]
    for axes in top:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    top[0].set_ylabel("mean power")
    _legend(top[1])
    width, height = figure.get_size_inches()
    sides = {"left": 0.6 / width, "right": 1 - right / width, "bottom": 0.4 / height, "top": (low - 0.3) / height}
    grid = figure.add_gridspec(max(examples, 1), 2, **sides, hspace=0.7, wspace=0.22)
    pair: list[Any] = []
    for place, e in enumerate(chosen):
        pair = [figure.add_subplot(grid[place, side]) for side in (0, 1)]
        example_before, example_after, domains, categories = (np.asarray(wave) for wave in waves)
        domain, category = int(domains[e]), int(categories[e])
        name = names[domain] if 0 <= domain < len(names) else "window"
        colour = COLOURS[(known.index(name) if name in known else e) % len(COLOURS)]
        label = f", {payload['classes'][category]}" if 0 <= category < len(payload["classes"]) else ""
        for axes, wave in zip(pair, (example_before[e], example_after[e]), strict=True):
            axes.plot(wave, color=colour, linewidth=1)
            axes.axhline(0, color=FAINT, linewidth=0.5)
            axes.tick_params(labelsize=7)
        pair[0].set_title(_short(f"{name}{label}", 44), loc="left", fontsize=8)
    for axes in pair:
        axes.set_xlabel("sample at the tap", fontsize=8)
    return figure


def _one_per_domain(domains: np.ndarray, most: int) -> list[int]:
    """Indices of up to `most` windows, of as many domains as there are; the last domain, the target, among them."""
    turn = [int((domains[:i] == domain).sum()) for i, domain in enumerate(domains)]  # first, second, ... of its domain
    order = sorted(range(len(domains)), key=lambda i: (turn[i], domains[i] != domains.max(), domains[i]))
    return sorted(order[:most], key=lambda i: (domains[i], i))


def _heat(axes: Any, values: np.ndarray, texts: list[list[str]], labels: Sequence[Sequence[str]], top: float) -> None:
    """A matrix of squares with their numbers; dark is much."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("paper", ["#f4f7fa", "#9ec3de", "#3f7fb0", "#0b3a63"])
    scaled = np.clip(values / top, 0, 1) if top > 0 else np.zeros_like(values)
    axes.pcolormesh(np.nan_to_num(scaled), cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    size = 8 if len(values) <= 8 else 6
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            colour = "#ffffff" if scaled[i, j] > 0.55 else "#14222e"
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=size, color=colour)
    rows, columns = labels
    axes.set_yticks(np.arange(len(rows)) + 0.5, [_short(name, 18) for name in rows])
    rotation = 35 if max(map(len, columns), default=0) * len(columns) > 28 else 0
    turned = {"rotation": rotation, "ha": "right" if rotation else "center"}
    axes.set_xticks(np.arange(len(columns)) + 0.5, [_short(name, 18) for name in columns], **turned)
    axes.set_ylim(len(rows), 0)
    axes.set_aspect("equal")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _distance(payload: dict[str, Any], load: Callable[[str], np.ndarray | None]) -> Any:
    before, after = load("domain_distance_before"), load("domain_distance_after")
    if before is None or after is None:
        return None
    names = payload["psd_domains"][: len(before)] or [f"domain {i + 1}" for i in range(len(before))]
    names = [plain(name) + (" *" if name == payload["target"] else "") for name in names]
    edge = _room([_short(name, 18) for name in names])
    figure = _figure(7.4, 0.6 + (7.2 - 2 * edge) / 2 + 0.6 * edge, edge, 0.1, 0.3, 0.3 + 0.6 * edge, wspace=edge / 2.4)
    top = float(max(np.nanmax(before), np.nanmax(after)))
    for axes, values, title in zip(figure.subplots(1, 2), (before, after), ("before", "after"), strict=True):
        _heat(axes, values, [[f"{v:.2g}" for v in row] for row in values], (names, names), top)
        off = values[~np.eye(len(values), dtype=bool)]
        axes.set_title(f"{title} calibration (mean {off.mean():.2g})" if off.size else f"{title} calibration")
    figure.supxlabel("distance of mean spectra; * is the target", fontsize=8)
    return figure


def _confusion(payload: dict[str, Any], _: Callable) -> Any:
    matrix, classes = np.array(payload["matrix"], dtype=float), payload["classes"]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    texts = [[f"{100 * s:.0f}" if n else "–" for s in row] for row, n in zip(shares, matrix.sum(axis=1), strict=True)]
    names = [*classes, *(str(i) for i in range(len(classes), len(matrix)))][: len(matrix)]
    edge, side = 0.25 + _room([_short(name, 18) for name in names]), max(2.0, 0.6 * len(names))
    figure = _figure(edge + side + 0.3, side + 0.65 + 0.7 * edge, edge, 0.3, 0.3, 0.35 + 0.7 * edge)
    axes = figure.subplots()
    _heat(axes, shares, texts, (names, names), 1.0)
    axes.set_ylabel("truth")
    axes.set_xlabel("predicted (% of the truth's windows)")
    seeds = payload["seeds"]
    axes.set_title(f"{int(matrix.sum()):,} windows" + (f", {seeds} seeds added" if seeds > 1 else ""), loc="left")
    return figure


def _embedding(payload: dict[str, Any], load: Callable[[str], np.ndarray | None]) -> Any:
    points = load("embedding")
    if points is None or len(points) == 0:
        return None
    # A far window would squeeze all others into a corner: it is drawn at the edge.
    low, high = np.quantile(points, [0.01, 0.99], axis=0)
    points = np.clip(points, low - 0.25 * (high - low), high + 0.25 * (high - low))
    keep = np.linspace(0, len(points) - 1, min(len(points), _POINTS)).astype(int)
    domain, category, stratum = load("embedding_domain"), load("embedding_class"), load("embedding_stratum")
    panels: list[tuple[str, np.ndarray, list[str], list[int]]] = []
    names, known = payload["embedding_domains"], payload["domains"]
    if domain is not None:
        looks = [known.index(name) if name in known else i for i, name in enumerate(names)]
        texts = [plain(name) + (" (target)" if name == payload["target"] else "") for name in names]
        panels.append(("domain", domain, texts, looks))
    if category is not None:
        panels.append(("class", category, payload["classes"], list(range(len(payload["classes"])))))
    if stratum is not None and (stratum >= 0).any():
        n = int(stratum.max()) + 1
        panels.append(("stratum", stratum, [f"stratum {i + 1}" for i in range(n)], list(range(n))))
    if not panels:
        return None
    below = 0.3 + 0.17 * max(-(-len(labels) // 2) for _, _, labels, _ in panels)
    figure = _figure(7.4, 2.6 + below, 0.3, 0.1, 0.3, below, wspace=0.06)
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, group, labels, looks) in zip(grid, panels, strict=True):
        for value, label in enumerate(labels):
            chosen = keep[group[keep] == value]
            look = _look(looks[value]) | {"linestyle": "none"}
            if len(chosen):
                style = {"markersize": 3, "markeredgewidth": 0.6, "markerfacecolor": "none", "alpha": 0.9}
                axes.plot(points[chosen, 0], points[chosen, 1], label=_short(label, 20), **look, **style)
        axes.set_title(f"by {title}")
        axes.set_xticks([])
        axes.set_yticks([])
        legend = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.02), "fontsize": 7, "handletextpad": 0.2}
        axes.legend(**legend, ncols=2, columnspacing=0.8, markerscale=1.6)
    figure.supylabel("second principal axis", fontsize=8)
    return figure


def _training(payload: dict[str, Any], _: Callable) -> Any:
    histories = payload["histories"]
    right = _legend_room([f"seed {seed}" for seed, _ in histories]) if len(histories) > 1 else 0.15
    figure = _figure(7.4, 2.7, 0.5, right, 0.3, wspace=0.2)
    grid = figure.subplots(1, 2)
    for axes, key, label in zip(
        grid, ("loss", "validation"), ("training loss", "source validation, macro-F1"), strict=True
    ):
        for i, (seed, history) in enumerate(histories):
            values = [np.nan if v is None else v for v in history.get(key, [])]
            look = _look(i) | {"markersize": 0}
            axes.plot(range(1, len(values) + 1), values, label=f"seed {seed}", **look)
        axes.set_xlabel("epoch")
        axes.set_title(label, loc="left")
        _grid(axes)
    if len(histories) > 1:
        _legend(grid[1])
    return figure


def _hypnogram(payload: dict[str, Any], load: Callable[[str], np.ndarray | None]) -> Any:
    """Truth and prediction of the recording with most windows; a gap in the recording stays a gap."""
    truth, predicted = load("target_labels"), load("target_predictions")
    recordings, positions = load("target_recordings"), load("target_positions")
    if truth is None or predicted is None or recordings is None or positions is None or len(truth) == 0:
        return None
    values, counts = np.unique(recordings, return_counts=True)
    chosen = np.flatnonzero(recordings == values[counts.argmax()])
    chosen = chosen[np.argsort(positions[chosen], kind="stable")]
    steps = np.diff(positions[chosen])
    step = steps[steps > 0].min() if (steps > 0).any() else 1
    epochs = np.rint((positions[chosen] - positions[chosen][0]) / step).astype(int)
    classes = payload["classes"]
    depth = _stage_depth(classes)
    hours = np.arange(epochs[-1] + 2) * 30 / 3600
    figure = _figure(7.4, 3.4, _room(classes), 0.15, 0.3, hspace=0.35)
    grid = figure.subplots(2, 1, sharex=True, sharey=True)
    agree = float((truth[chosen] == predicted[chosen]).mean())
    for axes, labels, title, colour in (
        (grid[0], truth, "scored by a person", INK),
        (grid[1], predicted, f"predicted ({percent(agree, 0)} % of epochs agree)", COLOURS[0]),
    ):
        track = np.full(epochs[-1] + 2, np.nan)
        track[epochs] = [depth[value] if 0 <= value < len(depth) else np.nan for value in labels[chosen]]
        track[-1] = track[-2]
        axes.step(hours, track, where="post", color=colour, linewidth=1)
        axes.set_title(title, loc="left")
        axes.set_yticks(depth, classes)
        _grid(axes)
    grid[0].invert_yaxis()
    grid[1].set_xlabel("hours since the first window")
    return figure


def _stage_depth(classes: Sequence[str]) -> list[int]:
    """Where each stage is drawn: W, REM, N1, N2, N3 from the top, other names as they come."""
    order = {"w": 0, "wake": 0, "rem": 1, "r": 1, "n1": 2, "n2": 3, "n3": 4}
    if all(name.lower() in order for name in classes):
        return [order[name.lower()] for name in classes]
    return list(range(len(classes)))


_DRAW: dict[str, Callable[[dict[str, Any], Callable[[str], np.ndarray | None]], Any]] = {
    "scores": _scores,
    "differences": _differences,
    "ranking": _ranking,
    "granularity": _curve_figure,
    "rank": _curve_figure,
    "strata": _strata_figure,
    "calibration": _calibration,
    "distance": _distance,
    "embedding": _embedding,
    "confusion": _confusion,
    "training": _training,
    "hypnogram": _hypnogram,
}
