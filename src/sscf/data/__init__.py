"""Raw recordings to windows: readers, signal processing, data sets, tasks, the store, the simulator. No torch here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "Domain": "sscf.data.store",
    "open_store": "sscf.data.store",
    "verify": "sscf.data.store",
    "write_domain": "sscf.data.store",
    "Task": "sscf.data.tasks",
    "get_task": "sscf.data.tasks",
    "Normaliser": "sscf.data.normalise",
}

__all__ = ["Domain", "Normaliser", "Task", "get_task", "open_store", "verify", "write_domain"]

if TYPE_CHECKING:
    from sscf.data.normalise import Normaliser
    from sscf.data.store import Domain, open_store, verify, write_domain
    from sscf.data.tasks import Task, get_task


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(importlib.import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sscf.data' has no attribute '{name}'")
