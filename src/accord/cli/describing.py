"""`accord describe`: how a configuration divides its data, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.options import ConfigFile, DataDir, Sets, changes
from accord.config import load_config


def describe(
    config: ConfigFile = None,
    sets: Sets = None,
    data_dir: DataDir = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the heat map to a file.")] = None,
) -> None:
    """Show who holds what: samples of each class at each client, sizes, and how unlike the clients are."""
    settings = load_config(config, changes(sets, data_dir=data_dir))
    from accord.data.description import describe as count
    from accord.engine.build import build_data
    from accord.report.heat_maps import heat_map_png, heat_map_text

    data = build_data(settings)
    train, test = count(data), count(data, "test")
    numbers = train.summary()
    least, most = (
        f" ({train.name_of(int(k))})" if data.names else "" for k in (train.sizes.argmin(), train.sizes.argmax())
    )
    typer.echo(f"{data.name}, partition {data.division}, transform {settings.transform.name}\n")
    typer.echo(heat_map_text(train))
    typer.echo(
        f"\n{numbers['clients']:g} clients, {len(data.unseen)} of them unseen; {numbers['samples']:g} "
        f"training samples: smallest client {numbers['smallest']:g}{least}, median {numbers['median']:g}, largest "
        f"{numbers['largest']:g}{most}\n"
        f"{len(data.validation.order)} validation samples; test samples per client: smallest "
        f"{test.summary()['smallest']:g}, largest {test.summary()['largest']:g}"
    )
    if data.problem == "classification":
        typer.echo(
            f"label distance to the whole (EMD, 0 to 2): mean {numbers['mean_distance']:.3f}\n"
            f"effective classes per client: mean {numbers['mean_effective_classes']:.2f} of {data.num_classes}"
        )
    if data.note:
        typer.echo(f"note: {data.note}")
    if png is not None:
        typer.echo(str(heat_map_png(train, png)))
