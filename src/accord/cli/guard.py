"""How commands end when something is wrong: a message on stderr, the right exit code, no traceback."""

from __future__ import annotations

import os
import traceback
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from accord.errors import AccordError, ConfigError


class Stopped(Exception):  # noqa: N818 - the user asked for it
    """Ctrl-C; the message says how to go on."""


def complain(message: str, label: str = "error: ") -> None:
    """A message on stderr, printed as it is: no markup, no emoji, no wrapping in the middle of a key."""
    plain = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message)  # no escape codes
    text = Text.assemble((label, "bold red"), plain)
    Console(stderr=True).print(text, soft_wrap=True, highlight=False)


class Guarded(TyperGroup):
    """Commands with one place for errors: 2 for a wrong configuration, 1 for others, 130 for Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AccordError as error:
            if os.environ.get("ACCORD_DEBUG") == "1":
                traceback.print_exc()
            complain(str(error))
            raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from None
        except Stopped as stopped:
            complain(str(stopped), "stopped: ")
            raise typer.Exit(130) from None
        except KeyboardInterrupt:
            complain("nothing was under way that could be resumed", "stopped: ")
            raise typer.Exit(130) from None
