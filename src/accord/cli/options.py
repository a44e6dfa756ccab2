"""Arguments that several commands share, and how the short ones become `key=value` changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path | None, typer.Argument(help="TOML file; without one, the defaults.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, e.g. local.lr=0.05; may be repeated."),
]
Rounds = Annotated[int | None, typer.Option(help="Rounds of communication.")]
Out = Annotated[str | None, typer.Option(metavar="DIR", help="Folder for runs.")]
Name = Annotated[str | None, typer.Option(help="The folder's name below --out.")]
ExecutorName = Annotated[str | None, typer.Option("--executor", help="How clients are run; `accord list executors`.")]
DataDir = Annotated[str | None, typer.Option(metavar="DIR", help="Folder with the data files.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; print only where the results are.")]
Page = Annotated[bool, typer.Option("--page/--no-page", help="Write report.html, all of it as one page.")]

Log = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="WHERE", help="Also report to tensorboard, mlflow or wandb; may be repeated."),
]


def logs(names: list[str] | None) -> list[str]:
    """`--log` as changes of `[log]`."""
    return [f"log.{name}=true" for name in names or []]


def changes(sets: list[str] | None, **short: object) -> list[str]:
    """`--set` texts with the short options behind them, so that these win; `data_dir` stands for data.dir."""
    keys = {"data_dir": "data.dir", "algorithm": "algorithm.name"}
    given = [f"{keys.get(name, name)}={value}" for name, value in short.items() if value is not None]
    return [*(sets or []), *given]
