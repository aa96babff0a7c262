"""Peak memory of Anchors.fit on a stream: one million windows of (64, 9) power must take at most 1.5 GB.

python bench/anchors_memory.py [windows]
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator

import numpy as np

import sscf

LIMIT_MB = 1500


def stream(windows: int, batch: int = 2000) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    families = rng.gamma(1.0, 1.0, (6, 64, 9)).astype(np.float32)
    for start in range(0, windows, batch):
        n = min(batch, windows - start)
        yield families[rng.integers(0, 6, n)] * rng.random((n, 64, 9), dtype=np.float32)


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes, on macOS bytes
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def main() -> None:
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    sscf.Anchors.fit(lambda: stream(100), k=4, frame=16, hop=8)  # imports and thread pools are not the data's
    before, start = peak_mb(), time.perf_counter()
    anchors = sscf.Anchors.fit(lambda: stream(windows), k=4, frame=16, hop=8)
    above, seconds = peak_mb() - before, time.perf_counter() - start
    assert int(anchors.counts.sum()) == windows
    held = windows * 64 * 9 * 4 / (1 << 20)
    print(
        json.dumps(
            {"windows": windows, "power_mb": round(held), "above_mb": round(above), "seconds": round(seconds, 1)}
        )
    )
    if above > LIMIT_MB:
        sys.exit(f"peak of {above:.0f} MB above the interpreter's; the limit is {LIMIT_MB} MB")


if __name__ == "__main__":
    main()
