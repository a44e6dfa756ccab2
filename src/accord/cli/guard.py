"""How commands end when something is wrong: a message on stderr, the right exit code, no traceback."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from accord.cli.importing import plain_warnings
from accord.errors import AccordError, ConfigError


class Stopped(Exception):  # noqa: N818 - the user asked for it
    """Ctrl-C, or a scheduler's SIGTERM; the message says how to go on."""


def complain(message: str, label: str = "error: ") -> None:
    """A message on stderr, printed as it is: no markup, no emoji, no wrapping in the middle of a key."""
    plain = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message)  # no escape codes
    text = Text.assemble((label, "bold red"), plain)
    Console(stderr=True).print(text, soft_wrap=True, highlight=False)


class Terminated(KeyboardInterrupt):
    """SIGTERM: whatever ends well on Ctrl-C ends as well on this."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM is raised as `Terminated`: schedulers and containers send it, and a process that dies of it says nothing.

    Only where nobody has other plans for it, and only in the main thread: others cannot have handlers.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _exit_code(stop: BaseException | None) -> int:
    """128 and the signal's number, as shells have it."""
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


class Guarded(TyperGroup):
    """Commands with one place for errors: exit code 2 for a wrong configuration, 1 for others, 130 or 143 when stopped.

    130 is Ctrl-C's and 143 SIGTERM's.
    """

    def invoke(self, ctx: Any) -> Any:
        with terminable(), plain_warnings(complain):
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AccordError as error:
            if os.environ.get("ACCORD_DEBUG") == "1":
                traceback.print_exc()
            complain(str(error))
            raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from None
        except Stopped as stopped:
            complain(str(stopped), "stopped: ")
            raise typer.Exit(_exit_code(stopped.__cause__)) from None
        except KeyboardInterrupt as stop:
            complain("nothing was under way that could be resumed", "stopped: ")
            raise typer.Exit(_exit_code(stop)) from None
