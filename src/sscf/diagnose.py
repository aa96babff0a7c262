"""Is this data comparable to what a model was trained on?

Every window has p-values (see `reference`): of the distance of its map to the anchor of its stratum, of the structure
of its spectra, of each channel. Windows with a p-value of at most `LEVEL` lie outside; 5 % of comparable windows do.
Windows of one recording are alike, so data are judged by recordings: their shares of windows outside are compared with
those of source subjects that were held out, by a rank test. The alarm is given when the test says so at `ALARM`,
corrected for the number of things tested, and at least `MATERIAL` of the windows are outside. Exchangeable recordings
raise it with a probability of at most `ALARM`. Where there are too few recordings or held-out subjects for any test to
succeed, the alarm needs most windows of most recordings outside, more than of any held-out subject.

An alarm of the strata or of a channel makes the data not comparable. The structure alone does not: it changes with
every device, which is what calibration is made for. It also tells a new kind of dynamics, which calibration is not made
for; which of the two it is has to be judged by people.
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
STRUCTURE = "structure"
_GAIN = math.log(10.0)  # a channel whose power is off by more than this, typically, gets a remark


@dataclass(frozen=True)
class Finding:
    """One thing tested: "strata" (distance of maps to anchors), "structure" (of the spectra) or a channel.

    outside  : share of all windows outside.
    held_out : (lowest, median, highest) share among held-out source subjects; None when there were none.
    pvalue   : of the rank test over recordings, corrected for the number of findings; None where no test can succeed.
    alarm    : too many windows outside to be chance.
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
    """Share of a recording's windows outside in everything tested: as the findings, in their order."""

    name: str
    windows: int
    outside: tuple[float, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What was found; `verdict` is "comparable", "shifted" or "not comparable" (see above).

    pvalues   : (n,) comparability of every window; strata (n,) and log_power (n, C, F), for pictures.
    risk : (coverage, error rate) when the least comparable windows are left out first, where labels are known.
    """

    name: str
    findings: tuple[Finding, ...]
    recordings: tuple[RecordingDiagnosis, ...]
    mix: MixShift | None
    strata: np.ndarray
    pvalues: np.ndarray
    log_power: np.ndarray
    risk: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def windows(self) -> int:
        return len(self.pvalues)

    @property
    def verdict(self) -> str:
        if any(finding.alarm for finding in self.findings if finding.name != STRUCTURE):
            return "not comparable"
        return "shifted" if any(finding.shifted for finding in self.findings) else "comparable"

    @property
    def comparable(self) -> bool:
        return self.verdict != "not comparable"

    def words(self) -> list[str]:
        """The verdict and what it rests on, in sentences."""
        head = {
            "comparable": "Comparable: the windows look like those of source subjects held out of training.",
            "shifted": "Shifted: more windows than usual lie outside, but few.",
            "not comparable": "Not comparable: too many windows lie outside what the model was trained on.",
        }[self.verdict]
        if self.verdict == "shifted" and any(finding.alarm for finding in self.findings):
            head = (
                "Shifted: strata and channels fit, but the spectra as a whole are unlike those of the source: another "
                "device (which calibration is made for) or another kind of dynamics (which it is not made for)."
            )
        lines = [head]
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
            "recordings": [{"name": r.name, "windows": r.windows, "outside": list(r.outside)} for r in self.recordings],
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
    tested = ([] if reference.tap is None else ["strata"]) + [STRUCTURE, *model.recipe.names]
    first = 2 + len(model.recipe.names) - len(tested)  # without calibration there is no column for the tap
    tables, recordings = [], []
    for domain, one in zip(domains, judged, strict=True):
        assert one.measured is not None
        outside = reference.pvalues(one.measured).table[:, first:] <= LEVEL
        tables.append(outside)
        for number in np.unique(domain.recordings):
            rows = domain.recordings == number
            shares = tuple(outside[rows].mean(axis=0).tolist())
            recordings.append(RecordingDiagnosis(domain.recording_names[number], int(rows.sum()), shares))
    log_power = np.concatenate([one.log_power for one in judged if one.log_power is not None])
    held_out, new = reference.shares.numpy()[:, first:], np.array([r.outside for r in recordings])
    findings = []
    for i, (what, share) in enumerate(zip(tested, np.concatenate(tables).mean(axis=0).tolist(), strict=True)):
        usual, channel = held_out[:, i], i - (len(tested) - len(model.recipe.names))
        pvalue, alarm = _test(new[:, i], usual, share, len(tested))
        span = (float(usual.min()), float(np.median(usual)), float(usual.max())) if len(usual) else None
        remark = _remark(reference, channel, log_power[:, channel]) if channel >= 0 else ""
        findings.append(Finding(what if channel < 0 else f"channel {what}", share, span, pvalue, alarm, remark))
    strata = np.concatenate([one.strata for one in judged])
    return Diagnosis(
        name or ", ".join(str(domain.name) for domain in domains[:3]) + (" ..." if len(domains) > 3 else ""),
        tuple(findings),
        tuple(recordings),
        None if reference.tap is None else reference.tap.mix_shift(strata),
        strata,
        np.concatenate([one.pvalues for one in judged]),
        log_power,
        _risk(model, domains, judged),
    )


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
