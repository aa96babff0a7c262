"""Shared fixtures. Real data lie in ../shared/data or $SSCF_SHARED; without them the tests that need them skip."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("SSCF_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def shared_raw(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """shared_raw("ucihar") unpacks that archive of the real data once per test run and returns the raw folder."""

    def unpack(name: str) -> Path:
        script = SHARED / "unpack"
        if not script.exists():
            pytest.skip(f"real data not found: no {script} (set SSCF_SHARED to the folder that holds it)")
        base = tmp_path_factory.getbasetemp()
        if os.environ.get("PYTEST_XDIST_WORKER"):
            base = base.parent  # shared by all workers
        folder, done, lock = base / f"raw-{name}", base / f"raw-{name}.done", base / f"raw-{name}.lock"
        while not done.exists():
            try:
                lock.mkdir()
            except FileExistsError:
                time.sleep(0.2)
                continue
            folder.mkdir(exist_ok=True)
            subprocess.run([str(script), str(folder), name], check=True, capture_output=True)
            done.touch()
        return folder

    return unpack
