"""The command line. Modules of this package import torch, numpy and matplotlib inside their commands only."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> None:
    """Entry point: run the app; a user's error is one line on stderr and status 2."""
    from sscf.cli.app import app
    from sscf.errors import SSCFError

    try:
        app()
    except SSCFError as error:
        _leave(str(error))
    except OSError as error:  # a folder that cannot be written, a full disk
        if error.strerror is None:
            raise
        _leave(f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror)


def _leave(message: str) -> NoReturn:
    print(f"sscf: {message}", file=sys.stderr)
    sys.exit(2)
