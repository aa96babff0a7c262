"""Sleep: stochastic oscillators whose strength follows a Markov hypnogram; EEG and EOG, in microvolts.

The hypnogram is a Markov chain over 30 s epochs. It cycles faster than a real night (a cycle in well under an hour),
so that an hour or two already holds every stage. In the EEG, noise-driven damped oscillators (slow waves, theta,
alpha, beta) stand over a 1/f background; spindles and K-complexes come as events in N2. The EOG has blinks when awake,
slow rolling in N1, bursts of saccades in REM, and a share of the EEG. Families are traits of a brain (alpha and spindle
frequency, how strong each rhythm is, the slope of the background): stable in a person, whatever the stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sscf.data.simulate.dynamics import Clock, Kind, Rng, device, oscillator, wander
from sscf.data.simulate.observe import Floats, Observation

CLASSES = ("W", "N1", "N2", "N3", "REM")
W, N1, N2, N3, REM = range(5)
RATES = (128.0, 200.0, 100.0, 256.0)

TRANSITIONS = np.array(
    [  # from \ to  W     N1    N2    N3    REM
        [0.860, 0.140, 0.000, 0.000, 0.000],
        [0.100, 0.620, 0.230, 0.000, 0.050],
        [0.020, 0.030, 0.820, 0.090, 0.040],
        [0.020, 0.010, 0.090, 0.880, 0.000],
        [0.040, 0.040, 0.050, 0.000, 0.870],
    ]
)
STRENGTH = {  # rms in microvolts by stage
    "slow": (4.0, 6.0, 13.0, 32.0, 6.0),
    "theta": (4.0, 8.0, 7.0, 7.0, 8.0),
    "alpha": (14.0, 5.0, 4.0, 4.0, 5.0),
    "beta": (5.0, 3.0, 2.0, 1.5, 3.0),
}
SPINDLES = (0.0, 0.2, 5.0, 1.5, 0.0)  # per minute by stage
COMPLEXES = (0.0, 0.0, 2.5, 0.5, 0.0)  # K-complexes per minute
BLINKS = (14.0, 1.0, 0.0, 0.0, 0.5)
SACCADES = (6.0, 0.5, 0.0, 0.0, 18.0)


@dataclass(frozen=True)
class Family:
    """A trait: frequencies in Hz, strengths as factors on the stage table."""

    name: str
    alpha: float
    sigma: float
    slow: float
    theta: float
    alpha_strength: float
    beta: float
    spindle: float  # microvolts
    slope: float  # of the background, amplitude ~ f^-slope
    background: float  # microvolts rms


FAMILIES = (
    Family("alpha-rich", 10.2, 13.6, 0.9, 0.8, 2.0, 0.8, 25.0, 0.5, 8.0),
    Family("low-voltage", 9.6, 13.0, 0.5, 0.7, 0.4, 1.0, 14.0, 0.2, 5.0),
    Family("slow", 8.6, 12.0, 1.3, 2.2, 1.0, 0.7, 22.0, 1.0, 22.0),
    Family("beta-rich", 11.0, 14.2, 0.8, 0.9, 0.7, 3.0, 20.0, 0.0, 10.0),
)


def sequence(rng: Rng, n: int) -> NDArray[np.int64]:
    """A Markov hypnogram of n epochs that begins awake."""
    stages = [W]
    for draw in rng.random(n - 1):
        stages.append(int(np.searchsorted(TRANSITIONS[stages[-1]].cumsum(), draw, side="right")))
    return np.array(stages, np.int64)


def latent(rng: Rng, clock: Clock, family: int) -> Floats:
    """EEG and EOG (2, T) in microvolts before the domain's device."""
    trait = FAMILIES[family]
    rate, stage = clock.rate, clock.at(clock.time)
    n = len(stage)
    person = np.exp(rng.normal(0, 0.12, 5))

    def rhythm(name: str, frequency: float, bandwidth: float, factor: float) -> Floats:
        return factor * np.array(STRENGTH[name])[stage] * oscillator(rng, n, rate, frequency, bandwidth)

    waning = 1 + 0.5 * wander(rng, n, rate, 0.15)  # alpha waxes and wanes
    eeg = person[0] * rhythm("slow", rng.uniform(0.8, 1.1), 0.7, trait.slow)
    eeg += person[1] * rhythm("theta", rng.uniform(5.2, 6.2), 2.0, trait.theta)
    eeg += person[2] * rhythm("alpha", trait.alpha + rng.normal(0, 0.3), 1.2, trait.alpha_strength) * waning
    eeg += person[3] * rhythm("beta", 20.0, 8.0, trait.beta)
    eeg += trait.background * background(rng, n, rate, trait.slope)
    sigma = trait.sigma + rng.normal(0, 0.2)
    eeg += person[4] * trait.spindle * events(rng, stage, rate, SPINDLES, spindle(rate, sigma))
    complexes = trait.slow**0.5 * 90 * events(rng, stage, rate, COMPLEXES, k_complex(rate))
    eeg += complexes

    eyes = 120 * events(rng, stage, rate, BLINKS, blink(rate))
    eyes += 60 * events(rng, stage, rate, SACCADES, saccade(rate), clustered=True, signed=True)
    rolling = 45 * oscillator(rng, n, rate, 0.3, 0.15) * (stage == N1)
    eog = eyes + rolling + 0.45 * eeg + 4 * background(rng, n, rate, 0.5)
    return np.stack([eeg + 0.1 * eyes, eog])


def background(rng: Rng, n: int, rate: float, slope: float) -> Floats:
    """1/f noise (n,), unit variance, amplitude ~ f^-slope, flat below 0.5 Hz."""
    f = fft.rfftfreq(n, 1 / rate)
    noise = fft.irfft(fft.rfft(rng.normal(size=n)) * np.maximum(f, 0.5) ** -slope, n)
    return noise / noise.std()


def events(
    rng: Rng,
    stage: NDArray[np.int64],
    rate: float,
    per_minute: tuple[float, ...],
    shape: Floats,
    *,
    clustered: bool = False,
    signed: bool = False,
) -> Floats:
    """A Poisson train of `shape` (n,) whose rate follows the stage; clustered: in bursts; signed: either way."""
    n = len(stage)
    rate_of = np.array(per_minute)[stage] / (60 * rate)
    if clustered:
        rate_of = rate_of * np.exp(1.5 * wander(rng, n, rate, 0.05) - 1.5**2 / 2)
    train = (rng.random(n) < rate_of).astype(float)
    heights = np.exp(rng.normal(0, 0.25, n))
    if signed:
        heights *= rng.choice((-1.0, 1.0), n)
    where = np.flatnonzero(train)
    out = np.zeros(n + len(shape))
    for i in where:  # few: a loop over events is cheaper than a convolution over samples
        out[i : i + len(shape)] += heights[i] * shape
    return out[:n]


def spindle(rate: float, frequency: float) -> Floats:
    t = np.arange(round(1.4 * rate)) / rate - 0.7
    return np.exp(-0.5 * (t / 0.25) ** 2) * np.cos(2 * np.pi * frequency * t)


def k_complex(rate: float) -> Floats:
    t = np.arange(round(1.6 * rate)) / rate
    return -np.exp(-0.5 * ((t - 0.4) / 0.10) ** 2) + 0.7 * np.exp(-0.5 * ((t - 0.8) / 0.2) ** 2)


def blink(rate: float) -> Floats:
    t = np.arange(round(0.6 * rate)) / rate
    return np.exp(-0.5 * ((t - 0.25) / 0.07) ** 2)


def saccade(rate: float) -> Floats:
    """A fast jump that the amplifier lets decay."""
    t = np.arange(round(1.5 * rate)) / rate
    return (1 - np.exp(-t / 0.02)) * np.exp(-t / 0.35)


def amplifier(rng: Rng, index: int, shift: float) -> Observation:
    """A polysomnograph: gain and corners of its amplifier, its derivation, its noise."""
    low = 0.3 * 2.0 ** (shift * rng.uniform(-0.6, 0.6))
    return device(
        rng,
        channels=2,
        rate=RATES[index % len(RATES)],
        shift=shift,
        band=(0.5, 32.0),
        gain=0.25,
        tilt=0.2,
        colour=0.4,
        low=low,
        high=35.0,
        noise=(1.0, 4.0),
        knee=1.0,
    )


SLEEP = Kind(
    name="sleep",
    task="sleep",
    classes=CLASSES,
    channels=("EEG", "EOG"),
    unit="uV",
    fs=100.0,
    length=3000,
    families=tuple(family.name for family in FAMILIES),
    subjects=6,
    windows=120,
    sequence=sequence,
    latent=latent,
    device=amplifier,
)
