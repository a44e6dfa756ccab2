"""Buffered asynchronous aggregation on nodes: whoever is done first is first; a stopped server has the same buffers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from accord.core.algorithm import Method
from accord.flower.server import serve
from support.federation import equal_trees, tiny_data
from support.flower import fake_federation, header_of, newest, small_config

DATA = tiny_data()


def config(**more: Any) -> Any:
    method = {"name": "fedbuff", "concurrency": 3, "buffer": 2}
    return small_config("fedbuff", 4, rounds=6, algorithm=method, **more)


def slow(node: int, looks: int) -> Any:
    """A node whose trainings take as long as so many looks for answers."""
    seen: dict[str, int] = {}

    def meddle(at: int, asked: Message, said: Message) -> Message | None:
        if at != node or asked.metadata.message_type != "train.task" or header_of(asked)["task"] != "train":
            return said
        ticket = asked.metadata.message_id
        seen[ticket] = seen.get(ticket, 0) + 1
        return said if seen[ticket] > looks else None

    return meddle


def test_a_slow_node_holds_nobody_up_and_its_answer_counts_when_it_comes(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    grid.meddle = slow(102, 3)
    outcome = serve(grid, config(), tmp_path / "run")
    cohorts = [record["cohort"] for record in outcome.metrics]
    assert all(len(cohort) == 2 for cohort in cohorts)
    assert outcome.summary["left_out"] == {}
    began = [header_of(m)["round"] for node, m in grid.sent if node == 102 and header_of(m).get("task") == "train"]
    came = [number for number, cohort in enumerate(cohorts) if 2 in cohort]
    assert came, "it came"
    assert came[0] > began[0], "in a later round than it began"
    assert outcome.metrics[came[0]]["server"]["staleness"] > 0
    assert any(None in record["each_client"] for record in outcome.metrics[:-1]), "who is at work is not judged"
    assert None not in outcome.metrics[-1]["each_client"], "at the end everybody is"


def test_no_client_is_at_work_twice_and_no_more_than_there_are_places(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    working: set[int] = set()
    most: list[int] = []
    push, pull = grid.push_messages, grid.pull_messages

    def is_training(message: Message) -> bool:
        return message.metadata.message_type == "train.task" and header_of(message)["task"] == "train"

    def pushing(messages: Any) -> Any:
        given = list(messages)
        for message in filter(is_training, given):
            assert message.metadata.dst_node_id not in working
            working.add(message.metadata.dst_node_id)
        most.append(len(working))
        return push(given)

    def pulling(ids: Any) -> Any:
        found = list(pull(ids))
        for message in found:
            if message.metadata.message_type == "train.task" and header_of(message)["task"] == "train":
                working.discard(message.metadata.src_node_id)
        return found

    grid.push_messages, grid.pull_messages = pushing, pulling  # type: ignore[method-assign]
    grid.meddle = slow(101, 5)
    serve(grid, config(), tmp_path / "run")
    assert max(most) == 3


class Killed(BaseException):
    """The server's process ends here."""


@pytest.mark.parametrize("at", [1, 3, 5, 6])
def test_a_stopped_server_goes_on_with_the_same_buffers(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    grid.meddle = slow(102, 4)
    rounds: list[int] = []
    states: dict[int, Any] = {}
    fold = Method.fold

    def dying(self: Any, state: Any, world: Any, replies: Any) -> Any:
        new = fold(self, state, world, replies)
        known = states.setdefault(world.round, new)
        assert equal_trees(known, new), "a round that is made again is the same"
        rounds.append(world.round)
        if len(rounds) == at:
            raise Killed
        return new

    monkeypatch.setattr(Method, "fold", dying)
    with pytest.raises(Killed):
        serve(grid, config(), tmp_path / "run")
    grid.waiting.clear()
    outcome = serve(grid, config(), tmp_path / "run")
    assert [record["round"] for record in outcome.metrics] == list(range(1, 7))
    assert newest(tmp_path / "run").round == 6
    assert rounds.count(at - 1) == 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["left_out"] == {}
