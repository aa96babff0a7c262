"""SpectralCalibration: match a feature map to its nearest anchor and scale its amplitude spectrum to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from sscf.core.anchors import Anchors, matching_target, spectral_distances
from sscf.core.welch import (
    MATMUL_FRAME,
    check_map,
    fourier_basis,
    power_by_basis,
    power_by_fft,
    window_values,
)
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


def fourier_pair(length: int, dtype: torch.dtype, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Real matrices (L, 2F) and (2F, L), F = L // 2 + 1, of the real Fourier transform and its inverse."""
    n = torch.arange(length, dtype=torch.float64, device=device)
    f = torch.arange(length // 2 + 1, dtype=torch.float64, device=device)
    angle = 2 * math.pi * torch.remainder(n[:, None] * f, length) / length
    forward = torch.cat([torch.cos(angle), -torch.sin(angle)], dim=1)
    # Every bin but zero and Nyquist stands for itself and its mirror image.
    weight = torch.full_like(f, 2.0 / length)
    weight[0] = 1.0 / length
    if length % 2 == 0:
        weight[-1] = 1.0 / length
    return forward.to(dtype), (forward * weight.repeat(2)).T.contiguous().to(dtype)


class _AmplitudeFilter(torch.autograd.Function):
    """irFFT(rFFT(x) · mask). Symmetric in x, so its backward pass is itself: half the cost of autograd's."""

    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(x, mask)
        return torch.fft.irfft(torch.fft.rfft(x) * mask, n=x.shape[-1])

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, mask = ctx.saved_tensors
        grad_x = _AmplitudeFilter.apply(grad, mask) if ctx.needs_input_grad[0] else None
        grad_mask = None
        if ctx.needs_input_grad[1]:
            length = x.shape[-1]
            product = (torch.fft.rfft(grad).conj() * torch.fft.rfft(x)).real / length
            mirrored = torch.full((mask.shape[-1],), 2.0, dtype=x.dtype, device=x.device)
            mirrored[0] = 1
            if length % 2 == 0:
                mirrored[-1] = 1
            grad_mask = product * mirrored
        return grad_x, grad_mask


def amplitude_filter(x: Tensor, mask: Tensor) -> Tensor:
    """Scale the spectrum of x (B, C, L) by a real mask (B, C, L // 2 + 1); phases stay. Differentiable in both."""
    if torch.is_grad_enabled() and not torch.compiler.is_exporting():
        return _AmplitudeFilter.apply(x, mask)
    return torch.fft.irfft(torch.fft.rfft(x) * mask, n=x.shape[-1])


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
        The mask to this power: 1 is the paper, 0 is the identity up to mean removal.

    Shapes: (B, C, L) -> (B, C, L) with C the anchors' channels and L >= frame.

    Examples
    --------
    >>> import torch, sscf
    >>> h = torch.randn(64, 4, 50)
    >>> power = sscf.welch_power(h, frame=8, hop=4, center=True)
    >>> anchors = sscf.Anchors.fit(power, k=2, frame=8, hop=4)
    >>> sscf.SpectralCalibration(anchors)(h).shape
    torch.Size([64, 4, 50])
    """

    power: Tensor  # (K, C, F), the anchors
    _target: Tensor  # (K, C * F), what a sample is compared with
    _numerator: Tensor  # (K, C, F), square root of the mask's numerator
    _basis: Tensor  # windowed Fourier matrix, or the window alone for long frames
    _interpolation: Tensor  # (F, L // 2 + 1) for the last L seen

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
        if not math.isfinite(strength) or strength < 0:
            raise InputError(f"strength must be a finite number of at least 0, got {strength!r}")
        self.frame, self.hop, self.window = anchors.frame, anchors.hop, anchors.window
        self.reading, self.eps = anchors.reading, anchors.eps
        self.gradient, self.restore_mean, self.strength = gradient, restore_mean, float(strength)
        self._anchors = anchors
        self.register_buffer("power", anchors.power.clone())
        self._derive()
        self.rank = rank
        self._length = -1
        self._forced: Tensor | None = None

    def _derive(self) -> None:
        """Buffers that follow from `power`; not part of the state."""
        dtype, device = self.power.dtype, self.power.device
        target = matching_target(self.power, self.reading)
        self.register_buffer("_target", target.flatten(1), persistent=False)
        exponent = 0.25 if self.reading == "equations" else 0.5
        self.register_buffer("_numerator", self.power.pow(exponent * self.strength), persistent=False)
        make = fourier_basis if self.frame <= MATMUL_FRAME else window_values
        self.register_buffer("_basis", make(self.frame, self.window, dtype, device), persistent=False)
        self.register_buffer("_interpolation", torch.empty(0, dtype=dtype, device=device), persistent=False)

    def _load_from_state_dict(self, *args, **kwargs) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._derive()
        self._length = -1

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
        """The anchors in use, as on their way to a file."""
        return self._anchors.with_power(self.power.detach())

    @contextmanager
    def assigned(self, stratum: Tensor) -> Iterator[None]:
        """Inside the context every sample takes the anchor given, (B,) int64, instead of the matched one.

        Anchors per data set are trained so: a source sample uses its own set's anchor.
        """
        outer, self._forced = self._forced, stratum
        try:
            yield
        finally:
            self._forced = outer

    def forward(self, x: Tensor) -> Tensor:
        """Calibrated map (B, C, L), in the dtype of x."""
        self._check(x)
        with torch.autocast(x.device.type, enabled=False):
            work = x if x.dtype in (torch.float32, torch.float64) else x.float()
            mean = work.mean(dim=-1, keepdim=True)
            centered = work - mean
            if self.gradient == "full":
                power = self._power(centered)
            else:
                with torch.no_grad():
                    power = self._power(centered)
            stratum = self._forced if self._forced is not None else self._nearest(power.detach())
            mask = self._numerator.to(work.dtype)[stratum] * (power + self.eps).pow(-0.5 * self.strength)
            full = mask @ self._interpolate(x.shape[-1]).to(work.dtype)
            calibrated = self._filter(centered, full)
            if self.restore_mean:
                calibrated = calibrated + mean
            return calibrated.to(x.dtype)

    @torch.no_grad()
    def distances(self, x: Tensor) -> Tensor:
        """Distance of every sample to every anchor, (B, K)."""
        self._check(x)
        work = x if x.dtype in (torch.float32, torch.float64) else x.float()
        return self._distances(self._power(work - work.mean(dim=-1, keepdim=True)))

    @torch.no_grad()
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

    def _power(self, centered: Tensor) -> Tensor:
        make = power_by_basis if self.frame <= MATMUL_FRAME else power_by_fft
        return make(centered, self._basis.to(centered.dtype), self.frame, self.hop)

    def _distances(self, power: Tensor) -> Tensor:
        return spectral_distances(power, self._target.to(power.dtype), self.reading)

    def _ranked(self, distances: Tensor) -> Tensor:
        if self.rank == 1:
            return distances.argmin(dim=1)
        return distances.sort(dim=1, stable=True).indices[:, self.rank - 1]

    def _nearest(self, power: Tensor) -> Tensor:
        if self.k == 1:
            return torch.zeros(power.shape[0], dtype=torch.int64, device=power.device)
        return self._ranked(self._distances(power))

    def _interpolate(self, length: int) -> Tensor:
        if self._length == length:
            return self._interpolation
        matrix = interpolation_matrix(self.frame, length, self.power.dtype, self.power.device)
        if not torch.compiler.is_compiling():  # a tensor made while tracing must not outlive the trace
            self._interpolation, self._length = matrix, length
        return matrix

    def _filter(self, x: Tensor, mask: Tensor) -> Tensor:
        return amplitude_filter(x, mask)
