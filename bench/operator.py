"""Speed of the calibration operator, as ratios taken in one run.

    python bench/operator.py

Everything runs on one thread and is measured in processor time, contenders in turn, the least of a few repeats: the
ratios hold on a busy machine too. A goal that is missed ends the script with status 1.
"""

from __future__ import annotations

import sys

# This file bears the name of a standard module, and Python looks in a script's own folder first.
FOLDER = sys.path.pop(0)
if __name__ == "__main__":
    import os

    os.environ["OMP_NUM_THREADS"] = "1"
    import subprocess
    import time
    from collections.abc import Callable
    from typing import Any

    import numpy as np
    import torch
    from scipy import signal
    from sklearn.cluster import KMeans
    from torch import Tensor, nn

    import sscf
    from sscf.core import welch
else:  # another script of this folder, or what it imports, asks for the standard module
    del sys.modules["operator"]
    import operator  # noqa: F401

    sys.path.insert(0, FOLDER)

SHAPES = [(128, 64, 64), (128, 64, 500), (2560, 64, 500)]
FRAME, HOP = 5, 2
MISSED: list[str] = []


def least(*calls: Callable[[], object], repeats: int = 5, seconds: float = 20.0) -> list[float]:
    """Least processor time (s) of each call, taken in turn; fewer repeats when they take long."""
    times: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    for call in calls:
        call()
    while len(times[0]) < 2 or (len(times[0]) < repeats and time.perf_counter() - begin < seconds):
        for call, record in zip(calls, times, strict=True):
            start = time.process_time()
            call()
            record.append(time.process_time() - start)
    return [min(record) for record in times]


def goal(name: str, ratio: float, at_least: float | None = None, at_most: float | None = None) -> str:
    ok = (at_least is None or ratio >= at_least) and (at_most is None or ratio <= at_most)
    if not ok:
        MISSED.append(name)
    return f"{'ok' if ok else 'MISSED'} (goal {f'>= {at_least}' if at_most is None else f'<= {at_most}'})"


def fit(shape: tuple[int, ...], frame: int = FRAME, hop: int = HOP) -> sscf.Anchors:
    maps = torch.randn(256, *shape[1:])
    return sscf.Anchors.fit(sscf.welch_power(maps, frame, hop, center=True), 4, frame, hop)


def plain(x: Tensor, anchors: sscf.Anchors) -> Tensor:
    """The method as one would write it down: one sample after the other."""
    frame, hop, length = anchors.frame, anchors.hop, x.shape[-1]
    window = torch.hann_window(frame)
    window = window / window.norm()
    at = torch.fft.rfftfreq(length) * frame
    low = at.floor().long().clamp(max=frame // 2)
    high, part = (low + 1).clamp(max=frame // 2), at - low
    out = []
    for sample in x:
        h = sample - sample.mean(dim=-1, keepdim=True)
        with torch.no_grad():
            power = torch.fft.rfft(h.unfold(-1, frame, hop) * window).abs().square().mean(dim=-2)
            nearest = torch.stack([(power.sqrt() - a.sqrt()).norm() for a in anchors.power]).argmin()
            mask = (anchors.power[nearest] / (power + anchors.eps)).sqrt()
            full = mask[:, low] * (1 - part) + mask[:, high] * part
        out.append(torch.fft.irfft(torch.fft.rfft(h) * full, n=length))
    return torch.stack(out)


def step(function: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(function(x), x, weight)


def forward_and_backward() -> None:
    print(f"\nforward + backward, frame {FRAME}, hop {HOP}, K = 4; ratio: times faster than the loop over samples")
    for shape in SHAPES:
        anchors = fit(shape)
        mask, full = (sscf.SpectralCalibration(anchors, gradient=g) for g in ("mask", "full"))  # type: ignore[arg-type]
        x, weight = torch.randn(shape, requires_grad=True), torch.randn(shape)
        torch.testing.assert_close(mask(x[:8]), plain(x[:8], anchors), rtol=1e-3, atol=1e-3)
        loop, ours, ours_full = least(
            step(lambda x, a=anchors: plain(x, a), x, weight), step(mask, x, weight), step(full, x, weight)
        )
        verdict = goal(f"operator {shape}", loop / ours, at_least=1.5)
        print(
            f"{shape!s:>15}  loop {loop * 1e3:8.1f} ms  ours {ours * 1e3:8.1f} ms  ratio {loop / ours:5.2f} {verdict}"
            f"  full gradient {ours_full * 1e3:8.1f} ms  ratio {loop / ours_full:5.2f}"
        )


def power() -> None:
    print("\nWelch power against scipy.signal.welch")
    for shape in SHAPES:
        for frame, hop in ((5, 2), (16, 8)):
            x = torch.randn(shape)
            array = x.numpy()

            def scipy_welch(array: np.ndarray = array, frame: int = frame, hop: int = hop) -> Any:
                return signal.welch(array, nperseg=frame, noverlap=frame - hop, detrend=False)

            theirs, ours = least(scipy_welch, lambda x=x, f=frame, h=hop: sscf.welch_power(x, f, h), seconds=10)
            verdict = goal(f"welch {shape} {frame}", theirs / ours, at_least=1.0)
            print(
                f"{shape!s:>15} frame {frame:2d}  scipy {theirs * 1e3:8.1f} ms  ours {ours * 1e3:7.1f} ms  "
                f"ratio {theirs / ours:5.2f} {verdict}"
            )


def product_or_fft() -> None:
    print(
        f"\nWelch frames of (128, 64, 500) by matrix product and by FFT; the product is used up to {welch.MATMUL_FRAME}"
    )
    x = torch.randn(128, 64, 500)
    chosen = welch.MATMUL_FRAME
    for frame in (4, 5, 8, 16, 32, 64, 96, 128, 160, 192, 256, 400):
        bases = []
        for limit in (1 << 30, 0):
            welch.MATMUL_FRAME = limit
            bases.append(welch.fourier_basis(frame, "hann", torch.float32))
        product, fft = least(
            *(lambda b=b: welch.frame_power(x, b, max(1, len(b) // 2), center=True) for b in bases), seconds=5
        )
        print(
            f"   frame {frame:3d}  product {product * 1e3:7.1f} ms  FFT {fft * 1e3:7.1f} ms  ratio {fft / product:5.2f}"
        )
    welch.MATMUL_FRAME = chosen


def filter_by_product() -> None:
    print("\nThe full-length filter by FFT and by two real Fourier matrices, 8192 rows")
    for length in (16, 32, 64, 125, 128, 250):
        x, mask = torch.randn(8192, length), torch.rand(8192, length // 2 + 1)
        forward = torch.fft.rfft(torch.eye(length))
        forward = torch.cat([forward.real, forward.imag], dim=1)
        back = torch.linalg.pinv(forward)

        def product(x: Tensor = x, mask: Tensor = mask, forward: Tensor = forward, back: Tensor = back) -> Tensor:
            return (x @ forward * mask.repeat(1, 2)) @ back

        def fft(x: Tensor = x, mask: Tensor = mask, length: int = length) -> Tensor:
            return torch.fft.irfft(torch.fft.rfft(x) * mask, n=length)

        torch.testing.assert_close(product(), fft(), rtol=1e-3, atol=1e-3)
        a, b = least(product, fft, repeats=20, seconds=5)
        print(f"  length {length:3d}  product {a * 1e3:6.2f} ms  FFT {b * 1e3:6.2f} ms  ratio {b / a:5.2f}")


def training_step() -> None:
    from sscf.nn import build, insert, tap_output

    print("\nA training step of the CNN-BiLSTM on (128, 3, 128), without and with calibration")
    x, y = torch.randn(128, 3, 128), torch.randint(0, 4, (128,))

    def train(model: nn.Module) -> Callable[[], object]:
        optimiser = torch.optim.Adam(model.parameters(), 1e-3)

        def run() -> None:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()

        return run

    for frame, hop in ((5, 2), (16, 8)):
        without, with_it = (build("cnn_bilstm", in_channels=3, length=128, n_classes=4) for _ in range(2))
        tap = with_it.taps[0]
        with torch.no_grad():
            maps = tap_output(with_it, tap, x)
        anchors = sscf.Anchors.fit(sscf.welch_power(maps, frame, hop, center=True), 4, frame, hop)
        insert(with_it, tap, sscf.SpectralCalibration(anchors))
        before, after = least(train(without), train(with_it), repeats=15)
        verdict = goal(f"training step frame {frame}", after / before, at_most=1.15)
        print(
            f"  frame {frame:2d}, tap {tap} {tuple(maps.shape)}: {before * 1e3:6.1f} ms -> {after * 1e3:6.1f} ms  "
            f"ratio {after / before:5.3f} {verdict}"
        )


def latency() -> None:
    print("\nOne window (1, 64, 64), inference")
    calibration, x = sscf.SpectralCalibration(fit((1, 64, 64), 16, 8)), torch.randn(1, 64, 64)

    def hundred() -> None:
        with torch.inference_mode():
            for _ in range(100):
                calibration(x)

    print(f"  {least(hundred, repeats=10)[0] * 1e4:.0f} microseconds")


def fitting() -> None:
    print("\nAnchors.fit on 200,000 x (64, 3), K = 4, against KMeans(4) on the flattened array")
    rng = np.random.default_rng(0)
    families = rng.gamma(1.0, 1.0, (6, 64, 3))
    loud = rng.lognormal(0, 0.5, (200_000, 1, 1))
    strata = families[rng.integers(0, 6, 200_000)] * rng.gamma(8, 1 / 8, (200_000, 64, 3)) * loud
    noise = rng.chisquare(2, (200_000, 64, 3))
    for name, data in (("six families", strata), ("noise", noise)):
        power = data.astype(np.float32)
        flat = np.sqrt(power).reshape(len(power), -1)
        theirs, ours = least(
            lambda v=flat: KMeans(4, random_state=0).fit(v), lambda p=power: sscf.Anchors.fit(p, 4, FRAME, HOP)
        )
        naive = KMeans(4, random_state=0).fit(flat).inertia_
        # The strata K-Means ended with, judged by their own centres: arithmetic means of the amplitudes.
        anchors = sscf.Anchors.fit(power, 4, FRAME, HOP)
        distance = anchors.distances(power).min(dim=1).values
        inertia = float(distance.double().square().sum())
        faster = goal(f"fit {name}", theirs / ours, at_least=1.0)
        equal = goal(f"inertia {name}", inertia / naive, at_most=1.01)
        print(
            f"  {name:12s}  sklearn {theirs:5.2f} s  ours {ours:5.2f} s  ratio {theirs / ours:5.2f} {faster}  "
            f"inertia ours / theirs {inertia / naive:.4f} {equal}"
        )


def imports() -> None:
    print("\nImport time, fresh interpreters")

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    codes = (
        "pass",
        "import torch",
        "import sscf",
        "import sscf; sscf.welch_power, sscf.Anchors, sscf.SpectralCalibration",
    )
    empty, alone, package, used = (min(run(code) for _ in range(3)) for code in codes)
    print(
        f"  torch {alone - empty:.2f} s, sscf {package - empty:.3f} s, sscf with the operator {used - empty:.2f} s",
        end="  ",
    )
    print(goal("import", (used - empty) / (alone - empty), at_most=2.0))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for part in (
        forward_and_backward,
        power,
        product_or_fft,
        filter_by_product,
        training_step,
        latency,
        fitting,
        imports,
    ):
        part()
    if MISSED:
        sys.exit("goals missed: " + ", ".join(MISSED))


if __name__ == "__main__":
    main()
