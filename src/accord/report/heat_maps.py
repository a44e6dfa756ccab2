"""Who holds what, drawn: samples of each class at each client, as text or as a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from accord.data.description import Description
from accord.errors import ConfigError
from accord.figures import empty_figure, whole_numbers
from accord.report.plots import write_png

SHADES = " ░▒▓█"
LEGEND = 12  # classes whose names fit below
WIDEST = 24  # characters of a name


def heat_map_text(description: Description, max_clients: int = 40, max_classes: int = 40) -> str:
    """Label counts as shaded text, a line per client and a column per class, with what is cut off said below.

    The shade is the count relative to the largest count shown; a count above 0 is never blank.
    """
    check_limits(max_clients, max_classes)
    clients, classes = description.counts.shape
    counts = description.counts[:max_clients, :max_classes]
    level = np.ceil(counts / max(int(counts.max(initial=0)), 1) * (len(SHADES) - 1)).astype(np.int64)
    names = [cut(description.name_of(client)) for client in range(len(counts))]
    wide = max(len(name) for name in ["client", *names])
    cell = max(len(str(counts.shape[1] - 1)), 2)
    lines = [" ".join(["client".rjust(wide), *(str(c).rjust(cell) for c in range(counts.shape[1])), "samples"])]
    lines += [
        " ".join([name.rjust(wide), *(SHADES[i] * cell for i in row), str(size).rjust(len("samples"))])
        for name, row, size in zip(names, level.tolist(), description.sizes.tolist(), strict=False)
    ]
    lines.append(f"{SHADES[-1]} = {int(counts.max(initial=0))} samples")
    lines += class_legend(description)
    if clients > max_clients:
        lines.append(f"{clients - max_clients} more clients not shown")
    if classes > max_classes:
        lines.append(f"{classes - max_classes} more classes not shown")
    return "\n".join(lines)


def class_legend(description: Description) -> list[str]:
    """What the columns' numbers stand for, if that is said in a line."""
    names = description.classes
    if not names or len(names) > LEGEND or names == tuple(map(str, range(len(names)))):
        return []
    return ["classes: " + ", ".join(f"{number} {cut(name)}" for number, name in enumerate(names))]


def cut(name: str) -> str:
    """As much of a name as a line has room for, without what a terminal would take for orders."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    return plain if len(plain) <= WIDEST else plain[: WIDEST - 1] + "…"


def heat_map_png(
    description: Description, path: str | os.PathLike[str], max_clients: int = 1000, max_classes: int = 200
) -> Path:
    """Draw the label counts to a PNG file (needs matplotlib), a row per client and a column per class as the text has
    them; the title says what is cut off.
    """
    check_limits(max_clients, max_classes)
    clients, classes = description.counts.shape
    counts = description.counts[:max_clients, :max_classes]
    cut = [f"first {max_clients} of {clients} clients"] if clients > max_clients else []
    cut += [f"first {max_classes} of {classes} classes"] if classes > max_classes else []
    figure = empty_figure(min(3.5 + 0.2 * counts.shape[1], 12), min(2.0 + 0.14 * len(counts), 14))
    axes = figure.add_subplot()
    image = axes.imshow(counts, aspect="auto", interpolation="nearest", cmap="viridis")
    axes.set(xlabel="class", ylabel="client")
    whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    axes.set_title(f"{description.name}, {description.split}" + (f"\n({', '.join(cut)})" if cut else ""), fontsize=10)
    figure.colorbar(image, ax=axes, label="samples")
    target = Path(path)
    write_png(figure, target)
    return target


def check_limits(max_clients: int, max_classes: int) -> None:
    """Refuse a heat map of nothing."""
    if max_clients < 1 or max_classes < 1:
        raise ConfigError(f"a heat map shows at least 1 client and 1 class, not {max_clients} and {max_classes}")
