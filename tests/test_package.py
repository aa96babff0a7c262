"""What holds for the package as a whole: fast imports, one version, rooms that only know the rooms below them."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import sscf

SOURCE = Path(sscf.__file__).parent
BELOW: dict[str, set[str]] = {
    "core": set(),
    "data": set(),
    "protocol": set(),
    "nn": {"core"},
    "rules": {"core", "nn"},
    "experiment": {"core", "nn", "rules", "data", "protocol"},
    "report": {"core", "nn", "rules", "data", "protocol", "experiment"},
}


def modules_after(code: str) -> set[str]:
    """The modules a fresh interpreter holds after running `code`."""
    script = f"import sys\ntry:\n    exec({code!r})\nexcept SystemExit:\n    pass\nprint('MODULES', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.rpartition("MODULES")[2].split())


@pytest.mark.parametrize(
    "code", ["import sscf", "sys.argv = ['sscf', '--help']\nfrom sscf.cli import main\nmain()", "import sscf.errors"]
)
def test_nothing_heavy_is_imported(code: str) -> None:
    loaded = modules_after(code)
    assert "sscf" in loaded
    assert not loaded & {"torch", "numpy", "scipy", "sklearn", "matplotlib", "pandas", "dask"}


def test_core_imports_torch_but_no_other_room_and_no_scikit_learn() -> None:
    loaded = modules_after("import sscf; sscf.welch_power; sscf.Anchors; sscf.SpectralCalibration")
    assert {"torch", "sscf.core"} <= loaded
    assert not loaded & {"sklearn", "scipy", *(f"sscf.{room}" for room in BELOW if room != "core")}


def test_names_at_the_top() -> None:
    for name in sscf.__all__:
        assert getattr(sscf, name) is not None
        assert name in dir(sscf)
    assert sscf.core.Anchors is sscf.Anchors
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sscf.nonsense


def test_version() -> None:
    assert sscf.__version__ == version("sscf")


def test_types_are_shipped() -> None:
    assert (SOURCE / "py.typed").exists()


@pytest.mark.parametrize("room", BELOW)
def test_rooms_only_know_those_below(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            rooms = {name.split(".")[1] for name in names if name.startswith("sscf.")} & set(BELOW)
            assert rooms <= BELOW[room] | {room}, f"{path.relative_to(SOURCE)} imports {sorted(rooms)}"


def test_no_pickles() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for word in ("import pickle", "torch.load(", "allow_pickle=True", "joblib.load("):
            assert word not in text, f"{path.relative_to(SOURCE)} contains {word!r}"
