"""From a network's outputs to answers people read. B samples, C outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from accord.errors import ConfigError, DataError
from accord.problems import PROBLEMS
from accord.wire.records import shown


class Answers:
    """What outputs mean, by the kind of problem: a class, any number of labels, numbers, a class per position."""

    def __init__(self, problem: str, classes: Sequence[str], outputs: int) -> None:
        if problem not in PROBLEMS:
            raise DataError(f"the problem is {shown(problem)}; known are {', '.join(PROBLEMS)}")
        if len(classes) not in (0, outputs):
            raise DataError(f"{len(classes)} names do not fit {outputs} outputs")
        self.problem = problem
        self.names = tuple(classes) or tuple(map(str, range(outputs)))

    def probabilities(self, outputs: Tensor) -> Tensor:
        """[B, C], or [B, L, C] for every position; a ConfigError where outputs are numbers."""
        if PROBLEMS[self.problem].real_labels:
            raise ConfigError("this model answers with numbers, which have no probabilities: use predict(raw)")
        return outputs.sigmoid() if self.problem == "multilabel" else outputs.softmax(-1)

    def words(self, outputs: Tensor) -> list[Any]:
        """An answer for each sample."""
        found: list[Any] = PROBLEMS[self.problem].predicted(outputs).tolist()
        if PROBLEMS[self.problem].real_labels:
            return [row[0] for row in found] if len(self.names) == 1 else found
        if self.problem == "multilabel":
            return [[name for name, true in zip(self.names, row, strict=True) if true] for row in found]
        return self._named(found)

    def _named(self, numbers: list[Any]) -> list[Any]:
        return [self._named(one) if isinstance(one, list) else self.names[one] for one in numbers]
