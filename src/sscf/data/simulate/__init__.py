"""Simulated domains: latent dynamical systems seen through domain-specific observation. The built-in data.

A recording is a latent signal of a subject (classes come and go; the subject's *family* of dynamics stays; a class that
stops the dynamics, as sitting stops the gait, is the family "rest"), seen by the domain's device:
x = g_d * z + noise at its own rate, then brought to the store's rate. Families are shared by domains, in different
proportions; devices are not. Kinds: `har`, `ecg`, `sleep`. These are simulations that obey the paper's observation
model by construction: they show that code does what it should, not that a method works on recordings. The manifest of
every domain says `simulated`, and so must whatever is shown of them.
"""

from __future__ import annotations

import os
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sscf.data.simulate.dynamics import Clock, Kind
from sscf.data.simulate.ecg import ECG
from sscf.data.simulate.har import HAR
from sscf.data.simulate.observe import Observation
from sscf.data.simulate.sleep import SLEEP
from sscf.data.store import write_domain
from sscf.errors import ConfigError

__all__ = ["KINDS", "Observation", "SimulatedDomain", "simulate", "simulate_domain"]

KINDS = {kind.name: kind for kind in (HAR, ECG, SLEEP)}
NAMES = string.ascii_lowercase


@dataclass(frozen=True)
class SimulatedDomain:
    """One domain in memory: N windows of C channels and T samples."""

    name: str
    windows: NDArray[np.float32]  # (N, C, T) in `unit`
    labels: NDArray[np.int32]  # (N,) index into `classes`
    subjects: NDArray[np.int32]  # (N,) from 0; also the recording: everyone is recorded once
    positions: NDArray[np.int64]  # (N,) first sample of the window in its recording
    family: NDArray[np.int8]  # (N,) index into `families`: the known structure
    classes: tuple[str, ...]
    families: tuple[str, ...]
    channels: tuple[str, ...]
    unit: str
    fs: float
    observation: Observation  # the device, with its response g_d


def simulate(
    kind: str,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    domains: int = 4,
    subjects: int | None = None,
    windows: int | None = None,
    families: int = 3,
    shift: float = 1.0,
) -> list[Path]:
    """Write `domains` simulated domains `sim-<kind>-a`, `-b`, … into the store `out`; same arguments, same bytes.

    Parameters are those of `simulate_domain`. A domain does not depend on how many others there are.
    Each holds the extra array `family` (N,), and its manifest says `simulated: true`.
    """
    if not 1 <= domains <= len(NAMES):
        raise ConfigError(f"domains={domains}: between 1 and {len(NAMES)}")
    return [
        _write(
            Path(out),
            kind,
            simulate_domain(kind, i, seed=seed, subjects=subjects, windows=windows, families=families, shift=shift),
        )
        for i in range(domains)
    ]


def _write(out: Path, kind: str, domain: SimulatedDomain) -> Path:
    names = np.array([f"{domain.name}-{i + 1:02d}" for i in range(domain.subjects.max() + 1)])[domain.subjects]
    return write_domain(
        out / domain.name,
        domain.windows,
        domain.labels,
        names,
        domain.classes,
        domain.fs,
        name=domain.name,
        channels=domain.channels,
        recordings=names,
        positions=domain.positions,
        unit=domain.unit,
        task=KINDS[kind].task,
        extra={"family": domain.family},
        simulated=True,
    )


def simulate_domain(
    kind: str,
    index: int,
    *,
    seed: int = 0,
    subjects: int | None = None,
    windows: int | None = None,
    families: int = 3,
    shift: float = 1.0,
) -> SimulatedDomain:
    """Simulate domain number `index` of a kind.

    Parameters
    ----------
    kind : "har", "ecg" or "sleep".
    index : 0 to 25; domains differ in device, native rate, mixture of families and subjects.
    subjects, windows : subjects per domain and windows per subject; None: the kind's own (8 x 40; sleep 6 x 120).
    families : how many families of dynamics there are, 1 to 4.
    shift : how far devices differ, from 0 (all alike but for noise and rate) to 1 and beyond; the latent signals stay.
    """
    what = _kind(kind)
    subjects = what.subjects if subjects is None else subjects
    windows = what.windows if windows is None else windows
    if not 0 <= index < len(NAMES):
        raise ConfigError(f"index={index}: between 0 and {len(NAMES) - 1}")
    if not 1 <= families <= len(what.families):
        raise ConfigError(f"families={families}: {kind} has 1 to {len(what.families)} ({', '.join(what.families)})")
    if subjects < 1 or windows < 1:
        raise ConfigError(f"subjects={subjects}, windows={windows}: at least one of each")

    root = np.random.SeedSequence(seed, spawn_key=(list(KINDS).index(kind), index))
    seeds = root.spawn(subjects + 1)
    observation = what.device(np.random.default_rng(seeds[0]), index, shift)
    family = mixture(index, subjects, families)
    pieces = [
        _record(np.random.default_rng(seed), what, int(own), windows, observation)
        for seed, own in zip(seeds[1:], family, strict=True)
    ]
    labels = np.concatenate([y for _, y in pieces]).astype(np.int32)
    family = np.repeat(family, windows)
    family[np.isin(labels, what.resting)] = families
    return SimulatedDomain(
        name=f"sim-{kind}-{NAMES[index]}",
        windows=np.concatenate([x for x, _ in pieces]),
        labels=labels,
        subjects=np.repeat(np.arange(subjects, dtype=np.int32), windows),
        positions=np.tile(np.arange(windows, dtype=np.int64) * what.length, subjects),
        family=family,
        classes=what.classes,
        families=(*what.families[:families], "rest") if what.resting else what.families[:families],
        channels=what.channels,
        unit=what.unit,
        fs=what.fs,
        observation=observation,
    )


def mixture(index: int, subjects: int, families: int) -> NDArray[np.int8]:
    """Family of each subject (subjects,): every domain has a leading family, another one, and few of the rest.

    Of eight subjects and three families, 4, 3 and 1. The order rotates with the domain and turns round every full turn.
    """
    turn, first = divmod(index, families)
    order = (first + np.arange(families) * (-1) ** turn) % families
    edges = np.cumsum(0.6 ** np.arange(families))
    rank = np.searchsorted(edges / edges[-1], (np.arange(subjects) + 0.5) / subjects)
    return order[rank].astype(np.int8)


def _record(
    rng: np.random.Generator, kind: Kind, family: int, windows: int, observation: Observation
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """One subject's recording, cut: windows (n, C, T) and their labels (n,)."""
    latent_rng, noise_rng = rng.spawn(2)
    labels = kind.sequence(latent_rng, windows)
    clock = Clock(labels, kind.length / kind.fs, observation.rate)
    seen = observation.observe(kind.latent(latent_rng, clock, family), noise_rng, kind.fs)
    start = round(clock.margin * kind.fs)
    cut = seen[:, start : start + windows * kind.length].reshape(len(kind.channels), windows, kind.length)
    return np.ascontiguousarray(cut.swapaxes(0, 1), dtype=np.float32), labels


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise ConfigError(f"no simulation '{name}'; there are {', '.join(KINDS)}")
    return KINDS[name]
