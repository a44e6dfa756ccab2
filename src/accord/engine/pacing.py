"""From `[pace]` and a federation to the pace of its clients. What nobody could keep is refused here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from accord.config import RunConfig
from accord.core.keys import Key
from accord.core.task import Task
from accord.core.types import Facts
from accord.data.federated import FederatedData
from accord.errors import ConfigError
from accord.pace import DISTRIBUTIONS, PRESENCES, Pace
from accord.pace.pace import digest_of, drawn, measured
from accord.pace.presence import Terms
from accord.pace.traces import read_devices, read_intervals


def build_pace(
    config: RunConfig, data: FederatedData, facts: Facts, tasks: Mapping[str, Task], key: Key
) -> Pace | None:
    """None where no setting of it is set."""
    asked = config.pace
    if not asked.used:
        return None
    count = len(facts.sizes)
    names = [data.name_of(client) for client in range(count)]
    devices = read_devices(asked.devices, names) if asked.devices else None
    intervals = read_intervals(asked.intervals, names) if asked.intervals else None
    slowness = drawn(key, "speed", DISTRIBUTIONS[asked.speed], count, asked.spread)
    narrowness = drawn(key, "network", DISTRIBUTIONS[asked.network], count, asked.network_spread)

    def steps(task: str, client: int) -> int:
        return tasks[task].plan.count(int(facts.sizes[client])) if task in tasks else 0

    pace = Pace(
        step=measured(devices, "seconds_per_step", asked.step * slowness),
        mbit=measured(devices, "mbit", asked.mbit / narrowness),
        latency=measured(devices, "latency", np.full(count, asked.latency)),
        presence=PRESENCES[asked.presence](Terms(key, count, asked.share, asked.period, intervals)),
        steps=steps,
        deadline=asked.deadline,
        wait=asked.wait,
        digest=digest_of(devices.digest if devices else "", intervals.digest if intervals else ""),
    )
    _check_deadline(pace, facts)
    return pace


def _check_deadline(pace: Pace, facts: Facts) -> None:
    """Somebody must be able to keep it, even if sending took no time."""
    fastest = min(pace.seconds("train", client, 0, 0) for client in facts.members)
    if pace.deadline and fastest > pace.deadline:
        raise ConfigError(
            f"pace.deadline = {pace.deadline:g} s can never be met: the fastest client trains for {fastest:.4g} s; "
            "raise it, or lower pace.step, pace.latency or the local work"
        )
