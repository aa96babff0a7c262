"""What the sleep data sets share: stages, hypnograms, scoring files, and the folder layout of the NSRR studies.

Windows are 30 s epochs of EEG and EOG, 0.3-35 Hz, 100 Hz, in uV. The rules that hold for all eleven sets:

- A data set's own stages are kept (W N1 N2 N3 N4 REM); the task merges N3 and N4. Unscored and movement epochs are
  dropped and counted, never relabelled; a stage code we do not know is an error.
- Epochs are cut on the scorer's grid: from the first scored epoch on, in steps of 30 s, also in every piece of a
  recording with gaps.
- A hypnogram shorter than the signal leaves the rest unscored (dropped and counted). One that is longer by up to one
  epoch ends in an epoch of which the signal has only a part, and which is not cut. Stages further beyond the end mean
  that the two files do not belong together or that the signal is cut short: an error. Unscored time may go on for
  ever (Sleep-EDFx hypnograms are filled up to 24 h).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from sscf.data.datasets.base import DataSet, Recipe
from sscf.data.readers import Signals, edf_annotations, inside, read_edf, safe_xml
from sscf.data.recording import Channel, Drop, Intervals, Recording, Source
from sscf.errors import DataError

EPOCH_S = 30.0
RK = ("W", "N1", "N2", "N3", "N4", "REM")  # Rechtschaffen and Kales: two depths of slow-wave sleep
AASM = ("W", "N1", "N2", "N3", "REM")
UNSCORED = Drop("unscored")
MOVEMENT = Drop("movement")


def sleep_recipe(eeg: tuple[str, ...], eog: tuple[str, ...], **options: Any) -> Recipe:
    """The windows of every sleep set; `eeg` and `eog` are the spellings of the two channels, best first."""
    return Recipe(
        window_s=EPOCH_S,
        hop_s=EPOCH_S,
        fs=100.0,
        channels=(Channel("EEG", eeg), Channel("EOG", eog)),
        unit="uV",
        band=(0.3, 35.0),
        options=options,
    )


def sleep_task(labels: tuple[str, ...]) -> dict[str, dict[str, str | None]]:
    """The five classes of the `sleep` task: own stages, N4 counted as N3."""
    return {"sleep": {label: "N3" if label == "N4" else label for label in labels}}


# --- hypnograms ----------------------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """A stretch of one stage (or why it has none): seconds from the recording's start, and where the file says so."""

    start: float
    stop: float
    label: str | Drop
    where: str


class Event(NamedTuple):
    """A stage as a scoring file writes it: onset and duration in seconds, its code, its place in the file."""

    onset: float
    duration: float
    code: str
    where: str


@dataclass(frozen=True)
class Hypnogram:
    """The stages of one night, in order and without overlap."""

    path: Path
    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, path: Path, events: Iterable[Event], codes: Mapping[str, str | Drop]) -> Hypnogram:
        """Translate the codes of a scoring file; unknown codes, impossible times and overlaps are errors."""
        stages: list[Stage] = []
        for onset, duration, code, where in sorted(events, key=lambda event: event.onset):
            if code not in codes:
                known = ", ".join(map(repr, codes))
                raise DataError(f"{path}: {where} ({onset:g} s): unknown sleep stage {code!r}; known are {known}")
            if not (math.isfinite(onset) and math.isfinite(duration) and onset >= 0 and duration > 0):
                raise DataError(f"{path}: {where}: stage {code!r} from {onset:g} s for {duration:g} s cannot be")
            if stages and onset < stages[-1].stop - Intervals.TOLERANCE_S:
                before = stages[-1]
                raise DataError(
                    f"{path}: {where}: stage {code!r} from {onset:g} s overlaps the {before.label!s} "
                    f"of {before.where}, which lasts until {before.stop:g} s"
                )
            stages.append(Stage(onset, onset + duration, codes[code], where))
        if not any(_scored(stage) for stage in stages):
            raise DataError(f"{path}: no scored epoch among {len(stages)} stage entries")
        return cls(path, tuple(stages))

    def around_sleep(self, margin_s: float) -> Hypnogram:
        """The same night with wake further than `margin_s` from the first and last sleep dropped."""
        asleep = [stage for stage in self.stages if _scored(stage) and stage.label != "W"]
        if not asleep:
            raise DataError(f"{self.path}: no sleep in the hypnogram, so no wake around it to keep")
        low, high = asleep[0].start - margin_s, asleep[-1].stop + margin_s
        far = Drop(f"wake more than {margin_s / 60:g} min from sleep")
        out: list[Stage] = []
        for stage in self.stages:
            if stage.label != "W":
                out.append(stage)
                continue
            cuts = [stage.start, *(cut for cut in (low, high) if stage.start < cut < stage.stop), stage.stop]
            out += [stage._replace(start=a, stop=b, label="W" if low <= a < high else far) for a, b in pairwise(cuts)]
        return replace(self, stages=tuple(out))

    def label(self, signals: Signals) -> list[Recording]:
        """The pieces of the recording with this hypnogram as their track, each beginning on the scorer's grid."""
        scored = [stage for stage in self.stages if _scored(stage)]
        end = max(start + seconds for start, _, seconds in signals.pieces)
        if scored[-1].stop > end + EPOCH_S + Intervals.TOLERANCE_S:
            last = scored[-1]
            raise DataError(
                f"{self.path}: {last.where}: stage {last.label} lasts until {last.stop:g} s, but the signal ends at "
                f"{end:g} s: the files do not belong together, or the signal is cut short"
            )
        starts, stops, labels, _ = zip(*self.stages, strict=True)
        track = Intervals(starts, stops, labels, unscored=UNSCORED)
        return [_on_grid(piece, scored[0].start) for piece in signals.recordings(track)]


def _scored(stage: Stage) -> bool:
    return not isinstance(stage.label, Drop)


def _on_grid(piece: Recording, origin: float) -> Recording:
    """The piece without what comes before its first epoch boundary; boundaries lie at origin + k * 30 s."""
    skip = (origin - piece.start) % EPOCH_S
    if min(skip, EPOCH_S - skip) < Intervals.TOLERANCE_S:
        return piece
    signals = [signal[round(skip * rate) :] for signal, rate in zip(piece.signals, piece.rates, strict=True)]
    return replace(piece, signals=signals, start=piece.start + skip)


# --- scoring files -------------------------------------------------------------------------------------------------

PROFUSION = {"0": "W", "1": "N1", "2": "N2", "3": "N3", "4": "N4", "5": "REM", "6": MOVEMENT, "9": UNSCORED}
NSRR = {
    "Wake|0": "W",
    "Stage 1 sleep|1": "N1",
    "Stage 2 sleep|2": "N2",
    "Stage 3 sleep|3": "N3",
    "Stage 4 sleep|4": "N4",
    "REM sleep|5": "REM",
    "Movement|6": MOVEMENT,
    "Unscored|9": UNSCORED,
}


def xml_hypnogram(path: Path) -> Hypnogram:
    """The stages of an NSRR XML (timed events) or a Compumedics Profusion XML (one number per epoch)."""
    root = safe_xml(path)
    if root.tag == "PSGAnnotation":
        _check_epoch(path, root)
        return Hypnogram.of(path, _nsrr_events(path, root), NSRR)
    if root.tag == "CMPStudyConfig":
        _check_epoch(path, root)
        return Hypnogram.of(path, per_epoch(node.text for node in root.iterfind("SleepStages/SleepStage")), PROFUSION)
    raise DataError(f"{path}: <{root.tag}> is neither NSRR (<PSGAnnotation>) nor Profusion (<CMPStudyConfig>) scoring")


def per_epoch(codes: Iterable[str | None], what: str = "epoch") -> list[Event]:
    """Events of a list with one code per 30 s, beginning with the recording."""
    return [Event(i * EPOCH_S, EPOCH_S, (code or "").strip(), f"{what} {i + 1}") for i, code in enumerate(codes)]


def edf_hypnogram(path: Path, codes: Mapping[str, str | Drop]) -> Hypnogram:
    """The stages among the annotations of an EDF+ file; other marks ("Lights off@@EEG F4-A1") are not stages."""
    marks = [(mark.text.partition("@@")[0].strip(), mark) for mark in edf_annotations(path)]
    return Hypnogram.of(
        path,
        [
            Event(mark.onset, mark.duration or 0.0, text, f"annotation {i}")
            for i, (text, mark) in enumerate(marks, start=1)
            if is_stage(text, codes)
        ],
        codes,
    )


def is_stage(text: str, codes: Mapping[str, str | Drop]) -> bool:
    """Whether an annotation speaks of a stage, known or not: a misspelt one must be seen, not passed over."""
    return text in codes or text.casefold().startswith("sleep stage")


def _check_epoch(path: Path, root: Element) -> None:
    length = (root.findtext("EpochLength") or "").strip()
    if length not in ("30", "30.0"):
        raise DataError(f"{path}: epochs of {length!r} s (<EpochLength>), expected 30")


def _nsrr_events(path: Path, root: Element) -> Iterable[Event]:
    for number, event in enumerate(root.iter("ScoredEvent"), start=1):
        if (event.findtext("EventType") or "").strip() != "Stages|Stages":
            continue
        where = f"<ScoredEvent> {number}"
        try:
            onset, duration = float(event.findtext("Start", "")), float(event.findtext("Duration", ""))
        except ValueError as error:
            raise DataError(f"{path}: {where}: a stage without a number in <Start> or <Duration> ({error})") from error
        yield Event(onset, duration, (event.findtext("EventConcept") or "").strip(), where)


def files_of(root: Path, source: Source, signals: int = 1) -> tuple[Path, ...]:
    """The files of a source: `signals` signal files and one scoring file. No scoring, or several, is an error."""
    paths = tuple(inside(root, file) for file in source.files)
    scorings = paths[signals:]
    if len(scorings) != 1:
        found = ", ".join(path.name for path in scorings) or "none"
        raise DataError(f"{paths[0]}: needs one scoring file, found {found}")
    return paths


def source_of(root: Path, id: str, subject: str, *files: Path) -> Source:
    return Source(id, subject, tuple(file.relative_to(root).as_posix() for file in files))


# --- NSRR ----------------------------------------------------------------------------------------------------------


def nsrr_dataset(
    name: str,
    title: str,
    *,
    study: str,
    edfs: str,
    subjects: int,
    rate: str,
    channels: str,
    eeg: tuple[str, ...],
    eog: tuple[str, ...],
    citation: str,
    exclude: Mapping[str, str] | None = None,
    same_people: tuple[str, ...] = (),
) -> DataSet:
    """A study of the National Sleep Research Resource, in the folders of its download:

    STUDY/polysomnography/edfs/[VISIT/]STUDY-VISIT-SUBJECT.edf and beside `edfs`
    annotations-events-nsrr/[VISIT/]...-nsrr.xml, or annotations-events-profusion/[VISIT/]...-profusion.xml where the
    first is not there.

    edfs : glob of the EDF files below `edfs`. The subject is what follows the last hyphen of the name.
    """
    recipe = sleep_recipe(eeg, eog)

    def find(root: Path) -> list[Source]:
        psg = root / "polysomnography"
        sources = []
        for edf in sorted((psg / "edfs").glob(edfs)):
            visit = edf.parent.relative_to(psg / "edfs")
            kinds = ("nsrr", "profusion")
            xmls = [psg / f"annotations-events-{kind}" / visit / f"{edf.stem}-{kind}.xml" for kind in kinds]
            scoring = [xml for xml in xmls if xml.is_file()][:1]
            sources.append(source_of(root, edf.stem, edf.stem.rpartition("-")[2], edf, *scoring))
        return sources

    def read(root: Path, source: Source) -> list[Recording]:
        edf, xml = files_of(root, source)
        return xml_hypnogram(xml).label(read_edf(edf, recipe.channels))

    return DataSet(
        name=name,
        title=title,
        task="sleep",
        subjects=subjects,
        rate=rate,
        channels=channels,
        labels=RK,
        folders=(study,),
        marker=f"polysomnography/edfs/{edfs}",
        recipe=recipe,
        find=find,
        read=read,
        tasks=sleep_task(RK),
        citation=citation,
        licence="NSRR data use agreement; research use",
        access=f"ask at https://sleepdata.org/datasets/{study}",
        exclude=exclude or {},
        same_people=same_people,
    )
