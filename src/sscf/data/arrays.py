"""Windows in memory as a domain: what a store holds, without the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sscf.data.store import Domain
from sscf.data.writing import _Sums as Sums


class ArrayDomain(Domain):
    """A domain whose arrays are in memory.

    windows  : (N, C, T) float32.
    labels   : (N,) index into `classes`.
    subjects : (N,) from 0; also taken as the recordings. None: every window is its own subject.
    """

    def __init__(
        self,
        name: str,
        windows: NDArray[np.float32],
        labels: NDArray[np.integer],
        classes: Sequence[str],
        *,
        subjects: NDArray[np.integer] | None = None,
        fs: float = 1.0,
        channels: Sequence[str] | None = None,
        unit: str = "",
    ) -> None:
        n, width, samples = windows.shape
        who = np.arange(n) if subjects is None else np.asarray(subjects)
        count = int(who.max(initial=-1)) + 1
        self._arrays: dict[str, NDArray[Any]] = {
            "windows": windows,
            "labels": np.asarray(labels, np.int32),
            "subjects": who.astype(np.int32),
            "recordings": who.astype(np.int32),
            "positions": np.arange(n, dtype=np.int64) * samples,
        }
        digest = hashlib.sha256(repr((tuple(classes), fs, windows.shape)).encode())
        for array in self._arrays.values():
            digest.update(np.ascontiguousarray(array).data)
        names = [str(i) for i in range(count)]
        super().__init__(
            Path(name),
            {
                "name": name,
                "windows": n,
                "samples": samples,
                "fs": fs,
                "hop": samples,
                "channels": list(channels) if channels is not None else [f"ch{i}" for i in range(width)],
                "unit": unit,
                "classes": list(classes),
                "subjects": names,
                "recordings": names,
                "fingerprint": digest.hexdigest()[:16],
                "tasks": {},
                "extra": [],
                "recipe": {},
            },
        )

    def _load(self, name: str) -> NDArray[Any]:
        return self._statistics() if name == "statistics" else self._arrays[name]

    def _statistics(self) -> NDArray[np.float64]:
        """(R + 1, 2, C): mean and standard deviation of every recording, then of all windows."""
        sums = Sums(len(self.recording_names), len(self.channels))
        for start in range(0, len(self), 1024):
            rows = slice(start, start + 1024)
            sums.add(self.windows[rows], self.recordings[rows])
        return sums.table()
