"""The command line. Modules of this package import torch, numpy and matplotlib inside their commands only."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point: run the app; a user's error is one line on stderr and status 2."""
    from sscf.cli.app import app
    from sscf.errors import SSCFError

    try:
        app()
    except SSCFError as error:
        print(f"sscf: {error}", file=sys.stderr)
        sys.exit(2)
