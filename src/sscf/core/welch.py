"""Welch power spectrum of a feature map."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from sscf.errors import InputError

Window = Literal["hann", "rectangular"]
WINDOWS: tuple[str, ...] = ("hann", "rectangular")

# Up to this frame length a product with the windowed Fourier matrix beats an FFT of every frame (bench/operator.py).
MATMUL_FRAME = 64


def check_frames(frame: int, hop: int, window: str = "hann") -> None:
    """Raise InputError unless frame and hop (samples) and window can be used."""
    if isinstance(frame, bool) or not isinstance(frame, int) or frame < 2:
        raise InputError(f"frame must be an integer of at least 2, got {frame!r}")
    if isinstance(hop, bool) or not isinstance(hop, int) or hop < 1:
        raise InputError(f"hop must be an integer of at least 1, got {hop!r}")
    if window not in WINDOWS:
        raise InputError(f"window must be one of {', '.join(WINDOWS)}, got {window!r}")


def check_map(x: Tensor, frame: int | None = None) -> None:
    """Raise InputError unless x is a real floating-point map (B, C, L) with L >= frame."""
    if not isinstance(x, Tensor):
        raise InputError(f"expected a torch tensor (B, C, L), got {type(x).__name__}")
    if not x.dtype.is_floating_point:
        raise InputError(f"expected a real floating-point tensor, got {x.dtype}")
    if x.ndim != 3:
        raise InputError(f"expected a tensor of shape (B, C, L), got shape {tuple(x.shape)}")
    if frame is not None and x.shape[-1] < frame:
        raise InputError(f"the map is shorter than one frame: L = {x.shape[-1]}, frame = {frame}")


def window_values(frame: int, window: str, dtype: torch.dtype, device: torch.device | str | None = None) -> Tensor:
    """The window (frame,), divided by its 2-norm so that the power scale does not depend on `frame`."""
    if window == "hann":
        # Computed here rather than by torch.hann_window so that it is the same under export, and exact in float64.
        n = torch.arange(frame, dtype=torch.float64, device=device)
        w = 0.5 - 0.5 * torch.cos(2 * math.pi * n / frame)
    else:
        w = torch.ones(frame, dtype=torch.float64, device=device)
    return (w / torch.linalg.vector_norm(w)).to(dtype)


def fourier_basis(frame: int, window: str, dtype: torch.dtype, device: torch.device | str | None = None) -> Tensor:
    """Real matrix (frame, 2F): frames @ basis holds the real, then the imaginary parts of the windowed rFFT."""
    n = torch.arange(frame, dtype=torch.float64, device=device)
    f = torch.arange(frame // 2 + 1, dtype=torch.float64, device=device)
    angle = 2 * math.pi * torch.remainder(n[:, None] * f, frame) / frame
    w = window_values(frame, window, torch.float64, device)
    return (w[:, None] * torch.cat([torch.cos(angle), -torch.sin(angle)], dim=1)).to(dtype)


def power_by_basis(x: Tensor, basis: Tensor, frame: int, hop: int) -> Tensor:
    """Welch power (B, C, F) of a map (B, C, L) by one product with `fourier_basis`."""
    spectrum = x.unfold(-1, frame, hop) @ basis
    real, imaginary = spectrum.square().mean(dim=-2).chunk(2, dim=-1)
    return real + imaginary


def power_by_fft(x: Tensor, window: Tensor, frame: int, hop: int) -> Tensor:
    """Welch power (B, C, F) of a map (B, C, L) by an FFT of every frame."""
    spectrum = torch.fft.rfft(x.unfold(-1, frame, hop) * window)
    return torch.view_as_real(spectrum).square().sum(dim=-1).mean(dim=-2)


def welch_power(x: Tensor, frame: int = 5, hop: int = 2, *, window: Window = "hann", center: bool = False) -> Tensor:
    """Welch power spectrum of a feature map.

    Frames of `frame` samples every `hop` samples, only whole frames; each is multiplied by a periodic Hann window of
    unit 2-norm; the result is the mean over frames of |rFFT|². Half precision is computed and returned in float32.

    Parameters
    ----------
    x : Tensor (B, C, L), real floating point
    frame, hop : int, samples
    window : "hann" or "rectangular"
    center : bool
        Remove each channel's mean over time first, as calibration does: for the power that anchors are fitted on.

    Returns
    -------
    Tensor (B, C, frame // 2 + 1); bin j lies at j / frame cycles per sample.

    Examples
    --------
    >>> import torch, sscf
    >>> sscf.welch_power(torch.randn(8, 3, 128), frame=16, hop=8).shape
    torch.Size([8, 3, 9])
    """
    check_frames(frame, hop, window)
    check_map(x, frame)
    if x.dtype not in (torch.float32, torch.float64):
        x = x.float()
    if center:
        x = x - x.mean(dim=-1, keepdim=True)
    if frame <= MATMUL_FRAME:
        return power_by_basis(x, fourier_basis(frame, window, x.dtype, x.device), frame, hop)
    return power_by_fft(x, window_values(frame, window, x.dtype, x.device), frame, hop)
