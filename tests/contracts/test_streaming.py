"""Every way to take answers as they come keeps the protocol: the simulation with and without a pace, any exchange."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from accord.config.tree import PaceConfig
from accord.core.streaming import InOrder, joined, only, streaming
from accord.core.types import Streaming
from accord.executors.gpu.batched import Batched
from accord.executors.processes import Processes
from accord.executors.sequential import Sequential
from support.federation import TinyRun, equal_trees
from support.streaming import check_streaming

PACES = [None, PaceConfig(step=0.1, speed="lognormal", mbit=0.5, network="pareto")]


def simulated(run: TinyRun) -> Streaming:
    return run.exchange()


def plain(run: TinyRun) -> Streaming:
    exchange = run.exchange()
    found = streaming(lambda *given: exchange(*given))
    assert isinstance(found, InOrder)
    return found


@pytest.mark.parametrize("pace", PACES, ids=["", "pace"])
@pytest.mark.parametrize("make", [simulated, plain])
def test_the_protocol_is_kept(make: Any, pace: PaceConfig | None) -> None:
    check_streaming(make, pace=pace)


def test_an_exchange_that_streams_is_taken_as_it_is() -> None:
    exchange = TinyRun("fedavg").exchange()
    assert isinstance(exchange, Streaming)
    assert streaming(exchange) is exchange


@pytest.mark.parametrize("name", ["fedbuff", "scaffold", "ditto"])
@pytest.mark.parametrize("executor", [Sequential, partial(Processes, workers=2), Batched])
def test_work_under_way_outlives_a_stop(name: str, executor: Any) -> None:
    """Two of four have answered, one of the others with a message of its own; a new exchange of the next round, made
    from what was kept, gives the answers the old one would have given."""

    def after(stopped: bool) -> Any:
        run = TinyRun(name, executor=executor, pace=PACES[1])
        private = {3: {"note": {"number": next(iter(run.state["model"].values())) * 2}}}
        stream = run.exchange()
        stream.begin("train", [0, 1, 2, 3], run.algorithm.message(run.state), private, version=5)
        stream.arrivals(2)
        if stopped:
            other = TinyRun(name, executor=executor, pace=PACES[1])
            other.store.restore({})
            for client in run.store.clients():
                other.store.put(client, (1, 0), run.store.get(client) or {})
            other.state = run.state
            run.close()
            run = other
        run.round = 1
        replies = run.exchange().arrivals(2)
        run.close()
        return replies, run.clock.now

    (whole, now), (resumed, then) = after(False), after(True)
    assert whole.ids == resumed.ids
    assert now == then > 0
    assert [began.version for began in resumed.began] == [5, 5]
    assert all(equal_trees(a.reply, b.reply) for a, b in zip(whole.results, resumed.results, strict=True))
    assert all(equal_trees(a.memory, b.memory) for a, b in zip(whole.results, resumed.results, strict=True))


def test_arrivals_are_put_together_and_chosen_from() -> None:
    run = TinyRun("fedavg")
    stream = run.exchange()
    stream.begin("train", [3, 1, 0, 2], run.algorithm.message(run.state), slots=2)
    pieces = [stream.arrivals(1) for _ in range(4)]
    whole = joined(pieces)
    assert whole.ids == (0, 1, 2, 3)
    assert whole.examples.tolist() == [6, 9, 12, 15]
    some = only(whole, [True, False, True, False])
    assert some.ids == (0, 2)
    assert some.examples.tolist() == [6, 12]
    assert len(some.began) == 2
    assert joined([]).ids == ()
