"""Which answers make an exchange, and what becomes of a round that nobody could take part in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import accord
from accord.client import Answer
from accord.core.types import Result
from accord.engine.exchange import EmptyRound, Policy, collect
from accord.errors import DivergedError, RunError
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
