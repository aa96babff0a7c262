from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sscf.data.store import Domain, open_store, verify, write_domain
from sscf.errors import FileError, InputError


def arrays(n: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "windows": rng.normal(size=(n, 2, 50)),
        "labels": rng.integers(0, 3, n),
        "subjects": np.repeat(["ann", "bob", "eve"], n // 3),
        "classes": ["a", "b", "c"],
        "fs": 50,
    }


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    given = arrays()
    more = {"family": np.arange(30, dtype=np.int8) % 4}
    path = write_domain(tmp_path / "mine", **given, channels=["x", "y"], unit="g", extra=more, simulated=True)
    domain = Domain.open(path)
    assert (domain.name, domain.fs, domain.channels, domain.unit) == ("mine", 50.0, ("x", "y"), "g")
    np.testing.assert_array_equal(domain.windows, given["windows"].astype(np.float32))
    assert [domain.label_names[i] for i in domain.labels] == ["abc"[i] for i in given["labels"]]
    assert [domain.subject_names[i] for i in domain.subjects] == given["subjects"].tolist()
    assert domain.recording_names == ("ann", "bob", "eve")
    assert domain.positions[:3].tolist() == [0, 50, 100]
    assert domain.positions[10] == 0
    np.testing.assert_array_equal(domain.extra["family"], more["family"])
    assert domain.simulated
    assert list(open_store(tmp_path)) == ["mine"]
    assert verify(tmp_path) == []


def test_arrays_are_plain_npy_files_with_the_hashes_of_the_manifest(tmp_path: Path) -> None:
    path = write_domain(tmp_path / "mine", **arrays())
    assert np.load(path / "windows.npy").dtype == np.float32
    manifest = json.loads((path / "manifest.json").read_text())
    assert {f.name for f in path.iterdir()} == {*manifest["content"], "manifest.json"}
    for name, expected in manifest["content"].items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == expected


def test_labels_may_be_names(tmp_path: Path) -> None:
    given = arrays()
    a = write_domain(tmp_path / "a", **given)
    b = write_domain(tmp_path / "b", **{**given, "labels": np.array(["a", "b", "c"])[given["labels"]]}, name="a")
    assert all((a / f.name).read_bytes() == f.read_bytes() for f in b.iterdir())


def test_fingerprint_follows_the_data_and_not_the_name(tmp_path: Path) -> None:
    given = arrays()
    one = Domain.open(write_domain(tmp_path / "one", **given)).fingerprint
    assert Domain.open(write_domain(tmp_path / "two", **given)).fingerprint == one
    changed = given["windows"].copy()
    changed[3, 1, 7] += 1e-3
    others = [
        {"windows": changed},
        {"labels": (given["labels"] + 1) % 3},
        {"subjects": given["subjects"][::-1]},
        {"classes": ["a", "b", "d"]},
        {"fs": 51},
    ]
    prints = {Domain.open(write_domain(tmp_path / f"x{i}", **{**given, **o})).fingerprint for i, o in enumerate(others)}
    assert len(prints) == len(others)
    assert one not in prints


def test_a_domain_is_called_as_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_domain(tmp_path / "mine", **arrays())
    shutil.copytree(path, tmp_path / "copy")
    (tmp_path / "link").symlink_to(path)
    names = {name: domain.name for name, domain in open_store(tmp_path).items()}
    assert names == {name: name for name in ("copy", "link", "mine")}
    monkeypatch.chdir(path)
    assert Domain.open(".").name == "mine"


def test_read_gathers_rows_in_order_into_out(tmp_path: Path) -> None:
    given = arrays()
    domain = Domain.open(write_domain(tmp_path / "mine", **given))
    rows = np.array([7, 0, 29, 7])
    out = np.empty((4, 2, 50), np.float32)
    assert domain.read(rows, out) is out
    np.testing.assert_array_equal(out, given["windows"].astype(np.float32)[rows])
    assert type(domain.read(rows)) is np.ndarray
    with pytest.raises(IndexError):
        domain.read([30])


def test_writing_again_replaces_the_domain_as_a_whole(tmp_path: Path) -> None:
    write_domain(tmp_path / "mine", **arrays(), extra={"old": np.zeros(30)})
    write_domain(tmp_path / "mine", **arrays(60))
    assert len(Domain.open(tmp_path / "mine")) == 60
    assert not (tmp_path / "mine" / "old.npy").exists()
    assert [f.name for f in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_is_no_domain_is_never_replaced(tmp_path: Path) -> None:
    write_domain(tmp_path / "store" / "mine", **arrays())
    (tmp_path / "file").write_text("mine too")
    for place in ("store", "file"):
        with pytest.raises(FileError, match="is no prepared domain"):
            write_domain(tmp_path / place, **arrays())
    assert list(open_store(tmp_path / "store")) == ["mine"]
    assert (tmp_path / "file").read_text() == "mine too"
    (tmp_path / "empty").mkdir()
    write_domain(tmp_path / "empty", **arrays())
    assert verify(tmp_path / "empty") == []


def test_a_failure_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sscf.data.writing

    write_domain(tmp_path / "mine", **arrays())
    before = (tmp_path / "mine" / "manifest.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(sscf.data.writing, "write_json", full)
    with pytest.raises(OSError, match="no space"):
        write_domain(tmp_path / "mine", **arrays(60))
    assert [f.name for f in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"windows": np.zeros((30, 50))}, r"\(N, C, T\)"),
        ({"windows": np.zeros((0, 1, 5))}, r"\(N, C, T\)"),
        ({"labels": np.full(30, 3)}, "there are 3 classes"),
        ({"labels": ["a"] * 29 + ["zzz"]}, "'zzz' are not among the classes a, b, c"),
        ({"labels": [0]}, r"shape \(30,\)"),
        ({"subjects": ["ann"]}, r"subjects must have shape \(30,\)"),
        ({"classes": ["a", "a", "b"]}, "different names"),
        ({"fs": 0}, "fs must be positive"),
        ({"channels": ["x"]}, "1 channel names for 2 channels"),
        ({"positions": [1.0, 2.0]}, "positions must be"),
        ({"extra": {"labels": np.zeros(30)}}, "cannot be called 'labels'"),
        ({"extra": {"note": np.array(["x"] * 30)}}, "note must be numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_domain(tmp_path / "mine", **{**arrays(), **change})
    assert not (tmp_path / "mine").exists()


def test_not_a_number_is_refused_with_its_window(tmp_path: Path) -> None:
    given = arrays()
    given["windows"][17, 0, 3] = np.nan
    with pytest.raises(InputError, match="window 17"):
        write_domain(tmp_path / "mine", **given)


def tamper(path: Path, **values: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **values}))


def test_another_schema_says_what_to_do(tmp_path: Path) -> None:
    path = write_domain(tmp_path / "mine", **arrays())
    tamper(path, schema=99)
    with pytest.raises(FileError, match="schema 99, this sscf reads 1: update sscf"):
        Domain.open(path)
    tamper(path, schema=0)
    with pytest.raises(FileError, match="prepare it again"):
        Domain.open(path)


def test_foreign_and_damaged_folders_are_file_errors(tmp_path: Path) -> None:
    path = write_domain(tmp_path / "store" / "mine", **arrays())
    with pytest.raises(FileError, match="it is a store of mine"):
        Domain.open(tmp_path / "store")
    with pytest.raises(FileError, match="no such store"):
        open_store(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="sscf prepare"):
        open_store(tmp_path / "empty")
    whole = (path / "windows.npy").read_bytes()
    (path / "windows.npy").write_bytes(whole[:-100])
    with pytest.raises(FileError, match=r"windows\.npy: missing or damaged"):
        Domain.open(path)
    (path / "windows.npy").write_bytes(whole)
    np.save(path / "labels.npy", np.zeros(3, np.int32))
    with pytest.raises(FileError, match="3 rows, the manifest says 30"):
        Domain.open(path)
    (path / "manifest.json").write_text("[]")
    with pytest.raises(FileError, match="not the manifest"):
        Domain.open(path)


def test_verify_finds_a_flipped_bit_a_changed_manifest_and_a_stray_file(tmp_path: Path) -> None:
    path = write_domain(tmp_path / "mine", **arrays())
    data = bytearray((path / "windows.npy").read_bytes())
    data[5000] ^= 1
    (path / "windows.npy").write_bytes(data)
    (problem,) = verify(path)
    assert "windows.npy" in problem
    data[5000] ^= 1
    (path / "windows.npy").write_bytes(data)
    assert verify(path) == []
    (path / "stray.txt").write_text("")
    tamper(path, classes=["b", "a", "c"])
    assert [Path(p.split(":")[0]).name for p in verify(path)] == ["manifest.json", "stray.txt"]


def test_verify_goes_on_after_a_damaged_domain(tmp_path: Path) -> None:
    paths = [write_domain(tmp_path / name, **arrays()) for name in ("a", "b", "c", "d")]
    (paths[0] / "labels.npy").unlink()
    (paths[1] / "statistics.npy").unlink()
    manifest = json.loads((paths[2] / "manifest.json").read_text())
    del manifest["content"]
    (paths[2] / "manifest.json").write_text(json.dumps(manifest))
    with open(paths[3] / "windows.npy", "ab") as stream:
        stream.write(b"x")
    found = verify(tmp_path)
    assert len(found) == 4
    for problem, words in zip(
        found,
        ("labels.npy: missing", "statistics.npy: missing", "lacks 'content'", "windows.npy: its bytes"),
        strict=True,
    ):
        assert words in problem


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    path = write_domain(tmp_path / "mine", **arrays())
    np.save(path / "labels.npy", np.array([{"a": 1}] * 30, dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match=r"labels\.npy"):
        Domain.open(path)
