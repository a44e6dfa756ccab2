"""`accord predict` and `accord export`: what is done with the model a run has left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.guard import complain
from accord.errors import ConfigError, RunError

Folder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that came to its end, or its `model`.")]
Client = Annotated[str | None, typer.Option(help="A client's own model, by the client's name or number.")]


def predict(
    folder: Folder,
    samples: Annotated[Path, typer.Argument(help="CSV, Parquet or .npy file, an image or a folder of images.")],
    client: Client = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write here instead of printing.")] = None,
    separator: Annotated[str | None, typer.Option(help="Of a CSV file's fields.")] = None,
) -> None:
    """Ask a trained model about new samples; answers and probabilities as CSV."""
    from accord.deploy import load
    from accord.deploy.samples import answers_table, read_samples

    model = load(folder, client)
    given = read_samples(samples, model.inputs, separator)
    for note in given.notes:
        complain(note, "note: ")
    table = answers_table(model, given)
    if out is None:
        typer.echo(table, nl=False)
        return
    try:
        out.write_text(table, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {out}: {error.strerror or error}") from error
    typer.echo(str(out))


def export(
    folder: Folder,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an ONNX file.")] = None,
    torch_export: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a torch.export file (.pt2).")] = None,
    client: Client = None,
) -> None:
    """Write a trained model as one file for other programs; it is run, and compared, before it is written."""
    if onnx is None and torch_export is None:
        raise ConfigError("name a file to write: --onnx FILE, --torch-export FILE, or both")
    from accord.deploy.exported import export as written

    for made in written(folder, onnx=onnx, torch_export=torch_export, client=client):
        typer.echo(f"{made.path}: takes {made.takes}; largest difference to the model: {made.difference:.2g}")
