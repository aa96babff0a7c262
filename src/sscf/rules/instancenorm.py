"""Instance norm: every feature map at the tap gets mean 0 and deviation 1 over time."""

from __future__ import annotations

from torch import nn

from sscf.nn.base import Backbone, insert
from sscf.rules import base
from sscf.rules.base import param
from sscf.rules.erm import ERM


class InstanceNorm(ERM):
    name = "instance-norm"
    title = "Instance normalisation at the tap"
    paper = "Ulyanov et al., Instance Normalization, arXiv:1607.08022, 2016"

    class Params(base.Params):
        affine: bool = param(False, "learn a scale and shift per channel", [False, True])
        eps: float = param(1e-5, "added to the variance", gt=0)

    def prepare(self, model: Backbone, tap: str) -> None:
        layer = nn.InstanceNorm1d(base.tap_channels(model, tap), eps=self.params.eps, affine=self.params.affine)
        insert(model, tap, layer.to(base.device_of(model)))
