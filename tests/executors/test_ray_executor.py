"""The executor over Ray and its session, with a Ray that is pretended: what is asked of it, and what it is told."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Answer, Request, Sums, Work
from accord.core.types import Result, Share
from accord.errors import ConfigError, RunError
from accord.executors.ray import OnRay, executor, session
from accord.executors.ray.crew import Crew
from accord.executors.ray.parcel import packed
from accord.executors.ray.partial import block_means
from accord.executors.ray.trainer import Delivery, Surroundings
from accord.executors.sequential import Sequential
from support.federation import SIZES, TinyRun, equal_trees, same
from support.on_ray import summed
from support.pretended_ray import PretendedRay, RayError

NICENESS = "RAY_worker_niceness"


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedRay]:
    """Two cores, in a session that begins and ends with the test."""
    pretended = PretendedRay(CPU=2.0)
    monkeypatch.setitem(sys.modules, "ray", pretended)
    monkeypatch.setattr(session, "_SESSION", session._Session())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield pretended
    if session._SESSION.folder is not None:
        session._SESSION.folder.rmdir()


def on_ray(run: TinyRun, workers: int = 2, **more: Any) -> OnRay:
    return OnRay(run.federation.site(), run.algorithm.tasks, workers, **more)


def request(run: TinyRun, *clients: int) -> Request:
    return Request("train", 0, 0.1, run.algorithm.message(run.state), [Work(client, {}, None) for client in clients])


def test_the_bits_of_sequential_from_so_many_actors(ray: PretendedRay) -> None:
    seen: list[tuple[int, int]] = []
    made = lambda site, tasks: OnRay(site, tasks, 2, lambda *how: seen.append(how))  # noqa: E731
    assert same(TinyRun("scaffold", executor=made).rounds(2), TinyRun("scaffold").rounds(2))
    assert len(ray.made) == 2
    assert [name for _, name in ray.calls[:2]] == ["settle", "settle"]
    assert {number for number, name in ray.calls if name == "run"} == {0, 1}
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)] * 2
    assert all(timeout == (executor.PATIENCE if count == 1 else 0) for _, count, timeout in ray.waits[:1])
    assert executor.PATIENCE == 300.0


def test_what_came_together_is_taken_together(ray: PretendedRay) -> None:
    """Three answers that are there are asked for in two calls: the first, and then whatever else there is."""
    run = TinyRun("fedavg")
    on_ray(run, workers=3).run(request(run, 0, 1, 2, 3))
    assert ray.waits[:2] == [(3, 1, 300.0), (2, 2, 0)]


def test_actors_are_as_many_as_cores_but_no_more_than_clients(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    for cores, count in ((2.0, 2), (3.7, 3), (64.0, 4)):
        ray.resources = {"CPU": cores}
        house = on_ray(run, workers=0)
        house.run(request(run, 0))
        assert house.crew is not None
        assert len(house.crew.members) == count
        house.crew.close()
        house.crew = None
    ray.resources = {}
    with pytest.raises(RunError, match=r"no actor could be started: each needs a CPU .* which has 0 CPU and 0 GPU"):
        on_ray(run, workers=2).run(request(run, 0))


def test_a_session_is_asked_for_room_for_data_and_messages(ray: PretendedRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """42 samples of 64 numbers and labels, twice; a message of 512 bytes and at most 128 for a client.

    Twice what is on its way both ways (4), for two pieces (AHEAD) of three actors and one more.
    """
    asked: list[tuple[int, int]] = []
    join = session.join
    monkeypatch.setattr(session, "join", lambda *given: (asked.append(given), join(*given)))
    run = TinyRun("fedavg")
    works = [
        Work(0, {"a": {"x": torch.zeros(16)}}, None),
        Work(1, {"a": {"x": torch.zeros(1)}}, {"b": {"y": torch.ones(3)}}),
    ]
    shared = {"model": {"w": torch.zeros(100), "v": torch.zeros(10)}}  # 400 bytes in 448, 40 in 64
    monkeypatch.setattr(OnRay, "_needs", lambda self: {})
    house = on_ray(run, workers=3)
    house._manned(Request("train", 0, 0.1, shared, works))
    pool = 42 * (64 * 4 + 8)
    assert asked == [(3, 2 * 2 * pool + 4 * 2 * 4 * (512 + 128))]
    monkeypatch.setattr(executor, "cores", lambda: 5)
    other = on_ray(run, workers=0)
    other._manned(Request("train", 0, 0.1, {}, works[:1]))
    assert asked[1] == (5, 2 * 2 * pool + 4 * 2 * 6 * 64)
    assert house._manned(request(run, 0)) is house.crew


def test_what_an_actor_needs(ray: PretendedRay, monkeypatch: pytest.MonkeyPatch) -> None:
    house = on_ray(TinyRun("fedavg"))
    assert (house._kind(), house._needs()) == ("CPU", {"num_cpus": 1})
    monkeypatch.setattr(session, "is_ours_alone", lambda: True)
    assert house._needs() == {"num_cpus": 0}
    assert "set another executor" in house._no_room()
    object.__setattr__(house.site, "device", torch.device("cuda"))
    assert (house._kind(), house._needs()) == ("GPU", {"num_gpus": 1, "num_cpus": 0})
    ray.resources = {"CPU": 16.0, "GPU": 2.0}
    assert "each needs a GPU of the Ray cluster, which has 16 CPU and 2 GPU in all" in house._no_room()
    assert "set device to cpu" in house._no_room()
    Crew({"num_cpus": 1})._kind.remote()
    assert ray.made == [{"scheduling_strategy": "SPREAD", "max_restarts": 0, "max_task_retries": 0, "num_cpus": 1}]


def test_a_lost_actor_is_replaced_and_its_clients_run_again(ray: PretendedRay) -> None:
    lost: list[int] = []

    def trouble(actor: Any, name: str, arguments: list[Any]) -> Exception | None:
        if name == "run" and any(work.client == 2 for work, _ in arguments[2]) and len(lost) < 2:
            lost.append(actor.number)
            return RayError("it died")
        return None

    ray.trouble = trouble  # type: ignore[method-assign]
    run = TinyRun("fedavg")
    house = on_ray(run)
    found = {answer.client: answer for answer in house.run(request(run, 0, 1, 2, 3))}
    expected = Sequential(house.site, house.tasks).run(request(run, 0, 1, 2, 3))
    for answer in expected:
        assert answer.result is not None
        assert found[answer.client].result is not None
        assert equal_trees(found[answer.client].result.reply, answer.result.reply)  # type: ignore[union-attr]
    assert ray.killed == lost
    assert len(ray.made) == 4, "two, and one for each that was lost"
    ray.trouble = lambda actor, name, arguments: (  # type: ignore[method-assign]
        RayError("it dies") if name == "run" and any(work.client == 2 for work, _ in arguments[2]) else None
    )
    answers = {answer.client: answer for answer in house.run(request(run, 1, 2))}
    assert answers[1].result is not None
    assert answers[2].error == "its actor was lost 3 times: it dies"


def test_an_actor_that_is_lost_with_two_pieces_is_replaced_once(ray: PretendedRay) -> None:
    """It had its next piece already, and both are found lost together."""
    ray.trouble = lambda actor, name, arguments: (  # type: ignore[method-assign]
        RayError("it died") if name == "run" and actor.number == 0 else None
    )
    run = TinyRun("fedavg")
    found = on_ray(run, workers=1).run(request(run, 0, 1, 2, 3))
    assert sorted(answer.client for answer in found if answer.result is not None) == [0, 1, 2, 3]
    assert (ray.killed, len(ray.made)) == ([0], 2)


def test_means_that_come_are_of_those_who_answered(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    mean = {"w": torch.tensor([1.5])}
    there = packed({"reply:other": {"v": torch.ones(1)}, "metrics": {}})
    told = Delivery([(Answer(4, None), there), (Answer(7, None, "why"), None)], [], (4,), packed({"model": mean}))
    answered, failed = on_ray(run)._answers(replace(request(run, 0), sums=Sums({"model": "examples"}, 2)), told)
    assert failed == Answer(7, None, "why")
    assert answered.result is not None
    share: Any = answered.result.reply["model"]
    assert (share.block.clients, share.block.weight) == ((4,), "examples")
    assert share.block.mean["w"].tolist() == [1.5]
    assert answered.result.reply["other"]["v"].tolist() == [1.0]


def test_means_of_a_block_by_hand() -> None:
    """Two samples at 5 and six at 1: 2 by examples, 3 by clients; whoever came first, in the order of their numbers."""
    sizes = np.array([0, 6, 9, 2])

    def answer(client: int, value: float) -> Answer:
        return Answer(client, Result({"model": {"w": torch.tensor([value])}}, {}, {}))

    answers = [answer(3, 5.0), Answer(2, None, "why"), answer(1, 1.0)]
    for weight, mean in (("examples", 2.0), ("uniform", 3.0)):
        share = block_means(answers, Sums({"model": weight}, 3), sizes)["model"]
        assert (share.block.clients, share.block.weight) == ((1, 3), weight)
        assert share.block.mean["w"].item() == pytest.approx(mean)
    assert block_means(answers[1:2], Sums({"model": "examples"}, 3), sizes) == {}


def test_work_that_cannot_be_done_ends_the_run(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    house = on_ray(run, workers=1)
    ray.trouble = lambda actor, name, arguments: ray.exceptions.RayTaskError("no module") if name == "run" else None  # type: ignore[method-assign]
    with pytest.raises(RunError, match="an actor of Ray cannot do its work: no module"):
        house.run(request(run, 0))
    never = RayError("no such file")
    never.actor_init_failed = True  # type: ignore[attr-defined]
    ray.trouble = lambda actor, name, arguments: never if name == "settle" else None  # type: ignore[method-assign]
    with pytest.raises(RunError, match="cannot do its work: no such file"):
        on_ray(run, workers=1).run(request(run, 0))


def test_where_no_actor_comes_the_run_ends(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    ray.silent = True
    with pytest.raises(RunError, match="no actor could be started: each needs a CPU"):
        on_ray(run).run(request(run, 0))
    assert ray.waits == [(2, 1, 300.0), (2, 2, 0)]


def test_means_of_blocks_are_those_of_their_clients(ray: PretendedRay) -> None:
    """Three clients of a block, and one by itself; where an actor was lost with a block, its mean is made here."""
    states = []
    for lives in (0, 1):
        left = [lives]

        def trouble(actor: Any, name: str, arguments: list[Any], left: list[int] = left) -> Exception | None:
            if name == "run" and len(arguments[2]) == 3 and left[0]:
                left[0] -= 1
                return RayError("it died")
            return None

        ray.trouble = trouble  # type: ignore[method-assign]
        run = summed(TinyRun("fedavg", executor=lambda site, tasks: OnRay(site, tasks, 2)))
        states.append(run.rounds(1).state)
    assert equal_trees(states[0], states[1])
    plain = TinyRun("fedavg").rounds(1).state
    for name, tensor in plain["model"].items():
        torch.testing.assert_close(states[0]["model"][name], tensor, rtol=1e-4, atol=1e-6)


def test_of_a_block_that_lost_a_client_the_mean_is_of_the_others(ray: PretendedRay) -> None:
    """Whoever has client 2 dies; the two others of its block are then tried by themselves, and send all they have."""
    ray.trouble = lambda actor, name, arguments: (  # type: ignore[method-assign]
        RayError("it dies") if name == "run" and any(work.client == 2 for work, _ in arguments[2]) else None
    )
    run = TinyRun("fedavg")
    house, asked = on_ray(run), request(run, 0, 1, 2, 3)
    found = {answer.client: answer for answer in house.run(replace(asked, sums=Sums({"model": "examples"}, 3)))}
    alone = {answer.client: answer.result for answer in Sequential(house.site, house.tasks).run(asked)}
    assert found[2].error == "its actor was lost 3 times: it dies"
    shares = {client: found[client].result.reply["model"] for client in (0, 1, 3)}  # type: ignore[union-attr]
    assert all(isinstance(share, Share) for share in shares.values())
    assert [shares[client].block.clients for client in (0, 1, 3)] == [(0, 1), (0, 1), (3,)]  # type: ignore[attr-defined]
    for name, mean in shares[0].block.mean.items():  # type: ignore[attr-defined]
        first, second = (alone[client].reply["model"][name].double() for client in (0, 1))  # type: ignore[union-attr]
        expected = (SIZES[0] * first + SIZES[1] * second) / (SIZES[0] + SIZES[1])
        torch.testing.assert_close(mean.double(), expected, rtol=1e-5, atol=1e-6)


def test_what_actors_warn_of_is_said_once(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    house = on_ray(run)
    for told, said in ((["hot", "cold", "hot"], ["hot", "cold"]), (["cold", "wet"], ["wet"])):
        with pytest.warns(RuntimeWarning) as caught:
            house._answers(request(run, 0), Delivery([], told))
        assert [str(one.message) for one in caught] == said


def test_actors_without_work_are_parked_for_the_next_run(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    with session.joined(2):
        first, second = on_ray(run), on_ray(run, workers=3)
        first.run(request(run, 0))
        crew = first.crew
        assert session._SESSION.users == 2
        first.close()
        first.close()
        assert (session._SESSION.users, session._SESSION.parked, first.crew) == (1, {"CPU": crew}, None)
        second.run(request(run, 0))
        assert second.crew is crew
        assert session._SESSION.parked == {}
        assert len(ray.made) == 3, "one more than there were"
        third = on_ray(run, workers=1)
        third.run(request(run, 0))
        second.close()
        assert ray.killed == []
        third.close()
        assert ray.killed == [3], "a second crew of one kind is not kept"
        fourth = on_ray(run, workers=1)
        fourth.run(request(run, 0))
        assert ray.killed == [3, 1, 2], "fewer are wanted"
        assert fourth.crew is not None
        fourth.crew.members[0].pieces.append("owed")
        fourth.close()
        assert ray.killed == [3, 1, 2, 0], "who still owes an answer is of no use to others"
        assert session._SESSION.users == 1
    assert session._SESSION.users == 0


def test_parked_actors_end_with_the_last_who_leaves(ray: PretendedRay) -> None:
    run = TinyRun("fedavg")
    house = on_ray(run)
    with session.joined(2):
        house.run(request(run, 0))
        house.close()
        assert (ray.killed, list(session._SESSION.parked)) == ([], ["CPU"])
    assert (ray.killed, session._SESSION.parked) == ([0, 1], {})


def test_versions_of_actors_must_be_ours(ray: PretendedRay) -> None:
    crew = Crew({})
    crew.settle(1, *(lambda run: (run.federation.site(), run.algorithm.tasks))(TinyRun("fedavg")))
    member = crew.members[0]
    assert not member.in_service
    here = Surroundings.here()
    for name in here.versions:
        with pytest.raises(RunError, match=rf"far has {name} 0\.1, and this machine"):
            crew.greet(member, Surroundings("far", 1, {**here.versions, name: "0.1"}))
        assert not member.in_service
    crew.greet(member, Surroundings("far", 1, here.versions))
    assert member.in_service
    before = member.ready
    crew.settle(1, *(lambda run: (run.federation.site(), run.algorithm.tasks))(TinyRun("fedavg")))
    assert crew.members == [member]
    assert not member.in_service, "with other clients it has to say again that it can work"
    assert member.ready is not before


def test_a_ray_of_our_own_begins_with_the_first_and_ends_with_the_last(
    ray: PretendedRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "cores", lambda: 3)
    monkeypatch.setattr(session.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(session, "LONGEST_FOLDER", len(str(tmp_path)) + 1)
    log = logging.getLogger("ray")
    monkeypatch.setattr(log, "level", logging.WARNING)
    seen: dict[str, Any] = {}
    begin = ray.init

    def init(**options: Any) -> None:
        seen.update(level=log.level, path=os.environ["PYTHONPATH"], nice=os.environ[NICENESS])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.environ["RAY_OF_ITS_OWN"] = "1"
        begin(**options)

    monkeypatch.setattr(ray, "init", init)
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    session.join(5, 1 << 30)
    assert dict(os.environ) == environment
    assert signal.getsignal(signal.SIGTERM) == handler
    folder = session._SESSION.folder
    assert folder is not None
    assert (folder.parent, folder.is_dir(), session.is_ours_alone()) == (tmp_path, True, True)
    assert ray.begun == [
        {
            **{"address": "local", "log_to_driver": False, "configure_logging": False, "include_dashboard": False},
            **{"num_cpus": 5, "num_gpus": torch.cuda.device_count(), "object_store_memory": 1 << 30},
            "_temp_dir": str(folder / "ray"),
        }
    ]
    assert (seen["level"], seen["nice"]) == (logging.ERROR, "0")
    places = seen["path"].split(os.pathsep)
    assert str(Path(session.__file__).parents[3]) in places
    assert not any(Path(place).is_relative_to(sys.prefix) for place in places)
    session.join(9)
    assert len(ray.begun) == 1
    session.leave()
    assert (ray.ended, folder.is_dir(), log.level) == (0, True, logging.ERROR)
    session.leave()
    assert (ray.ended, folder.exists(), log.level) == (1, False, logging.WARNING)
    assert not session.is_ours_alone()
    with session.joined(1, 1):
        assert (ray.begun[1]["num_cpus"], ray.begun[1]["object_store_memory"]) == (3, 256 << 20)
    monkeypatch.setattr(session, "LONGEST_FOLDER", len(str(tmp_path)))
    with session.joined():
        assert session._SESSION.folder is not None
        assert session._SESSION.folder.parent == Path("/tmp")


def test_a_cluster_is_joined_and_left_and_a_session_of_the_users_is_only_used(
    ray: PretendedRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with session.joined(5):
        assert ray.begun == [{"address": "10.0.0.1:6379", "log_to_driver": False, "configure_logging": False}]
        assert not session.is_ours_alone()
    assert ray.ended == 1
    ray.running = True
    with session.joined(5):
        pass
    assert (len(ray.begun), ray.ended, ray.running) == (1, 1, True)
    ray.running = False
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ConfigError, match="start the run on a machine of the cluster"):
        session.join()


def test_a_ray_that_does_not_start_leaves_nothing(
    ray: PretendedRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(**options: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(session.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(session, "LONGEST_FOLDER", 1000)
    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(RunError, match="cannot start Ray on this machine: no room"):
        session.join()
    assert list(tmp_path.iterdir()) == []
    assert (session._SESSION.users, session._SESSION.folder, session._SESSION.ours) == (0, None, False)
    monkeypatch.setattr(session, "resources", lambda: {})
    monkeypatch.setattr(ray, "init", lambda **options: None)
    run = TinyRun("fedavg")
    with pytest.raises(RunError, match="no actor could be started"):
        on_ray(run).run(request(run, 0))
    assert session._SESSION.users == 0, "whoever cannot work does not stay"
