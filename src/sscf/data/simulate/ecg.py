"""The electrocardiogram as a dynamical system (McSharry, Clifford, Tarassenko & Smith 2003), one lead, in mV.

The model moves on a unit circle with angular speed 2*pi/RR while five Gaussian events (P, Q, R, S, T) pull a third
variable up and down as their angle goes by:

    x' = r x - w y,   y' = r y + w x   (r = 1 - sqrt(x^2 + y^2)),
    z' = -sum_i a_i w / b_i^2 d_i exp(-d_i^2 / 2 b_i^2) - (z - z0),   d_i = angle - angle_i,

in the normalisation of Sameni et al. (2007): a_i is the height of the event in mV whatever the rate. We start on the
limit cycle, so the angle is known in closed form from the beat times, and z is a driven first-order decay: with
G = sum_i a_i exp(-d_i^2 / 2 b_i^2), z = G - v and v' = (G - z0) - v. No ODE solver is needed, one pass over the samples
does (a test integrates the three equations and finds the same z).

Rhythms: `normal` beats by respiratory and Mayer waves; `af` has independent beat intervals, no P wave and
fibrillatory waves; `other` has ectopic beats, ventricular (early, broad, no P wave, discordant T, a pause after) or
atrial (early, a P wave of its own). Families are electrical positions and bodies: heights and widths of the events.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from sscf.data.simulate.dynamics import Clock, Kind, Rng, bouts, device, wander
from sscf.data.simulate.observe import Floats, Observation

CLASSES = ("normal", "af", "other")
NORMAL, AF, OTHER = range(3)
SINUS, FIBRILLATION, VENTRICULAR, ATRIAL = range(4)  # what a beat is
RATES = (360.0, 257.0, 500.0, 250.0)

ANGLES = np.radians([-70.0, -15.0, 0.0, 15.0, 100.0])  # P Q R S T, of a sinus beat at 60 beats a minute
FAMILIES = {  # heights in mV, widths in radians
    "upright": ([0.12, -0.10, 1.20, -0.20, 0.25], [0.25, 0.08, 0.08, 0.08, 0.40]),
    "lying": ([0.08, -0.04, 0.40, -0.45, 0.15], [0.22, 0.10, 0.12, 0.14, 0.45]),
    "broad": ([0.15, -0.02, 0.90, -0.10, 0.60], [0.30, 0.12, 0.22, 0.18, 0.50]),
    "strained": ([0.14, -0.15, 1.70, -0.45, -0.25], [0.25, 0.10, 0.11, 0.10, 0.35]),
}


def sequence(rng: Rng, n: int) -> NDArray[np.int64]:
    """Episodes of the three rhythms in equal parts."""
    return bouts(rng, n, (1, 1, 1))


def latent(rng: Rng, clock: Clock, family: int) -> Floats:
    """One lead (1, T) in mV before the domain's device."""
    time, rate = clock.time, clock.rate
    peaks, beats = rhythm(rng, clock)
    heights, angles, widths = morphology(rng, peaks, beats, family)
    breath = 0.03 * np.sin(2 * np.pi * 0.25 * time + rng.uniform(0, 2 * np.pi))
    z = lead(time, rate, peaks, heights, angles, widths, breath)
    return (z + flutter(rng, time, rate) * (clock.at(time) == AF))[None]


def rhythm(rng: Rng, clock: Clock) -> tuple[Floats, NDArray[np.int64]]:
    """Times of the R peaks in seconds and what each beat is; the rhythm follows the class of the window."""
    resting = rng.uniform(0.70, 1.0)  # s, of the subject
    breathing, depth = rng.uniform(0.2, 0.3), rng.uniform(0.02, 0.05)
    irregular = rng.uniform(0.18, 0.26)
    ventricular = rng.random() < 0.7  # the kind of ectopy a subject has
    peaks, beats = [-clock.margin - 2.0], [SINUS]
    since = 0  # sinus beats since the last ectopic one
    while peaks[-1] < clock.seconds - clock.margin + 2:
        t = peaks[-1]
        state = int(clock.at(t))
        waves = 1 + depth * np.sin(2 * np.pi * breathing * t) + 0.02 * np.sin(2 * np.pi * 0.1 * t)
        interval, beat = resting * waves * (1 + rng.normal(0, 0.01)), SINUS
        chance, early = rng.random(), rng.uniform(0.60, 0.75)
        if state == AF:
            interval, beat = max(0.32, 0.85 * resting * np.exp(rng.normal(0, irregular))), FIBRILLATION
        elif beats[-1] == VENTRICULAR:
            interval *= 2 - 0.68  # the compensatory pause
        elif state == OTHER and since > 0 and (chance < 0.25 or since > 4):
            interval, beat = interval * early, VENTRICULAR if ventricular else ATRIAL
        since = 0 if beat in (VENTRICULAR, ATRIAL) else since + 1
        peaks.append(t + interval)
        beats.append(beat)
    return np.array(peaks), np.array(beats)


def morphology(rng: Rng, peaks: Floats, beats: NDArray[np.int64], family: int) -> tuple[Floats, Floats, Floats]:
    """Heights (mV), angles and widths (radians) of the five events of every beat, each (beats, 5)."""
    height, width = (np.array(v) for v in list(FAMILIES.values())[family])
    height = height * np.exp(rng.normal(0, 0.15, 5))
    width = width * np.exp(rng.normal(0, 0.06, 5))
    heights = height * np.exp(rng.normal(0, 0.03, (len(beats), 5)))
    # Events keep more of their duration than of their angle when the heart is fast (as ECGSYN corrects them).
    fast = 1 / np.sqrt(np.clip(np.gradient(peaks), 0.4, 1.6))[:, None]
    angles = ANGLES * fast ** np.array([0.5, 1, 1, 1, 0.5])
    widths = width * fast
    heights[beats == FIBRILLATION, 0] = 0
    heights[beats == ATRIAL, 0] *= -0.6
    broad = beats == VENTRICULAR
    heights[broad] *= np.array([0, 0, 1.3, 1.5, -1.3])
    widths[broad] *= np.array([1, 1, 2.3, 2.0, 1.1])
    angles[broad, 3] *= 2
    return heights, angles, widths


def lead(
    time: Floats,
    rate: float,
    peaks: Floats,
    heights: Floats,
    angles: Floats,
    widths: Floats,
    baseline: Floats | float = 0.0,
) -> Floats:
    """z of the model at uniform `time` (T,) for R peaks at `peaks` (s); events (beats, 5); baseline z0 in mV."""
    phase = np.interp(time, peaks, 2 * np.pi * np.arange(len(peaks)))
    nearest = np.rint(phase / (2 * np.pi)).astype(int)
    g = np.zeros_like(time)
    for neighbour in (-1, 0, 1):  # an event's tail may reach into the next beat
        beat = (nearest + neighbour).clip(0, len(peaks) - 1)
        offset = phase - 2 * np.pi * (nearest + neighbour)
        for event in range(5):
            d = (offset - angles[beat, event]) / widths[beat, event]
            g += heights[beat, event] * np.exp(-0.5 * d**2)
    decay = np.exp(-1 / rate)
    drive = g - baseline
    return g - signal.lfilter([1 - decay], [1, -decay], drive)


def flutter(rng: Rng, time: Floats, rate: float) -> Floats:
    """Fibrillatory waves (T,) in mV: a sawtooth-like oscillation at 5 to 8 Hz that wanders in rate and height."""
    frequency = rng.uniform(5, 8) * (1 + 0.08 * wander(rng, len(time), rate, 0.5))
    phase = 2 * np.pi * np.cumsum(frequency) / rate
    height = rng.uniform(0.03, 0.08) * (1 + 0.3 * wander(rng, len(time), rate, 0.5))
    return height * (np.sin(phase) + 0.4 * np.sin(2 * phase))


def recorder(rng: Rng, index: int, shift: float) -> Observation:
    """An ECG amplifier with electrodes: its corners, gain and noise."""
    low = 0.5 * 4.0 ** (shift * rng.uniform(-0.5, 0.5))
    high = 28.0 * 2.0 ** (shift * rng.uniform(-0.5, 0.5))
    return device(
        rng,
        channels=1,
        rate=RATES[index % len(RATES)],
        shift=shift,
        band=(1.0, 32.0),
        gain=0.25,
        tilt=0.2,
        colour=0.5,
        low=low,
        high=high,
        noise=(0.02, 0.08),
        knee=3.0,
    )


ECG = Kind(
    name="ecg",
    task="ecg",
    classes=CLASSES,
    channels=("II",),
    unit="mV",
    fs=100.0,
    length=1000,
    families=tuple(FAMILIES),
    subjects=8,
    windows=40,
    sequence=sequence,
    latent=latent,
    device=recorder,
)
