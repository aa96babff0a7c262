"""How fast training is: our loop against others on the same net and data, and the net against its textbook form.

    python bench/train.py [--rounds 7] [--no-compile]

One core. What is compared takes turns, round by round, and is timed in CPU seconds, so that other work on the machine
touches all alike; a ratio is the median over rounds. Above 1 means faster than what it is compared with.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from sscf.data.normalise import Normaliser
from sscf.data.simulate import simulate
from sscf.data.store import open_store
from sscf.data.tasks import TaskView, get_task
from sscf.experiment.config import TrainConfig
from sscf.experiment.fitted import Settings
from sscf.experiment.loader import DomainLoader
from sscf.experiment.train import fit
from sscf.nn import Backbone, build
from sscf.rules.methods import get_method

STEPS = 25
BATCH = 96  # three source domains of 32 windows


def compare(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each run in each round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if turn:
                seconds[name].append(time.process_time() - start)
    return seconds


def ratio(slow: list[float], fast: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


# The loops


def ours(views: list[TaskView]) -> None:
    """`fit` as an experiment calls it: splits, normalises, builds, trains. Validation is left out, as in the others."""
    train = TrainConfig(epochs=1, steps_per_epoch=STEPS, batch_size=BATCH, validation=0.0, patience=None, device="cpu")
    fit(views, Settings(get_method("erm"), train, selection="last"), seed=0)


def hand_written(x: Tensor, y: Tensor, model: Backbone) -> None:
    """What one would write in a notebook, with the whole normalised data set in one tensor and a fused Adam."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    model.train()
    order = torch.randperm(len(x))
    for step in range(STEPS):
        rows = order[(step * BATCH) % (len(x) - BATCH) :][:BATCH]
        loss = F.cross_entropy(model(x[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def endless(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    data = TensorDataset(x, y)
    sampler = RandomSampler(data, replacement=True, num_samples=10**9)
    return iter(DataLoader(data, batch_size=BATCH // 3, sampler=sampler, drop_last=True))


def domainbed_style(loaders: list[Iterator[tuple[Tensor, Tensor]]], model: Backbone) -> None:
    """A list of (x, y), one from each domain's endless DataLoader, put together; Adam as it comes."""
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    model.train()
    for minibatches in itertools.islice(zip(*loaders, strict=True), STEPS):
        x = torch.cat([x for x, _ in minibatches])
        y = torch.cat([y for _, y in minibatches])
        loss = F.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss.item()  # goes to the log at every step


def loops(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulate("har", folder, domains=3, subjects=6, windows=60)
        views = [get_task("har").view(domain) for domain in open_store(Path(folder)).values()]
        normalisers = [Normaliser.for_domain("center", view.domain) for view in views]
        domains = []
        for view, normaliser in zip(views, normalisers, strict=True):
            windows = normaliser.apply(view.domain.windows[view.index])
            domains.append((torch.from_numpy(windows), torch.from_numpy(view.y)))
        x, y = (torch.cat(parts) for parts in zip(*domains, strict=True))
        model = build("cnn_bilstm", in_channels=3, length=128, n_classes=len(views[0].classes))
        loader = DomainLoader(views, normalisers, BATCH, seed=0)
        loaders = [endless(*domain) for domain in domains]
        s = compare(
            {
                "ours": lambda: ours(views),
                "plain": lambda: hand_written(x, y, copy.deepcopy(model)),
                "domainbed": lambda: domainbed_style(loaders, copy.deepcopy(model)),
                "our loader": lambda: [next(loader) for _ in range(STEPS)],
                "their loaders": lambda: [[next(one) for one in loaders] for _ in range(STEPS)],
            },
            rounds,
        )
    rate = {name: STEPS * BATCH / statistics.median(values) for name, values in s.items()}
    print(f"training, ERM, CNN-BiLSTM, windows (3, 128), batches of {BATCH} from 3 domains, {STEPS} steps a round")
    print(f"  windows/s: ours {rate['ours']:.0f}, plain {rate['plain']:.0f}, DomainBed style {rate['domainbed']:.0f}")
    for what, value, wanted in (
        ("ours / plain loop, data in memory, same optimiser", ratio(s["plain"], s["ours"]), "0.95"),
        ("ours / DomainBed-style loop", ratio(s["domainbed"], s["ours"]), "1"),
        ("our loader / per-domain DataLoaders, no training", ratio(s["their loaders"], s["our loader"]), "1"),
    ):
        print(f"  {what:50} {value:.3f}  (wanted: {wanted})")
    print(f"  our loader takes {ratio(s['our loader'], s['ours']):.1%} of our time")


# The net


class TextbookStage(nn.Module):
    """A stage in the order in which papers draw it, with its weights taken from ours."""

    def __init__(self, stage: nn.Module, pool_first: bool) -> None:
        super().__init__()
        self.conv, self.norm = stage.get_submodule("conv"), stage.get_submodule("norm")
        self.pool, self.pool_first = nn.MaxPool1d(2), pool_first

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return F.relu(self.pool(x)) if self.pool_first else self.pool(F.relu(x))


def variant(model: Backbone, pool_first: bool) -> Backbone:
    model = copy.deepcopy(model)
    for name in model.taps:
        setattr(model, name, TextbookStage(model.at(name), pool_first))
    return model


def training_step(model: nn.Module, x: Tensor, y: Tensor, fused: bool = True) -> Callable[[], None]:
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, fused=fused)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()

    return step


def inference(model: nn.Module, x: Tensor) -> Callable[[], None]:
    model = copy.deepcopy(model).eval()

    @torch.inference_mode()
    def run() -> None:
        model(x)

    return run


def net(shape: tuple[int, int], rounds: int, compiled: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(128, *shape), torch.randint(4, (128,))
    model = build("cnn_bilstm", in_channels=shape[0], length=shape[1], n_classes=4)
    textbook, pool_first = variant(model, pool_first=False), variant(model, pool_first=True)
    for other in (textbook, pool_first):  # the same mathematics
        torch.testing.assert_close(copy.deepcopy(other).eval()(x), copy.deepcopy(model).eval()(x))
    runs: dict[str, Callable[[], object]] = {
        "textbook": training_step(copy.deepcopy(textbook), x, y, fused=False),
        "pool before ReLU": training_step(copy.deepcopy(pool_first), x, y, fused=False),
        "pairwise max": training_step(copy.deepcopy(model), x, y, fused=False),
        "fused Adam (ours)": training_step(copy.deepcopy(model), x, y),
    }
    infer: dict[str, Callable[[], object]] = {"textbook": inference(textbook, x), "ours": inference(model, x)}
    if compiled:
        net = torch.compile(copy.deepcopy(model))
        runs["ours, torch.compile"] = training_step(net, x, y)  # type: ignore[arg-type]
        start = time.perf_counter()
        runs["ours, torch.compile"]()
        waited = time.perf_counter() - start
    s = compare(runs, rounds)
    drawn = 1e3 * statistics.median(s["textbook"])
    print(
        f"CNN-BiLSTM, windows {shape}, batch 128: a training step takes {drawn:.1f} ms as papers draw it; against that"
    )
    for name, values in s.items():
        note = f", after {waited:.0f} s of compiling" if "compile" in name else ""
        if name != "textbook":
            print(f"  {name:22} {ratio(s['textbook'], values):.3f}  ({1e3 * statistics.median(values):.1f} ms{note})")
    i = compare(infer, rounds)
    print(f"  {'inference':22} {ratio(i['textbook'], i['ours']):.3f}  ({1e3 * statistics.median(i['ours']):.1f} ms)")


def profile(shape: tuple[int, int]) -> None:
    """Where the time of a training step goes."""
    x, y = torch.randn(128, *shape), torch.randint(4, (128,))
    step = training_step(build("cnn_bilstm", in_channels=shape[0], length=shape[1], n_classes=4), x, y)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
        for _ in range(5):
            step()
    shares = dict.fromkeys(("LSTM", "convolution", "batch norm", "Adam", "other"), 0.0)
    keys = {"rnn": "LSTM", "lstm": "LSTM", "conv": "convolution", "batch_norm": "batch norm", "adam": "Adam"}
    for event in record.key_averages():
        kind = next((kind for key, kind in keys.items() if key in event.key.lower()), "other")
        shares[kind] += event.self_cpu_time_total
    total = sum(shares.values())
    print("  a step is " + ", ".join(f"{kind} {value / total:.0%}" for kind, value in shares.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a minute")
    given = parser.parse_args()
    torch.set_num_threads(1)
    loops(given.rounds)
    for shape in ((3, 128), (1, 1000)):
        net(shape, 4 * given.rounds if shape[1] == 128 else given.rounds, not given.no_compile)
        profile(shape)


if __name__ == "__main__":
    main()
