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
MATMUL_FRAME = 128
# Large maps are worked on in pieces of about this many numbers per thread, which stay in the processor's cache.
PIECE_NUMBERS = 1 << 16


def check_frames(frame: int, hop: int, window: str = "hann") -> None:
    """Raise InputError unless frame and hop (samples) and window can be used."""
    if isinstance(frame, bool) or not isinstance(frame, int) or frame < 2:
        raise InputError(f"frame must be an integer of at least 2, got {frame!r}")
    if isinstance(hop, bool) or not isinstance(hop, int) or hop < 1:
        raise InputError(f"hop must be an integer of at least 1, got {hop!r}")
    if window not in WINDOWS:
        raise InputError(f"window must be one of {', '.join(WINDOWS)}, got {window!r}")


def check_map(x: Tensor, frame: int) -> None:
    """Raise InputError unless x is a real floating-point map (B, C, L) with L >= frame."""
    if not isinstance(x, Tensor):
        raise InputError(f"expected a torch tensor (B, C, L), got {type(x).__name__}")
    if not x.dtype.is_floating_point:
        raise InputError(f"expected a real floating-point tensor, got {x.dtype}")
    if x.ndim != 3:
        raise InputError(f"expected a tensor of shape (B, C, L), got shape {tuple(x.shape)}")
    if x.shape[-1] < frame:
        raise InputError(f"the map is shorter than one frame: L = {x.shape[-1]}, frame = {frame}")


def working(x: Tensor) -> Tensor:
    """x itself in float32 or float64; half precision as float32, whose range power spectra need."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def pieces(x: Tensor) -> int:
    """How many samples of a map (B, C, L) to work on at a time; 0 is all at once."""
    if torch.compiler.is_compiling() or x.device.type != "cpu":
        return 0
    rows = PIECE_NUMBERS * torch.get_num_threads() // max(1, x.shape[1] * x.shape[2])
    return max(1, rows) if rows < x.shape[0] else 0


def fourier_basis(frame: int, window: str, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """The window of unit 2-norm times the Fourier matrix, as `frame_power` takes it.

    Up to `MATMUL_FRAME` a real matrix (frame, 2F): frames @ basis holds the real, then the imaginary parts of the
    windowed rFFT. For longer frames the window alone, (frame,): there an FFT is faster.
    """
    n = torch.arange(frame, dtype=torch.float64, device=device)
    w = 0.5 - 0.5 * torch.cos(2 * math.pi * n / frame) if window == "hann" else torch.ones_like(n)
    w = w / torch.linalg.vector_norm(w)  # so that the scale of the power does not depend on `frame`
    if frame > MATMUL_FRAME:
        return w.to(dtype)
    f = torch.arange(frame // 2 + 1, dtype=torch.float64, device=device)
    angle = 2 * math.pi * torch.remainder(n[:, None] * f, frame) / frame
    return (w[:, None] * torch.cat([torch.cos(angle), -torch.sin(angle)], dim=1)).to(dtype)


def frame_power(x: Tensor, basis: Tensor, hop: int, *, center: bool) -> Tensor:
    """Welch power (B, C, F) of a map (B, C, L) given `fourier_basis`; `center` removes the mean over time first."""
    if not torch.compiler.is_compiling() and x.numel() == 0:  # which MKL's FFT does not take
        return x.new_zeros(x.shape[0], x.shape[1], basis.shape[0] // 2 + 1)
    if size := pieces(x):
        return torch.cat([_frame_power(piece, basis, hop, center) for piece in x.split(size)])
    return _frame_power(x, basis, hop, center)


def _frame_power(x: Tensor, basis: Tensor, hop: int, center: bool) -> Tensor:
    frame = basis.shape[0]
    if center:
        x = x - x.mean(dim=-1, keepdim=True)
    frames = x.unfold(-1, frame, hop)  # (B, C, n, frame)
    if basis.ndim == 1:
        spectrum = torch.view_as_real(torch.fft.rfft(frames * basis))
        return spectrum.square().sum(dim=-1).mean(dim=-2)
    # One flat product. `frames @ basis` would be a batch of tiny ones, ten times slower.
    spectrum = (frames.reshape(-1, frame) @ basis).view(*frames.shape[:3], basis.shape[1])
    real, imaginary = spectrum.square().mean(dim=-2).chunk(2, dim=-1)
    return real + imaginary


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
    with torch.autocast(x.device.type, enabled=False):
        x = working(x)
        return frame_power(x, fourier_basis(frame, window, x.dtype, x.device), hop, center=center)
