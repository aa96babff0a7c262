"""Shared stages: what several runs need is computed once and found again by the hash of how it was made."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from sscf.files import hash_json, read_tensors, write_bytes

Make = Callable[[], tuple[dict[str, Tensor], dict[str, Any]]]


class Stages:
    """Tensors and JSON notes in a folder, one safetensors file per stage."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, key: dict[str, Any], make: Make) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The stage of a key, made if it is not there; a second process that wants the same one waits for the first."""
        from safetensors.torch import save

        path = self.folder / f"{hash_json(key)}.safetensors"
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                tensors, notes = make()
                tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
                write_bytes(path, save(tensors, metadata={"notes": json.dumps(notes), "key": json.dumps(key)}))
            tensors, metadata = read_tensors(path)
            return tensors, json.loads(metadata["notes"])


class NoCache(Stages):
    """Every stage is made anew."""

    def __init__(self) -> None:
        super().__init__(".")

    def get(self, key: dict[str, Any], make: Make) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return make()


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file; yields False if it is held elsewhere and `wait` is off. The lock ends with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
