"""Is this data comparable to what a model was trained on?

Every window has a p-value: the share of held-out source windows of its stratum that lie at least as far from the
anchor; and one for the spectrum of each channel. Windows with a p-value of at most `LEVEL` lie outside; 5 % of comparable
windows do. Windows of one recording are alike, so data are judged by recordings: their shares of windows outside are
compared with those of source subjects that were held out, by a rank test. The alarm is given when the test says so at
`ALARM`, corrected for the number of things tested, and at least `MATERIAL` of the windows are outside. Exchangeable
recordings raise it with a probability of at most `ALARM`. Where there are too few recordings or held-out subjects for any
test to succeed, the alarm needs most windows of most recordings outside, more than of any held-out subject.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sscf.core import MixShift
from sscf.data.store import Domain
from sscf.data.tasks import TASKS
from sscf.errors import ConfigError
from sscf.model import Judged, Model, Windows
from sscf.protocol import risk_coverage
from sscf.reference import LEVEL, Reference

ALARM = 0.05
MATERIAL = 0.10
_GAIN = math.log(10.0)  # a channel whose power is off by more than this, typically, gets a remark


@dataclass(frozen=True)
class Finding:
    """One thing tested: the distance to the strata, or a channel's spectrum.

    outside  : share of all windows outside.
    held_out : (lowest, median, highest) share among held-out source subjects; None when there were none.
    pvalue   : of the rank test over recordings, corrected for the number of findings; None where no test can succeed.
    alarm    : whether this makes the data not comparable.
    remark   : for a channel, what seems to be wrong with it.
    """

    name: str
    outside: float
    held_out: tuple[float, float, float] | None
    pvalue: float | None
    alarm: bool
    remark: str = ""

    @property
    def shifted(self) -> bool:
        return self.alarm or (self.pvalue is not None and self.pvalue <= ALARM)


@dataclass(frozen=True)
class RecordingDiagnosis:
    """Share of a recording's windows outside: of the strata (NaN without calibration) and of each channel."""

    name: str
    windows: int
    outside: float
    channels: tuple[float, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What was found; `verdict` is "comparable", "shifted" or "not comparable".

    strata, pvalues, channel_pvalues, log_power : of all windows, for pictures.
    risk : (coverage, error rate) when the least comparable windows are left out first, where labels are known.
    """

    name: str
    findings: tuple[Finding, ...]
    recordings: tuple[RecordingDiagnosis, ...]
    mix: MixShift | None
    strata: np.ndarray
    pvalues: np.ndarray
    channel_pvalues: np.ndarray
    log_power: np.ndarray
    risk: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def windows(self) -> int:
        return len(self.pvalues)

    @property
    def verdict(self) -> str:
        if any(finding.alarm for finding in self.findings):
            return "not comparable"
        return "shifted" if any(finding.shifted for finding in self.findings) else "comparable"

    @property
    def comparable(self) -> bool:
        return self.verdict != "not comparable"

    def words(self) -> list[str]:
        """The verdict and what it rests on, in sentences."""
        head = {
            "comparable": "Comparable: the windows look like those of source subjects held out of training.",
            "shifted": "Comparable with a shift: more windows than usual lie outside, but few.",
            "not comparable": "Not comparable: too many windows lie outside what the model was trained on.",
        }
        lines = [head[self.verdict]]
        lines += [_sentence(finding) for finding in self.findings]
        if self.mix is not None and len(self.mix.source) > 1:
            lines.append(
                f"Mix of strata: {100 * self.mix.total_variation:.0f} % of the windows would have to change strata to "
                "give the mix of the source (a different mix alone is no alarm: each stratum has its own anchor)."
            )
        if self.risk is not None:
            error = self.risk[1]
            kept = float((self.pvalues > 0.01).mean())
            if 0 < kept < 1:
                at = error[min(len(error) - 1, round(kept * len(error)) - 1)]
                lines.append(
                    f"Labels are known: {100 * error[-1]:.1f} % errors; {100 * at:.1f} % on the {100 * kept:.0f} % of "
                    "windows that 'predict --abstain 0.01' would label."
                )
        return lines

    def to_json(self) -> dict[str, Any]:
        """The numbers, for scripts."""
        return {
            "data": self.name,
            "verdict": self.verdict,
            "windows": self.windows,
            "level": LEVEL,
            "findings": [
                {
                    "name": f.name,
                    "outside": f.outside,
                    "held_out": list(f.held_out) if f.held_out else None,
                    "pvalue": f.pvalue,
                    "alarm": f.alarm,
                    "remark": f.remark,
                }
                for f in self.findings
            ],
            "recordings": [
                {
                    "name": r.name,
                    "windows": r.windows,
                    "outside": None if math.isnan(r.outside) else r.outside,
                    "channels": list(r.channels),
                }
                for r in self.recordings
            ],
            "mix": None
            if self.mix is None
            else {
                "source": self.mix.source.tolist(),
                "new": self.mix.new.tolist(),
                "total_variation": self.mix.total_variation,
                "pvalue": self.mix.pvalue,
            },
        }


def _sentence(finding: Finding) -> str:
    text = f"{finding.name}: {100 * finding.outside:.1f} % of the windows outside ({100 * LEVEL:.0f} % expected"
    if finding.held_out is not None:
        low, middle, high = (100 * value for value in finding.held_out)
        text += f"; held-out source subjects {low:.0f} to {high:.0f} %, median {middle:.0f} %"
    text += f"), p = {finding.pvalue:.2g}" if finding.pvalue is not None else "), too few recordings for a test"
    return text + (f". {finding.remark}" if finding.remark else "") + (" [alarm]" if finding.alarm else "")


def diagnose(model: Model, data: Windows | Iterable[Windows], name: str | None = None) -> Diagnosis:
    """Compare new data, one domain or several (recordings are theirs together), with a model's source data."""
    reference = model.reference
    if reference is None:
        raise ConfigError("this model cannot be asked: nothing was held out when it was trained (validation = 0)")
    domains: list[Any] = [data] if hasattr(data, "windows") else list(data)
    if not domains:
        raise ConfigError("no data to diagnose")
    judged = [model.judge(domain, keep_spectra=True) for domain in domains]
    channel_pvalues = [reference.channel_pvalues(one.channel_distances) for one in judged]
    recordings, shares = [], []
    for domain, one, by_channel in zip(domains, judged, channel_pvalues, strict=True):
        for number in np.unique(domain.recordings):
            rows = domain.recordings == number
            share = np.append(_outside(one.pvalues[rows]), (by_channel[rows] <= LEVEL).mean(axis=0))
            shares.append(share)
            title = domain.recording_names[number]
            recordings.append(RecordingDiagnosis(title, int(rows.sum()), float(share[0]), tuple(share[1:].tolist())))
    whole = _joined(judged)
    channels = np.concatenate(channel_pvalues)
    log_power = whole.log_power
    assert log_power is not None
    findings = _findings(model, reference, whole, channels, np.stack(shares), log_power)
    return Diagnosis(
        name or ", ".join(str(domain.name) for domain in domains[:3]) + (" ..." if len(domains) > 3 else ""),
        findings,
        tuple(recordings),
        None if reference.strata is None else reference.strata.mix_shift(whole.strata),
        whole.strata,
        whole.pvalues,
        channels,
        log_power,
        _risk(model, domains, judged),
    )


def _outside(pvalues: np.ndarray) -> float:
    """Share of windows outside; NaN where there are no p-values."""
    return float("nan") if np.isnan(pvalues).all() else float((pvalues <= LEVEL).mean())


def _joined(judged: Sequence[Judged]) -> Judged:
    return Judged(
        *(
            np.concatenate([getattr(one, name) for one in judged])
            for name in ("probabilities", "strata", "distances", "pvalues", "channel_distances", "log_power")
        )
    )


def _findings(
    model: Model,
    reference: Reference,
    whole: Judged,
    channel_pvalues: np.ndarray,
    shares: np.ndarray,
    log_power: np.ndarray,
) -> tuple[Finding, ...]:
    held_out = reference.shares.numpy()
    first = 0 if reference.strata is not None else 1
    names = ["distance to the strata", *(f"channel {name}" for name in model.recipe.names)]
    outside = np.append((whole.pvalues <= LEVEL).mean(), (channel_pvalues <= LEVEL).mean(axis=0))
    found = []
    for i in range(first, len(names)):
        usual = held_out[:, i]
        remark = _remark(reference, i - 1, log_power[:, i - 1]) if i else ""
        pvalue, alarm = _test(shares[:, i], usual, float(outside[i]), len(names) - first)
        span = (float(usual.min()), float(np.median(usual)), float(usual.max())) if len(usual) else None
        found.append(Finding(names[i], float(outside[i]), span, pvalue, alarm, remark))
    return tuple(found)


def _test(new: np.ndarray, held_out: np.ndarray, outside: float, tests: int) -> tuple[float | None, bool]:
    """The corrected p-value of "new recordings have larger shares outside than held-out subjects", and the alarm."""
    from scipy.stats import mannwhitneyu

    smallest = tests / math.comb(len(new) + len(held_out), len(new)) if len(held_out) else 1.0
    if smallest > ALARM:
        beyond = np.median(new) > max(0.5, held_out.max(initial=0.0))
        return None, bool(beyond)
    pvalue = float(min(1.0, tests * mannwhitneyu(new, held_out, alternative="greater").pvalue))
    return pvalue, pvalue <= ALARM and outside >= MATERIAL


def _remark(reference: Reference, channel: int, log_power: np.ndarray) -> str:
    """What may be wrong with a channel whose spectra are (n, F)."""
    spectra = reference.spectra
    floor = math.log(float(spectra.floor[channel]))
    flat = float((log_power.max(axis=1) < floor + 1).mean())
    if flat > MATERIAL:
        return f"Flat in {100 * flat:.0f} % of the windows"
    offset = float(np.median(log_power.mean(axis=1) - float(spectra.mean[channel].mean())))
    spread = max(_GAIN, 3 * float(spectra.std[channel].mean()))
    if abs(offset) > spread:
        times = math.exp(abs(offset) / 2)
        return (
            f"Its amplitude is typically {times:.3g} times {'larger' if offset > 0 else 'smaller'}: is the unit right?"
        )
    return ""


def _risk(model: Model, domains: Sequence[Any], judged: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray] | None:
    """Error against coverage, most comparable windows first, when all data are labelled for a built-in task."""
    task = TASKS.get(model.task)
    if task is None or task.classes != model.classes or not all(isinstance(domain, Domain) for domain in domains):
        return None
    correct, confidence = [], []
    for domain, one in zip(domains, judged, strict=True):
        try:
            view = task.view(domain)
        except ConfigError:
            return None
        correct.append(one.probabilities[view.index].argmax(axis=1) == view.y)
        confidence.append(one.pvalues[view.index])
    scores = np.concatenate(confidence)
    return None if np.isnan(scores).any() else risk_coverage(np.concatenate(correct), scores)
