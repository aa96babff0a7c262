"""The demo from beginning to end, made small."""

from __future__ import annotations

from pathlib import Path

import pytest

from sscf import demo
from sscf.errors import ConfigError
from sscf.experiment.config import TrainConfig


@pytest.mark.parametrize("task", ["har", "ecg"])
def test_the_demo_ends_with_a_table_and_a_page(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setitem(demo.SIZES, task, {"subjects": 3, "windows": 12})
    monkeypatch.setitem(demo.TRAIN, task, TrainConfig(epochs=1, steps_per_epoch=2, batch_size=12))
    monkeypatch.setattr(demo, "METHODS", ("erm", "sscf"))
    page = demo.run_demo(task, tmp_path, jobs=2, seed=1)
    said = capsys.readouterr().out
    assert page.is_file()
    assert str(page) in said
    assert "simulation" in said
    assert "adjusted Rand index" in said
    rows = [line for line in said.splitlines() if "ERM" in line or "SSCF" in line]
    assert len(rows) == 2
    assert all(row.count("±") == 6 for row in rows)  # four targets, average and worst


def test_unknown_task(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="har, ecg, sleep"):
        demo.run_demo("eeg", tmp_path, jobs=1, seed=0)
