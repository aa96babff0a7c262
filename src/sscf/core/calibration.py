"""SpectralCalibration: match a feature map to its nearest anchor and scale its amplitude spectrum to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from sscf.core.anchors import Anchors, matching_target, spectral_distances
from sscf.core.welch import check_map, fourier_basis, frame_power, pieces, working
from sscf.errors import InputError

Gradient = Literal["mask", "full"]
GRADIENTS: tuple[str, ...] = ("mask", "full")


def interpolation_matrix(frame: int, length: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Matrix (F, length // 2 + 1): a mask at Welch bins times it is the mask at the bins of the full FFT.

    Linear on true normalised frequencies: Welch bin j lies at j / frame, FFT bin i at i / length. Past the last Welch
    bin (an odd frame does not reach the Nyquist frequency) the mask is held constant.
    """
    last = frame // 2
    at = torch.arange(length // 2 + 1, dtype=torch.float64, device=device) * frame / length
    bins = torch.arange(last + 1, dtype=torch.float64, device=device)
    return (1 - (at.clamp(max=last) - bins[:, None]).abs()).clamp(min=0).to(dtype)


def amplitude_filter(x: Tensor, mask: Tensor, spread: Tensor) -> Tensor:
    """Remove the mean over time of x (B, C, L) and scale its spectrum by a real mask; phases stay.

    The mask is given at Welch bins, (B, C, F), with the `interpolation_matrix` (F, L // 2 + 1) that spreads it.
    Differentiable in x and mask, also twice.
    """
    if torch.compiler.is_compiling():
        return _filter_piece(x, mask, spread)
    return _Filter.apply(x, mask, spread) if torch.is_grad_enabled() else _filter(x, mask, spread)


def _filter_piece(x: Tensor, mask: Tensor, spread: Tensor) -> Tensor:
    centered = x - x.mean(dim=-1, keepdim=True)
    return torch.fft.irfft(torch.fft.rfft(centered) * (mask @ spread), n=x.shape[-1])


def _filter(x: Tensor, mask: Tensor, spread: Tensor) -> Tensor:
    if x.numel() == 0:  # which MKL's FFT does not take
        return torch.zeros_like(x)
    if not (size := pieces(x)):
        return _filter_piece(x, mask, spread)
    out = torch.empty_like(x)
    for source, part, place in zip(x.split(size), mask.split(size), out.split(size), strict=True):
        place.copy_(_filter_piece(source, part, spread))
    return out


class _Filter(torch.autograd.Function):
    """The filter is linear and symmetric in x: backward is the filter itself, and only the mask is kept for it."""

    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor, spread: Tensor) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, mask, spread)
        return _filter(x, mask, spread)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, mask, spread = ctx.saved_tensors
        grad_x = amplitude_filter(grad, mask, spread) if ctx.needs_input_grad[0] else None
        grad_mask = _mask_gradient(grad, x, spread) if ctx.needs_input_grad[1] else None
        return grad_x, grad_mask, None


def _mask_gradient(grad: Tensor, x: Tensor, spread: Tensor) -> Tensor:
    length = x.shape[-1]
    # Every bin but zero and Nyquist stands for itself and its mirror image; bin zero of a centred map is empty.
    weight = torch.full((spread.shape[1],), 2 / length, dtype=x.dtype, device=x.device)
    weight[0] = 0
    if length % 2 == 0:
        weight[-1] = 1 / length
    return (torch.fft.rfft(grad).conj() * torch.fft.rfft(x)).real @ (spread * weight).T


class SpectralCalibration(nn.Module):
    """Calibrate feature maps to the anchors of their strata.

    For every sample: remove the mean over time, take the Welch power P, find the nearest anchor, scale the amplitude
    spectrum by sqrt(P_anchor / (P + eps)), leave the phase.

    Parameters
    ----------
    anchors : Anchors
    rank : int
        1 takes the nearest anchor, R the R-th nearest. May be set again at any time.
    gradient : "mask" or "full"
        "mask": the mask is a constant, gradients flow through the map alone (Algorithm 2 of the paper).
        "full": gradients flow through the map's own power as well. Anchors and matching never receive gradients.
    restore_mean : bool
        Add the mean over time back to the calibrated map.
    strength : float
        The mask at Welch bins to this power: 1 is the paper, 0 is the identity up to mean removal.

    Shapes: (B, C, L) -> (B, C, L) with C the anchors' channels and L >= frame. Half precision is calibrated in float32,
    in and outside autocast, and `.half()` leaves the anchors in float32.

    Examples
    --------
    >>> import torch, sscf
    >>> h = torch.randn(64, 4, 50)
    >>> power = sscf.welch_power(h, frame=8, hop=4, center=True)
    >>> anchors = sscf.Anchors.fit(power, k=2, frame=8, hop=4)
    >>> sscf.SpectralCalibration(anchors)(h).shape
    torch.Size([64, 4, 50])
    """

    # The anchors, which are the state.
    power: Tensor  # (K, C, F)
    counts: Tensor  # (K,)
    # What follows from them for the last kind of map seen.
    _target: Tensor  # (K, C * F), what a sample is compared with
    _numerator: Tensor  # (K, C, F) of the mask
    _basis: Tensor  # of the Welch frames
    _spread: Tensor  # (F, L // 2 + 1), interpolation

    def __init__(
        self,
        anchors: Anchors,
        rank: int = 1,
        gradient: Gradient = "mask",
        restore_mean: bool = False,
        strength: float = 1.0,
    ) -> None:
        super().__init__()
        if gradient not in GRADIENTS:
            raise InputError(f"gradient must be one of {', '.join(GRADIENTS)}, got {gradient!r}")
        if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 <= strength < math.inf:
            raise InputError(f"strength must be a finite number of at least 0, got {strength!r}")
        self.frame, self.hop, self.window = anchors.frame, anchors.hop, anchors.window
        self.reading, self.mean, self.eps = anchors.reading, anchors.mean, anchors.eps
        self.gradient, self.restore_mean, self.strength = gradient, restore_mean, float(strength)
        self.register_buffer("power", anchors.power.detach().clone())
        self.register_buffer("counts", anchors.counts.clone())
        for name in ("_target", "_numerator", "_basis", "_spread"):
            self.register_buffer(name, torch.empty(0), persistent=False)
        self.rank = rank
        self._kind: tuple[object, ...] | None = None  # the kind of map the derived buffers are for
        self._assigned: Tensor | None = None

    @property
    def k(self) -> int:
        """Number of anchors."""
        return self.power.shape[0]

    @property
    def rank(self) -> int:
        return self._rank

    @rank.setter
    def rank(self, rank: int) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= self.k:
            raise InputError(f"rank must be an integer from 1 to K = {self.k}, got {rank!r}")
        self._rank = rank

    @property
    def anchors(self) -> Anchors:
        """The anchors in use."""
        return Anchors(
            self.power, self.counts, self.frame, self.hop, self.reading, self.mean, eps=self.eps, window=self.window
        )

    @contextmanager
    def assigned(self, stratum: Tensor) -> Iterator[None]:
        """Inside the context every sample takes the anchor given, (B,) int64, instead of the matched one.

        Anchors per data set are trained so: a source sample uses its own set's anchor.
        """
        before, self._assigned = self._assigned, stratum
        try:
            yield
        finally:
            self._assigned = before

    def forward(self, x: Tensor) -> Tensor:
        """Calibrated map (B, C, L), in the dtype of x."""
        self._check(x)
        with torch.autocast(x.device.type, enabled=False):
            work = working(x)
            target, numerator, basis, spread = self._constants(work)
            with torch.set_grad_enabled(self.gradient == "full" and torch.is_grad_enabled()):
                power = frame_power(work, basis, self.hop, center=True)
                mask = numerator[self._choose(power, target)] * (power + self.eps).pow(-0.5 * self.strength)
            calibrated = amplitude_filter(work, mask, spread)
            if self.restore_mean:
                calibrated = calibrated + work.mean(dim=-1, keepdim=True)
            return calibrated.to(x.dtype)

    @torch.no_grad()
    def distances(self, x: Tensor) -> Tensor:
        """Distance of every sample to every anchor, (B, K)."""
        self._check(x)
        with torch.autocast(x.device.type, enabled=False):
            work = working(x)
            target, _, basis, _ = self._constants(work)
            return spectral_distances(frame_power(work, basis, self.hop, center=True), target, self.reading)

    def match(self, x: Tensor) -> Tensor:
        """Index of the anchor each sample takes (B,): the `rank`-th nearest, ties to the lowest index."""
        return self._ranked(self.distances(x))

    def extra_repr(self) -> str:
        k, c, _ = self.power.shape
        return (
            f"k={k}, channels={c}, frame={self.frame}, hop={self.hop}, reading={self.reading}, rank={self.rank}, "
            f"gradient={self.gradient}, strength={self.strength:g}"
        )

    def _check(self, x: Tensor) -> None:
        check_map(x, self.frame)
        if x.shape[1] != self.power.shape[1]:
            raise InputError(f"the map has {x.shape[1]} channels, the anchors have {self.power.shape[1]}")

    def _constants(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Target, numerator, basis and spread for maps of the length, dtype and device of x."""
        kind = (x.shape[-1], x.dtype, x.device, self.strength)
        if kind == self._kind:
            return self._target, self._numerator, self._basis, self._spread
        if torch.compiler.is_compiling():  # a tensor made while tracing must not outlive the trace
            return self._derived(x)
        with torch.inference_mode(False):  # made in evaluation, they may be needed in training
            self._target, self._numerator, self._basis, self._spread = made = self._derived(x)
        self._kind = kind
        return made

    def _derived(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        power = self.power.to(x.device, x.dtype)
        exponent = 0.25 if self.reading == "equations" else 0.5
        return (
            matching_target(power, self.reading).flatten(1),
            power.pow(exponent * self.strength),
            fourier_basis(self.frame, self.window, x.dtype, x.device),
            interpolation_matrix(self.frame, x.shape[-1], x.dtype, x.device),
        )

    def _choose(self, power: Tensor, target: Tensor) -> Tensor:
        if self._assigned is not None:
            if self._assigned.shape != power.shape[:1]:
                raise InputError(f"{self._assigned.numel()} strata assigned to {power.shape[0]} samples")
            return self._assigned
        if self.k == 1:
            return torch.zeros(power.shape[0], dtype=torch.int64, device=power.device)
        return self._ranked(spectral_distances(power.detach(), target, self.reading))

    def _ranked(self, distances: Tensor) -> Tensor:
        if self.rank == 1:
            return distances.argmin(dim=1)
        return distances.sort(dim=1, stable=True).indices[:, self.rank - 1]

    def _apply(self, fn, recurse: bool = True):
        before = self.power
        super()._apply(fn, recurse)
        if self.power.dtype not in (torch.float32, torch.float64):
            self.power = before.to(self.power.device)  # half precision has too small a range for power
        self._kind = None
        return self

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._kind = None
