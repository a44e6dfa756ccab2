"""Measures made of a function: predictions and labels in, a number out.

    @accord.metric("kappa", doc="agreement beyond chance")
    def kappa(logits, labels): ...

registers it: `evaluate.kappa = true` switches it on, from there on it is one of the measures. Without a name in the
configuration, `accord.run(config, metrics=[kappa])` does.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from accord.errors import ConfigError, DataError
from accord.measures.column import Better, Column, number, percent
from accord.measures.measure import MEASURES, Measure, Record, switch
from accord.measures.predictions import ClientScores, Scores, Vector
from accord.measures.scene import Final, Moment, Scene
from accord.measures.spread import in_short, spread_record

Function = Callable[[Tensor, Tensor], float]  # logits [N, C] and labels [N]; NaN where it is not defined
F = TypeVar("F", bound=Function)

NAME = re.compile(r"[a-z][a-z0-9_]*")
# Words that mean something else in a record, a summary or the section [evaluate].
TAKEN = {
    "round", "loss", "cohort", "missing", "server", "bytes_up", "bytes_down", "start_bytes_up", "start_bytes_down",
    "every", "split", "batch_size", "unseen_epochs", "algorithm", "dataset", "seed", "rounds", "versions", "note",
    "test_loss", "environments", "readings", "skipped", "best_accuracy", "top5_accuracy", "rounds_to", "columns",
    "client_accuracy", "judged_by", "validation_accuracy", "personal_accuracy", "personal_accuracy_before", "bytes",
    "seconds", "not_finite", "diverged", "metrics_sha256", "digest", "rmse", "best_rmse", "top5_rmse", "client_rmse",
    "validation_rmse", "personal_rmse", "personal_rmse_before",
}  # fmt: skip


class Metric(Measure):
    """The function on the test pool (mean over its environments), and its spread over the clients' own test data.

    `title` is its name in tables. `problems` it is defined for, all of them where none is named; of those in `always`
    it is told unasked. `classes`: there must be so many. `extra` is the one of ours that installs what it imports.
    """

    reads = frozenset({"logits"})

    def __init__(
        self,
        function: Function,
        name: str = "",
        *,
        better: Better | None = "higher",
        doc: str = "",
        percent: bool = False,
        title: str = "",
        problems: Sequence[str] = (),
        always: Sequence[str] = (),
        classes: int | None = None,
        extra: str = "",
    ) -> None:
        self.function, self.extra, self.classes = function, extra, classes
        self.problems, self.always = tuple(problems), tuple(always)
        self.name = name or getattr(function, "__name__", "")
        if not NAME.fullmatch(self.name) or self.name in TAKEN:
            raise ConfigError(
                f"a metric cannot be called {self.name!r}: take small letters, digits and _, and no word the records "
                "have another meaning for"
            )
        if better not in ("higher", "lower", None):
            raise ConfigError(f"metric {self.name}: better = {better!r} must be 'higher', 'lower' or None")
        self.better = better
        self.__doc__ = doc or (inspect.getdoc(function) or self.name.replace("_", " ")).splitlines()[0]
        self.setting = switch(self.name, self.__doc__)
        self.columns = _columns(self.name, title or self.name.replace("_", " "), better, percent)

    def on(self, scene: Scene) -> bool:
        """Where it is asked for, or belongs to the problem."""
        return super().on(scene) or scene.problem.name in self.always

    def check(self, scene: Scene) -> None:
        """Try it on a few samples (of each class), and on one sample, which may be all that a client has."""
        self._fits(scene)
        logits, labels = _examples(scene)
        for count in (len(labels), 1):
            try:
                self._value(logits[:count].clone(), labels[:count].clone())
            except ImportError as error:
                if not self.extra:
                    raise
                raise ConfigError(
                    f"evaluate.{self.name} needs {error.name or 'a package'}, which is not installed: "
                    f"pip install 'accord-fl[{self.extra}]'"
                ) from error
            except Exception as error:
                shapes = f"logits {_sizes(logits[:count])}, labels {_sizes(labels[:count])}"
                raise ConfigError(
                    f"metric {self.name} cannot be used: tried on {count} samples ({shapes}), it raised "
                    f"{type(error).__name__}: {error}"
                ) from error

    def _fits(self, scene: Scene) -> None:
        """Refuse data it is not defined for."""
        kind, classes = scene.problem.name, scene.data.num_classes
        if self.problems and kind not in self.problems:
            fitting = [name for name, other in MEASURES.items() if isinstance(other, Metric) and kind in other.problems]
            raise ConfigError(
                f"evaluate.{self.name} is not defined for {kind}, only for {' and '.join(self.problems)}. For {kind} "
                f"there are: {', '.join([f'{scene.problem.headline} (always)', *fitting])}"
            )
        if self.classes not in (None, classes):
            raise ConfigError(f"evaluate.{self.name} is for {self.classes} classes, and the data has {classes}")

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Its value, and the clients' values under `clients_` and its name."""
        predictions = moment.predictions
        if predictions is None:
            return {}
        value = float(np.mean([self._of_all(scores) for scores in predictions.environments]))
        record: Record = {self.name: None if math.isnan(value) else value}
        clients = predictions.clients("test") if scene.settings.get("clients", True) else None
        if clients is not None:
            values = self._values(clients)
            if not np.isnan(values).all():
                record[f"clients_{self.name}"] = spread_record(values, clients.sizes, self.better)
        return record

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """The last value, and the clients' under `client_` and its name."""
        spreads = [record[f"clients_{self.name}"] for record in records if f"clients_{self.name}" in record]
        return super().summary(scene, records) | ({f"client_{self.name}": in_short(spreads[-1])} if spreads else {})

    def sites(self, scene: Scene, final: Final) -> dict[str, Vector]:
        """The clients' values under its name."""
        clients = final.clients
        return {} if clients is None else {self.name: self._values(clients)}

    def _values(self, clients: ClientScores) -> Vector:
        """[K] NaN for a client without samples, or where it is not defined for those it has."""
        values = np.full(len(clients.groups), np.nan)
        for client in np.flatnonzero(clients.sizes).tolist():
            values[client] = self._of_one(clients, client)
        return values

    def _of_all(self, scores: Scores) -> float:
        return self._value(scores.logits.clone(), scores.labels.clone())

    def _of_one(self, clients: ClientScores, client: int) -> float:
        return self._value(*clients.of(client))

    def _value(self, logits: Tensor, labels: Tensor) -> float:
        value = float(self.function(logits, labels))
        if math.isinf(value):
            raise DataError(
                f"metric {self.name} gave {value}: it must be a finite number, or NaN where it is undefined"
            )
        return value


def metric(
    name: str, *, better: Better | None = "higher", doc: str = "", percent: bool = False, **others: Any
) -> Callable[[F], F]:
    """Decorator: register a function of logits [N, C] and labels [N] as a measure, off unless `evaluate.NAME = true`.

    `better` says which values are good ones; `percent` writes it in tables as a percentage; `others` are those of
    `Metric`, such as the `problems` it is defined for. Do it before the configuration is read.
    """

    def register(function: F) -> F:
        len(MEASURES)  # those of the package come first
        MEASURES.add(name)(Metric(function, name, better=better, doc=doc, percent=percent, **others))
        return function

    return register


def as_measure(given: Measure | Function) -> Measure:
    """A measure, or the one a plain function makes under its own name."""
    return given if isinstance(given, Measure) else Metric(given)


def _columns(name: str, title: str, better: Better | None, share: bool) -> tuple[Column, ...]:
    unit, write = " %" if share else "", percent if share else number
    spread = (f"client_{name}",)
    return (
        Column(name, f"{title}{unit}", (name,), write, better),
        Column(f"mean_client_{name}", f"mean client {title}{unit}", (*spread, "mean"), write, better, compared=False),
        Column(
            f"worst_client_{name}", f"worst client {title}{unit}", (*spread, "worst"), write, better, compared=False
        ),
        Column(f"client_{name}_std", f"client {title} std{unit}", (*spread, "std"), write, "lower", compared=False),
    )


def _examples(scene: Scene) -> tuple[Tensor, Tensor]:
    """Outputs and labels as the run will have them: one sample of each class, or the first two test samples."""
    outputs = scene.data.num_classes
    if scene.problem.one_class:
        return torch.eye(outputs), torch.arange(outputs)
    labels = scene.data.test_pool.y[:2].cpu()
    return torch.zeros(len(labels), *scene.problem.shape(tuple(labels.shape[1:]), outputs)), labels


def _sizes(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"
