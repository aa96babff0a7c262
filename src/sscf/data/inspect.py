"""What is in a store: counts by domain, class and subject, and a picture of example windows and class spectra."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sscf.data.store import Domain
from sscf.data.tasks import TASKS, Task, TaskView
from sscf.errors import ConfigError, require

_SPECTRUM_WINDOWS = 400  # per class: enough for a smooth mean, little to read


@dataclass(frozen=True)
class Seen:
    """A domain seen through a task, or, when no task fits, through its own labels."""

    domain: Domain
    view: TaskView

    @property
    def per_subject(self) -> dict[str, int]:
        """Windows of each subject."""
        n = np.bincount(self.view.subjects, minlength=len(self.domain.subject_names))
        return dict(zip(self.domain.subject_names, n.tolist(), strict=True))


def see(domain: Domain, task: Task | None = None) -> Seen:
    """Through `task`, else the task the domain was made for, else its own labels."""
    own = Task("own labels", domain.label_names)
    task = task or TASKS.get(domain.manifest.get("task", ""))
    if task is None:
        return Seen(domain, own.view(domain))
    try:
        return Seen(domain, task.view(domain))
    except ConfigError:
        return Seen(domain, own.view(domain))


def class_spectra(seen: Seen) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Frequencies in Hz, and for each class the mean Welch power density of its windows, averaged over channels."""
    from scipy.signal import welch

    view = seen.view
    out: dict[str, NDArray[np.float64]] = {}
    frequencies = np.zeros(0)
    for i, name in enumerate(view.classes):
        rows = np.flatnonzero(view.y == i)
        if not len(rows):
            continue
        chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), _SPECTRUM_WINDOWS)).astype(int)]
        x = view.read(chosen).astype(np.float64)
        frequencies, power = welch(x, fs=view.domain.fs, nperseg=min(x.shape[-1], 512), detrend="constant")
        out[name] = power.mean(axis=(0, 1))
    return frequencies, out


def picture(domains: Mapping[str, Domain], path: str | Path, task: Task | None = None) -> None:
    """A PNG, SVG or PDF: for each domain an example window of every class, and the mean spectrum of every class."""
    path = Path(path)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"{path}: a picture is a .png, .svg or .pdf file")
    matplotlib = require("matplotlib", "report")
    matplotlib.use("Agg")
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    all_seen = [see(domain, task) for domain in domains.values()]
    heights = [max(2.6, 0.42 * len(seen.view.classes) + 1.2) for seen in all_seen]
    figure = Figure(figsize=(11, sum(heights)), layout="constrained")
    rows = figure.subplots(len(all_seen), 2, squeeze=False, height_ratios=heights, width_ratios=(1.6, 1))
    names = list(dict.fromkeys(name for seen in all_seen for name in seen.view.classes))
    palette = colormaps["tab10" if len(names) <= 10 else "tab20"]
    colours = {name: palette(i % palette.N) for i, name in enumerate(names)}
    for (left, right), seen in zip(rows, all_seen, strict=True):
        _draw_examples(left, seen, colours)
        _draw_spectra(right, seen, colours)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _plain(name: str) -> str:
    """Text in which matplotlib sees no formula."""
    return name.replace("$", r"\$")


def _draw_examples(axes: Any, seen: Seen, colours: Mapping[str, Any]) -> None:
    """One window per class, the middle one of the class's windows; channels overlaid, classes one below the other."""
    domain, view = seen.domain, seen.view
    present = [(i, name) for i, name in enumerate(view.classes) if (view.y == i).any()]
    middle = [np.flatnonzero(view.y == i)[(view.y == i).sum() // 2] for i, _ in present]
    examples = view.read(middle)
    examples = examples - examples.mean(axis=-1, keepdims=True)
    spread = float(np.quantile(np.abs(examples), 0.995)) * 2 or 1.0
    seconds = np.arange(examples.shape[-1]) / domain.fs
    for k, ((_, name), window) in enumerate(zip(present, examples, strict=True)):
        for c, channel in enumerate(window):
            axes.plot(seconds, channel - k * spread, color=colours[name], lw=0.8, alpha=1 - 0.25 * min(c, 2))
    axes.set_yticks([-k * spread for k in range(len(present))], [_plain(name) for _, name in present])
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.01)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.plot([seconds[-1] * 1.005] * 2, [-spread / 4, spread / 4], color="black", lw=2, clip_on=False)
    axes.text(seconds[-1] * 1.012, 0, f"{spread / 2:.2g} {_plain(domain.unit)}", va="center", fontsize=8)
    axes.set_xlabel("seconds")
    simulated = " (simulated)" if domain.simulated else ""
    axes.set_title(f"{_plain(domain.name)}{simulated}: one window per class, means taken off", loc="left", fontsize=10)


def _draw_spectra(axes: Any, seen: Seen, colours: Mapping[str, Any]) -> None:
    frequencies, spectra = class_spectra(seen)
    for name, power in spectra.items():
        axes.loglog(frequencies[1:], power[1:], color=colours[name], lw=1.2, label=_plain(name))
    top = max(power[1:].max() for power in spectra.values())
    axes.set_ylim(bottom=max(top * 1e-7, min(power[1:].min() for power in spectra.values())), top=top * 3)
    axes.set_xlabel("Hz")
    axes.set_ylabel(f"{_plain(seen.domain.unit) or 'unit'}²/Hz")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, ncols=1 + (len(spectra) > 8))
    axes.set_title("mean spectrum of each class", loc="left", fontsize=10)
