"""A problem, and where all of them are found. B samples, C outputs of a sample or of a position."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from accord.errors import ConfigError
from accord.settings import Registry

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Problem(ABC):
    """What labels mean. `weights` make some of them count more in training; what is measured never has any."""

    name: ClassVar[str]  # the word for it in a configuration (`task`)
    headline: ClassVar[str]  # the leading number of a run's summary
    title: ClassVar[str]  # that number's name in a table
    higher_is_better: ClassVar[bool]
    share: ClassVar[bool]  # whether the number lies between 0 and 1, and is written as a percentage
    output: ClassVar[tuple[str, str]]  # what a network gives a number for, one and many
    one_class: ClassVar[bool] = False  # whether every sample has one class: class counts and soft labels exist
    real_labels: ClassVar[bool] = False  # whether labels and answers are real numbers
    weighs: ClassVar[bool] = False  # whether outputs may have weights
    # The headline, from the mean score of some samples: of all, or of a client's.
    reading: ClassVar[staticmethod[[float], float]] = staticmethod(float)

    weights: tuple[float, ...] = ()

    @abstractmethod
    def check(self, y: Tensor, outputs: int, part: str) -> None:
        """Refuse labels that are none of this problem's, for a network with that many outputs."""

    @abstractmethod
    def shape(self, label: Shape, outputs: int) -> Shape:
        """What a network must give for one sample, whose label has the shape `label`."""

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] the loss of every sample."""

    def mean_loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The mean loss of all samples, 0-d."""
        return self.loss(outputs, y).mean()

    @abstractmethod
    def predicted(self, outputs: Tensor) -> Tensor:
        """The answer itself: class numbers, 0 or 1 for every label, numbers, a class number for every position."""

    @abstractmethod
    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        """[B] how right, or how wrong, every answer is; `reading` of their mean is the headline."""

    def worth(self, headline: float) -> float:
        """The headline as a number of which more is better: an error is turned round, and twice so it is itself."""
        return headline if self.higher_is_better else -headline

    def balanced(self, y: Tensor, outputs: int) -> tuple[float, ...]:
        """Weights under which rare labels count as much as frequent ones."""
        raise ConfigError(self._unweighted())

    def weighted(self, weights: Sequence[float], outputs: int) -> Problem:
        """The same problem, whose training loss is so weighted."""
        if not self.weighs:
            raise ConfigError(self._unweighted())
        if len(weights) != outputs or not all(math.isfinite(w) and w > 0 for w in weights):
            raise ConfigError(
                f"local.class_weights lists {len(weights)} numbers, {list(weights)[:10]}: it must list a number above "
                f"0 for each of the {outputs} {self.output[1]}"
            )
        return replace(self, weights=tuple(float(w) for w in weights))

    @property
    def plain(self) -> Problem:
        """Without weights, as it is measured."""
        return replace(self, weights=()) if self.weights else self

    def _unweighted(self) -> str:
        return f"local.class_weights is for classification and multilabel, not for {self.name}: set it to none"


PROBLEMS: Registry[Problem] = Registry("task", home="accord.problems", order=lambda name, _: name)

P = TypeVar("P", bound=type[Problem])


def entry(kind: P) -> P:
    """Class decorator: the problem is registered under its name."""
    PROBLEMS.add(kind.name)(kind())
    return kind


def headlines() -> dict[str, Problem]:
    """The leading numbers there are, each with the first problem that has it."""
    found: dict[str, Problem] = {}
    for problem in PROBLEMS.values():
        found.setdefault(problem.headline, problem)
    return found


def leading(summary: Mapping[str, object]) -> str:
    """Which number leads in the summary of a run."""
    return str(summary.get("judged_by", "accuracy")).removeprefix("personal_")


@functools.lru_cache(maxsize=32)
def constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The weights on a device, made once: a recorded step must bring nothing from the host."""
    return torch.tensor(numbers, dtype=dtype, device=device)


def is_whole(y: Tensor) -> bool:
    """Whether labels are stored as whole numbers."""
    return not (y.dtype.is_floating_point or y.dtype.is_complex or y.dtype == torch.bool)
