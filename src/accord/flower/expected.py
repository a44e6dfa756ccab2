"""The form an answer must have, known before anybody answers: each task is tried once on made-up samples.

The server has the method, the network and how many samples each site holds, so it can run the task itself: one step, at
rate 0, on stand-ins. Names, kinds of numbers and shapes of the answer do not depend on what the samples are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accord.client import Request, Site, Work, run_client
from accord.core.keys import Key
from accord.core.task import Task
from accord.core.tensors import Trees
from accord.core.types import Batch, Carry, Facts, Job
from accord.data.federated import FederatedData, Groups
from accord.errors import DataError
from accord.executors.sequential import one_thread
from accord.wire.codec import encode
from accord.wire.format import Spec, check_expected, spec_of
from accord.wire.records import shown

MOST = 2048  # samples a task is tried on
KEPT = 4096  # forms
Specs = Mapping[str, Mapping[str, Spec]]


class _Once:
    """A task that takes no step after its first."""

    def __init__(self, task: Task) -> None:
        self._task, self._steps = task, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def step(self, job: Job, carry: Carry, batch: Batch) -> Carry:
        self._steps += 1
        return self._task.step(job, carry, batch) if self._steps == 1 else carry


@dataclass(frozen=True)
class Form:
    """What an answer looks like. Tensors in `counted` hold a row for some of the client's samples."""

    specs: Specs
    counted: frozenset[tuple[str, str]]
    metrics: frozenset[str]

    def check(self, reply: Trees, samples: int) -> None:
        """DataError for an answer of another form."""
        given = spec_of(reply)
        wanted: dict[str, dict[str, Spec]] = {tree: dict(leaves) for tree, leaves in self.specs.items()}
        for tree, leaf in self.counted:
            shape = given.get(tree, {}).get(leaf, Spec(wanted[tree][leaf].dtype, ())).shape
            if shape and shape[0] <= samples:
                wanted[tree][leaf] = wanted[tree][leaf]._replace(shape=(shape[0], *wanted[tree][leaf].shape[1:]))
        check_expected(given, wanted)


class Expected:
    """Forms by task, found when a task is first asked for."""

    def __init__(self, tasks: Mapping[str, Task], data: FederatedData, facts: Facts, site: Site) -> None:
        self.tasks, self.data, self.facts, self.site = tasks, data, facts, site
        self._known: dict[tuple[str, str], Form] = {}

    def form(self, task: str, round: int, shared: Trees, private: Trees) -> Form:
        """Of the answers to this request."""
        key = task, hashlib.sha256(encode(private)).hexdigest()  # what one client is told may say how much to send
        if key not in self._known:
            if len(self._known) > KEPT:
                self._known.clear()
            self._known[key] = self._tried(task, round, shared, private)
        return self._known[key]

    def _tried(self, task: str, round: int, shared: Trees, private: Trees) -> Form:
        sizes = np.minimum(self.facts.sizes[self.facts.members], MOST)
        fewest, most = int(sizes.min()), int(sizes.max())
        one, metrics = self._answer(task, round, shared, private, fewest)
        other, _ = self._answer(task, round, shared, private, max(most, fewest + 1))
        counted = set()
        for tree, leaves in one.items():
            for leaf, spec in leaves.items():
                if other[tree][leaf] != spec:
                    if other[tree][leaf].shape[1:] != spec.shape[1:]:
                        raise DataError(f"task {task}: the shape of {shown(f'{tree}/{leaf}')} cannot be foreseen")
                    counted.add((tree, leaf))
        return Form(one, frozenset(counted), metrics)

    def _answer(
        self, task: str, round: int, shared: Trees, private: Trees, samples: int
    ) -> tuple[Specs, frozenset[str]]:
        pool = len(self.data.train_pool)
        rows = Groups.of([np.arange(samples) % pool])
        alone = replace(self.data, train=rows, validation=Groups.of([[]]), test=rows, names=(), unseen=frozenset())
        site = Site(alone, Key(0), self.site.device, with_test=True)
        request = Request(task, round, 0.0, shared, ())
        with one_thread():
            result = run_client(site, _Once(self.tasks[task]), request, Work(0, private, None))
        return spec_of(result.reply), frozenset(result.metrics)
