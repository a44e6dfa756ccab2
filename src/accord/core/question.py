"""Client programs that train nothing: they answer from what they received and from the client's own data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accord.core.model import Model
from accord.core.plan import Plan
from accord.core.tensors import Trees
from accord.core.types import Batch, Carry, Job, Result


@dataclass(frozen=True)
class Question(ABC):
    """A task without steps, without chance and without memory: `answer` is all there is to it."""

    model: Model
    plan: Plan = field(default_factory=lambda: Plan(epochs=0), init=False)

    @abstractmethod
    def answer(self, job: Job) -> Trees:
        """What travels back."""

    def first_memory(self, job: Job) -> Trees:
        return {}

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        return {}

    def begin(self, job: Job) -> Carry:
        """No steps will follow."""
        return {}

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        """Not reached: the plan has no steps."""
        return carry

    def finish(self, job: Job, carry: Carry) -> Result:
        """The answer; nothing stays."""
        return Result(self.answer(job), {}, {})
