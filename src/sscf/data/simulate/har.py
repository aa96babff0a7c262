"""Activity as a phone's accelerometer sees it: a gait oscillator, a body that rings, a sensor that is askew.

The gait is a limit cycle. Its stride phase runs at half the cadence, with a wandering rate; every step adds an impact
and a slower push to the vertical, forward and sideways acceleration. Walking lands first and then rolls off; on
stairs the lift comes before a softer landing, the rate wanders more and the steps are less alike. Sitting breathes,
standing sways. Where the phone is carried (the family) decides how sharp the events are, how much of the swing of the
limb is added, where the tissue or the bag resonates, and which way the sensor points: nothing of that depends on the
activity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.spatial.transform import Rotation

from sscf.data.simulate.dynamics import Clock, Kind, Rng, bouts, device, oscillator, wander
from sscf.data.simulate.observe import Floats, Observation

CLASSES = ("walking", "stairs", "sitting", "standing")
RATES = (100.0, 50.0, 64.0, 40.0)


@dataclass(frozen=True)
class Gait:
    """Stride cycle of one activity. Event phases are radians after the landing, amplitudes g (up, forward, side)."""

    cadence: float  # steps per second
    jitter: float  # relative wander of the cadence
    landing: tuple[float, float, float]
    sharpness: float  # of the landing; width in radians is about 1/sqrt(sharpness)
    push: tuple[float, float, float]
    push_phase: float
    uneven: float  # difference between left and right step
    swing: float  # of the limb, relative to the family's


@dataclass(frozen=True)
class Family:
    """A way to carry the phone."""

    name: str
    scale: float
    sharpness: float  # factor on the landing's
    swing: tuple[float, float, float]  # g at the stride rate
    resonance: float  # Hz
    damping: float
    turn: tuple[float, float, float]  # of the sensor, a rotation vector in degrees
    lag: float  # radians of the step, by which soft parts delay the push
    tremor: float  # g, 8 to 10 Hz, when at rest


GAITS = {
    0: Gait(1.85, 0.03, (0.60, -0.30, 0.15), 18.0, (0.25, 0.22, -0.04), 0.7, 0.08, 1.0),
    1: Gait(1.70, 0.06, (0.38, -0.16, 0.18), 7.0, (0.34, 0.24, 0.04), -0.7, 0.15, 0.9),
}
FAMILIES = (  # equally loud, each in a band of its own: where a phone is carried shows more than which phone it is
    Family("waist", 1.4, 1.50, (0.00, 0.05, 0.10), 9.0, 0.4, (0, 10, 0), 0.0, 0.003),
    Family("pocket", 0.9, 0.50, (0.60, 0.30, 0.10), 4.5, 0.3, (70, 70, 70), 1.2, 0.002),
    Family("hand", 0.5, 0.15, (1.20, 0.30, 0.40), 2.2, 0.5, (-65, -75, -60), -1.2, 0.010),
    Family("bag", 0.8, 0.60, (0.05, 0.05, 0.10), 2.6, 0.3, (0, 0, 180), 2.4, 0.001),
)


def sequence(rng: Rng, n: int) -> NDArray[np.int64]:
    """A third walking, a third stairs, a third at rest (half of it sitting)."""
    return bouts(rng, n, (2, 2, 1, 1))


def latent(rng: Rng, clock: Clock, family: int) -> Floats:
    """Acceleration (3, T) in g on the sensor's axes, gravity included, before the domain's device."""
    style = FAMILIES[family]
    activity = clock.at(clock.time)
    n, rate = len(activity), clock.rate
    motion: Floats = np.zeros((3, n))
    for label, gait in GAITS.items():
        motion += (activity == label) * steps(rng, n, rate, gait, style)
    motion = ring(motion, rate, style)
    motion += rest(rng, activity, rate, style)
    down = np.where(activity == CLASSES.index("sitting"), np.radians(rng.normal(60, 15)), np.radians(rng.normal(5, 5)))
    gravity = np.stack([np.cos(down), np.sin(down), np.zeros(n)])
    askew = Rotation.from_rotvec(np.radians(rng.normal(0, 10, 3))) * Rotation.from_euler(
        "xyz", style.turn, degrees=True
    )
    return askew.as_matrix() @ (motion + gravity)


def steps(rng: Rng, n: int, rate: float, gait: Gait, style: Family) -> Floats:
    """The limit cycle, (3, n) in g, for one subject who walks on and on."""
    cadence = gait.cadence * np.exp(rng.normal(0, 0.10))
    phase = np.pi * np.cumsum(cadence * (1 + gait.jitter * wander(rng, n, rate, 0.5))) / rate  # stride phase, radians
    vigour = np.exp(rng.normal(0, 0.12)) * (1 + 0.12 * wander(rng, n, rate, 0.3))
    uneven = gait.uneven * rng.normal(0, 1)
    push_phase = gait.push_phase + style.lag + rng.normal(0, 0.35) + 0.3 * wander(rng, n, rate, 0.1)
    even = 1 + uneven * np.sign(np.sin(phase))  # left and right steps differ
    side = np.cos(phase)  # sideways events alternate
    landing = bumps(2 * phase, gait.sharpness * style.sharpness) * even
    push = bumps(2 * phase - push_phase, 2.5) * even
    out = np.empty((3, n))
    for axis in range(3):
        sign = side if axis == 2 else 1.0
        beat = (gait.landing[axis] * landing + gait.push[axis] * push) * sign
        swing = gait.swing * style.swing[axis] * np.cos(phase + 0.6 * axis)
        out[axis] = style.scale * vigour * (beat + swing)
    return out


def bumps(phase: Floats, sharpness: float) -> Floats:
    """A von Mises bump of height one per turn of the phase."""
    return np.exp(sharpness * (np.cos(phase) - 1))


def ring(motion: Floats, rate: float, style: Family) -> Floats:
    """Body transfer: a damped resonance between the body and the sensor (causal, so with its phase)."""
    ratio = fft.rfftfreq(motion.shape[1], 1 / rate) / style.resonance
    transfer = (1 + 2j * style.damping * ratio) / (1 - ratio**2 + 2j * style.damping * ratio)
    return fft.irfft(fft.rfft(motion) * transfer, motion.shape[1])


def rest(rng: Rng, activity: NDArray[np.int64], rate: float, style: Family) -> Floats:
    """What remains at rest, (3, n) in g: breath or sway, tremor of the hand, fidgets, a foot that taps."""
    n = len(activity)
    sitting, standing = activity == CLASSES.index("sitting"), activity == CLASSES.index("standing")
    breath = 0.012 * oscillator(rng, n, rate, rng.uniform(0.2, 0.32), 0.03)
    sway = 0.02 * np.stack([oscillator(rng, n, rate, rng.uniform(0.4, 0.7), 0.4) for _ in range(3)])
    tremor = style.tremor * np.stack([oscillator(rng, n, rate, rng.uniform(8, 10), 1.0) for _ in range(3)])
    fidget = 0.06 * np.maximum(wander(rng, n, rate, 0.1) - 1.8, 0) * wander(rng, n, rate, 1.5)
    beat = 2 * np.pi * np.cumsum(rng.uniform(1.5, 2.0) * (1 + 0.04 * wander(rng, n, rate, 0.5))) / rate
    tapping = (wander(rng, n, rate, 0.05) > 0) * (0.016 * bumps(beat, 12.0) + 0.008 * bumps(beat - style.lag, 2.5))
    still = np.array([[0.5], [1.0], [0.3]]) * (breath * sitting) + sway * standing
    restless = style.scale * np.array([[1.0], [0.5], [0.3]]) * (fidget + tapping)
    return (still + restless + tremor) * (sitting | standing)


def sensor(rng: Rng, index: int, shift: float) -> Observation:
    """An accelerometer and its mounting: calibrated against gravity, so nearly of one gain, but coloured."""
    return device(
        rng,
        channels=3,
        rate=RATES[index % len(RATES)],
        shift=shift,
        band=(4.0, 16.0),
        gain=0.2,
        tilt=0.6,
        colour=1.0,
        high=20.0,
        noise=(0.02, 0.06),
        knee=0.1,
    )


HAR = Kind(
    name="har",
    task="har",
    classes=CLASSES,
    channels=("acc_x", "acc_y", "acc_z"),
    unit="g",
    fs=50.0,
    length=128,
    families=tuple(family.name for family in FAMILIES),
    subjects=8,
    windows=40,
    resting=(CLASSES.index("sitting"), CLASSES.index("standing")),
    sequence=sequence,
    latent=latent,
    device=sensor,
)
