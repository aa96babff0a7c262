"""Hashes and atomic writes: nothing half-written is ever visible under its final name."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sscf.errors import FileError

if TYPE_CHECKING:
    from torch import Tensor


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def hash_json(value: Any, length: int = 16) -> str:
    """First `length` hex digits of the SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def sha256_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Call `write(stream)` on a temporary file beside `path`, flush it to disk, then rename it to `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    write_atomic(path, lambda stream: stream.write(data))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Readable JSON with sorted keys; the same value gives the same bytes."""
    write_text(path, json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: not valid JSON ({error})") from error


def read_tensors(
    path: str | os.PathLike[str], kind: str = "a safetensors file"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header of a safetensors file; one that is missing, truncated or no such file is a FileError.

    `kind` is what its user expects it to be, for the message.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(f"{path}: truncated, or not {kind} ({error})") from error
