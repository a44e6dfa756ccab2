"""`--import MODULE`, an option of every command that knows names: those the module adds are known too."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from accord.settings import import_modules

Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a module or file first, for what it adds; repeatable."),
]


def importing(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one more option; what it says stays the same."""

    @functools.wraps(command)
    def imported(*, imports: list[str] | None = None, **given: Any) -> None:
        import_modules(imports or [])
        command(**given)

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("imports", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Imports)
    parameters = [*signature.parameters.values(), option]
    imported.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    imported.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return imported


@contextmanager
def plain_warnings(say: Callable[[str, str], None]) -> Iterator[None]:
    """Warnings as messages: whoever runs a command has no use for the line of code that warned."""
    with warnings.catch_warnings():

        def show(message: Warning | str, *place: Any, **more: Any) -> None:
            say(str(message), "warning: ")

        warnings.showwarning = show
        yield
