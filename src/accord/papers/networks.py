"""Figures that need trained networks: they are drawn from runs' folders with a checkpoint, where those are at hand.

`tsne`: the global model's features of test samples, in two dimensions (BR-F2, RANE-F4; needs scikit-learn); `outputs`:
how often the models that clients train from the final state answer each class, on all test samples (BR-F3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.colours import COLOURS
from accord.config import config_hash, load_config
from accord.core.algorithm import Predictor
from accord.core.types import State
from accord.engine.checkpoint import Checkpoints, to_device
from accord.engine.federation import Federation
from accord.engine.store import ClientStore
from accord.errors import ConfigError
from accord.papers.experiment import Experiment
from accord.papers.figures import Drawn, blank, save
from accord.papers.wanted import wanted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 2000  # of the test set: as many as FedRANE's Figure 4 shows
MARKS = ("o", "^")  # seven colours are too few for ten classes


@dataclass(frozen=True)
class Trained:
    """A run's federation and its newest state."""

    federation: Federation
    state: State
    round: int
    store: ClientStore

    def test_samples(self) -> tuple[Tensor, npt.NDArray[np.int64]]:
        """Samples and labels, spread evenly over the test set."""
        pool = self.federation.judged.test_pool
        places = np.linspace(0, len(pool) - 1, min(SAMPLES, len(pool))).astype(np.int64)
        x, y = pool.take(places)
        return x.to(self.federation.device), y.cpu().numpy()


@contextmanager
def trained(folder: Path) -> Iterator[Trained]:
    """From a run's folder, on this machine's CPU, wherever and however it was carried out."""
    config = load_config(folder / "config.toml")
    here = replace(config, device="cpu", executor="sequential", compile=False, precision="fp32", channels_last=False)
    federation = Federation.build(here)
    checkpoints = Checkpoints(folder / "checkpoint", config_hash(config), config.checkpoint.keep)
    with federation.memory(checkpoints.clients_folder) as store:
        snapshot, _ = checkpoints.newest(store)
        if snapshot is None:
            raise ConfigError(f"{folder} has no checkpoint, so there is no network to draw")
        store.restore(snapshot.clients)
        yield Trained(federation, to_device(snapshot.state, federation.device), snapshot.round, store)


def draw_networks(experiment: Experiment, kind: str, runs: Path, folder: Path) -> Drawn | None:
    """One figure from the folders of the first seed's runs in the first place; None where none is there."""
    first = [one for one in wanted(experiment, (0,), "full") if one.place is experiment.places[0]]
    folders = {one.row.title: one.slot(runs / "full").folder for one in first}
    known = {title: path for title, path in folders.items() if (path / "checkpoint").is_dir()}
    if not known:
        return None
    name = f"{experiment.id}-{kind}"
    save(NETWORK_KINDS[kind](known), folder / name)
    return Drawn(kind, name)


def _features(folders: Mapping[str, Path]) -> Figure:
    """A panel per method, a colour and mark per class."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise ConfigError("t-SNE needs scikit-learn: pip install 'accord-fl[metrics]'") from error
    figure, axes = blank(len(folders))
    for axis, (title, folder) in zip(axes, folders.items(), strict=True):
        with trained(folder) as run:
            x, labels = run.test_samples()
            features = in_parts(_predictor(run), x)[1]
        flat = TSNE(perplexity=min(30, len(labels) // 4), random_state=0, init="pca").fit_transform(features.numpy())
        for label in np.unique(labels):
            colour = list(COLOURS.values())[label % len(COLOURS)]
            mark = MARKS[label // len(COLOURS) % len(MARKS)]
            some = flat[labels == label]
            axis.scatter(
                some[:, 0], some[:, 1], s=5, color=colour, marker=mark, linewidth=0, label=str(label), rasterized=True
            )
        axis.set_title(f"{title}, round {run.round}", fontsize="medium")
        axis.set(xticks=[], yticks=[])
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", fontsize="small", markerscale=3, title="class")
    return figure


def _outputs(folders: Mapping[str, Path]) -> Figure:
    """A panel per method: for each class, the share of each client's answers."""
    figure, axes = blank(len(folders))
    for axis, (title, folder) in zip(axes, folders.items(), strict=True):
        shares = answers(folder)
        width = 0.8 / len(shares)
        for place, (client, share) in enumerate(shares.items()):
            colour = list(COLOURS.values())[place % len(COLOURS)]
            axis.bar(np.arange(len(share)) + place * width, 100 * share, width, color=colour, label=f"client {client}")
        axis.set_title(title, fontsize="medium")
        axis.set(xlabel="class", ylabel="answers %")
    axes[0].legend(fontsize="small")
    return figure


def answers(folder: Path) -> dict[int, npt.NDArray[np.float64]]:
    """By client, how often its model answers each class on the test samples, after one more round of training."""
    with trained(folder) as run:
        federation = run.federation
        executor = federation.executor()
        try:
            ask = federation.exchange(executor, run.store, run.round, rehearsal=True)
            message = federation.algorithm.message(run.state)
            replies = ask("train", list(federation.facts.members), message)
        finally:
            executor.close()
        x, _ = run.test_samples()
        found = {}
        for client, result in zip(replies.ids, replies.results, strict=True):
            logits = in_parts(federation.algorithm.local_predictor(run.state, result), x)[0]
            counts = np.bincount(logits.argmax(1).numpy(), minlength=logits.shape[1])
            found[client] = counts / counts.sum()
    return found


def _predictor(run: Trained) -> Predictor:
    predictor = run.federation.algorithm.predictor(run.state)
    if predictor is None:
        raise ConfigError(
            f"{run.federation.config.algorithm.name} has no global model, so there are no features to draw"
        )
    return predictor


def in_parts(predictor: Callable[[Tensor], Any], x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and features of many samples, 500 at a time."""
    with torch.no_grad():
        outs = [predictor(part) for part in torch.split(x, 500)]
    return torch.cat([out.logits for out in outs]), torch.cat([out.features for out in outs])


NETWORK_KINDS: Mapping[str, Callable[[Mapping[str, Path]], Figure]] = {"tsne": _features, "outputs": _outputs}
