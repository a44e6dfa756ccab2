"""Nodes that leave, come back, are late, answer twice or with nonsense: none of them ends a run or changes its bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message

from accord.flower import journal as journals
from accord.flower.envelopes import TYPES
from accord.flower.protocol import TASK
from accord.flower.server import serve
from accord.wire.codec import decode, encode
from support.federation import equal_trees, tiny_data
from support.flower import FakeGrid, enclosed, fake_federation, header_of, newest, small_config, with_reply

SIZES = (6, 9)  # two clients are enough where nobody is left out
Meddle = Callable[[int, Message, Message], Message | None]


def with_header(message: Message, **changes: Any) -> Message:
    message.content["accord"] = ConfigRecord({"header": json.dumps(header_of(message) | changes)})
    return message


def is_task(message: Message, task: str = "train", round: int | None = None) -> bool:
    if message.metadata.message_type != TYPES[TASK]:
        return False
    asked = header_of(message)
    return asked["task"] == task and round in (None, asked["round"])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The last state of scaffold with all four nodes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    serve(fake_federation(folder / "nodes", tiny_data()), small_config("scaffold", 4), folder / "run")
    return newest(folder / "run").state


def disturbed(folder: Path, meddle: Meddle, **more: Any) -> tuple[Any, FakeGrid, dict[str, Any]]:
    """The same with a node that misbehaves: its last state, the grid, the summary."""
    grid = fake_federation(folder / "nodes", tiny_data())
    grid.meddle = meddle
    outcome = serve(grid, small_config("scaffold", 4, **more), folder / "run")
    return newest(folder / "run").state, grid, outcome.summary


def once(wrong: Meddle, round: int = 1, node: int = 102) -> Meddle:
    """That wrong, of one node in one round, the first time."""
    done: list[bool] = []

    def meddle(at: int, asked: Message, said: Message) -> Message | None:
        if at == node and is_task(asked, round=round) and not done:
            done.append(True)
            return wrong(at, asked, said)
        return said

    return meddle


@pytest.mark.parametrize("code", [3, 4, 5, 8])
def test_a_message_that_was_lost_is_sent_again(code: int, tmp_path: Path, undisturbed: Any) -> None:
    lost = once(lambda node, asked, said: Message(Error(code, "gone"), reply_to=asked))
    state, grid, summary = disturbed(tmp_path, lost)
    assert equal_trees(state, undisturbed)
    asked = [node for node, message in grid.sent if node == 102 and is_task(message, round=1)]
    assert len(asked) == 2
    assert summary["left_out"] == {}


def test_a_node_that_comes_back_under_another_number_is_the_same_site(tmp_path: Path, undisturbed: Any) -> None:
    grid = fake_federation(tmp_path / "nodes", tiny_data())

    def killed(node: int, asked: Message, said: Message) -> Message | None:
        grid.nodes[777] = grid.nodes.pop(102)  # it worked, nobody heard of it, and it came back
        return None

    grid.meddle = once(killed)
    serve(grid, small_config("scaffold", 4), tmp_path / "run")
    assert equal_trees(newest(tmp_path / "run").state, undisturbed)
    assert 777 in {node for node, message in grid.sent if is_task(message, round=2)}


def test_a_second_answer_counts_for_nothing(tmp_path: Path, undisturbed: Any) -> None:
    grid = fake_federation(tmp_path / "nodes", tiny_data())
    pull = grid.pull_messages
    grid.pull_messages = lambda ids: [m for said in pull(ids) for m in (said, said)]  # type: ignore[method-assign]
    serve(grid, small_config("scaffold", 4), tmp_path / "run")
    assert equal_trees(newest(tmp_path / "run").state, undisturbed)


def test_an_answer_flower_cannot_put_together_is_dropped_alone(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", tiny_data())
    pull = grid.pull_messages

    def pulling(ids: Any) -> Any:
        wanted = list(ids)
        if any(grid.waiting[t][0] == 102 and is_task(grid.waiting[t][1], round=1) for t in wanted if t in grid.waiting):
            for ticket in wanted:  # gone for good: Flower forgets what was fetched
                if ticket in grid.waiting:
                    grid.waiting[ticket] = (-1, grid.waiting[ticket][1])
            raise ValueError("no such object")
        return pull(wanted)

    grid.pull_messages = pulling  # type: ignore[method-assign]
    outcome = serve(grid, small_config("scaffold", 4), tmp_path / "run")
    assert outcome.summary["left_out"]["site-2"]["times"] == 1
    assert "it cannot be read: ValueError('no such object')" in outcome.summary["left_out"]["site-2"]["why"]
    assert list(outcome.summary["left_out"]) == ["site-2"]


def test_pieces_of_an_answer_are_counted_while_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
    from flwr.superlink.grid import http_grid

    from accord.flower.bounds import BESIDE, LARGER, bound_pulls

    monkeypatch.setattr(http_grid, "pull_objects", http_grid.pull_objects)  # put back afterwards
    bound_pulls(1000)
    asked: list[str] = []

    def piece(name: str) -> bytes:
        asked.append(name)
        return bytes(BESIDE // 2)

    assert len(http_grid.pull_objects(["a", "b"], piece)) == 2
    asked.clear()
    with pytest.raises(ObjectPullError, match=LARGER):
        http_grid.pull_objects([str(n) for n in range(500)], piece)
    assert len(asked) < 50, "the rest is never asked for"
    bomb = Array("uint8", (4 * BESIDE,), "safetensors", bytes(4 * BESIDE))  # equal pieces travel once
    pieces = {name: one.deflate() for name, one in get_all_nested_objects(bomb).items()}
    assert sum(map(len, pieces.values())) < BESIDE
    with pytest.raises(ObjectPullError, match=LARGER):
        http_grid.pull_objects(list(pieces), pieces.__getitem__)
    bound_pulls(4 * BESIDE)
    assert http_grid.pull_objects(list(pieces), pieces.__getitem__) == pieces


def nan(node: int, asked: Message, said: Message) -> Message:
    trees = decode(enclosed(said, "reply"))
    next(iter(trees["model"].values())).view(-1)[0] = float("nan")
    return with_reply(said, encode(trees))


def other_shape(node: int, asked: Message, said: Message) -> Message:
    trees = decode(enclosed(said, "reply"))
    name = next(iter(trees["model"]))
    trees["model"][name] = torch.zeros(7, 7)
    return with_reply(said, encode(trees))


def other_names(node: int, asked: Message, said: Message) -> Message:
    trees = decode(enclosed(said, "reply"))
    return with_reply(said, encode({**trees, "more": {"x": torch.zeros(3)}}))


def other_numbers(node: int, asked: Message, said: Message) -> Message:
    trees = decode(enclosed(said, "reply"))
    return with_reply(said, encode({t: {n: v.double() for n, v in tree.items()} for t, tree in trees.items()}))


def huge(node: int, asked: Message, said: Message) -> Message:
    return with_reply(said, bytes(2 << 20))


def damaged(node: int, asked: Message, said: Message) -> Message:
    data = bytearray(enclosed(said, "reply"))
    data[-1] ^= 1
    return with_reply(said, bytes(data))


def metrics_of_its_own(node: int, asked: Message, said: Message) -> Message:
    data = encode({"metrics": {"loss": torch.tensor(float("inf"))}})
    said.content["metrics"] = ArrayRecord({"trees": Array("uint8", (len(data),), "safetensors", data)})
    return said


WRONG: dict[str, tuple[Meddle, str]] = {
    "nan": (nan, "infinite or no numbers"),
    "shape": (other_shape, "is not the one expected"),
    "names": (other_names, "the tree 'more' is not expected"),
    "numbers": (other_numbers, "torch.float64"),
    "huge": (huge, "more than the 1048576 allowed"),
    "damaged": (damaged, "checksum differs"),
    "metrics": (metrics_of_its_own, "no finite numbers"),
    "old round": (lambda n, a, s: with_header(s, version=[1, 0]), "the answer's version is [1, 0], not [2, 0]"),
    "other client": (lambda n, a, s: with_header(s, client=0), "the answer's client is 0, not 2"),
    "other run": (lambda n, a, s: with_header(s, run="0" * 32), "the answer's run is"),
    "other settings": (lambda n, a, s: with_header(s, hash="0" * 64), "the answer's hash is"),
    "other task": (lambda n, a, s: with_header(s, task="evaluate"), "the answer's task is 'evaluate'"),
    "more said": (lambda n, a, s: with_header(s, more=1), "unknown field 'more'"),
    "forged memory": (lambda n, a, s: with_header(s, memory=[[9, 0], "0" * 64]), "another version of its memory"),
    "an error": (lambda n, a, s: Message(Error(2, "it broke"), reply_to=a), "Flower's error 2: it broke"),
    "diverged": (lambda n, a, s: with_header(s, status="failed", why="training diverged", diverged=True), "diverged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_answer_is_dropped_with_its_reason(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, undisturbed: Any
) -> None:
    wrong, reason = WRONG[name]
    state, _, summary = disturbed(tmp_path, once(wrong), federation={"largest_message_mb": 1})
    assert reason in summary["left_out"]["site-2"]["why"]
    assert summary["left_out"]["site-2"]["times"] == 1
    assert summary["skipped_rounds"] == 0
    assert all(bool(torch.isfinite(t).all()) for tree in state.values() for t in tree.values())
    assert any("site 'site-2' (node 102) is dropped" in line for line in caplog.messages)
    assert not equal_trees(state, undisturbed), "three answers make another mean than four"


def test_the_deadline_leaves_out_who_has_not_answered(tmp_path: Path) -> None:
    def meddle(node: int, asked: Message, said: Message) -> Message | None:
        return None if node == 102 and is_task(asked, round=1) else said

    _, _, summary = disturbed(tmp_path, meddle, federation={"deadline": 0.3})
    assert summary["left_out"] == {"site-2": {"times": 1, "why": "did not answer in time"}}


def test_with_enough_answers_the_others_are_waited_for_as_long_as_patience_lasts(tmp_path: Path) -> None:
    def meddle(node: int, asked: Message, said: Message) -> Message | None:
        return None if node == 102 and is_task(asked) else said

    more = {"federation": {"deadline": 600.0, "patience": 0.0}, "clients": {"minimum": 3}}
    _, _, summary = disturbed(tmp_path, meddle, **more)
    assert summary["left_out"]["site-2"]["times"] == 3


def test_fewer_than_the_minimum_are_waited_for_beyond_the_deadline(tmp_path: Path, undisturbed: Any) -> None:
    looks = iter(range(1000))

    def slow(node: int, asked: Message, said: Message) -> Message | None:
        return None if node == 102 and is_task(asked, round=1) and next(looks) < 30 else said

    more = {"federation": {"deadline": 0.001, "patience": 0.0}, "clients": {"minimum": 4}}
    state, _, summary = disturbed(tmp_path, slow, **more)
    assert equal_trees(state, undisturbed)
    assert summary["left_out"] == {}


def test_a_node_that_lost_its_memory_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def forgetful(node: int, asked: Message, said: Message) -> Message:
        for path in (tmp_path / "nodes" / "site-2" / "memory").glob("*/memory/*"):
            path.unlink()
        return said

    _, _, summary = disturbed(tmp_path, once(forgetful, round=0))
    assert summary["left_out"] == {}
    assert "site 'site-2' lost its memory and began anew" in (tmp_path / "run" / "notes.txt").read_text()


@pytest.mark.parametrize("stays", [True, False])
def test_a_node_whose_folder_was_emptied_is_told_again(stays: bool, tmp_path: Path) -> None:
    import shutil

    from accord.flower import apps

    def wiped(node: int, asked: Message, said: Message) -> Message:
        shutil.rmtree(next(p for p in (tmp_path / "nodes" / "site-2" / "memory").iterdir() if p.is_dir()))
        if not stays:
            apps._SERVICES.clear()  # another process
        return said

    _, _, summary = disturbed(tmp_path, once(wiped, round=0))
    assert summary["left_out"] == {}


class Killed(BaseException):
    """The server's process ends here."""


@pytest.fixture(scope="module")
def consensus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of fedufo, whose rounds take three exchanges and an evaluation."""
    folder = tmp_path_factory.mktemp("consensus")
    serve(fake_federation(folder / "nodes", tiny_data(SIZES)), small_config("fedufo", 2, rounds=2), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("at", range(1, 8))
def test_a_server_killed_after_any_exchange_goes_on_to_the_same_bits(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consensus: Path
) -> None:
    config = small_config("fedufo", 2, rounds=2)
    grid = fake_federation(tmp_path / "nodes", tiny_data(SIZES))
    kept: list[int] = []
    keep = journals.Journal.keep

    def dying(self: Any, *given: Any) -> None:
        keep(self, *given)
        kept.append(1)
        if len(kept) == at:
            raise Killed

    monkeypatch.setattr(journals.Journal, "keep", dying)
    try:
        serve(grid, config, tmp_path / "run")
    except Killed:
        grid.waiting.clear()
        grid.sent.clear()
    monkeypatch.setattr(journals.Journal, "keep", keep)
    serve(grid, config, tmp_path / "run")
    here, there = newest(consensus), newest(tmp_path / "run")
    assert equal_trees(here.state, there.state)
    assert here.clients == there.clients, "the same versions, with the same bytes"
    assert (consensus / "metrics.jsonl").read_text() == (tmp_path / "run" / "metrics.jsonl").read_text()
    assert not list((tmp_path / "run" / "checkpoint" / "exchanges").glob("0*-round-*"))
    tasks = [header_of(message)["version"] for node, message in grid.sent if is_task(message) and node == 100]
    assert len(tasks) == len({tuple(version) for version in tasks}), "nothing that was answered is asked again"


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", tiny_data())
    config = small_config("fedavg", 4)
    first = serve(grid, config, tmp_path / "run").summary
    grid.sent.clear()
    assert serve(grid, config, tmp_path / "run").summary == first
    assert not any(is_task(message) for _, message in grid.sent)


def test_old_versions_are_removed_once_the_server_says_so(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", tiny_data())
    serve(grid, small_config("scaffold", 4, rounds=8), tmp_path / "run")
    kept = [path.name for path in (tmp_path / "nodes" / "site-0" / "memory").glob("*/memory/*")]
    assert sorted(kept) == ["6.0.safetensors", "7.0.safetensors", "8.0.safetensors"]
