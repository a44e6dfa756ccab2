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
from accord.measures.scene import Moment, Scene
from accord.measures.spread import in_short, spread_record

Function = Callable[[Tensor, Tensor], float]  # logits [N, C] and labels [N]; NaN where it is not defined
F = TypeVar("F", bound=Function)

NAME = re.compile(r"[a-z][a-z0-9_]*")
# Words that mean something else in a record, a summary or the section [evaluate].
TAKEN = {
    "round", "loss", "cohort", "missing", "server", "bytes_up", "bytes_down", "start_bytes_up", "start_bytes_down",
    "every", "split", "batch_size", "unseen_epochs", "algorithm", "dataset", "seed", "rounds", "versions", "note",
    "test_loss", "environments", "readings", "skipped", "best_accuracy", "top5_accuracy", "rounds_to",
    "client_accuracy", "judged_by", "validation_accuracy", "personal_accuracy", "personal_accuracy_before", "bytes",
    "seconds", "not_finite", "diverged", "metrics_sha256", "digest",
}  # fmt: skip


class Metric(Measure):
    """The function on the test pool (mean over its environments), and its spread over the clients' own test data."""

    reads = frozenset({"logits"})

    def __init__(
        self,
        function: Function,
        name: str = "",
        *,
        better: Better | None = "higher",
        doc: str = "",
        percent: bool = False,
    ) -> None:
        self.function = function
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
        self.columns = (_column(self.name, better, percent),)

    def check(self, scene: Scene) -> None:
        """Try it on a few samples (of each class), and on one sample, which may be all that a client has."""
        logits, labels = _examples(scene)
        for count in (len(labels), 1):
            try:
                self._value(logits[:count].clone(), labels[:count].clone())
            except Exception as error:
                shapes = f"logits {_sizes(logits[:count])}, labels {_sizes(labels[:count])}"
                raise ConfigError(
                    f"metric {self.name} cannot be used: tried on {count} samples ({shapes}), it raised "
                    f"{type(error).__name__}: {error}"
                ) from error

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Its value, and the clients' values under `clients_` and its name."""
        predictions = moment.predictions
        if predictions is None:
            return {}
        value = float(np.mean([self._value(s.logits.clone(), s.labels.clone()) for s in predictions.environments]))
        record: Record = {self.name: None if math.isnan(value) else value}
        clients = predictions.clients("test") if scene.settings.get("clients", True) else None
        if clients is not None:
            values = np.full(len(clients.groups), np.nan)
            for client in np.flatnonzero(clients.sizes).tolist():
                values[client] = self._value(*clients.of(client))
            if not np.isnan(values).all():
                record[f"clients_{self.name}"] = spread_record(values, clients.sizes, self.better)
        return record

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """The last value, and the clients' under `client_` and its name."""
        spreads = [record[f"clients_{self.name}"] for record in records if f"clients_{self.name}" in record]
        return super().summary(scene, records) | ({f"client_{self.name}": in_short(spreads[-1])} if spreads else {})

    def _value(self, logits: Tensor, labels: Tensor) -> float:
        value = float(self.function(logits, labels))
        if math.isinf(value):
            raise DataError(
                f"metric {self.name} gave {value}: it must be a finite number, or NaN where it is undefined"
            )
        return value


def metric(name: str, *, better: Better | None = "higher", doc: str = "", percent: bool = False) -> Callable[[F], F]:
    """Decorator: register a function of logits [N, C] and labels [N] as a measure, off unless `evaluate.NAME = true`.

    `better` says which values are good ones; `percent` writes it in tables as a percentage. Do it before the
    configuration is read.
    """

    def register(function: F) -> F:
        len(MEASURES)  # those of the package come first
        MEASURES.add(name)(Metric(function, name, better=better, doc=doc, percent=percent))
        return function

    return register


def as_measure(given: Measure | Function) -> Measure:
    """A measure, or the one a plain function makes under its own name."""
    return given if isinstance(given, Measure) else Metric(given)


def _examples(scene: Scene) -> tuple[Tensor, Tensor]:
    """Outputs and labels as the run will have them: one sample of each class, or the first two test samples."""
    outputs = scene.data.num_classes
    if scene.problem.one_class:
        return torch.eye(outputs), torch.arange(outputs)
    labels = scene.data.test_pool.y[:2].cpu()
    return torch.zeros(len(labels), *scene.problem.shape(tuple(labels.shape[1:]), outputs)), labels


def _sizes(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _column(name: str, better: Better | None, share: bool) -> Column:
    title = name.replace("_", " ")
    return Column(name, f"{title} %" if share else title, (name,), percent if share else number, better)
