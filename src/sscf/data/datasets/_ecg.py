"""What the ECG data sets share: their recipe and the labels of windows cut from annotated long recordings.

An own label is the one annotation that decides what a window or record is, in the data set's own code. The task `ecg`
maps it to `normal` (sinus rhythm, normally conducted beats only), `af` (fibrillation or flutter) or `other` (any
other rhythm, or ectopy). Bundle branch block, pre-excitation and first-degree block are neither: the rhythm is sinus
but the beats are not normal. They keep their label and the task drops them (None), so that a task of your own may see
it otherwise. Findings that touch neither rhythm nor conduction (ST-T, infarction, hypertrophy, axis) do not count:
the long recordings do not have them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import numpy as np

from sscf.data.datasets.base import Recipe
from sscf.data.readers import Marks
from sscf.data.recording import Channel, Drop
from sscf.errors import DataError


def recipe(*lead: str) -> Recipe:
    """10 s windows of one lead at 100 Hz, 0.5 to 40 Hz, in mV.

    The band is the narrowest of the devices (hand-held, CinC 2017), so no domain has what another cannot have; it
    takes out baseline wander and mains hum, and leaves nothing to fold over at 100 Hz. The channel is called ECG in
    every store, so that domains fit together.
    """
    return Recipe(window_s=10, hop_s=10, fs=100, channels=(Channel("ECG", lead),), unit="mV", band=(0.5, 40))


RHYTHMS: Mapping[str, str | None] = {
    "(N": "normal",
    **dict.fromkeys(("(AFIB", "(AFL", "(WPWAF"), "af"),
    **dict.fromkeys(("(AB", "(B", "(BII", "(IVR", "(NOD", "(P", "(SBR", "(SVTA", "(T", "(VFL", "(VT"), "other"),
    "(PREX": None,
}
# The first of these found in a window of sinus rhythm decides it: ectopic, escape, fused and paced beats, then blocks.
BEATS: Mapping[str, str | None] = {
    **dict.fromkeys("VFrEAaJSejnx!/f", "other"),
    **dict.fromkeys("LRB"),
}
LABELS = (*RHYTHMS, *BEATS)
TASKS = {"ecg": {**RHYTHMS, **BEATS}}

_UNCLASSIFIED = "Q?"
_NOT_BEATS = "+~|\"[]()*DTps^t`u=@'"
MAX_RR_S = 3.0


class BeatTrack:
    """Labels of windows from the rhythm changes and beats of a WFDB annotation file.

    A window of one rhythm other than sinus carries that rhythm's code; several such rhythms, none of them fibrillation,
    carry the first; fibrillation beside anything else is dropped. A window of sinus rhythm carries the first of `BEATS`
    that occurs in it, or "(N" when all its beats are normal. Where no beat is marked for more than 3 s (a pause, or
    nobody could read the signal) or a beat could not be classified, a window that would be "(N" is dropped.

    before : rhythm until the first rhythm mark; the first mark's own when not given (it stands at the first beat).
    """

    def __init__(self, marks: Marks, fs: float, path: str, before: str | Drop | None = None) -> None:
        self.fs = fs
        self._changes: list[int] = []
        self._rhythms: list[str | Drop] = []
        self._at: list[int] = []
        self._beats: list[str] = []
        for sample, symbol, note in zip(marks.samples.tolist(), marks.symbols, marks.notes, strict=True):
            if symbol == "+" and note.startswith("("):
                if note not in RHYTHMS:
                    raise DataError(f"{path}: rhythm {note!r} at sample {sample}; known are {', '.join(RHYTHMS)}")
                self._changes.append(sample)
                self._rhythms.append(note)
            elif symbol == "N" or symbol in BEATS or symbol in _UNCLASSIFIED:
                self._at.append(sample)
                self._beats.append(symbol)
            elif symbol not in _NOT_BEATS:
                raise DataError(f"{path}: beat {symbol!r} at sample {sample} is not a known annotation code")
        first = before if before is not None else (self._rhythms[0] if self._rhythms else Drop("rhythm not annotated"))
        self._changes.insert(0, 0)
        self._rhythms.insert(0, first)

    def at(self, start: float, stop: float) -> str | Drop:
        a, b = start * self.fs, stop * self.fs
        rhythms = self._rhythms[bisect_right(self._changes, a + 1e-6) - 1 : bisect_left(self._changes, b - 1e-6)]
        for rhythm in rhythms:
            if isinstance(rhythm, Drop):
                return rhythm
        classes = {RHYTHMS[rhythm] for rhythm in rhythms}
        if "af" in classes and len(classes) > 1:
            return Drop("fibrillation begins or ends inside")
        i, j = bisect_left(self._at, a), bisect_left(self._at, b)
        beats = self._beats[i:j]
        label = next((rhythm for rhythm in rhythms if rhythm != "(N"), None)
        label = label or next((symbol for symbol in BEATS if symbol in beats), None)
        if label is not None:
            return label
        if any(symbol in _UNCLASSIFIED for symbol in beats):
            return Drop("beat that could not be classified")
        if np.diff([a, *self._at[i:j], b]).max() > MAX_RR_S * self.fs:
            return Drop(f"no beat for {MAX_RR_S:g} s")
        return "(N"
