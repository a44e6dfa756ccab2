"""Pictures as files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from accord.engine.files import write_atomic
from accord.errors import DataError
from accord.figures import Runs, figure_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curves(path: Path, runs: Runs, value: str = "accuracy") -> bool:
    """Draw `value` over rounds to a PNG file, see `figure_of`; False, and nothing written, when no run has it."""
    try:
        figure = figure_of(runs, value)
    except DataError:
        return False
    write_png(figure, path, dpi=150)
    return True


def write_png(figure: Figure, path: Path, dpi: int = 100) -> None:
    """The file is there whole or not at all."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=dpi)
    write_atomic(path, picture.getvalue())
