"""Anchors: the reference spectrum of each stratum."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sscf.core.strata import Blocks, cluster, means
from sscf.core.welch import Window, check_frames
from sscf.errors import FileError, InputError, SSCFError
from sscf.files import canonical_json, read_tensors, write_bytes

Reading = Literal["amplitude", "algorithm", "equations"]
Mean = Literal["mas", "arithmetic", "geometric"]
READINGS: tuple[str, ...] = ("amplitude", "algorithm", "equations")
MEANS: tuple[str, ...] = ("mas", "arithmetic", "geometric")

PowerSource = Tensor | np.ndarray | Callable[[], Iterable[Tensor | np.ndarray]]

_FORMAT, _VERSION = "sscf-anchors", 1


def matching_target(anchor_power: Tensor, reading: str) -> Tensor:
    """What a sample's spectrum is compared with under a reading: the anchor's power or its square root."""
    return anchor_power if reading == "algorithm" else anchor_power.sqrt()


def spectral_distances(power: Tensor, target: Tensor, reading: str) -> Tensor:
    """Euclidean distances (B, K) of spectra (B, C, F) to targets (K, C * F) in the space of a reading."""
    sample = (power.sqrt() if reading == "amplitude" else power).flatten(1)
    # Differences, not |a|² − 2ab + |b|²: that cancels near an anchor, where it matters which one is nearest.
    return torch.linalg.vector_norm(sample[:, None] - target, dim=-1)


@dataclass(frozen=True, eq=False)
class Anchors:
    """One reference power spectrum per stratum, and how spectra are taken and compared.

    Attributes
    ----------
    power : Tensor (K, C, F), F = frame // 2 + 1
    counts : Tensor (K,) int64, source windows of each stratum
    frame, hop : int, samples; window : "hann" or "rectangular"
    reading : how spectra are compared and what the mask's numerator is (see `READINGS`)
    mean : how the spectra of a stratum are averaged; eps : stability constant
    """

    power: Tensor
    counts: Tensor
    frame: int
    hop: int
    reading: Reading = "amplitude"
    mean: Mean = "mas"
    eps: float = 1e-8
    window: Window = "hann"

    def __post_init__(self) -> None:
        _check_settings(self.frame, self.hop, self.reading, self.mean, self.eps, self.window)
        power, counts, bins = self.power, self.counts, self.frame // 2 + 1
        if power.ndim != 3 or 0 in power.shape or power.shape[2] != bins:
            raise InputError(f"anchors of frame {self.frame} have shape (K, C, {bins}), got {tuple(power.shape)}")
        if power.dtype not in (torch.float32, torch.float64):
            raise InputError(f"anchors are float32 or float64, got {power.dtype}")
        if counts.shape != power.shape[:1] or counts.dtype != torch.int64 or bool((counts < 1).any()):
            raise InputError("counts must hold one positive int64 number per anchor")
        if not bool(torch.isfinite(power).all()) or bool((power < 0).any()):
            raise InputError("anchor power must be finite and not negative")

    @property
    def k(self) -> int:
        """Number of anchors."""
        return self.power.shape[0]

    @classmethod
    def fit(
        cls,
        power: PowerSource,
        k: int = 4,
        frame: int = 5,
        hop: int = 2,
        reading: Reading = "amplitude",
        mean: Mean = "mas",
        groups: Tensor | np.ndarray | None = None,
        seed: int = 0,
        eps: float = 1e-8,
        window: Window = "hann",
    ) -> Anchors:
        """Stratify power spectra by K-Means and average each stratum.

        Parameters
        ----------
        power : (N, C, F) tensor, array or memmap, or a callable that returns an iterator of batches (n, C, F)
            From `welch_power(..., center=True)` with the same frame, hop and window. A callable is read once and
            spilled to a temporary file, so memory does not grow with N; how it is cut into batches does not matter.
        k : int
            Number of strata. Not used with `groups`.
        frame, hop, window
            Those that `power` was taken with.
        reading : "amplitude", "algorithm" or "equations"
            How spectra are compared. K-Means works on their square roots for "amplitude", else on the power itself.
        groups : (N,) integers, optional
            Strata given instead of K-Means, one anchor per distinct value in ascending order: data-set numbers for one
            anchor per data set, all zeros for the global anchor.
        mean : "mas" (mean amplitude, squared), "arithmetic" or "geometric"
        seed : int
            Of K-Means. The same spectra and seed give the same anchors.
        eps : float
            Stability constant, added to the power.

        Returns
        -------
        Anchors, of the dtype of `power`; strata of K-Means are ordered by size, largest first.
        """
        _check_settings(frame, hop, reading, mean, eps, window)
        if groups is None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
            raise InputError(f"k must be an integer of at least 1, got {k!r}")
        with Blocks.of(power, bins=frame // 2 + 1) as blocks:
            if len(blocks) == 0:
                raise InputError("no power spectra given: there are no samples to fit anchors on")
            if groups is None:
                labels = cluster(blocks, k, root=reading == "amplitude", seed=seed)
            else:
                labels = _group_index(groups, len(blocks))
            averages, counts = means(blocks, labels, mean, eps)
        return cls(
            power=torch.from_numpy(averages),
            counts=torch.from_numpy(counts),
            frame=frame,
            hop=hop,
            reading=reading,
            mean=mean,
            eps=float(eps),
            window=window,
        )

    def distances(self, power: PowerSource) -> Tensor:
        """Distances (N, K) of power spectra, given as to `fit`, to the anchors, in the space of the reading."""
        _, channels, bins = self.power.shape
        with Blocks.of(power, bins) as blocks:
            if blocks.shape[0] != channels:
                raise InputError(f"the spectra have {blocks.shape[0]} channels, the anchors have {channels}")
            reference = self.power.cpu().numpy().astype(blocks.dtype)
            target = matching_target(torch.from_numpy(reference), self.reading).flatten(1)
            found = [spectral_distances(torch.from_numpy(np.array(block)), target, self.reading) for _, block in blocks]
        return torch.cat([target.new_empty(0, self.k), *found])

    def assign(self, power: PowerSource) -> Tensor:
        """Index (N,) of the nearest anchor of every spectrum (N, C, F); ties to the lowest index."""
        return self.distances(power).argmin(dim=1)

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Tensors and plain settings, for a file that holds more than the anchors."""
        tensors = {"power": self.power.detach().cpu().contiguous(), "counts": self.counts.cpu().contiguous()}
        names = ("frame", "hop", "reading", "mean", "eps", "window")
        return tensors, {name: getattr(self, name) for name in names}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], settings: dict[str, object]) -> Anchors:
        """The inverse of `to_tensors`; what does not fit is an InputError."""
        expected = {"frame", "hop", "reading", "mean", "eps", "window"}
        if set(tensors) != {"power", "counts"} or set(settings) != expected:
            raise InputError(
                f"expected tensors power, counts and settings {', '.join(sorted(expected))}; "
                f"got tensors {sorted(tensors)} and settings {sorted(settings)}"
            )
        return cls(**tensors, **settings)  # type: ignore[arg-type]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, atomically."""
        from safetensors.torch import save

        tensors, settings = self.to_tensors()
        header = {"version": _VERSION, "settings": settings, "digest": _digest(tensors, settings)}
        # One key only: safetensors writes several in random order, and the same anchors should give the same bytes.
        write_bytes(path, save(tensors, metadata={_FORMAT: canonical_json(header)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Anchors:
        """Read a file of `save`. One that is truncated, foreign or tampered with is a FileError."""
        tensors, metadata = read_tensors(path, "an anchor file")
        if _FORMAT not in metadata:
            raise FileError(f"{path}: not an anchor file (no '{_FORMAT}' in its header)")
        try:
            header = json.loads(metadata.pop(_FORMAT))
            version, settings, digest = header.pop("version"), header.pop("settings"), header.pop("digest")
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise FileError(f"{path}: damaged header of an anchor file ({error!r})") from error
        if version != _VERSION:
            raise FileError(f"{path}: anchor format {version!r}, this version of sscf reads {_VERSION}")
        if unknown := [*metadata, *header]:
            raise FileError(f"{path}: unknown keys in the header: {', '.join(unknown)}")
        try:
            anchors = cls.from_tensors(tensors, settings if isinstance(settings, dict) else {})
        except SSCFError as error:
            raise FileError(f"{path}: damaged anchor file: {error}") from error
        if _digest(tensors, settings) != digest:
            raise FileError(f"{path}: the content does not match its checksum: the file was changed or damaged")
        return anchors


def _check_settings(frame: int, hop: int, reading: str, mean: str, eps: float, window: str) -> None:
    check_frames(frame, hop, window)
    for name, value, allowed in (("reading", reading, READINGS), ("mean", mean, MEANS)):
        if value not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    if not isinstance(eps, int | float) or not 0 < eps < math.inf:
        raise InputError(f"eps must be a positive number, got {eps!r}")


def _digest(tensors: dict[str, Tensor], settings: dict[str, object]) -> str:
    digest = hashlib.sha256(canonical_json(settings).encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}{tensors[name].dtype}".encode())
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def _group_index(groups: Tensor | np.ndarray, n: int) -> np.ndarray:
    values = groups.cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if values.shape != (n,) or not np.issubdtype(values.dtype, np.integer):
        raise InputError(f"groups must be {n} integers, one per sample, got {values.dtype} of shape {values.shape}")
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
