"""The errors a user can cause. The CLI prints them without a traceback and exits with status 2."""

from __future__ import annotations


class SSCFError(Exception):
    """Something a user can put right; the message names what and how."""


class InputError(SSCFError, ValueError):
    """A tensor, array or argument that cannot be used."""


class ConfigError(SSCFError, ValueError):
    """A spec, recipe or option with a wrong key or value."""


class DataError(SSCFError):
    """A raw recording that cannot be used; the message names the file and the position."""


class FileError(SSCFError):
    """A file of ours (anchors, store, model, record) that is truncated, foreign, tampered with or too new."""


class MissingExtra(SSCFError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""


def require(module: str, extra: str):
    """Import `module` or say which extra of sscf brings it."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"this needs '{module}': pip install 'sscf[{extra}]'") from error
