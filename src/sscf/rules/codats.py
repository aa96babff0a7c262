"""CoDATS: DANN for time series, with a larger, normalised domain classifier and a gradually rising weight.

Its weak supervision and its target data have no place here: the domains told apart are the source domains.
"""

from __future__ import annotations

from torch import nn

from sscf.rules.base import param
from sscf.rules.dann import DANN


class CoDATS(DANN):
    name = "codats"
    title = "Convolutional deep adaptation for time series"
    paper = (
        "Wilson et al., Multi-Source Deep Domain Adaptation with Weak Supervision for Time-Series Sensor Data, KDD 2020"
    )

    class Params(DANN.Params):
        warmup: int = param(1000, "steps in which the reversed gradient's weight rises from 0", [500, 1000, 5000], ge=0)
        hidden: int = param(500, "units of the two hidden layers of the domain classifier", [100, 500], gt=0)
        dropout: float = param(0.3, "dropout in the domain classifier", [0.0, 0.3, 0.5], ge=0, lt=1)

    def build_classifier(self, width: int) -> nn.Sequential:
        hidden, dropout = self.params.hidden, self.params.dropout
        return nn.Sequential(
            *(nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout)),
            *(nn.Linear(hidden, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(dropout)),
            nn.Linear(hidden, self.n_domains),
        )
