"""Which answers make an exchange, and what becomes of a round that nobody could take part in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.client import Answer, Draws, Request, Sums
from accord.core.keys import Key
from accord.core.types import Result
from accord.engine.exchange import EmptyRound, LocalExchange, Policy, collect
from accord.engine.federation import Federation
from accord.engine.store import ClientStore
from accord.errors import DivergedError, RunError
from accord.pace import Clock, Pace
from support.federation import TinyRun, equal_trees

GOOD = Result({"model": {}}, {}, {})
ASKED = [0, 1, 2, 3]


def answers(*failed: int, diverged: int = -1) -> list[Answer]:
    """In the order of arrival, which must not matter."""
    found = [Answer(k, None if k in failed else GOOD, "broken disk" if k in failed else "") for k in (2, 0, 3, 1)]
    return [Answer(a.client, None, "it diverged", fatal=True) if a.client == diverged else a for a in found]


def test_answers_are_ordered_by_client() -> None:
    good, missing = collect("train", 0, ASKED, answers(), Policy(), {})
    assert [a.client for a in good] == ASKED
    assert missing == {}


@pytest.mark.parametrize(
    ("failed", "tolerate", "fine"), [((1,), 0.0, False), ((1,), 0.25, True), ((1, 2), 0.25, False)]
)
def test_failures_beyond_the_tolerated_share_end_the_run(failed: tuple[int, ...], tolerate: float, fine: bool) -> None:
    policy = Policy(tolerate=tolerate)
    if fine:
        good, missing = collect("train", 0, ASKED, answers(*failed), policy, {})
        assert [a.client for a in good] == [0, 2, 3]
        assert missing == {1: "broken disk"}
        return
    with pytest.raises(RunError, match=rf"round 3: {len(failed)} of 4 clients failed in task 'train'") as caught:
        collect("train", 2, ASKED, answers(*failed), policy, {})
    assert "client 1: broken disk" in str(caught.value)
    with pytest.raises(RunError, match="client Lyon: broken disk"):
        collect("train", 2, ASKED, answers(*failed), policy, {}, lambda client: ["Aix", "Lyon", "Nice", "Pau"][client])


def test_drop_outs_are_no_failures() -> None:
    present = [a for a in answers() if a.client != 3]
    good, missing = collect("train", 0, ASKED, present, Policy(), {3: "dropped out"})
    assert [a.client for a in good] == [0, 1, 2]
    assert missing == {3: "dropped out"}


def test_a_diverged_client_ends_a_simulation_and_is_left_out_of_a_federation() -> None:
    with pytest.raises(DivergedError, match=r"^Lyon: it diverged"):
        collect("train", 0, ASKED, answers(diverged=1), Policy(), {}, lambda client: ["Aix", "Lyon"][client])
    with pytest.raises(DivergedError, match=r"^it diverged"):
        collect("train", 0, ASKED, answers(diverged=1), Policy(tolerate=1.0), {})
    good, missing = collect("train", 0, ASKED, answers(diverged=1), Policy(tolerate=0.25, diverged_ends=False), {})
    assert [a.client for a in good] == [0, 2, 3]
    assert missing == {1: "it diverged"}


def test_too_few_answers_make_no_round() -> None:
    present = [a for a in answers() if a.client < 2]
    away = dict.fromkeys((2, 3), "dropped out")
    with pytest.raises(EmptyRound, match=r"2 of 4 clients answered.*at least 3 are needed \(clients\.minimum\)"):
        collect("train", 0, ASKED, present, Policy(minimum=3), away)
    assert len(collect("train", 0, ASKED, present, Policy(minimum=2), away)[0]) == 2
    with pytest.raises(EmptyRound):
        collect("train", 0, ASKED, [], Policy(), dict.fromkeys(ASKED, "dropped out"))


def test_memory_is_versioned_by_round_and_exchange(tmp_path: Path) -> None:
    run = TinyRun("ditto", folder=tmp_path)
    exchange = run.exchange()
    for _ in range(2):
        exchange("train", [0, 1], run.algorithm.message(run.state))
    run.store.save()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0-1.1.safetensors", "1-1.1.safetensors"]


def test_a_round_nobody_takes_part_in_is_skipped_and_recorded(tmp_path: Path) -> None:
    sets = ["rounds=6", "clients.count=1", "clients.drop_rate=0.6", "partition.clients=4", f"out={tmp_path}"]
    outcome = accord.run(accord.load_config(sets=[*sets, "executor=sequential", "model.name=mlp", "data.limit=120"]))
    skipped = [record for record in outcome.metrics if "skipped" in record]
    assert 0 < len(skipped) < 6
    assert [record["round"] for record in outcome.metrics] == list(range(1, 7))
    for record in skipped:
        assert record["cohort"] == []
        assert record["loss"] is None
        assert list(record["missing"].values()) == ["dropped out (simulated)"]
        before = [r for r in outcome.metrics if r["round"] == record["round"] - 1]
        assert not before or record["accuracy"] == before[0]["accuracy"]


def test_the_server_keeps_its_state_in_a_skipped_round() -> None:
    run = TinyRun("fedavg")
    exchange = run.exchange()
    exchange.drop_rate = 1.0
    before = {name: {leaf: t.clone() for leaf, t in tree.items()} for name, tree in run.state.items()}
    with pytest.raises(EmptyRound):
        run.algorithm.round(run.state, run.world(), exchange)
    assert equal_trees(before, run.state)
    assert torch.is_tensor(run.state["model"]["head.weight"])
    assert sorted(exchange.missing) == [0, 1, 2, 3]


class Notes:
    """An executor that answers every client with 12 bytes, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def run(self, request: Request) -> list[Answer]:
        self.asked.append(request)
        reply = {"model": {"w": torch.zeros(3)}}
        return [Answer(work.client, Result(reply, {}, {})) for work in request.works]

    def close(self) -> None:
        """Nothing to give back."""


def noting(tmp_path: Path, round: int = 0, clock: Clock | None = None, **options: Any) -> tuple[Notes, LocalExchange]:
    """Five clients with 10 to 14 samples."""
    notes = Notes()
    store = ClientStore(tmp_path, np.arange(10, 15), 1 << 20)
    return notes, LocalExchange(notes, store, Key(3), round, 0.25, clock=clock, **options)


def paced(*seconds: float, **pace: Any) -> Clock:
    """A clock of clients who take so long for their one step."""
    zeros, everybody = np.zeros(len(seconds)), np.ones(len(seconds), dtype=np.bool_)
    mbit = pace.pop("mbit", zeros)
    return Clock(Key(3), Pace(np.array(seconds), mbit, zeros, lambda *_: everybody, lambda *_: 1, **pace))


MESSAGE = {"model": {"w": torch.zeros(10)}}  # 40 bytes


def test_a_request_holds_what_clients_need_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    sums = Sums({"model": "examples"}, 2)
    notes, exchange = noting(tmp_path, 7, sums=sums)
    own = {"note": {"n": torch.zeros(2)}}  # 8 bytes
    replies = exchange("train", [4, 1, 2], MESSAGE, {2: own, 3: own})
    exchange("ask", [0], MESSAGE)
    first, second = notes.asked
    assert (first.task, first.round, first.lr, first.shared) == ("train", 7, 0.25, MESSAGE)
    assert [(work.client, work.private) for work in first.works] == [(1, {}), (2, own), (4, {})]
    assert (first.sums, second.sums) == (sums, None), "only what is trained is averaged elsewhere"
    assert (replies.ids, replies.examples.tolist()) == ((1, 2, 4), [11, 12, 14])
    assert (exchange.bytes_down, exchange.bytes_up) == (4 * 40 + 8, 4 * 12)
    assert exchange.seconds is None, "no time is simulated"


def test_clients_that_drop_out_are_not_sent_anything(tmp_path: Path) -> None:
    notes, exchange = noting(tmp_path, drop_rate=0.5)
    gone = [client for client in range(5) if Key(3).at("drop.train", 0, client).random() < 0.5]
    assert 0 < len(gone) < 5
    replies = exchange("train", [4, 3, 2, 1, 0], MESSAGE)
    assert list(replies.ids) == [work.client for work in notes.asked[0].works] == sorted({*range(5)} - {*gone})
    assert exchange.bytes_down == 40 * len(replies)
    assert exchange.missing == dict.fromkeys(gone, "dropped out (simulated)")


def test_every_task_has_drop_outs_of_its_own_and_all_of_a_round_are_missing(tmp_path: Path) -> None:
    _, exchange = noting(tmp_path, 2, drop_rate=0.5)
    gone: dict[str, set[int]] = {}
    for task in ("train", "ask"):
        gone[task] = {client for client in range(5) if Key(3).at(f"drop.{task}", 2, client).random() < 0.5}
        replies = exchange(task, range(5), MESSAGE)
        assert set(replies.ids) == {*range(5)} - gone[task]
        assert set(replies.missing) == gone[task]
    assert gone["train"] != gone["ask"]
    assert set(exchange.missing) == gone["train"] | gone["ask"]


def test_who_failed_is_missing_in_a_round_that_is_skipped(tmp_path: Path) -> None:
    """Two must answer; one drops out, one fails, which is tolerated: nothing is kept, and both are told."""

    class Broken(Notes):
        def run(self, request: Request) -> list[Answer]:
            return [Answer(a.client, None, "broken disk") if a.client == 1 else a for a in super().run(request)]

    _, exchange = noting(tmp_path, policy=Policy(minimum=2, tolerate=0.5))
    exchange.executor = Broken()
    exchange._drops = lambda task, client: client == 2  # type: ignore[method-assign]
    with pytest.raises(EmptyRound):
        exchange("train", [0, 1, 2], MESSAGE)
    assert exchange.missing == {1: "broken disk", 2: "dropped out (simulated)"}
    assert (exchange.bytes_down, exchange.bytes_up) == (80, 0)


class Doubling:
    """Filters that send half of an answer and give it back whole; what they were asked is noted."""

    central = False

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def outgoing(self, task: str, request: Request, work: Any, result: Result, draws: Draws) -> Result:
        self.heard.append((task, request.round, work.client, draws))
        return result._replace(reply={"model": {"w": torch.zeros(1)}}, memory={"gap": {"g": torch.ones(1)}})

    def incoming(self, task: str, shared: Any, reply: Any) -> Any:
        return {"model": {"w": torch.full((3,), 7.0)}}

    def together(self, task: str, shared: Any, replies: Any, key: Key, round: int) -> Any:
        self.heard.append((task, shared, replies.ids, key, round))
        return replies


def test_answers_pass_the_filters_with_draws_of_their_own_clients(tmp_path: Path) -> None:
    """Counted are the four bytes that lay on the wire; the server has what was made of them, and clients their gaps."""
    filters: Any = Doubling()
    _, exchange = noting(tmp_path, 5, filters=filters)
    replies = exchange("train", [2, 1], MESSAGE)
    mine = [("train", 5, client, Draws(Key(3).client(client), "train", 5)) for client in (1, 2)]
    assert filters.heard == [*mine, ("train", MESSAGE, (1, 2), Key(3), 5)]
    assert [result.reply["model"]["w"].tolist() for result in replies.results] == [[7.0] * 3] * 2
    assert exchange.bytes_up == 2 * 4
    assert exchange.carried[1]["model"]["w"].tolist() == [0.0]
    assert [set(exchange.store.get(client) or {}) for client in (1, 2)] == [{"gap"}, {"gap"}]


def test_a_share_is_not_missed_by_rounding() -> None:
    """0.29 * 100 is a little less than 29 as computers have it."""
    failed = [Answer(k, None, "no") for k in range(29)]
    good = [Answer(k, GOOD) for k in range(29, 100)]
    assert len(collect("train", 0, range(100), [*failed, *good], Policy(tolerate=0.29), {})[0]) == 71
    with pytest.raises(RunError, match="30 of 100 clients failed"):
        collect("train", 0, range(100), [*failed, Answer(29, None, "no"), *good[1:]], Policy(tolerate=0.29), {})
    away = dict.fromkeys(range(4, 100), "away")
    assert len(collect("train", 0, range(100), [*failed[:3], good[0]], Policy(tolerate=0.03), away)[0]) == 1


@pytest.mark.parametrize(
    ("cohort", "clients", "taken", "now"),
    [
        ((2, 3), [0, 1, 2], (0, 1), 2.0),  # three are asked so that two come early
        ((2, 3), [0, 1], (0, 1), 2.0),
        ((2, 4), [0, 2, 3], (0, 2), 3.0),
        ((2, 3), [0, 1, 2, 3], (0, 1, 2, 3), 4.0),  # more than ever are asked: a question to everybody
        ((3, 3), [0, 1, 2], (0, 1, 2), 3.0),
        ((0, 0), [1], (1,), 2.0),
    ],
)
def test_the_first_of_those_asked_beyond_a_cohort_make_the_round(
    cohort: tuple[int, int], clients: list[int], taken: tuple[int, ...], now: float, tmp_path: Path
) -> None:
    clock = paced(1.0, 2.0, 3.0, 4.0)
    _, exchange = noting(tmp_path, clock=clock, cohort=cohort)
    assert exchange("train", clients, MESSAGE).ids == taken
    assert exchange.seconds == clock.now == now
    assert exchange.bytes_down == 40 * len(clients), "all of them were sent the message"
    assert set(exchange.missing) == set(clients) - set(taken)


def test_the_time_of_messages_is_that_of_all_their_bytes(tmp_path: Path) -> None:
    """A step of 1 s, and 50 bytes a second: 40 bytes down, 12 up, and for one of them 48 more."""
    clock = paced(1.0, 1.0, mbit=np.full(2, 50 * 8 / 1e6))
    notes, exchange = noting(tmp_path, clock=clock)
    own = {"note": {"n": torch.zeros(12)}}
    exchange("train", [1, 0], MESSAGE, {1: own})
    assert clock.now == pytest.approx(1 + (40 + 48 + 12) / 50)
    assert clock.answers == {"train": 12}
    assert [[work.client for work in asked.works] for asked in notes.asked] == [[0], [0, 1]], "one has tried it before"
    exchange("train", [0], MESSAGE)
    assert len(notes.asked) == 3, "once in a run"
    assert clock.now == pytest.approx(1 + 100 / 50 + 1 + 52 / 50)
    _, other = noting(tmp_path, clock=paced(1.0, mbit=np.ones(1)), drop_rate=1.0)
    with pytest.raises(EmptyRound):
        other("train", [0], MESSAGE)
    unweighed = paced(1.0)
    notes, exchange = noting(tmp_path, clock=unweighed)
    exchange("train", [0], MESSAGE)
    assert (len(notes.asked), unweighed.answers) == (1, {})


def test_a_method_prepares_in_round_zero() -> None:
    federation = TinyRun("fedavg").federation
    heard: list[tuple[str, int]] = []
    algorithm: Any = SimpleNamespace(
        init=lambda world: (heard.append(("init", world.round)), {})[1],
        start=lambda state, world, exchange: (heard.append(("start", world.round)), exchange)[1],
    )
    other: Any = SimpleNamespace(world=federation.world, algorithm=algorithm, device=torch.device("cpu"))
    assert Federation.first_state(other, "the door") == "the door"  # type: ignore[arg-type, comparison-overlap]
    assert heard == [("init", 0), ("start", 0)]
