"""Options for the user's own data, which all commands share that take a configuration."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from accord.cli.lists import words
from accord.config.toml import literal
from accord.errors import ConfigError


def _option(help: str, metavar: str, flag: str) -> Any:
    return Annotated[str | None, typer.Option(flag, metavar=metavar, help=help, rich_help_panel="Your own data")]


OWN = {
    "data": _option("A CSV or Parquet file, a folder of images, or a data set's name.", "PATH", "--data"),
    "label": _option("The column to be predicted.", "COLUMN", "--label"),
    "client": _option("The column that says whose sample it is.", "COLUMN", "--client"),
    "features": _option("The columns to learn from; all others if not given.", "A,B", "--features"),
    "categorical": _option("Columns of words or codes.", "A,B", "--categorical"),
    "missing": _option("Missing values: error, mean or drop.", "WORD", "--missing"),
    "task": _option("What is learned: auto, classification, regression, ...; `accord list tasks`.", "WORD", "--task"),
    "test": _option("A table of the same form for testing.", "FILE", "--test"),
}


def takes_own_data(command: Callable[..., None]) -> Callable[..., None]:
    """The command with options for the user's own data, which reach it as changes among its `sets`."""

    @functools.wraps(command)
    def made(**given: Any) -> None:
        own = {name: given.pop(name) for name in OWN}
        command(**{**given, "sets": [*(given["sets"] or []), *own_data(**own)]})

    del made.__dict__["__wrapped__"]  # or typer would look at the command's own arguments
    hints = {**get_type_hints(command, include_extras=True), **OWN}
    known = list(inspect.signature(command).parameters.values())
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in OWN]
    made.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in (*known, *more)]
    )
    made.__annotations__ = hints
    return made


def own_data(
    data: str | None = None,
    features: str | None = None,
    categorical: str | None = None,
    test: str | None = None,
    task: str | None = None,
    **rest: str | None,
) -> list[str]:
    """The options for own data as changes of `[data]`."""
    made = [] if data is None else _source(data)
    for name, text in (("features", features), ("categorical", categorical)):
        made += [] if text is None else [f"data.{name}={literal(words(text, '--' + name))}"]
    made += [] if task is None else [f"task={task}"]
    made += [] if test is None else [f"data.test={os.path.abspath(os.path.expanduser(test))}"]
    return [*made, *(f"data.{name}={value}" for name, value in rest.items() if value is not None)]


def _source(data: str) -> list[str]:
    place = os.path.abspath(os.path.expanduser(data))
    if os.path.isdir(place):
        return ["data.name=folder", f"data.path={place}"]
    if os.path.exists(place) or os.path.splitext(place)[1]:
        return ["data.name=table", f"data.path={place}"]
    from accord.data import DATASETS

    if data not in DATASETS:
        raise ConfigError(
            f"--data {data!r}: there is no such file or folder, and no data set of that name ({', '.join(DATASETS)})"
        )
    return [f"data.name={data}"]
