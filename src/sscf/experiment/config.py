"""What a user may write in an experiment: typed, checked at the edge, with every default in one place."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sscf.data.normalise import NORMALISATIONS
from sscf.data.tasks import explain
from sscf.errors import ConfigError

# What k = "auto" chooses from, by source data alone.
AUTO_K = (1, 2, 4, 8)

Positive = Annotated[int, Field(ge=1)]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainConfig(_Config):
    """How a network is trained, whatever the method."""

    epochs: Positive = Field(200, description="most passes over the source windows")
    steps_per_epoch: Positive | None = Field(None, description="batches per epoch; default: all source windows once")
    batch_size: Annotated[int, Field(ge=2)] = Field(128, description="windows (or sequences) per batch, all domains")
    lr: float = Field(1e-3, gt=0, description="Adam's learning rate")
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["cosine", "constant"] = "cosine"
    clip: float | None = Field(None, gt=0, description="largest gradient norm")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the running average of the weights; 0 is none")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    class_weights: bool = Field(False, description="weight classes by the inverse of their share in the sources")
    patience: Positive | None = Field(20, description="epochs without a better validation score before stopping")
    validation: float = Field(0.2, ge=0, lt=1, description="share of every source held out, by subject")
    precision: Literal["float32", "bfloat16"] = "float32"
    threads: Positive = Field(1, description="CPU threads of a run: a part of its identity, sums depend on it")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")


class SSCFConfig(_Config):
    """The calibration. A list of k, frame, reading, tap or strength is searched on source data."""

    k: Positive | Literal["auto"] | list[Positive] = Field(4, description="strata; auto is the list 1, 2, 4, 8")
    frame: Annotated[int, Field(ge=2)] | list[Annotated[int, Field(ge=2)]] = Field(16, description="Welch frame")
    hop: Positive | None = Field(None, description="Welch hop; default: half the frame")
    reading: str | list[str] = "amplitude"
    mean: Literal["mas", "arithmetic", "geometric"] = "mas"
    tap: str | list[str] | None = Field(None, description="where in the backbone; default: its first tap")
    strength: float | list[float] = 1.0
    gradient: Literal["mask", "full"] = "mask"
    restore_mean: bool = False
    init: Literal["scratch", "warm"] = "scratch"
    warmup_epochs: Positive | None = Field(None, description="epochs of the auxiliary encoder; default: as the model")
    eps: float = Field(1e-8, gt=0)

    @field_validator("k", "frame", "reading", "tap", "strength")
    @classmethod
    def _not_empty(cls, value: Any) -> Any:
        if isinstance(value, list) and (not value or len(set(value)) != len(value)):
            raise ValueError("a list to search must not be empty or name a value twice")
        return value

    @field_validator("reading")
    @classmethod
    def _known_reading(cls, value: Any) -> Any:
        allowed = ("amplitude", "algorithm", "equations")
        for one in value if isinstance(value, list) else [value]:
            if one not in allowed:
                raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    def searched(self) -> SSCFConfig:
        """The same with k = "auto" written out as a list."""
        return self.model_copy(update={"k": list(AUTO_K)}) if self.k == "auto" else self


SEARCHABLE = ("k", "frame", "reading", "tap", "strength")


class MethodConfig(_Config):
    """A method under a name of its own, with settings that differ from the experiment's."""

    name: str = Field(min_length=1)
    method: str
    rule_params: dict[str, Any] = Field(default_factory=dict)
    train: dict[str, Any] = Field(default_factory=dict)
    sscf: dict[str, Any] = Field(default_factory=dict)
    backbone: str | None = None
    normalisation: str | None = None


class Experiment(_Config):
    """A grid of runs: methods x targets x seeds on one task."""

    name: str = "experiment"
    task: str
    store: str | None = Field(None, description="folder of prepared domains, relative to the spec file")
    data: list[str] | None = Field(None, description="domains; default: all of the store")
    targets: list[str] | None = Field(None, description="default: every domain in its turn")
    external: list[str] = Field(default_factory=list, description="targets only; all domains of `data` train for them")
    leave_out: Positive = Field(1, description="domains left out at a time")
    methods: list[str | MethodConfig] = Field(min_length=1)
    seeds: list[int] | Positive = Field(default_factory=lambda: [0, 1, 2, 3, 4])
    normalisation: str = "center"
    selection: Literal["source-val", "leave-one-source-out", "last", "oracle"] = "source-val"
    max_windows: Positive | None = Field(None, description="most windows of a domain, drawn evenly; default: all")
    backbone: str | None = Field(None, description="default: the task's")
    backbone_params: dict[str, Any] = Field(default_factory=dict)
    train: TrainConfig = TrainConfig()
    sscf: SSCFConfig = SSCFConfig()

    @field_validator("normalisation")
    @classmethod
    def _known_normalisation(cls, value: str) -> str:
        if value not in NORMALISATIONS:
            raise ValueError(f"must be one of {', '.join(NORMALISATIONS)}")
        return value

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Experiment:
        """Read a TOML spec. `store` is taken relative to the file."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"{path}: no such file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid TOML ({error})") from error
        experiment = check(cls, values, str(path))
        if experiment.store is not None:
            experiment = experiment.model_copy(update={"store": str(path.parent / experiment.store)})
        return experiment


def check(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Validate values against a config class; the error names the key, the value and what is allowed."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, kind)}") from error


def merged(base: Any, changes: Mapping[str, Any], where: str) -> Any:
    """A config with some keys changed, validated anew."""
    return check(type(base), {**base.model_dump(), **changes}, where) if changes else base
