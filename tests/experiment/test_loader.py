from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sscf.data.normalise import Normaliser
from sscf.data.store import Domain, write_domain
from sscf.data.tasks import Task, TaskView
from sscf.errors import ConfigError, InputError
from sscf.experiment.loader import DomainLoader, evaluation_batches, sequence_index

TASK = Task("toy", ("a", "b", "c"))
RAW = Normaliser("none")
LENGTH = 8  # samples per window


def make_view(folder: Path, name: str, runs: Sequence[int], code: int = 0) -> TaskView:
    """A stored domain with one recording per run; every sample of window i has the value 1000 * code + i."""
    n = sum(runs)
    recordings = np.repeat(np.arange(len(runs)), runs)
    positions = np.concatenate([np.arange(m) * LENGTH for m in runs])
    windows = np.broadcast_to(np.arange(n, dtype=np.float32)[:, None, None], (n, 2, LENGTH)) + 1000 * code
    path = write_domain(
        folder / name, windows, np.arange(n) % 3, recordings, TASK.classes, 50.0,
        name=name, recordings=recordings, positions=positions, channels=("x", "y"), task="toy",
    )  # fmt: skip
    return TASK.view(Domain.open(path))


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> list[TaskView]:
    folder = tmp_path_factory.mktemp("store")
    return [
        make_view(folder, name, runs, k)
        for k, (name, runs) in enumerate({"a": (50,), "b": (20, 11), "c": (7,)}.items())
    ]


def loader(views: list[TaskView], seed: int = 0, batch_size: int = 13, **options: Any) -> DomainLoader:
    return DomainLoader(views, RAW, batch_size, seed, **options)


def drawn(batch: Any) -> list[float]:
    return batch.x.flatten(1)[:, 0].tolist()


def test_batches_hold_every_domain_equally(views: list[TaskView]) -> None:
    stream = loader(views)  # 13 rows do not divide by three: four each
    for _ in range(20):
        batch = next(stream)
        assert batch.x.shape == (12, 2, LENGTH)
        assert batch.domain.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert batch.counts == (4, 4, 4)
        index = batch.x[:, 0, 0]
        assert (index // 1000).tolist() == batch.domain.tolist()  # windows are those of their domain
        assert ((index % 1000) % 3).tolist() == batch.y.tolist()  # and have their own labels
        assert batch.x.dtype == torch.float32
        assert batch.y.dtype == torch.int64


def test_every_window_comes_once_per_turn(views: list[TaskView]) -> None:
    stream = loader(views, batch_size=15)
    rows = np.array([drawn(next(stream)) for _ in range(10)])
    assert sorted(rows[:, :5].ravel()) == list(range(50))  # 10 batches of 5 go once through the domain of 50
    small = rows[:, 10:].ravel() - 2000  # 50 draws from 7 windows: seven full turns and one more
    assert all(sorted(small[k : k + 7]) == list(range(7)) for k in range(0, 49, 7))
    assert len({tuple(small[k : k + 7]) for k in range(0, 49, 7)}) > 1  # shuffled anew


def test_a_domain_smaller_than_its_share_is_repeated(views: list[TaskView]) -> None:
    rows = np.array(drawn(loader(views, batch_size=60).batch(0)))[40:] - 2000
    assert np.bincount(rows.astype(int), minlength=7).tolist().count(3) == 6  # 20 = 3 + 3 + 3 + 3 + 3 + 3 + 2


def test_the_stream_is_a_function_of_the_seed(views: list[TaskView]) -> None:
    one, same, other = loader(views, 1), loader(views, 1), loader(views, 2)
    first = [drawn(next(one)) for _ in range(30)]
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002  the global generators play no part
    assert [drawn(next(same)) for _ in range(30)] == first
    assert [drawn(next(other)) for _ in range(30)] != first


def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(views: list[TaskView]) -> None:
    whole = loader(views, 5)
    for _ in range(17):
        next(whole)
    state = json.loads(json.dumps(whole.state()))
    rest = [drawn(next(whole)) for _ in range(20)]
    resumed = loader(views, 5)
    resumed.restore(state)
    assert [drawn(next(resumed)) for _ in range(20)] == rest
    with pytest.raises(InputError, match="its seed was 5, now it is 6"):
        loader(views, 6).restore(state)
    with pytest.raises(InputError, match="its sizes was"):
        loader(views[::-1], 5).restore(state)


def test_an_epoch_is_as_long_as_the_data(views: list[TaskView]) -> None:
    stream = loader(views)
    assert len(stream) == (50 + 31 + 7) // 12
    assert len(list(stream.epoch())) == len(stream)
    assert stream.step == len(stream)
    assert len(loader(views, batch_size=3000)) == 1


def test_windows_are_normalised_by_their_own_domain_and_recording(views: list[TaskView]) -> None:
    kind = [Normaliser.for_domain("recording", view.domain) for view in views]
    batch = DomainLoader(views, kind, 60, 0).batch(0)
    b = views[1].domain
    rows = loader(views, batch_size=60).batch(0).x[20:40, 0, 0].numpy().astype(int) - 1000
    for row, x in zip(rows, batch.x[20:40].numpy(), strict=True):
        same = b.windows[b.recordings == b.recordings[row]]
        expected = (b.windows[row] - same.mean((0, 2))[:, None]) / same.std((0, 2))[:, None]
        np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-5)


def test_data_stay_on_disk(views: list[TaskView]) -> None:
    stream = loader(views)
    next(stream)
    held = sum(a.nbytes for a in stream.units) + sum(a.nbytes for _, a in stream._shuffled.values())
    assert held <= 2 * 8 * sum(map(len, views))  # two integers per window
    assert isinstance(views[0].domain.windows, np.memmap)


def test_useless_settings_are_refused(views: list[TaskView], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size 2 is smaller than the number of source domains, 3"):
        loader(views, batch_size=2)
    with pytest.raises(InputError, match="source domain 'c' has no run of 20 consecutive windows"):
        loader(views, sequence=20)
    empty = SimpleNamespace(domain=views[0].domain, index=views[0].index[:0], y=views[0].y[:0])
    with pytest.raises(InputError, match="source domain 'a' has no windows"):
        DomainLoader([empty], RAW, 4, 0)


def test_sequences_are_consecutive_windows(views: list[TaskView]) -> None:
    batch = next(loader(views[:2], sequence=10, batch_size=8))
    assert batch.x.shape == (8, 10, 2, LENGTH)
    assert batch.y.shape == (8, 10)
    index = batch.x[:, :, 0, 0]
    assert (index.diff(dim=1) == 1).all()
    assert (index % 1000 % 3 == batch.y).all()


def spread(kept: list[bool], recordings: list[int]) -> TaskView:
    """A view of windows 0, 1, 2, ... of which some are not kept; `recordings` must not decrease."""
    n = len(kept)
    number = np.array(recordings)
    domain = SimpleNamespace(
        recordings=number, positions=np.arange(n) * LENGTH, hop=LENGTH, name="d",
        windows=np.arange(n, dtype=np.float32)[:, None, None] * np.ones((1, 2, LENGTH), np.float32),
    )  # fmt: skip
    domain.read = lambda rows: domain.windows[rows]
    index = np.flatnonzero(kept)
    return TaskView(TASK, domain, index, index % 3, {}, "")  # type: ignore[arg-type]


@st.composite
def views_with_gaps(draw: st.DrawFn) -> TaskView:
    kept = draw(st.lists(st.booleans() | st.just(True), min_size=1, max_size=60))
    steps = draw(st.lists(st.integers(0, 20).map(lambda k: int(k == 0)), min_size=len(kept), max_size=len(kept)))
    return spread(kept, np.cumsum(steps).tolist())


@settings(max_examples=200, deadline=None)
@given(view=views_with_gaps(), length=st.integers(2, 7))
def test_sequences_never_bridge_a_gap_or_a_recording(view: TaskView, length: int) -> None:
    cut = sequence_index(view, length)
    assert cut.index.shape == (len(cut.repeated), length)
    for row in [*cut.index, *cut.short]:
        stored = view.index[row]
        assert (np.diff(stored) == 1).all()  # neighbours in the store, nothing left out between
        assert len(set(view.domain.recordings[stored])) == 1
    # Every window is in a sequence, or in a run that is too short for one.
    covered = set(cut.index.ravel().tolist())
    lost = set(np.concatenate([np.empty(0, int), *cut.short]).tolist())
    assert covered | lost == set(range(len(view)))
    assert not covered & lost
    assert cut.dropped == len(lost)
    assert all(len(run) < length for run in cut.short)


@settings(max_examples=200, deadline=None)
@given(view=views_with_gaps(), length=st.integers(1, 7), batch_size=st.integers(1, 5))
def test_evaluation_gives_every_window_exactly_once(view: TaskView, length: int, batch_size: int) -> None:
    seen: list[int] = []
    for x, positions in evaluation_batches(view, RAW, batch_size, length):
        assert len(x) <= batch_size
        assert x.shape[:-2] == positions.shape
        new = positions >= 0
        np.testing.assert_array_equal(x.numpy()[..., 0, 0][new], view.index[positions[new]])  # the window it says it is
        if length > 1:
            assert (np.diff(x.numpy()[..., 0, 0], axis=1) == 1).all()
        seen += positions[new].tolist()
    assert sorted(seen) == list(range(len(view)))


def test_leftovers_are_covered_by_an_overlapping_sequence() -> None:
    cut = sequence_index(spread([True] * 11 + [False] + [True] * 3, [0] * 15), 4)
    assert cut.index.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [7, 8, 9, 10]]
    assert cut.repeated.tolist() == [0, 0, 1]
    assert [run.tolist() for run in cut.short] == [[11, 12, 13]]
    assert cut.dropped == 3
