"""What a data set declares. One file of this package holds one `DATASET`; adding a data set touches no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sscf.data.recording import Channel, Recording, Source, Windows
from sscf.errors import DataError
from sscf.files import hash_json

Read = Recording | Windows | Sequence[Recording]


@dataclass(frozen=True)
class Recipe:
    """What the windows of a store are. Everything that changes their bytes is here, and is hashed.

    window_s, hop_s : seconds; hop_s equal to window_s cuts without overlap.
    fs              : Hz of the store.
    channels        : in the order of the store.
    unit            : of the store: "uV", "mV", "g", ...
    band            : (low, high) Hz of the zero-phase band-pass; None at either side leaves that side open.
    version         : raise it when the data set's reading code changes what it returns.
    """

    window_s: float
    hop_s: float
    fs: float
    channels: tuple[Channel, ...]
    unit: str
    band: tuple[float | None, float | None] | None = None
    version: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples of a window."""
        return round(self.window_s * self.fs)

    @property
    def hop(self) -> int:
        """Samples between the starts of neighbouring windows."""
        return round(self.hop_s * self.fs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "options": dict(self.options)}

    @property
    def hash(self) -> str:
        return hash_json(self.to_json())


@dataclass(frozen=True)
class DataSet:
    """A public (or a user's own) data set.

    subjects, rate, channels : for people: number of subjects, Hz as recorded ("125/50"), channels used.
    labels   : own labels a window may carry. A label outside this list is an error, never a guess.
    folders  : official folder names, looked for below the raw folder; "a/b" is a path.
    marker   : glob below such a folder that must match something, to tell apart data sets that share a folder.
    tasks    : task name -> {own label -> class of the task, or None: dropped and counted}.
    same_people : other data sets that hold (some of) the same subjects, under the same ids: a leak between domains.
    exclude  : id of a source -> why it is known to be of no use; left out and listed in the manifest like a bad one.
    notes    : what a user must know before trusting a result on it; written into the manifest.
    find     : root -> sources, in a fixed order.
    read     : root, source -> recording, its pieces, or windows already cut; raises DataError naming file and position.
    """

    name: str
    title: str
    task: str
    subjects: int
    rate: str
    channels: str
    labels: tuple[str, ...]
    folders: tuple[str, ...]
    recipe: Recipe
    find: Callable[[Path], list[Source]]
    read: Callable[[Path, Source], Read]
    citation: str
    licence: str
    access: str
    marker: str = ""
    tasks: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    exclude: Mapping[str, str] = field(default_factory=dict)
    same_people: tuple[str, ...] = ()
    notes: str = ""

    @property
    def unit(self) -> str:
        return self.recipe.unit

    def locate(self, raw: Path) -> Path | None:
        """The data set's folder at or below `raw` (two levels deep; case does not matter), or None."""
        wanted = [tuple(folder.casefold().split("/")) for folder in self.folders]

        def fits(folder: Path) -> bool:
            parts = tuple(part.casefold() for part in folder.parts)
            return any(parts[-len(w) :] == w for w in wanted) and (not self.marker or any(folder.glob(self.marker)))

        raw = Path(raw).resolve()
        level = [raw]
        for _ in range(4):
            for folder in level:
                if fits(folder):
                    return folder
            level = [child for folder in level for child in _subfolders(folder)][:2000]
        return None

    def root(self, raw: Path) -> Path:
        """Like `locate`, but not finding it is an error that says what was looked for."""
        root = self.locate(raw)
        if root is None:
            inside = f" with {self.marker} inside" if self.marker else ""
            raise DataError(
                f"{self.name}: no folder {' or '.join(map(repr, self.folders))}{inside} below {raw}; {self.access}"
            )
        return root


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    except OSError:
        return []
