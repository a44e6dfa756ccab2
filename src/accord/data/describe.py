"""How different the clients are: sizes, label counts, distances, and a picture of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accord.data.federated import FederatedData, Index, Split
from accord.data.partition_checks import labels_of
from accord.data.partition_core import owners
from accord.errors import ConfigError

SHADES = " ░▒▓█"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Description:
    """Statistics of one split over K clients and C classes; clients without samples count in sizes only."""

    name: str
    split: Split
    counts: Index  # [K, C] samples of each class at each client

    @property
    def sizes(self) -> Index:
        """[K] samples per client."""
        return np.asarray(self.counts.sum(axis=1), dtype=np.int64)

    @property
    def shares(self) -> Floats:
        """[K, C] label distribution of each client; NaN for a client without samples."""
        sizes = self.sizes[:, None]
        shares: Floats = np.full(self.counts.shape, np.nan)
        np.divide(self.counts, sizes, out=shares, where=sizes > 0)
        return shares

    @property
    def distance(self) -> Floats:
        """[K] label distance to the whole federation: sum over classes of |p_k(c) - p(c)|, from 0 to 2.

        This is what Zhao et al. 2018 ("Federated Learning with Non-IID Data") call the earth mover's
        distance; it treats all pairs of different classes as equally far apart, p being the labels of all
        clients together. NaN if empty.
        """
        total = max(int(self.counts.sum()), 1)
        return np.asarray(np.abs(self.shares - self.counts.sum(axis=0) / total).sum(axis=1), dtype=np.float64)

    @property
    def mean_distance(self) -> float:
        """Plain mean of `distance` over clients with samples."""
        return mean_of(self.distance)

    @property
    def effective_classes(self) -> Floats:
        """[K] exp(entropy of the labels), n for n equally frequent classes; NaN without samples."""
        shares = self.shares
        logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        return np.asarray(np.exp(-(shares * logs).sum(axis=1)), dtype=np.float64)

    def summary(self) -> dict[str, float]:
        """The numbers to print: clients, samples, sizes, mean distance and mean effective classes."""
        sizes = self.sizes
        return {
            "clients": len(sizes),
            "samples": int(sizes.sum()),
            "smallest": int(sizes.min(initial=int(sizes.max(initial=0)))),
            "median": float(np.median(sizes)) if len(sizes) else 0.0,
            "largest": int(sizes.max(initial=0)),
            "mean_distance": self.mean_distance,
            "mean_effective_classes": mean_of(self.effective_classes),
        }


def mean_of(values: Floats) -> float:
    """Mean of the values that are not NaN, NaN when there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def describe(data: FederatedData, split: Split = "train") -> Description:
    """Count the labels of every client in one split."""
    groups = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    from_test = split == "test" and data.test_from == "test"
    labels = labels_of(data.test_pool if from_test else data.train_pool, data.num_classes, split)
    cells = owners(groups) * data.num_classes + labels[groups.order]
    counts = np.bincount(cells, minlength=len(groups) * data.num_classes)
    return Description(data.name, split, counts.reshape(len(groups), data.num_classes).astype(np.int64))


def heat_map_text(description: Description, max_clients: int = 40, max_classes: int = 40) -> str:
    """Label counts as shaded text, a line per client and a column per class, with what is cut off said below.

    The shade is the count relative to the largest count shown; a count above 0 is never blank.
    """
    check_limits(max_clients, max_classes)
    clients, classes = description.counts.shape
    counts = description.counts[:max_clients, :max_classes]
    level = np.ceil(counts / max(int(counts.max(initial=0)), 1) * (len(SHADES) - 1)).astype(np.int64)
    wide = max(len(str(len(counts) - 1)), len("client"))
    cell = max(len(str(counts.shape[1] - 1)), 2)
    lines = [" ".join(["client".rjust(wide), *(str(c).rjust(cell) for c in range(counts.shape[1])), "samples"])]
    lines += [
        " ".join([str(k).rjust(wide), *(SHADES[i] * cell for i in row), str(size).rjust(len("samples"))])
        for k, (row, size) in enumerate(zip(level.tolist(), description.sizes.tolist(), strict=False))
    ]
    lines.append(f"{SHADES[-1]} = {int(counts.max(initial=0))} samples")
    if clients > max_clients:
        lines.append(f"{clients - max_clients} more clients not shown")
    if classes > max_classes:
        lines.append(f"{classes - max_classes} more classes not shown")
    return "\n".join(lines)


def heat_map_png(
    description: Description, path: str | os.PathLike[str], max_clients: int = 1000, max_classes: int = 200
) -> Path:
    """Draw the label counts to a PNG file (needs matplotlib); the title says what is cut off."""
    check_limits(max_clients, max_classes)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("heat maps need matplotlib: pip install 'accord-fl[plot]'") from error
    clients, classes = description.counts.shape
    counts = description.counts[:max_clients, :max_classes]
    cut = [f"first {max_clients} of {clients} clients"] if clients > max_clients else []
    cut += [f"first {max_classes} of {classes} classes"] if classes > max_classes else []
    figure = Figure(
        figsize=(min(2.5 + 0.12 * len(counts), 14), min(2.0 + 0.2 * counts.shape[1], 10)),
        layout="constrained",
    )
    FigureCanvasAgg(figure)  # attaches itself; no pyplot, so no global state and no display
    axes = figure.add_subplot()
    image = axes.imshow(counts.T, aspect="auto", interpolation="nearest", cmap="viridis")
    axes.set(xlabel="client", ylabel="class")
    axes.set_title(f"{description.name}, {description.split}" + (f"\n({', '.join(cut)})" if cut else ""), fontsize=10)
    figure.colorbar(image, ax=axes, label="samples")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(unfinished, format="png")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def check_limits(max_clients: int, max_classes: int) -> None:
    """Refuse a heat map of nothing."""
    if max_clients < 1 or max_classes < 1:
        raise ConfigError(f"a heat map shows at least 1 client and 1 class, not {max_clients} and {max_classes}")
