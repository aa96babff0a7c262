"""Models for other runtimes: ONNX and torch.export, with matching and calibration inside the graph.

Runtimes have no fast Fourier transform worth the name, so calibration is written as real matrix products: the Welch
spectrum as a convolution, the filter as a product with the Fourier matrix or, where the map is long, as two products of
its factors (Cooley and Tukey's first step).
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sscf.core import SpectralCalibration
from sscf.core.anchors import matching_target, spectral_distances
from sscf.core.calibration import interpolation_matrix
from sscf.errors import SSCFError, require
from sscf.files import write_bytes
from sscf.model import Model
from sscf.nn import Backbone, find, tap_output
from sscf.nn.base import Tapped
from sscf.rules.base import input_channels
from sscf.rules.psdnorm import SpectralNorm, monge_filter

OPSET = 20  # the first with Gelu
DENSE = 128  # maps up to this length are filtered by one product with the whole Fourier matrix
TOLERANCE = 1e-5  # on probabilities


class ExportFailed(SSCFError):
    """The exported model does not do what the model does."""


class MatrixFilter(nn.Module):
    """`amplitude_filter` for maps of one length, in real numbers: centred x (B, C, L), mask (B, C, F) -> (B, C, L).

    The spectrum is taken in two steps when L = a * b: with x[b n + m] and bin k + a l, first over n (matrix a), then,
    after a rotation, over m (matrix b). Of the k only the first half is needed, the signal being real. a = L, b = 1 is
    the plain Fourier matrix.
    """

    forward_a: Tensor
    forward_b: Tensor
    backward_a: Tensor
    backward_b: Tensor
    cos: Tensor
    sin: Tensor
    spread: Tensor

    def __init__(self, frame: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.a, self.b = (length, 1) if length <= DENSE else _factors(length)
        a, b, half = self.a, self.b, self.a // 2 + 1
        self.bins = half
        n, k = torch.arange(a), torch.arange(half)
        m, l = torch.arange(b), torch.arange(b)
        angle_a = _angle(n[:, None] * k, a)  # (a, half)
        angle_b = _angle(m[:, None] * l, b)  # (b, b)
        rotation = _angle(m[:, None] * k, length)  # (b, half)
        weight = torch.full((half,), 2 / length, dtype=torch.float64)
        weight[0] = 1 / length
        if a % 2 == 0:
            weight[-1] = 1 / length
        bins = (k[:, None] + a * l).flatten()  # (half * b,)
        folded = torch.minimum(bins, length - bins)
        spread = interpolation_matrix(frame, length, torch.float64)[:, folded]
        spread[:, bins == 0] = 0  # the map is centred: its mean is zero but for rounding
        cos_b, sin_b = angle_b.cos(), angle_b.sin()
        constants = {
            "forward_a": torch.cat([angle_a.cos(), -angle_a.sin()], dim=1),  # (a, 2 half)
            "forward_b": torch.cat([torch.cat([cos_b, -sin_b], 1), torch.cat([sin_b, cos_b], 1)], 0),  # (2b, 2b)
            "backward_a": torch.cat([weight * angle_a.cos(), -weight * angle_a.sin()], dim=1).T,  # (2 half, a)
            "backward_b": torch.cat([torch.cat([cos_b, sin_b], 1), torch.cat([-sin_b, cos_b], 1)], 0),
            "cos": rotation.cos(),
            "sin": rotation.sin(),
            "spread": spread,
        }
        for name, value in constants.items():
            self.register_buffer(name, value.float().contiguous(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mask = mask @ self.spread
        if self.b == 1:
            return ((x @ self.forward_a) * torch.cat([mask, mask], dim=-1)) @ self.backward_a
        steps = x.unflatten(-1, (self.a, self.b)).transpose(-1, -2) @ self.forward_a  # (B, C, b, 2 half)
        real, imaginary = self._rotate(steps, -1.0)
        spectrum = torch.cat([real, imaginary], dim=-2).transpose(-1, -2) @ self.forward_b  # (B, C, half, 2b)
        mask = mask.unflatten(-1, (self.bins, self.b))
        spectrum = spectrum * torch.cat([mask, mask], dim=-1)
        steps = (spectrum @ self.backward_b).transpose(-1, -2)  # (B, C, 2b, half)
        steps = torch.cat([steps[..., : self.b, :], steps[..., self.b :, :]], dim=-1)  # (B, C, b, 2 half)
        real, imaginary = self._rotate(steps, 1.0)
        return (torch.cat([real, imaginary], dim=-1) @ self.backward_a).transpose(-1, -2).flatten(-2)

    def _rotate(self, steps: Tensor, sign: float) -> tuple[Tensor, Tensor]:
        """(..., b, 2 half) times exp(sign * i * rotation), as real and imaginary part."""
        real, imaginary, sin = steps[..., : self.bins], steps[..., self.bins :], sign * self.sin
        return real * self.cos - imaginary * sin, real * sin + imaginary * self.cos


def _angle(index: Tensor, n: int) -> Tensor:
    return 2 * math.pi * torch.remainder(index, n).double() / n


def _factors(length: int) -> tuple[int, int]:
    """length = a * b with a >= b and both as equal as can be; b = 1 for a prime."""
    b = next(b for b in range(math.isqrt(length), 0, -1) if length % b == 0)
    return length // b, b


class MatrixCalibration(nn.Module):
    """`SpectralCalibration` for maps of one length, in real products; leaves the strata (B,) in `found`."""

    kernel: Tensor
    target: Tensor
    numerator: Tensor

    def __init__(self, calibration: SpectralCalibration, length: int) -> None:
        super().__init__()
        from sscf.core.welch import MATMUL_FRAME, fourier_basis

        c = calibration
        self.frame, self.hop, self.reading, self.eps, self.strength = c.frame, c.hop, c.reading, c.eps, c.strength
        self.restore_mean = c.restore_mean
        basis = fourier_basis(c.frame, c.window, torch.float64)
        if c.frame > MATMUL_FRAME:  # then it is the window alone
            angle = _angle(torch.arange(c.frame)[:, None] * torch.arange(c.frame // 2 + 1), c.frame)
            basis = basis[:, None] * torch.cat([angle.cos(), -angle.sin()], dim=1)
        # The exporter's optimiser takes x + 1e-8 for x. A power of four scales both without rounding.
        self.scale = 4.0 ** max(0, math.ceil(math.log(1e-2 / c.eps, 4)))
        power = c.power.double()
        exponent = 0.25 if c.reading == "equations" else 0.5
        self.register_buffer("kernel", basis.T[:, None].float().contiguous(), persistent=False)
        self.register_buffer("target", matching_target(power, c.reading).flatten(1).float(), persistent=False)
        self.register_buffer(
            "numerator", (self.scale ** (0.5 * c.strength) * power.pow(exponent * c.strength)).float(), persistent=False
        )
        self.filter = MatrixFilter(c.frame, length)
        self.found: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        x = x - mean
        frames = F.conv1d(x.flatten(0, 1).unsqueeze(1), self.kernel, stride=self.hop)  # (B * C, 2F, n)
        energy = frames.square().mean(dim=-1)
        bins = self.frame // 2 + 1
        power = (energy[:, :bins] + energy[:, bins:]).unflatten(0, (-1, x.shape[1]))
        stratum = spectral_distances(power, self.target, self.reading).argmin(dim=1)
        mask = self.numerator[stratum] * (power * self.scale + self.eps * self.scale).pow(-0.5 * self.strength)
        self.found.append(stratum)
        y = self.filter(x, mask)
        return y + mean if self.restore_mean else y


class MatrixNorm(nn.Module):
    """The layer of PSDNorm in real products: a filter of a few taps for every map, as weighed copies of it, shifted."""

    kernel: Tensor
    target: Tensor
    synthesis: Tensor

    def __init__(self, norm: SpectralNorm) -> None:
        super().__init__()
        self.size, self.eps = norm.size, norm.eps
        bins = norm.size // 2 + 1
        angle = _angle(torch.arange(norm.size)[:, None] * torch.arange(bins), norm.size)
        kernel = torch.cat([angle.cos(), -angle.sin()], dim=1) / math.sqrt(norm.size)
        synthesis = monge_filter(torch.ones(bins, bins), torch.eye(bins), norm.size)  # of each bin alone
        self.register_buffer("kernel", kernel.T[:, None].float().contiguous(), persistent=False)
        self.register_buffer("target", norm.target.sqrt(), persistent=False)
        self.register_buffer("synthesis", synthesis.flip(-1).contiguous(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(dim=-1, keepdim=True)
        length, bins = x.shape[-1], self.size // 2 + 1
        frames = F.conv1d(x.flatten(0, 1).unsqueeze(1), self.kernel, stride=self.size - self.size // 2)
        energy = frames.square().mean(dim=-1)
        power = (energy[:, :bins] + energy[:, bins:]).unflatten(0, (-1, x.shape[1]))
        taps = (self.target * (power + self.eps).pow(-0.5)) @ self.synthesis
        padded = F.pad(x, ((self.size - 1) // 2, self.size // 2))
        parts = [padded[..., i : i + length] * taps[..., i : i + 1] for i in range(self.size)]
        return torch.stack(parts).sum(dim=0)


class Exportable(nn.Module):
    """Windows (B, C, T), or sequences (B, S, C, T), already normalised -> probabilities, and strata if there are any.

    probabilities : (B, classes) or (B, S, classes).    stratum : (B,) or (B, S) int64.
    """

    def __init__(self, network: Backbone, tap: str, length: int, channels: int | None = None) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().float().eval().requires_grad_(False)
        shape = (1, *(1,) * network.sequence, channels or input_channels(network), length)
        with torch.no_grad():
            samples = tap_output(self.network, tap, torch.zeros(shape)).shape[-1]
        self.calibration: MatrixCalibration | None = None
        for module in list(find(self.network, Tapped)):
            if isinstance(module.after, SpectralCalibration):
                self.calibration = module.after = MatrixCalibration(module.after, samples)
            elif isinstance(module.after, SpectralNorm):
                module.after = MatrixNorm(module.after)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        probabilities = self.network(x).softmax(dim=-1)
        if self.calibration is None:
            return (probabilities,)
        stratum = self.calibration.found.pop()
        return probabilities, stratum.unflatten(0, probabilities.shape[:2]) if x.ndim == 4 else stratum


@dataclass(frozen=True)
class Agreement:
    """How an exported model compares with the model: over `windows`, the largest difference of a probability, and how
    many windows got another class or another stratum."""

    windows: int
    error: float
    classes: int
    strata: int

    @property
    def good(self) -> bool:
        return self.error <= TOLERANCE and not self.classes and not self.strata


def exportable(model: Model) -> tuple[Exportable, Tensor]:
    """The module that is exported and an example of its input, (2, C, T) or (2, S, C, T)."""
    fitted = model.fitted
    module = Exportable(fitted.model, fitted.tap, fitted.length, len(fitted.channels))
    shape = (len(fitted.channels), fitted.length)
    return module, torch.randn(2, *((fitted.sequence,) if fitted.model.sequence else ()), *shape)


def export_onnx(model: Model, path: str | os.PathLike[str], *, windows: int = 64) -> Agreement:
    """Write an ONNX file and compare it with the model on random and extreme windows; a difference is an error.

    Inputs: `windows`, normalised, float32, any number of them. Outputs: `probabilities` and `stratum`. How to make and
    normalise windows is in the file's metadata, under "sscf".
    """
    require("onnxscript", "export")
    onnx = require("onnx", "export")
    module, example = exportable(model)
    outputs = ["probabilities", "stratum"][: 1 if module.calibration is None else 2]
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=["windows"],
            output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            verbose=False,
        )
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        program.save(Path(folder) / "model.onnx", external_data=False)
        proto = onnx.load(Path(folder) / "model.onnx")
    proto.doc_string = f"{model.task}: {', '.join(model.classes)}"
    for node in proto.graph.node:  # the exporter writes source paths and stack traces of this machine into the file
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer]:
        del value.metadata_props[:]
    del proto.graph.metadata_props[:]
    del proto.metadata_props[:]
    onnx.helper.set_model_props(proto, {"sscf": json.dumps(describe(model))})
    data = proto.SerializeToString()
    agreement = compare(model, onnx_runner(data), windows)
    _insist(agreement)
    write_bytes(path, data)
    return agreement


def export_torch(model: Model, path: str | os.PathLike[str], *, windows: int = 64) -> Agreement:
    """Write a program of `torch.export` (.pt2) and compare it with the model as `export_onnx` does."""
    import io

    module, example = exportable(model)
    with _quiet(), torch.no_grad():
        program = torch.export.export(
            module, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},), strict=False
        )
    runnable = program.module()

    def run(x: np.ndarray) -> tuple[np.ndarray, ...]:
        with torch.inference_mode():
            return tuple(part.numpy() for part in runnable(torch.from_numpy(x)))

    agreement = compare(model, run, windows)
    _insist(agreement)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    write_bytes(path, stream.getvalue())
    return agreement


def _insist(agreement: Agreement) -> None:
    if not agreement.good:
        raise ExportFailed(
            f"the exported model differs from the model: by up to {agreement.error:.1e} in a probability, in the class "
            f"of {agreement.classes} and the stratum of {agreement.strata} of {agreement.windows} windows; nothing is "
            "written"
        )


def describe(model: Model) -> dict[str, Any]:
    """What a user of an exported model must know to feed it."""
    fitted, recipe = model.fitted, model.recipe
    source = fitted.source_normaliser
    return {
        "task": model.task,
        "classes": list(model.classes),
        "channels": list(recipe.names),
        "unit": recipe.unit,
        "fs": recipe.fs,
        "samples": recipe.samples,
        "hop": recipe.hop,
        "band": list(recipe.band) if recipe.band else None,
        "sequence": fitted.sequence,
        "normalisation": fitted.settings.normalisation,
        "source_statistics": source.to_json() if source else None,
        "method": fitted.settings.method.name,
    }


def onnx_runner(data: bytes) -> Any:
    """A function from windows (B, ..., T) float32 to the outputs of an ONNX model, on one thread."""
    runtime = require("onnxruntime", "export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"windows": x})


def compare(model: Model, run: Any, windows: int, seed: int = 0, batch: int = 32) -> Agreement:
    """Run the exported model and the model (float32) on the same random and extreme windows."""
    fitted = model.fitted
    network = copy.deepcopy(fitted.model).cpu().eval()
    calibrated = fitted.calibration is not None
    error, classes, strata, done = 0.0, 0, 0, 0
    step = fitted.sequence if fitted.model.sequence else 1
    for x in extreme_windows(len(fitted.channels), fitted.length, max(windows, 6 * step), seed):
        for at in range(0, len(x) - len(x) % step, batch * step):
            part = x[at : at + batch * step]
            part = part[: len(part) - len(part) % step]
            given = part.reshape(-1, step, *part.shape[1:]) if fitted.model.sequence else part
            found = run(given)
            taken = torch.from_numpy(np.asarray(found[1]).ravel()) if calibrated else None
            wanted, others = _expected(network, torch.from_numpy(given), taken)
            got = np.asarray(found[0]).reshape(wanted.shape)
            difference = np.abs(got - wanted).max() if np.isfinite(got).all() else np.inf
            error = max(error, float(difference))
            # Two classes as good as equal are a tie that rounding may break either way.
            top = np.sort(wanted, axis=1)
            clear = top[:, -1] - top[:, -2] > TOLERANCE
            classes += int(((got.argmax(axis=1) != wanted.argmax(axis=1)) & clear).sum())
            strata += others
            done += len(part)
    return Agreement(done, error, classes, strata)


@torch.inference_mode()
def _expected(network: Backbone, x: Tensor, strata: Tensor | None) -> tuple[np.ndarray, int]:
    """Probabilities (m, classes) of the model in the strata the exported model took, and how many of these are wrong.

    Two anchors as near as each other are a tie that rounding may break either way: the windows of a huge signal are
    about as far from all of them.
    """
    if strata is None:
        return network(x).softmax(dim=-1).flatten(0, -2).numpy(), 0
    calibration = find(network, SpectralCalibration)[0]
    seen: list[Tensor] = []
    hook = calibration.register_forward_pre_hook(lambda c, args: seen.append(c.distances(args[0]).double()))
    try:
        with calibration.assigned(strata):
            probabilities = network(x).softmax(dim=-1).flatten(0, -2).numpy()
    finally:
        hook.remove()
    taken = seen[0].gather(1, strata[:, None]).squeeze(1)
    return probabilities, int((taken - seen[0].min(dim=1).values > 1e-5 * taken).sum())


def extreme_windows(channels: int, length: int, n: int, seed: int = 0) -> Iterator[np.ndarray]:
    """About n normalised windows, kind by kind (m, C, T) float32: noise, steady rhythms, flat, huge, tiny, odd."""
    rng = np.random.default_rng(seed)
    each = max(1, n // 6)

    def noise() -> np.ndarray:
        return rng.standard_normal((each, channels, length)).astype(np.float32)

    t = np.arange(length)
    rhythm = np.sin(2 * np.pi * rng.uniform(0, 0.5, (each, channels, 1)) * t + rng.uniform(0, 6, (each, channels, 1)))
    yield noise() * np.exp(rng.normal(size=(each, 1, 1))).astype(np.float32)
    yield (rhythm * np.exp(rng.normal(size=(each, channels, 1)))).astype(np.float32)
    yield np.repeat(rng.choice([0.0, 0.0, 1.0, -3.0, 1e3], (each, channels, 1)), length, axis=2).astype(np.float32)
    yield noise() * np.float32(1e4)
    yield noise() * np.float32(1e-12)
    odd = noise()
    odd[:, 0] = 0  # a dead channel
    odd[::2, -1, length // 2] = 100  # a spike
    yield odd


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn of their own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
