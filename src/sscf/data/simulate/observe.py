"""How a domain sees the latent signal: x = g_d * z + noise, at the device's own rate, then at the store's rate.

`g_d(f)` is real and positive, one smooth curve per channel (the paper's observation model: amplitude, not phase).
It is applied in the frequency domain together with the change of rate, so it is exact: what a test reads back from
the spectra is what was put in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Observation:
    """One domain's device: channels C.

    Below, an octave is a factor of two, in amplitude as in frequency.
    """

    rate: float  # native sampling rate, Hz
    centres: Floats  # (B,) Hz, an octave apart
    heights: Floats  # (C, B) octaves, how much the response rises or falls around each centre
    low: float  # Hz, high-pass corner; 0 for a sensor that is right at rest (g_d(0) = 1)
    high: float  # Hz, low-pass corner
    noise: float  # standard deviation of the white noise at the native rate, in the signal's unit
    knee: float  # Hz, below which the noise grows as 1/f

    def response(self, frequencies: Floats) -> Floats:
        """g_d at `frequencies` (F,) in Hz: amplitude factors (C, F)."""
        f = np.maximum(np.asarray(frequencies, float), 1e-6)
        octaves = np.log2(f / self.centres[:, None])
        bumps = np.exp(-0.5 * (octaves / 0.6) ** 2)
        shape = self.heights @ bumps
        ends = 1 / np.sqrt(1 + (f / self.high) ** 8)
        if self.low > 0:
            ends = ends / np.sqrt(1 + (self.low / f) ** 4)
        else:  # calibrated against gravity: whatever is slow is seen as it is
            shape = shape * f**2 / (f**2 + 0.2**2)
        return np.exp2(shape) * ends

    def observe(self, latent: Floats, rng: np.random.Generator, fs: float) -> Floats:
        """Latent signal (C, T) at the native rate -> what the store holds, (C, T * fs / rate).

        T must be a whole number of seconds; the ends are circular, so callers cut a margin off.
        """
        channels, n = latent.shape
        seconds = n / self.rate
        f = fft.rfftfreq(n, 1 / self.rate)
        noise = fft.rfft(rng.normal(0, self.noise, (channels, n))) * np.sqrt(1 + self.knee / np.maximum(f, 0.1))
        seen = fft.rfft(latent) * self.response(f) + noise
        m = round(seconds * fs)
        kept = np.zeros((channels, m // 2 + 1), complex)
        shared = (min(n, m) + 1) // 2  # strictly below both Nyquist frequencies: nothing can alias
        kept[:, :shared] = seen[:, :shared]
        return fft.irfft(kept, m) * (m / n)
