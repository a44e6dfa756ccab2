"""The command line: `main` is the `accord` command. The rest needs packages that may be missing."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command in `sys.argv`; without typer or rich, say how to get them."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write("the command line needs typer and rich: pip install 'accord-fl[cli]'\n")
        raise SystemExit(2) from None
    from accord.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # shades and Greek letters must not break an ASCII terminal
    try:
        app(prog_name="accord")
    except Exception as error:
        if os.environ.get("ACCORD_DEBUG") == "1":
            raise
        # Not one of our own errors: a defect, or the machine (no space, no permission). The name says which.
        sys.stderr.write(f"error: {type(error).__name__}: {error}\nset ACCORD_DEBUG=1 to see where it happened\n")
        raise SystemExit(1) from None
