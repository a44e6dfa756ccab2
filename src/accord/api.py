"""`accord.run`, `describe`, `diagnose` and `explain`: what the commands of these names do, for Python."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from accord.config import RunConfig, catalog, from_dict, load_config, to_dict
from accord.config.cards import explanation
from accord.data.description import Description
from accord.data.description import describe as count
from accord.data.federated import Dataset, FederatedData
from accord.diagnosis import Diagnosis, looked_over
from accord.engine.build import build_data
from accord.engine.run import Outcome
from accord.engine.run import run as start
from accord.errors import ConfigError, nearest
from accord.observe import Observer, RichProgress, shows_bars
from accord.trackers import TRACKERS, observers_for

if TYPE_CHECKING:
    from torch import nn

    from accord.measures import Function, Measure

Config = RunConfig | Path | str | None


def run(
    config: Config = None,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    algorithm: str | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    clients: int | None = None,
    partition: str | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    executor: str | None = None,
    out: Path | str | None = None,
    name: str | None = None,
    sets: Sequence[str] = (),
    log: Sequence[str] = (),
    observers: Sequence[Observer] = (),
    metrics: Sequence[Measure | Function] = (),
    progress: bool | None = None,
) -> Outcome:
    """Train a model in a simulated federation.

    >>> outcome = accord.run(algorithm="scaffold", rounds=2, clients=4, sets=["data.limit=200"])
    >>> outcome.summary["algorithm"], outcome.folder.name
    ('scaffold', 'scaffold-mnist5k-s0')
    >>> [round["round"] for round in outcome.metrics]
    [1, 2]

    Args:
        config: a configuration, or the path of its file; None: the defaults (`accord settings`).
        data: own data, as accord.from_arrays and its like make it, in place of the configuration's.
        model: an own network; it begins with the weights it has.
        algorithm: the federated method, see `accord list algorithms`.
        rounds: rounds of communication.
        seed: everything random follows from it.
        clients: how many clients the data is dealt to (partition.clients).
        partition: how it is dealt (partition.name), see `accord list partitions`.
        epochs: passes over a client's data in a round (local.epochs).
        batch_size: samples in a batch (local.batch_size).
        lr: the clients' learning rate (local.lr).
        device: "auto" is a GPU if there is one.
        executor: how clients are run, see `accord list executors`.
        out: folder for runs.
        name: the run's folder below `out`.
        sets: any other settings, as `--set` takes them: ["partition.alpha=0.1"].
        log: also report to "tensorboard", "mlflow" or "wandb".
        observers: are told what happens, see accord.Observer.
        metrics: measured beside what the configuration asks for: functions of logits [N, C] and labels [N].
        progress: show bars; None: on a terminal and in a notebook.

    What is given here wins over `config`; what is neither here nor there has its default.
    """
    given = {
        "algorithm.name": algorithm,
        "rounds": rounds,
        "seed": seed,
        "partition.clients": clients,
        "partition.name": partition,
        "local.epochs": epochs,
        "local.batch_size": batch_size,
        "local.lr": lr,
        "device": device,
        "executor": executor,
        "out": out,
        "name": name,
    }
    for tracker in log:
        if tracker not in TRACKERS:
            raise ConfigError(f"log: unknown {tracker!r}.{nearest(tracker, TRACKERS)} Allowed: {', '.join(TRACKERS)}.")
    changes = [f"{key}={value}" for key, value in given.items() if value is not None]
    settings = configured(config, [*sets, *changes, *(f"log.{tracker}=true" for tracker in log)])
    with _watching(settings, progress) as own:
        return start(settings, data=data, model=model, observers=[*own, *observers], metrics=metrics)


def describe(
    config: Config = None,
    *,
    data: FederatedData | Dataset | None = None,
    split: Literal["train", "validation", "test"] = "train",
    sets: Sequence[str] = (),
) -> Description:
    """How the data is divided among clients, in numbers; nothing is trained.

    >>> accord.describe(sets=["partition.name=iid", "partition.clients=4"]).sizes.tolist()
    [1000, 1000, 1000, 1000]
    >>> found = accord.describe(sets=["partition.alpha=0.1"])
    >>> found.counts.shape, found.summary()["clients"]
    ((20, 10), 20)

    `accord.report.heat_map_text(found)` draws it.
    """
    divided = data if isinstance(data, FederatedData) else build_data(configured(config, sets), data)
    return count(divided, split)


def diagnose(
    config: Config = None,
    *,
    data: FederatedData | Dataset | None = None,
    model: nn.Module | None = None,
    seed: int | None = None,
    quick: bool = False,
    sets: Sequence[str] = (),
) -> Diagnosis:
    """How non-IID a federation is, and what to do about it.

    >>> found = accord.diagnose(sets=["partition.alpha=0.1", "data.limit=1000"], quick=True)
    >>> found["labels"].severity, found.suggestion.enough
    ('strong', False)

    `print(found)` says everything, `found.page("diagnosis.html")` draws it, `found.json("diagnosis.json")` keeps the
    numbers. `quick` leaves out a few rounds of FedAvg that measure how far clients pull apart.
    """
    settings = configured(config, [*sets, *([] if seed is None else [f"seed={seed}"])])
    if data is not None and not isinstance(data, FederatedData | Dataset):
        raise ConfigError(f"data must be made with accord.from_arrays(x, y) or its like, not {type(data).__name__}")
    divided = data if isinstance(data, FederatedData) else build_data(settings, data)
    return looked_over(divided, settings, model, quick=quick)


def explain(name: str) -> str:
    """The card of an algorithm, or of anything else that has a name: what it is, equations, settings.

    >>> print(accord.explain("dirichlet"))
    Every class divided among the clients by shares ~ Dir(alpha, ..., alpha) (FedRANE and many others).
    ...
    """
    for kind in catalog.WHERE:
        if name in catalog.registry(kind):
            return explanation(kind, name)
    known = list(catalog.registry("algorithm"))
    raise ConfigError(f"nothing is called {name!r}.{nearest(name, known)} Algorithms: {', '.join(known)}.")


def configured(config: Config, sets: Sequence[str]) -> RunConfig:
    """A configuration, or that of a file, with changes."""
    if isinstance(config, RunConfig):
        return from_dict(to_dict(config), sets) if sets else config
    return load_config(config, sets)


@contextlib.contextmanager
def _watching(config: RunConfig, progress: bool | None) -> Iterator[list[Observer]]:
    """The observers of a run that were not given: what the configuration asks for, and bars."""
    own = observers_for(config)
    try:
        if progress or (progress is None and _somebody_looks()):
            own.append(RichProgress())
        yield own
    finally:
        for observer in own:
            observer.close()


def _somebody_looks() -> bool:
    """Whether bars would be seen: a terminal, or a notebook; and rich is there to draw them."""
    try:
        from rich.console import Console
    except ImportError:
        return False
    return shows_bars(Console(stderr=True)) and (sys.stderr.isatty() or "ipykernel" in sys.modules)
