"""Predictions of recordings: what is written, that batches and order do not matter, and that memory stays small."""

from __future__ import annotations

import csv
import datetime
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from bench.memory import LIMIT_MB, peak_mb, write_edf
from tests.deploy.conftest import domain_of, new_subjects
from typer.testing import CliRunner

from sscf.cli import main
from sscf.cli.app import app
from sscf.data.datasets._sleep import edf_hypnogram
from sscf.data.simulate import SimulatedDomain
from sscf.errors import ConfigError, DataError
from sscf.model import Model
from sscf.predict import Reading, is_hypnogram, predict_file, to_csv, write_hypnogram, write_picture


@pytest.fixture
def har_npy(har_domains: list[SimulatedDomain], tmp_path: Path) -> Path:
    """A recording the model has not seen: the windows of one new subject, one after the other."""
    d = har_domains[0]
    x = d.windows[d.subjects == new_subjects()[0]]
    np.save(tmp_path / "walk.npy", np.concatenate(list(x), axis=1))
    return tmp_path / "walk.npy"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("night") / "night.edf"
    write_edf(path, 0.11, 128, ("C4-M1", "E1", "M2"))  # 13 epochs
    return path


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_file_gets_what_its_windows_get(har_model: Model, har_npy: Path, har_domains: list[SimulatedDomain]) -> None:
    done = predict_file(har_model, har_npy, Reading(fs=50))
    expected = har_model.judge(domain_of(har_domains[0], [int(new_subjects()[0])]))
    np.testing.assert_allclose(done.judged.probabilities, expected.probabilities, atol=1e-12)
    np.testing.assert_array_equal(done.judged.strata, expected.strata)
    np.testing.assert_allclose(done.starts, np.arange(16) * 2.56)


def test_csv(har_model: Model, har_npy: Path) -> None:
    done = predict_file(har_model, har_npy, Reading(fs=50))
    rows = rows_of(to_csv(done))
    assert list(rows[0]) == [
        *("start_s", "class", "p_walking", "p_stairs", "p_sitting", "p_standing", "stratum", "comparability")
    ]
    assert len(rows) == 16
    for i, row in enumerate(rows):
        p = {name: float(row[f"p_{name}"]) for name in har_model.classes}
        assert sum(p.values()) == pytest.approx(1, abs=1e-5)
        assert row["class"] == max(p, key=lambda name: p[name])
        assert float(row["start_s"]) == pytest.approx(2.56 * i)
        assert int(row["stratum"]) in range(3)
        assert 0 < float(row["comparability"]) <= 1


def test_no_batch_size_changes_a_result(har_model: Model, har_npy: Path, sleep_model: Model, night: Path) -> None:
    for model, path, sizes in ((har_model, har_npy, (1, 3, 1000)), (sleep_model, night, (1, 5, 8))):
        texts = {
            to_csv(predict_file(model, path, Reading(fs=50, spellings=_spelling(model)), batch_size=b)) for b in sizes
        }
        assert len(texts) == 1


def _spelling(model: Model) -> dict[str, str]:
    return {"EOG": "E1-M2"} if model.task == "sleep" else {}


def test_the_order_of_files_does_not_matter(har_file: Path, har_npy: Path, tmp_path: Path) -> None:
    other = tmp_path / "run.npy"
    np.save(other, np.load(har_npy)[:, ::-1])
    for folder, files in (("one", [har_npy, other]), ("two", [other, har_npy])):
        outcome = CliRunner().invoke(
            app, ["predict", str(har_file), *map(str, files), "-o", str(tmp_path / folder), "--fs", "50"]
        )
        assert outcome.exit_code == 0, outcome.output
    for name in ("walk.csv", "run.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_abstention_leaves_windows_unlabelled(har_model: Model, har_npy: Path) -> None:
    strange = np.load(har_npy)
    strange[:, : strange.shape[1] // 2] *= 50
    np.save(har_npy, strange)
    sure = predict_file(har_model, har_npy, Reading(fs=50))
    wary = predict_file(har_model, har_npy, Reading(fs=50), abstain=0.01)
    assert not sure.abstained
    assert (wary.labels[:8] == -1).all()
    assert (wary.labels[8:] >= 0).any()
    np.testing.assert_array_equal(wary.labels == -1, wary.judged.pvalues <= 0.01)
    assert [row["class"] for row in rows_of(to_csv(wary))][:8] == [""] * 8
    with pytest.raises(ConfigError, match=r"abstain must lie in \[0, 1\)"):
        predict_file(har_model, har_npy, Reading(fs=50), abstain=1.5)


def test_a_model_without_held_out_windows_cannot_abstain(har_model: Model, har_npy: Path) -> None:
    from dataclasses import replace

    with pytest.raises(ConfigError, match="nothing was held out"):
        predict_file(replace(har_model, reference=None), har_npy, Reading(fs=50), abstain=0.01)
    done = predict_file(replace(har_model, reference=None), har_npy, Reading(fs=50))
    assert rows_of(to_csv(done))[0]["comparability"] == ""


def test_hypnogram_and_picture(sleep_model: Model, night: Path, tmp_path: Path) -> None:
    done = predict_file(sleep_model, night)
    assert is_hypnogram(done)
    assert len(done.labels) == 13
    done.labels[2] = -1
    write_hypnogram(done, tmp_path / "h.edf")
    codes = {f"Sleep stage {s}": s for s in ("W", "N1", "N2", "N3", "R", "?")}
    stages = edf_hypnogram(tmp_path / "h.edf", codes).stages
    names = ["?" if k < 0 else done.classes[k].replace("REM", "R") for k in done.labels]
    assert [stage.label for stage in stages] == names
    assert [(stage.start, stage.stop) for stage in stages] == [(30.0 * i, 30.0 * (i + 1)) for i in range(13)]
    edfio = pytest.importorskip("edfio")
    assert edfio.read_edf(tmp_path / "h.edf").starttime == datetime.time(22, 0)
    write_picture(done, tmp_path / "h.png")
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")


def test_channels_by_alias_derivation_and_the_users_spelling(sleep_model: Model, night: Path) -> None:
    assert len(predict_file(sleep_model, night).labels) == 13  # EOG is E1 minus M2
    with pytest.raises(DataError, match="no channel 'EEG'"):
        predict_file(sleep_model, night, Reading(spellings={"EEG": "Fpz-Cz"}))
    with pytest.raises(ConfigError, match="no channel 'EMG'; its channels are EEG, EOG"):
        predict_file(sleep_model, night, Reading(spellings={"EMG": "chin"}))


def test_the_command_writes_all_for_sleep(sleep_file: Path, night: Path, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["predict", str(sleep_file), str(night), "-o", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["night.csv", "night.hypnogram.edf", "night.png"]
    assert "13 windows" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "MODEL", "nowhere.edf"], "nowhere.edf: no such file"),
        (["predict", "nowhere.sscf", "NPY"], "nowhere.sscf: no such file"),
        (["predict", "MODEL", "NPY"], "give --fs"),
        (["predict", "MODEL", "NPY", "NPY", "--fs", "50"], "two files are called 'walk'"),
        (["predict", "MODEL", "NPY", "--fs", "50", "--channel", "acc_x"], "expected NAME=VALUE"),
        (["predict", "NPY", "NPY"], "not a model file"),
        (["predict", "MODEL", "NPY", "--fs", "-50"], "the rate must be a positive number of Hz, got -50"),
        (["predict", "MODEL", "NPY", "--fs", "inf"], "the rate must be a positive number of Hz, got inf"),
        (["predict", "MODEL", "NPY", "--fs", "50", "--out", "NPY"], "walk.npy: File exists"),
        (["info", "NPY"], "not a model file"),
        (["export", "MODEL"], "give --onnx FILE or --torch FILE"),
    ],
)
def test_errors_are_one_line_and_status_2(
    har_file: Path,
    har_npy: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"MODEL": str(har_file), "NPY": str(har_npy)}
    monkeypatch.setattr(sys, "argv", ["sscf", *(places.get(a, a) for a in arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_recording_is_never_overwritten(
    har_file: Path, har_npy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = tmp_path / "walk.csv"
    np.savetxt(recording, np.load(har_npy).T, delimiter=",", header="acc_x,acc_y,acc_z", comments="")
    before = recording.read_bytes()
    monkeypatch.chdir(tmp_path)
    for out in (".", str(tmp_path)):
        with pytest.raises(ConfigError, match=r"walk\.csv: its predictions would overwrite it"):
            CliRunner().invoke(
                app, ["predict", str(har_file), "walk.csv", "--fs", "50", "-o", out], catch_exceptions=False
            )
    assert recording.read_bytes() == before


def test_info_is_a_card(har_file: Path) -> None:
    outcome = CliRunner().invoke(app, ["info", str(har_file)])
    assert outcome.exit_code == 0
    for text in ("walking, stairs, sitting, standing", "K = 3", "acc_x", "2.56 s", "sim-har-b", "36 subjects held out"):
        assert text in outcome.output


def test_fit_makes_a_model_from_a_store(har_domains: list[SimulatedDomain], tmp_path: Path) -> None:
    from sscf.data.simulate import simulate

    simulate("har", tmp_path / "store", domains=2, subjects=4, windows=12)
    command = ["fit", str(tmp_path / "store"), "-o", str(tmp_path / "m.sscf"), "--epochs", "1", "--k", "2"]
    outcome = CliRunner().invoke(app, [*command, "--option", "width=4", "--option", "hidden=4", "--data", "sim-har-b"])
    assert outcome.exit_code == 0, outcome.output
    assert "simulated, not recorded" in outcome.output
    model = Model.load(tmp_path / "m.sscf")
    assert [source["name"] for source in model.sources] == ["sim-har-b"]
    assert model.fitted.calibration is not None
    assert model.fitted.calibration.k == 2
    with pytest.raises(ConfigError, match="no domain 'sim-har-z'"):
        CliRunner().invoke(app, [*command, "--data", "sim-har-z"], catch_exceptions=False)
    with pytest.raises(ConfigError, match="normalisation"):
        CliRunner().invoke(app, [*command, "--normalisation", "magic"], catch_exceptions=False)


def test_a_day_needs_little_memory(sleep_file: Path, tmp_path: Path) -> None:
    write_edf(tmp_path / "day.edf", 24, 128, ("C4-M1", "E1-M2"))
    command = [sys.executable, "-c", "from sscf.cli import main; main()", "predict", str(sleep_file)]
    peak, _ = peak_mb([*command, str(tmp_path / "day.edf"), "-o", str(tmp_path)])
    assert len((tmp_path / "day.csv").read_text().splitlines()) == 1 + 2880
    assert peak < LIMIT_MB
