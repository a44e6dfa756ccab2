"""Clients judged on their own test samples, in every executor: those that have some, when the run asks for it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from accord.data.federated import Groups
from accord.executors.gpu.batched import Batched
from accord.executors.processes import Processes
from accord.executors.sequential import Sequential
from support.federation import TinyRun, tiny_data

EXECUTORS = [Sequential, partial(Processes, workers=1), Batched, partial(Batched, lanes=1)]
JUDGED = {"personal_before", "personal_correct", "personal_examples"}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_who_is_judged(executor: Any) -> None:
    held = [np.arange(5), np.arange(0), np.arange(1), np.arange(7)]
    data = replace(tiny_data(), test=Groups.of(held))
    for asked in (True, False):
        run = TinyRun("fedavg", data=data, executor=executor, with_test=asked)
        try:
            replies = run.rounds(2).replies
        finally:
            run.close()
        assert replies is not None
        for client, result in zip(replies.ids, replies.results, strict=True):
            expected = JUDGED if asked and len(held[client]) else set()
            assert JUDGED & result.metrics.keys() == expected
            if expected:
                assert float(result.metrics["personal_examples"]) == len(held[client])
                assert 0 <= float(result.metrics["personal_correct"]) <= len(held[client])
