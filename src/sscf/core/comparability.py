"""How far new data lies from the strata, measured against held-out source windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sscf.errors import InputError

REFERENCE_SIZE = 2000  # distances kept per stratum; a p-value can be as small as one in this many
LEAST_WINDOWS = 100  # a stratum with fewer held-out windows is judged by those of all strata together


@dataclass(frozen=True)
class MixShift:
    """How much the strata of new windows differ in frequency from those of the source.

    Attributes
    ----------
    source, new : Tensor (K,) float64, share of each stratum
    total_variation : float in [0, 1], half the sum of absolute differences: the share that would have to move
    pvalue : float, chi-square test that both come from one mix
        It takes windows as independent. Those of one recording are not, so read it together with `total_variation`.
    """

    source: Tensor
    new: Tensor
    total_variation: float
    pvalue: float


@dataclass(frozen=True, eq=False)
class Comparability:
    """Distances of held-out source windows to their anchors, and the mix of strata they came in.

    Attributes
    ----------
    reference : Tensor (M,) float64
        Ascending distances of stratum 0, 1, ... K - 1, then of all strata together, one after the other.
    sizes : Tensor (K + 1,) int64, how many each of them has; 0 for a stratum judged by all together.
    mix : Tensor (K,) int64, held-out source windows of each stratum

    Examples
    --------
    >>> import torch
    >>> from sscf.core.comparability import Comparability
    >>> held_out = torch.rand(1000)
    >>> source = Comparability.fit(held_out, torch.zeros(1000, dtype=torch.int64), k=1)
    >>> source.pvalue([0.0, 2.0], [0, 0])
    tensor([1.0000e+00, 9.9900e-04], dtype=torch.float64)
    """

    reference: Tensor
    sizes: Tensor
    mix: Tensor

    def __post_init__(self) -> None:
        reference, sizes, mix = self.reference, self.sizes, self.mix
        if mix.ndim != 1 or len(mix) == 0 or sizes.shape != (len(mix) + 1,) or reference.ndim != 1:
            raise InputError("expected reference (M,), sizes (K + 1,) and mix (K,)")
        if sizes.dtype != torch.int64 or mix.dtype != torch.int64 or reference.dtype != torch.float64:
            raise InputError("expected reference in float64, sizes and mix in int64")
        if bool((sizes < 0).any()) or bool((mix < 0).any()) or sizes[-1] < 1 or int(sizes.sum()) != len(reference):
            raise InputError("sizes and mix must not be negative, and sizes must add up to the number of distances")
        if not bool(torch.isfinite(reference).all()) or bool((reference < 0).any()):
            raise InputError("reference distances must be finite and not negative")
        if any(bool((part.diff() < 0).any()) for part in reference.split(sizes.tolist())):
            raise InputError("reference distances must ascend within each stratum")

    @property
    def k(self) -> int:
        """Number of strata."""
        return len(self.mix)

    @classmethod
    def fit(cls, distances: Tensor | np.ndarray, strata: Tensor | np.ndarray, k: int) -> Comparability:
        """Keep what is needed of held-out source windows.

        Parameters
        ----------
        distances : (N,) distance of each window to the anchor it takes
        strata : (N,) integers from 0 to k - 1, that anchor
        """
        values, labels = _pair(distances, strata, k)
        if len(values) == 0 or not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
            raise InputError("comparability needs at least one window, and distances finite and not negative")
        mix = torch.bincount(labels, minlength=k)
        enough = [values[labels == one] if mix[one] >= LEAST_WINDOWS else values[:0] for one in range(k)]
        parts = [_order_statistics(part) for part in [*enough, values]]
        return cls(torch.cat(parts), torch.tensor([len(part) for part in parts]), mix)

    def pvalue(self, distances: Tensor | np.ndarray, strata: Tensor | np.ndarray) -> Tensor:
        """Share of comparable source windows that lie at least as far from their anchor, (N,) float64 in (0, 1].

        (1 + #{reference >= d}) / (n + 1): uniform or larger for a window that could as well be one of the source's. A
        distance that is not a number gets the smallest p-value.
        """
        values, labels = _pair(distances, strata, self.k)
        values = values.nan_to_num(nan=torch.inf, posinf=torch.inf)
        parts = self.reference.split(self.sizes.tolist())
        result = torch.empty_like(values)
        for one in range(self.k):
            part, here = parts[one] if len(parts[one]) else parts[-1], labels == one
            farther = len(part) - torch.searchsorted(part, values[here])
            result[here] = (1 + farther.double()) / (len(part) + 1)
        return result

    def mix_shift(self, strata: Tensor | np.ndarray) -> MixShift:
        """Compare the mix of strata of new windows, (N,) integers, with that of the source."""
        labels = _labels(strata, self.k)
        if len(labels) == 0:
            raise InputError("no windows to compare")
        table = torch.stack([self.mix, torch.bincount(labels, minlength=self.k)]).double()
        share = table / table.sum(dim=1, keepdim=True)
        seen = table[:, table.sum(dim=0) > 0]
        expected = seen.sum(dim=1, keepdim=True) * seen.sum(dim=0) / seen.sum()
        statistic = ((seen - expected) ** 2 / expected).sum()
        freedom = torch.tensor((seen.shape[1] - 1) / 2, dtype=torch.float64)
        # The upper tail of the chi-square distribution; with one stratum there is nothing to differ in.
        pvalue = float(torch.special.gammaincc(freedom, statistic / 2)) if freedom > 0 else 1.0
        return MixShift(share[0], share[1], float((share[0] - share[1]).abs().sum() / 2), pvalue)

    def to_tensors(self) -> tuple[dict[str, Tensor], dict[str, object]]:
        """Tensors and plain settings (none), for a file that holds more than this."""
        return {"reference": self.reference, "sizes": self.sizes, "mix": self.mix}, {}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], settings: dict[str, object]) -> Comparability:
        """The inverse of `to_tensors`; what does not fit is an InputError."""
        if set(tensors) != {"reference", "sizes", "mix"} or settings:
            raise InputError(
                f"expected tensors reference, sizes, mix and no settings; got {sorted(tensors)} and {sorted(settings)}"
            )
        return cls(**tensors)


def _order_statistics(values: Tensor) -> Tensor:
    """At most `REFERENCE_SIZE` of the values, ascending and evenly spaced in rank."""
    ascending = values.sort().values
    if len(values) <= REFERENCE_SIZE:
        return ascending
    # Rank r (n + 1) / (m + 1) of n, rounded up, stands for rank r of m: p-values stay valid, if a little larger.
    step = (len(values) + 1) / (REFERENCE_SIZE + 1)
    rank = (torch.arange(1, REFERENCE_SIZE + 1, dtype=torch.float64) * step).ceil().long()
    return ascending[rank.clamp(max=len(values)) - 1]


def _labels(strata: Tensor | np.ndarray, k: int) -> Tensor:
    labels = torch.as_tensor(strata).cpu()
    if labels.ndim != 1 or labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise InputError(f"strata must be integers (N,), got {labels.dtype} of shape {tuple(labels.shape)}")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < k:
        raise InputError(f"strata run from 0 to {k - 1}, got {int(labels.min())} to {int(labels.max())}")
    return labels.long()


def _pair(distances: Tensor | np.ndarray, strata: Tensor | np.ndarray, k: int) -> tuple[Tensor, Tensor]:
    values, labels = torch.as_tensor(distances).detach().cpu().double(), _labels(strata, k)
    if values.shape != labels.shape:
        raise InputError(f"distances {tuple(values.shape)} and strata {tuple(labels.shape)} must both be (N,)")
    return values, labels
