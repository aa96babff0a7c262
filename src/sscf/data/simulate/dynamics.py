"""The pieces latent systems are made of, and what a kind of simulation has to say about itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from sscf.data.simulate.observe import Floats, Observation

Rng = np.random.Generator


@dataclass(frozen=True)
class Clock:
    """The native time axis of one recording: `margin` seconds, then a window per label, then the rest."""

    labels: NDArray[np.int64]  # (n,) class of each window
    window: float  # seconds
    rate: float  # Hz, native
    margin: int = 4  # seconds cut off again after observation, at either end at least

    @property
    def seconds(self) -> int:
        return int(np.ceil(len(self.labels) * self.window)) + 2 * self.margin

    @property
    def time(self) -> Floats:
        """Seconds from the start of the first window, (T,)."""
        return np.arange(round(self.seconds * self.rate)) / self.rate - self.margin

    def at(self, time: Floats | float) -> NDArray[np.int64]:
        """Class at given seconds; the first and last label reach into the margins."""
        index = np.floor(np.asarray(time) / self.window + 1e-9).astype(int)
        return self.labels[index.clip(0, len(self.labels) - 1)]


@dataclass(frozen=True)
class Kind:
    """A kind of simulated recording: what is simulated and how it is stored."""

    name: str
    task: str
    classes: tuple[str, ...]
    channels: tuple[str, ...]
    unit: str
    fs: float  # Hz, of the store
    length: int  # samples of a window at fs
    families: tuple[str, ...]  # every family there is; a simulation uses the first few
    subjects: int
    windows: int  # per subject
    sequence: Callable[[Rng, int], NDArray[np.int64]]  # classes of n consecutive windows
    latent: Callable[[Rng, Clock, int], Floats]  # (generator, clock, family) -> (C, T) at the native rate
    device: Callable[[Rng, int, float], Observation]  # (generator, domain index, shift) -> the domain's device
    resting: tuple[int, ...] = ()  # classes without the family's dynamics: a family of their own, "rest"


def bouts(rng: Rng, n: int, shares: Sequence[float], longest: int = 5) -> NDArray[np.int64]:
    """n labels in shuffled bouts of at most `longest`; class counts follow `shares` to within one window."""
    exact = n * np.asarray(shares) / np.sum(shares)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: n - counts.sum()]] += 1
    blocks = [
        np.full(min(longest, count - start), label)
        for label, count in enumerate(counts)
        for start in range(0, count, longest)
    ]
    return np.concatenate([blocks[i] for i in rng.permutation(len(blocks))]).astype(np.int64)


def wander(rng: Rng, n: int, rate: float, corner: float) -> Floats:
    """Ornstein-Uhlenbeck process (n,) of unit variance with its corner at `corner` Hz."""
    decay = np.exp(-2 * np.pi * corner / rate)
    drive = rng.normal(0, np.sqrt(1 - decay**2), n)
    drive[0] /= np.sqrt(1 - decay**2)  # start in the stationary state
    return signal.lfilter([1], [1, -decay], drive)


def oscillator(rng: Rng, n: int, rate: float, frequency: float, bandwidth: float) -> Floats:
    """Noise-driven damped oscillator (n,), unit variance: real part of z' = pi (2i frequency - bandwidth) z + noise."""
    pole = np.exp((-np.pi * bandwidth + 2j * np.pi * frequency) / rate)
    spread = np.sqrt(1 - abs(pole) ** 2)
    drive = (rng.normal(0, spread, n) + 1j * rng.normal(0, spread, n)).astype(np.complex128)
    drive[0] /= spread
    return signal.lfilter([1], [1, -pole], drive).real


def device(
    rng: Rng,
    *,
    channels: int,
    rate: float,
    shift: float,
    band: tuple[float, float],
    gain: float,
    tilt: float,
    colour: float,
    low: float = 0.0,
    high: float,
    noise: tuple[float, float],
    knee: float = 0.0,
) -> Observation:
    """Draw a domain's device: a smooth response over `band` and a noise level out of a range.

    `gain`, `tilt` (per octave) and `colour` are spreads in octaves: of the whole response, of its slope, and of its ups
    and downs; half of each is shared by the channels. `shift` scales all three.
    """
    centres = 2.0 ** np.arange(np.floor(np.log2(band[0])), np.ceil(np.log2(band[1])) + 1)
    octaves = np.arange(len(centres)) - (len(centres) - 1) / 2

    def spread(bins: int = 1) -> Floats:
        return (rng.uniform(-1, 1, (1, bins)) + rng.uniform(-1, 1, (channels, bins))) / np.sqrt(2)

    shape = gain * spread() + tilt * spread() * octaves + colour * spread(len(centres))
    return Observation(
        rate=rate,
        centres=centres,
        heights=shift * shape,
        low=low,
        high=min(high, 0.4 * rate),
        noise=float(np.exp(rng.uniform(*np.log(noise)))),
        knee=knee,
    )
