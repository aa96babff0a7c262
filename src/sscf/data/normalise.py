"""Normalisation: a view of the store's physical windows, applied when they are loaded.

none       as stored
center     each window and channel minus its mean                         zero-shot
window     each window and channel to mean 0 and standard deviation 1     zero-shot
recording  by mean and standard deviation of the window's recording       zero-shot
source     by mean and standard deviation of the source training windows  zero-shot
dataset    by mean and standard deviation of the whole data set           uses unlabelled target data: NOT zero-shot
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sscf.data.store import Domain
from sscf.errors import ConfigError

NORMALISATIONS = ("none", "center", "window", "recording", "dataset", "source")
# Below this a channel is flat: dividing by less would only blow up quantisation noise.
_SMALLEST = 1e-8


def is_zero_shot(kind: str) -> bool:
    """Whether a model so normalised needs nothing from the target but the window or recording at hand."""
    _known(kind)
    return kind != "dataset"


@dataclass(frozen=True)
class Normaliser:
    """Normalises windows of one domain (`for_domain`) or of any (`none`, `center`, `window`, `source`).

    mean, std : (C,) or, for "recording", (R, C) statistics in the store's unit; None where the kind needs none.

    >>> Normaliser("center").apply(np.array([[[1.0, 3.0]]]))
    array([[[-1.,  1.]]], dtype=float32)
    """

    kind: str
    mean: NDArray[np.float64] | None = None
    std: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        _known(self.kind)
        if self.kind in ("recording", "dataset", "source") and (self.mean is None or self.std is None):
            raise ConfigError(f"normalisation {self.kind!r} needs statistics: use Normaliser.for_domain or .fit")

    @classmethod
    def for_domain(cls, kind: str, domain: Domain, source: Normaliser | None = None) -> Normaliser:
        """The normaliser of a domain's windows; "source" takes the one fitted on the source training windows."""
        _known(kind)
        if kind == "source":
            if source is None or source.kind != "source":
                raise ConfigError("normalisation 'source' needs the normaliser fitted on the source windows")
            return source
        s = domain.statistics
        if kind == "recording":
            return cls(kind, s.recording_mean, s.recording_std)
        return cls(kind, s.mean, s.std) if kind == "dataset" else cls(kind)

    @classmethod
    def fit(cls, batches: Iterable[NDArray[Any]]) -> Normaliser:
        """The "source" normaliser: statistics over the source training windows, given as (n, C, T) batches."""
        n, mean, m2 = 0, np.zeros(1), np.zeros(1)
        for batch in batches:  # Chan's update: exact for any batch sizes, no second pass
            x = np.asarray(batch, np.float64)
            k = x.shape[0] * x.shape[2]
            if k == 0:
                continue
            own = x.mean(axis=(0, 2))
            delta = own - mean
            m2 = m2 + ((x - own[:, None]) ** 2).sum(axis=(0, 2)) + delta**2 * (n * k / (n + k))
            mean = mean + delta * (k / (n + k))
            n += k
        if n == 0:
            raise ConfigError("normalisation 'source': no source windows to fit on")
        return cls("source", mean, np.sqrt(m2 / n))

    def apply(self, windows: NDArray[Any], recordings: ArrayLike | None = None) -> NDArray[np.float32]:
        """Normalised float32 copy of (n, C, T) windows; `recordings` (n,) indices are needed by "recording" only."""
        x = np.array(windows, np.float32)
        if self.kind == "none":
            return x
        if self.kind in ("center", "window"):
            # float64 accumulation: the mean of thousands of float32 microvolts with an offset loses digits
            x -= x.mean(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32)
            if self.kind == "window":
                power = np.einsum("...t,...t->...", x, x, dtype=np.float64) / x.shape[-1]
                x /= np.maximum(np.sqrt(power), _SMALLEST)[..., None].astype(np.float32)
            return x
        assert self.mean is not None
        assert self.std is not None
        mean, std = self.mean, np.maximum(self.std, _SMALLEST)
        if self.kind == "recording":
            if recordings is None:
                raise ConfigError("normalisation 'recording' needs to know each window's recording")
            rows = np.asarray(recordings)
            mean, std = mean[rows], std[rows]
        x -= mean[..., None].astype(np.float32)
        x /= std[..., None].astype(np.float32)
        return x

    def to_json(self) -> dict[str, Any]:
        """A JSON value that `from_json` turns back into this normaliser, to the bit."""
        return {
            "kind": self.kind,
            "mean": None if self.mean is None else self.mean.tolist(),
            "std": None if self.std is None else self.std.tolist(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Normaliser:
        def array(key: str) -> NDArray[np.float64] | None:
            return None if value[key] is None else np.array(value[key], np.float64)

        return cls(value["kind"], array("mean"), array("std"))


def _known(kind: str) -> None:
    if kind not in NORMALISATIONS:
        raise ConfigError(f"no normalisation {kind!r}; there are {', '.join(NORMALISATIONS)}")
