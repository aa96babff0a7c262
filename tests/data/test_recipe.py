"""Your own data: each format and each way to say the labels, from a recipe of at most 20 lines to counted windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sscf.data.prepare import prepare
from sscf.data.recipe import load_recipe
from sscf.data.store import Domain
from sscf.data.tasks import get_task
from sscf.errors import ConfigError, DataError

FS, SECONDS = 100, 20


def signals(seed: int = 0) -> np.ndarray:
    """(T, 2) slow sines that survive resampling."""
    t = np.arange(FS * SECONDS) / FS
    return np.stack([np.sin(t + seed), np.cos(2 * t + seed)], axis=1)


def recipe(folder: Path, text: str) -> Path:
    assert len(text.strip().splitlines()) <= 20
    (folder / "own.toml").write_text(text)
    return folder / "own.toml"


def prepared(folder: Path, text: str) -> Domain:
    return Domain.open(prepare(load_recipe(recipe(folder, text)), folder / "raw", folder / "store").path)


BASE = """
name = "own"
files = "**/*.{suffix}"
subject = "(s\\\\d)"
channels = ["x", "y"]
unit = "g"
store = {{ fs = 50, window = 2 }}
"""
PATTERN = """
[labels]
classes = ["walking", "sitting"]
pattern = "_(.*)\\\\."
"""


def base(suffix: str, *lines: str) -> str:
    return BASE.format(suffix=suffix).strip() + "\n" + "\n".join(lines)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw" / "deep").mkdir(parents=True)
    return tmp_path / "raw"


def csv(path: Path, *, columns: dict[str, list[str] | np.ndarray] | None = None, seed: int = 0) -> None:
    x = signals(seed)
    table: dict[str, list[str] | np.ndarray] = {"X ": x[:, 0], "y": x[:, 1], **(columns or {})}
    rows = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")


def check(domain: Domain, seed: int = 0) -> None:
    """The first recording's inner windows are the sines, at the store's rate."""
    assert domain.windows.shape[1:] == (2, 100)
    for row in np.flatnonzero(domain.recordings == 0)[2:-2]:
        t = (domain.positions[row] + np.arange(100)) / 50
        np.testing.assert_allclose(domain.windows[row], [np.sin(t + seed), np.cos(2 * t + seed)], atol=1e-3)


def labels(domain: Domain) -> list[str]:
    return [domain.label_names[i] for i in domain.labels]


def test_csv_with_the_label_in_the_name_takes_part_in_a_task(raw: Path, tmp_path: Path) -> None:
    csv(raw / "deep" / "s1_walking.csv")
    csv(raw / "s2_sitting.csv", seed=1)
    domain = prepared(tmp_path, base("csv", 'format = "csv"', "rate = 100") + PATTERN)
    check(domain)
    assert domain.subject_names == ("s1", "s2")
    assert labels(domain) == ["walking"] * 10 + ["sitting"] * 10
    assert get_task("har").view(domain).counts == {"walking": 10, "stairs": 0, "sitting": 10, "standing": 0}


def test_csv_with_a_label_at_every_sample(raw: Path, tmp_path: Path) -> None:
    csv(raw / "s1.csv", columns={"what": ["wlk"] * 850 + ["sit"] * 1000 + ["lie"] * 150})
    text = base(
        "csv", 'format = "csv"', "rate = 100", "[labels]", 'classes = ["walking", "sitting"]', 'column = "what"'
    )
    domain = prepared(tmp_path, text + '\nmap = { wlk = "walking", sit = "sitting", lie = false }')
    check(domain)
    assert labels(domain) == ["walking"] * 4 + ["sitting"] * 4  # 8..10 s and 18..20 s hold two labels
    assert domain.manifest["dropped"] == {"label changes inside": 2}


def test_csv_with_time_stamps_and_a_gap(raw: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(0.009, 0.011, 2000))
    t[1000:] += 30
    rows = [f"{a},{np.sin(a - t[0])},{np.cos(2 * (a - t[0]))},walking" for a in t]
    (raw / "s1_walking.csv").write_text("t,x,y,what\n" + "\n".join(rows))
    domain = prepared(tmp_path, base("csv", 'format = "csv"', 'time = "t"') + PATTERN)
    check(domain)
    gaps = np.flatnonzero(np.diff(domain.positions) != domain.hop)
    assert len(gaps) == 1
    assert domain.positions[gaps[0] + 1] == pytest.approx(50 * (t[1000] - t[0]), abs=1)


@pytest.mark.parametrize("layout", ["time-by-channel", "channel-by-time"])
def test_npy_and_mat(raw: Path, tmp_path: Path, layout: str) -> None:
    from scipy.io import savemat

    x = signals()[:, ::-1]  # y first: columns says so
    x = x if layout == "time-by-channel" else x.T
    lines = ["rate = 100", f'layout = "{layout}"', "columns = [1, 0]"]
    np.save(raw / "s1_walking.npy", x)
    check(prepared(tmp_path, base("npy", 'format = "npy"', *lines) + PATTERN))
    savemat(raw / "s1_walking.mat", {"acc": x})
    check(prepared(tmp_path, base("mat", 'format = "mat"', 'variable = "acc"', *lines) + PATTERN))


def test_edf_with_annotations_and_a_derivation(raw: Path, tmp_path: Path) -> None:
    edfio = pytest.importorskip("edfio")
    x = signals()

    def signal(label: str, values: np.ndarray) -> object:
        return edfio.EdfSignal(values, FS, label=label, physical_dimension="mV", physical_range=(-5, 5))

    notes = [edfio.EdfAnnotation(0, 10, "Sleep stage W"), edfio.EdfAnnotation(10, 6, "Sleep stage 2")]
    notes.append(edfio.EdfAnnotation(3, None, "cough"))
    edfio.Edf(
        [signal("A", x[:, 0] + 1), signal("B", x[:, 1]), signal("ref", x[:, 0] * 0 + 1)], annotations=notes
    ).write(raw / "s1.edf")
    text = base("edf", 'format = "edf"', "[labels]", 'classes = ["W", "N2"]', "annotations = true")
    text = text.replace('["x", "y"]', '{ x = ["a - REF"], y = ["b"] }').replace('"g"', '"mV"')
    text += '\nmap = { "Sleep stage W" = "W", "Sleep stage 2" = "N2" }'
    domain = prepared(tmp_path, text)
    check(domain)
    assert labels(domain) == ["W"] * 5 + ["N2"] * 3
    assert domain.manifest["dropped"] == {"unscored": 2}
    assert domain.unit == "mV"


def test_wfdb_with_annotations(raw: Path, tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb")
    wfdb.wrsamp("s1", FS, ["mV"] * 2, ["x", "y"], signals(), fmt=["16"] * 2, write_dir=str(raw))
    wfdb.wrann(
        "s1", "atr", np.array([1, 400, 1200]), ["+"] * 3, aux_note=["(N", "(AFIB", "(N"], write_dir=str(raw), fs=FS
    )
    text = base("hea", 'format = "wfdb"', "[labels]", 'classes = ["normal", "af"]', 'annotations = "atr"')
    domain = prepared(tmp_path, text.replace('"g"', '"mV"') + '\nmap = { "(N" = "normal", "(AFIB" = "af" }')
    check(domain)
    # The first note is one sample late, so the first window is not wholly labelled.
    assert labels(domain) == ["normal"] * 1 + ["af"] * 4 + ["normal"] * 4
    assert {*domain.manifest["files"]} == {"s1.hea", "s1.dat", "s1.atr"}


def test_labels_in_a_table_in_a_file_beside_and_one_per_line(raw: Path, tmp_path: Path) -> None:
    csv(raw / "s1.csv")
    head = base("csv", 'format = "csv"', "rate = 100", "[labels]", 'classes = ["walking", "sitting"]').replace(
        "**/", ""
    )
    (raw / "deep" / "all.txt").write_text("file,what\ns1.csv,sitting\n")
    domain = prepared(tmp_path, head + '\ntable = "deep/all.txt"\ncolumn = "what"')
    assert labels(domain) == ["sitting"] * 10
    (raw / "deep" / "s1.lab").write_text("start,stop,label\n0,6,walking\n6,20,sitting\n")
    domain = prepared(tmp_path, head + '\nfile = "deep/{stem}.lab"')
    assert labels(domain) == ["walking"] * 3 + ["sitting"] * 7
    (raw / "deep" / "s1.lab").write_text("walking\n" * 4 + "sitting\n" * 3)
    domain = prepared(tmp_path, head + '\nfile = "deep/{stem}.lab"\nevery = 2')
    assert labels(domain) == ["walking"] * 4 + ["sitting"] * 3
    assert domain.manifest["dropped"] == {"outside the labels": 3}


GOOD = base("csv", 'format = "csv"', "rate = 100") + PATTERN


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rate = 100", "rates = 100", "unknown key 'rates'; known here: name, task, format, files"),
        ("window = 2", "windows = 2", "unknown key 'store.windows'; known here: fs, window, hop, unit, band"),
        (
            "classes =",
            "klasses =",
            "unknown key 'labels.klasses'; known here: classes, map",
        ),
        ("rate = 100", "", "needs either rate"),
        ("rate = 100", "rate = -1", "rate = -1: "),
        ('format = "csv"', 'format = "wav"', "format = 'wav': .*'csv', 'edf', 'wfdb', 'mat' or 'npy'"),
        ('"**/*.csv"', '"../*.csv"', "files = '../.*.csv': .*below the raw folder"),
        ('"**/*.csv"', '"/etc/*.csv"', "below the raw folder"),
        ("(s\\\\d)", "s\\\\d", "needs one group in parentheses, has 0"),
        ("(s\\\\d)", "(s", "not a regular expression"),
        ("pattern =", 'column = "z"\npattern =', "one of pattern, table, column, file, annotations"),
        ('name = "own"', 'name = "../own"', "name = '../own'"),
        ("[labels]", "[labels", "not valid TOML"),
        ('["x", "y"]', "[]", "channels"),
        ('["x", "y"]', '["x", "x"]', "a channel is named twice"),
        ('"sitting"]', '"walking"]', "a class is named twice"),
        ("window = 2", "window = 0.001", "a window of 0.001 s has no sample at 50 Hz"),
        ("window = 2", "window = 2, hop = 0.001", "a hop of 0.001 s has no sample at 50 Hz"),
        ("rate = 100", 'rate = 100\ndelimiter = ""', "delimiter = ''"),
        ("rate = 100", "rate = 100\ncolumns = [0, -5]", "columns.1 = -5"),
        ('"sitting"]', '"sitting"]\nmap = { a = "b" }', "map leads to b; the classes are walking, sitting"),
    ],
)
def test_a_wrong_recipe_is_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    (tmp_path / "own.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        load_recipe(tmp_path / "own.toml")
    assert "own.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_labels_are_never_guessed(raw: Path, tmp_path: Path) -> None:
    csv(raw / "s1_running.csv")
    with pytest.raises(DataError, match=r"s1_running\.csv: label 'running' is neither a class nor in labels\.map"):
        prepared(tmp_path, GOOD)


def test_a_missing_column_lists_those_there_are(raw: Path, tmp_path: Path) -> None:
    csv(raw / "s1_walking.csv")
    with pytest.raises(DataError, match=r"no channel 'z' .*the file has 'X', 'y'"):
        prepared(tmp_path, GOOD.replace('["x", "y"]', '["x", "z"]'))


BY_SAMPLE = '[labels]\nclasses = ["walking", "sitting"]\ncolumn = "what"'


@pytest.mark.parametrize(
    ("content", "how", "message"),
    [
        ("t,x,y,what\n", "rate = 100", "no rows"),
        ("t,x,y,what\n", 'time = "t"', "no rows"),
        ("", 'time = "t"', "no rows"),
        ("t,x,y,what\n0,1,2,walking\n1,1,2,walking\n", 'time = "zeit"', "no column 'zeit'; the file has 't', 'x'"),
        ("t,x,y,what\n0,1,2,walking\nsoon,1,2,walking\n", 'time = "t"', "not a table of numbers"),
        ("t,x,y,what\n0,1,2,gehöht\n", "rate = 100", "not a text table"),
    ],
)
def test_a_bad_table_is_an_error_that_names_it(raw: Path, tmp_path: Path, content: str, how: str, message: str) -> None:
    (raw / "s1.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=rf"s1\.csv: .*({message})"):
        prepared(tmp_path, base("csv", 'format = "csv"', how, BY_SAMPLE))


def test_a_label_file_that_is_no_text_is_an_error_that_names_it(raw: Path, tmp_path: Path) -> None:
    csv(raw / "s1.csv")
    (raw / "s1.lab").write_bytes("gehöht\n".encode("latin-1"))
    text = base("csv", 'format = "csv"', "rate = 100", "[labels]", 'classes = ["walking"]', 'file = "{stem}.lab"')
    with pytest.raises(DataError, match=r"s1\.lab: not a text"):
        prepared(tmp_path, text + "\nevery = 2")


def test_time_is_found_whatever_its_case_and_quotes_may_hold_the_delimiter(raw: Path, tmp_path: Path) -> None:
    x = signals()
    rows = [f'"walking, fast",{i / FS},{a},{b}' for i, (a, b) in enumerate(x)]
    (raw / "s1.csv").write_text('"what, then",Time,x,y\n' + "\n".join(rows))
    own = '[labels]\nclasses = ["walking"]\ncolumn = "what, then"\nmap = { "walking, fast" = "walking" }'
    for how in ('time = "time"', "rate = 100"):
        domain = prepared(tmp_path, base("csv", 'format = "csv"', how, own))
        check(domain)
        assert set(labels(domain)) == {"walking"}


def test_folders_are_no_recordings_and_nobody_is_no_subject(raw: Path, tmp_path: Path) -> None:
    csv(raw / "s1_walking.csv")
    (raw / "s2_walking.csv").mkdir()
    assert prepared(tmp_path, GOOD).subject_names == ("s1",)
    with pytest.raises(DataError, match=r"s1_walking\.csv: subject = .* finds no subject"):
        prepared(tmp_path, GOOD.replace("(s\\\\d)", "(z)?"))


def test_links_and_label_files_cannot_leave_the_raw_folder(raw: Path, tmp_path: Path) -> None:
    csv(tmp_path / "s1_walking.csv")
    (raw / "s1_walking.csv").symlink_to(tmp_path / "s1_walking.csv")
    with pytest.raises(DataError, match="leads out of the raw folder"):
        prepared(tmp_path, GOOD)
    (raw / "s1_walking.csv").unlink()
    csv(raw / "s1_walking.csv")
    (tmp_path / "secret.lab").write_text("walking\n")
    text = base("csv", 'format = "csv"', "rate = 100", "[labels]", 'classes = ["walking"]', "every = 2")
    for line in ('file = "../secret.lab"', 'table = "../secret.lab"'):
        with pytest.raises(DataError, match="leads out of the raw folder"):
            prepared(tmp_path, text + "\n" + line)
