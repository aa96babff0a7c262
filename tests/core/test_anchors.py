"""Anchors: strata, means, streams, files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.cluster import KMeans

from sscf import Anchors, welch_power
from sscf.core import strata
from sscf.core.anchors import _digest
from sscf.errors import FileError, InputError

ROOT = Path(__file__).resolve().parents[2]


def spectra(n: int = 400, channels: int = 3, bins: int = 5, families: int = 4, seed: int = 0) -> np.ndarray:
    """Power (n, C, F) of a few families of unequal size."""
    rng = np.random.default_rng(seed)
    base = rng.gamma(1.0, 4.0, (families, channels, bins)) + 0.1
    share = np.arange(families, 0, -1) / sum(range(families + 1))
    return base[rng.choice(families, n, p=share)] * rng.gamma(20, 1 / 20, (n, channels, bins))


def inertia(vectors: np.ndarray, labels: np.ndarray) -> float:
    parts = [vectors[labels == k] for k in np.unique(labels)]
    return sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in parts)


# --- strata


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reading", ["amplitude", "algorithm", "equations"])
def test_families_are_found_in_the_space_of_the_reading(dtype, reading) -> None:
    power = spectra().astype(dtype)
    anchors = Anchors.fit(power, k=4, frame=8, hop=4, reading=reading)
    space = (np.sqrt(power) if reading == "amplitude" else power).reshape(400, -1).astype(np.float64)
    best = KMeans(4, n_init=20, random_state=1).fit(space)
    # Same strata, whatever their order; ours are ordered by size.
    assert anchors.counts.tolist() == sorted(np.bincount(best.labels_).tolist(), reverse=True)
    ours = np.asarray(strata_of(power, 4, reading))
    assert inertia(space, ours) == pytest.approx(best.inertia_, rel=1e-6)
    assert anchors.power.dtype == torch.from_numpy(power).dtype


def strata_of(power: np.ndarray, k: int, reading: str) -> np.ndarray:
    with strata.Blocks.of(power, power.shape[2]) as blocks:
        return strata.cluster(blocks, k, root=reading == "amplitude", seed=0)


@pytest.mark.parametrize("families", [4, 40])
def test_inertia_is_that_of_kmeans_on_all_rows(monkeypatch: pytest.MonkeyPatch, families: int) -> None:
    monkeypatch.setattr(strata, "SAMPLE_ROWS", 1000)
    monkeypatch.setattr(strata, "BLOCK_NUMBERS", 5000)
    power = spectra(20_000, families=families)
    vectors = np.sqrt(power.reshape(len(power), -1))
    best = KMeans(4, n_init=10, random_state=0).fit(vectors).inertia_
    assert inertia(vectors, strata_of(power, 4, "amplitude")) < 1.01 * best


def test_a_large_common_offset_does_not_blur_the_strata() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(1000) % 2
    power = (1e4 + 0.05 * truth[:, None, None] + 0.005 * rng.normal(size=(1000, 2, 3))).astype(np.float32)
    found = strata_of(power, 2, "algorithm")
    assert abs(np.corrcoef(found, truth)[0, 1]) > 0.99


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_strata_do_not_depend_on_the_unit(scale: float) -> None:
    power = spectra().astype(np.float32)
    scaled = (power * np.float32(scale)).astype(np.float32)
    assert np.array_equal(strata_of(scaled, 4, "algorithm"), strata_of(power, 4, "algorithm"))


@pytest.mark.parametrize("mean", ["mas", "arithmetic", "geometric"])
@pytest.mark.parametrize("reading", ["amplitude", "algorithm"])
def test_anchors_are_the_means_of_their_strata(mean, reading) -> None:
    power = spectra()
    power[:5, 0, 0] = 0
    anchors = Anchors.fit(power, k=4, frame=8, hop=4, reading=reading, mean=mean, eps=1e-6)
    labels = strata_of(power, 4, reading)
    for k in range(4):
        part = power[labels == k]
        expected = {
            "mas": np.mean(np.sqrt(part + 1e-6), axis=0) ** 2,
            "arithmetic": np.mean(part, axis=0),
            "geometric": np.exp(np.mean(np.log(part + 1e-6), axis=0)),
        }[mean]
        np.testing.assert_allclose(anchors.power[k].numpy(), expected, rtol=1e-10)
        assert anchors.counts[k] == len(part)


def test_the_call_of_the_readme() -> None:
    x = torch.randn(200, 3, 64, generator=torch.Generator().manual_seed(0))
    power = welch_power(x, frame=5, hop=2)
    anchors = Anchors.fit(power, k=4, frame=5, hop=2, reading="amplitude", mean="mas", groups=None, seed=0, eps=1e-8)
    assert torch.equal(anchors.power, Anchors.fit(power).power)
    assert anchors.power.shape == (4, 3, 3)
    assert anchors.counts.shape == (4,)
    assert anchors.assign(power).shape == (200,)
    assert anchors.k == 4


def test_groups_replace_kmeans() -> None:
    power, groups = spectra(90), np.array([7, -2, 40] * 30)
    anchors = Anchors.fit(power, frame=8, hop=4, groups=groups, mean="arithmetic")
    expected = [power[groups == g].mean(axis=0) for g in (-2, 7, 40)]
    np.testing.assert_allclose(anchors.power.numpy(), expected, rtol=1e-12)
    assert anchors.counts.tolist() == [30, 30, 30]
    everything = Anchors.fit(power, frame=8, hop=4, groups=torch.zeros(90, dtype=torch.int64))
    assert torch.allclose(everything.power, Anchors.fit(power, k=1, frame=8, hop=4).power)


def test_seed_decides() -> None:
    power = np.random.default_rng(0).random((300, 2, 5))
    first, again, other = (Anchors.fit(power, k=6, frame=8, hop=4, seed=s).power for s in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_assign_takes_the_nearest_anchor() -> None:
    power = spectra()
    for reading in ("amplitude", "algorithm", "equations"):
        anchors = Anchors.fit(power, k=4, frame=8, hop=4, reading=reading)
        sample = np.sqrt(power) if reading == "amplitude" else power
        target = anchors.power.numpy() if reading == "algorithm" else np.sqrt(anchors.power.numpy())
        distance = np.sqrt(((sample[:, None] - target) ** 2).sum(axis=(2, 3)))
        np.testing.assert_allclose(anchors.distances(power).numpy(), distance, rtol=1e-10)
        assert anchors.assign(torch.from_numpy(power)).tolist() == distance.argmin(axis=1).tolist()
    assert anchors.assign(power[:0]).shape == (0,)
    with pytest.raises(InputError, match="the spectra have 2 channels, the anchors have 3"):
        anchors.assign(power[:, :2])


# --- hard data: no stratum is ever empty


def check_strata(power: np.ndarray, k: int, **options: Any) -> Anchors:
    anchors = Anchors.fit(power, k=k, frame=4, hop=2, **options)
    assert anchors.k == k
    assert int(anchors.counts.min()) >= 1
    assert int(anchors.counts.sum()) == len(power)
    assert bool(torch.isfinite(anchors.power).all())
    return anchors


@pytest.mark.parametrize("reading", ["amplitude", "algorithm"])
def test_as_many_strata_as_distinct_samples(reading) -> None:
    distinct = np.random.default_rng(0).random((9, 2, 3)).astype(np.float32)
    power = distinct[np.random.default_rng(1).choice(9, 5000, p=[0.9, 0.07, 0.02] + [0.01 / 6] * 6)]
    assert len(np.unique(power, axis=0)) == 9
    anchors = check_strata(power, 9, reading=reading)
    found = np.unique(anchors.power.numpy().round(5), axis=0)
    np.testing.assert_allclose(found, np.unique(distinct.round(5), axis=0), atol=1e-4)


def test_one_outlier_among_duplicates_that_the_sample_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "SAMPLE_ROWS", 50)
    monkeypatch.setattr(strata, "BLOCK_NUMBERS", 600)
    power = np.ones((5000, 2, 3), np.float32)
    power[1234] = 2
    power[4321] = 3
    assert check_strata(power, 3).counts.tolist() == [4998, 1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_that_differ_in_the_last_digit(dtype) -> None:
    power = np.full((3000, 2, 3), 7.0, dtype)
    power[5] = np.nextafter(dtype(7), dtype(8))
    power[6, 0, 0] = np.nextafter(dtype(7), dtype(0))
    check_strata(power, 3, reading="algorithm")


@pytest.mark.parametrize("seed", range(5))
def test_heavy_tails_and_duplicates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    power = np.exp(rng.normal(0, 6, (40, 2, 3))).astype(np.float32)[rng.integers(0, 40, 2000)]
    power[::3] = 0
    check_strata(power, 25, seed=seed)


def test_every_sample_its_own_stratum() -> None:
    power = np.random.default_rng(0).random((30, 2, 3))
    assert check_strata(power, 30).counts.tolist() == [1] * 30


def test_more_strata_than_distinct_samples() -> None:
    power = np.repeat(np.random.default_rng(0).random((3, 2, 3)), 100, axis=0)
    with pytest.raises(InputError, match="k = 4 strata asked for, but there are only 3 distinct samples among 300"):
        Anchors.fit(power, k=4, frame=4, hop=2)
    signed = np.zeros((2, 2, 3))
    signed[0] = -0.0
    with pytest.raises(InputError, match="only 1 distinct samples among 2"):
        Anchors.fit(signed, k=2, frame=4, hop=2)


# --- streams


def batches(power: np.ndarray, size: int) -> Callable[[], Iterator[np.ndarray]]:
    return lambda: (power[start : start + size] for start in range(0, len(power), size))


def test_the_result_does_not_depend_on_how_the_spectra_come_in(tmp_path: Path) -> None:
    power = spectra(40_000, 4, 5).astype(np.float32)
    assert power.size > 2 * strata.BLOCK_NUMBERS  # more than one block
    np.save(tmp_path / "power.npy", power)
    tensor = torch.from_numpy(power)
    sources: dict[str, Any] = {
        "tensor": tensor,
        "memmap": np.load(tmp_path / "power.npy", mmap_mode="r"),
        "copy on write": np.load(tmp_path / "power.npy", mmap_mode="c"),
        "not contiguous": np.asfortranarray(power),
        "tensors": lambda: iter(tensor.split(999)),
        **{f"batches of {size}": batches(power, size) for size in (7, 1000, 32_768, 40_000)},
    }
    expected = Anchors.fit(power, k=3, frame=8, hop=4)
    labels = expected.assign(power)
    for name, source in sources.items():
        anchors = Anchors.fit(source, k=3, frame=8, hop=4)
        assert torch.equal(anchors.power, expected.power), name
        assert torch.equal(anchors.counts, expected.counts), name
        assert torch.equal(anchors.assign(source), labels), name


def test_a_stream_is_read_once() -> None:
    power, calls = spectra(100), []

    def source() -> Iterator[np.ndarray]:
        calls.append(1)
        return iter([power])

    Anchors.fit(source, k=3, frame=8, hop=4)
    assert len(calls) == 1


def test_memory_does_not_grow_with_the_stream() -> None:
    """150,000 windows, 330 MB of power; bench/anchors_memory.py does it with a million."""
    script = ROOT / "bench" / "anchors_memory.py"
    run = subprocess.run([sys.executable, str(script), "150000"], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["above_mb"] < 150


# --- bad input


def changed(index: tuple[int, int, int], value: float) -> np.ndarray:
    power = spectra(20_000, 3, 5)
    power[index] = value
    return power


@pytest.mark.parametrize(
    ("power", "options", "message"),
    [
        (changed((19_876, 2, 4), np.nan), {}, "power is not finite at sample 19876, channel 2, bin 4: nan"),
        (changed((3, 1, 0), np.inf), {}, "power is not finite at sample 3, channel 1, bin 0: inf"),
        (batches(changed((19_876, 2, 4), np.nan), 99), {}, "power is not finite at sample 19876, channel 2, bin 4"),
        (changed((8, 0, 2), -1e-9), {}, "power is negative at sample 8, channel 0, bin 2"),
        (spectra()[0], {}, r"shape \(N, C, 5\) for this frame, got \(3, 5\)"),
        (spectra(), {"frame": 16}, r"shape \(N, C, 9\) for this frame, got \(400, 3, 5\)"),
        (spectra().astype(np.float16), {}, "float32 or float64, got float16"),
        (spectra().astype(np.int64), {}, "float32 or float64, got int64"),
        (spectra().astype(complex), {}, "float32 or float64, got complex128"),
        (spectra().tolist(), {}, "expected power as tensor, array or callable, got list"),
        (spectra()[:0], {}, "no samples"),
        (lambda: iter([]), {}, "the stream is empty"),
        (lambda: iter([spectra(5), spectra(5, 4)]), {}, r"batches differ: \(3, 5\) .* \(4, 5\) .* at sample 5"),
        (spectra(), {"k": 0}, "k must be an integer of at least 1, got 0"),
        (spectra(), {"k": 2.0}, "k must be an integer of at least 1, got 2.0"),
        (spectra(), {"hop": 0}, "hop must be an integer of at least 1, got 0"),
        (spectra(), {"frame": 1}, "frame must be an integer of at least 2, got 1"),
        (spectra(), {"reading": "power"}, "reading must be one of amplitude, algorithm, equations, got 'power'"),
        (spectra(), {"mean": "median"}, "mean must be one of mas, arithmetic, geometric, got 'median'"),
        (spectra(), {"eps": 0}, "eps must be a positive number, got 0"),
        (spectra(), {"eps": float("nan")}, "eps must be a positive number, got nan"),
        (spectra(), {"groups": np.zeros(3, int)}, r"groups must be 400 integers, one per sample, got int64 of shape"),
        (spectra(), {"groups": np.zeros(400)}, "groups must be 400 integers, one per sample, got float64"),
    ],
)
def test_bad_input(power, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Anchors.fit(power, **{"k": 4, "frame": 8, "hop": 4, **options})


# --- files


@pytest.fixture
def anchors() -> Anchors:
    return Anchors.fit(spectra(), k=4, frame=9, hop=3, reading="algorithm", mean="geometric", eps=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_save_and_load(tmp_path: Path, dtype) -> None:
    saved = Anchors.fit(spectra().astype(dtype), k=4, frame=9, hop=3, reading="equations", eps=1e-7)
    saved.save(tmp_path / "a.safetensors")
    loaded = Anchors.load(str(tmp_path / "a.safetensors"))
    assert torch.equal(loaded.power, saved.power)
    assert loaded.power.dtype == saved.power.dtype
    assert torch.equal(loaded.counts, saved.counts)
    assert loaded.to_tensors()[1] == saved.to_tensors()[1]
    assert saved.to_tensors()[1] == {
        "frame": 9, "hop": 3, "reading": "equations", "mean": "mas", "eps": 1e-7, "window": "hann"
    }  # fmt: skip
    first = (tmp_path / "a.safetensors").read_bytes()
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == first


def test_every_truncation_and_every_flipped_byte_is_noticed(tmp_path: Path, anchors: Anchors) -> None:
    path = tmp_path / "a.safetensors"
    anchors.save(path)
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 9, *range(10, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"a\.safetensors: truncated, or not an anchor file"):
            Anchors.load(path)
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(FileError, match=r"a\.safetensors: "):
            Anchors.load(path)
    path.write_bytes(whole + b"more")
    with pytest.raises(FileError, match="truncated, or not an anchor file"):
        Anchors.load(path)


def rewrite(path: Path, tensors: dict[str, Any], settings: Any, note: str | None = None, **changes: Any) -> None:
    """A file as `save` writes it, checksum and all, with whatever content."""
    header = {"version": 1, "settings": settings, "digest": _digest(tensors, settings), **changes}
    metadata = {"sscf-anchors": json.dumps(header)} | ({"note": note} if note else {})
    save_file(tensors, path, metadata=metadata)


def test_wrong_content_with_a_right_checksum(tmp_path: Path, anchors: Anchors) -> None:
    path = tmp_path / "a.safetensors"
    tensors, settings = anchors.to_tensors()
    power, counts = tensors["power"], tensors["counts"]
    rewrite(path, tensors, settings)
    assert torch.equal(Anchors.load(path).power, power)
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({**tensors, "extra": counts.clone()}, settings, "expected tensors power, counts .* got tensors .*'extra'"),
        ({"power": power}, settings, "expected tensors power, counts"),
        (tensors, {**settings, "colour": "red"}, "settings .*'colour'"),
        (tensors, {k: v for k, v in settings.items() if k != "hop"}, "expected tensors power, counts and settings"),
        (tensors, [1, 2], "expected tensors power, counts and settings"),
        (tensors, "{not json", "expected tensors power, counts and settings"),
        ({**tensors, "power": power[:, :, :4].contiguous()}, settings, r"shape \(K, C, 5\), got \(4, 3, 4\)"),
        ({**tensors, "power": power[0].clone()}, settings, r"shape \(K, C, 5\), got \(3, 5\)"),
        ({**tensors, "power": power[:0].clone(), "counts": counts[:0].clone()}, settings, r"shape \(K, C, 5\)"),
        ({**tensors, "power": -power}, settings, "finite and not negative"),
        ({**tensors, "power": power / 0}, settings, "finite and not negative"),
        ({**tensors, "power": power.half()}, settings, "float32 or float64, got torch.float16"),
        ({**tensors, "counts": counts[:2].clone()}, settings, "one positive int64 number per anchor"),
        ({**tensors, "counts": counts * 0}, settings, "one positive int64 number per anchor"),
        ({**tensors, "counts": counts.float()}, settings, "one positive int64 number per anchor"),
        (tensors, {**settings, "frame": 12}, r"frame 12 have shape \(K, C, 7\)"),
        (tensors, {**settings, "frame": 9.0}, "frame must be an integer"),
        (tensors, {**settings, "hop": -1}, "hop must be an integer of at least 1"),
        (tensors, {**settings, "reading": ["amplitude"]}, "reading must be one of"),
        (tensors, {**settings, "eps": "small"}, "eps must be a positive number"),
    ]
    for content, header, message in cases:
        rewrite(path, content, header)
        with pytest.raises(FileError, match=r"a\.safetensors: damaged anchor file: ") as caught:
            Anchors.load(path)
        caught.match(message)


def test_foreign_files(tmp_path: Path, anchors: Anchors) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(FileError, match=r"a\.safetensors: no such file"):
        Anchors.load(path)
    tensors, settings = anchors.to_tensors()
    save_file(tensors, path)
    with pytest.raises(FileError, match="not an anchor file"):
        Anchors.load(path)
    path.write_bytes(b"PK\x03\x04" + bytes(500))
    with pytest.raises(FileError, match="truncated, or not an anchor file"):
        Anchors.load(path)
    for text in ("{not json", "[1]", "3", '{"version": 1}'):
        save_file(tensors, path, metadata={"sscf-anchors": text})
        with pytest.raises(FileError, match="damaged header of an anchor file"):
            Anchors.load(path)
    rewrite(path, tensors, settings, version=2)
    with pytest.raises(FileError, match="anchor format 2, this version of sscf reads 1"):
        Anchors.load(path)
    rewrite(path, tensors, settings, note="hello")
    with pytest.raises(FileError, match="unknown keys in the header: note"):
        Anchors.load(path)
    rewrite(path, tensors, settings, colour="red")
    with pytest.raises(FileError, match="unknown keys in the header: colour"):
        Anchors.load(path)
    rewrite(path, tensors, settings, digest="0" * 64)
    with pytest.raises(FileError, match="does not match its checksum"):
        Anchors.load(path)


def test_a_saved_file_is_plain_safetensors(tmp_path: Path, anchors: Anchors) -> None:
    anchors.save(tmp_path / "deep" / "a.safetensors")
    assert torch.equal(load_file(tmp_path / "deep" / "a.safetensors")["power"], anchors.power)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.safetensors"]
