"""Actors of Ray: the bits of `sequential`, failures that are their client's own, actors that die without a loss."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from accord.client import Work
from accord.core.tensors import num_bytes
from accord.errors import ConfigError, DivergedError, RunError
from accord.executors import choose
from accord.executors.ray import OnRay, session
from accord.executors.ray.crew import Crew
from accord.executors.ray.dealing import Pile
from accord.executors.ray.parcel import packed, taken_out, unpacked
from accord.executors.registry import NEVER
from accord.executors.sequential import Sequential
from accord.models import adapt
from executors.test_killed_workers import Deadly
from executors.test_processes import Trouble
from support.federation import TinyRun, equal_trees, same, suited, tiny_data
from support.on_ray import Complete, closing, over_ray, summed

pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    with session.joined(2):
        yield


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedufo", "fedbr", "apple", "ditto", "fedmeta"])
def test_the_bits_of_sequential(name: str) -> None:
    with closing(TinyRun(name, executor=partial(Complete, workers=2))) as run:
        assert same(run.rounds(2), TinyRun(name).rounds(2))
        assert isinstance(run.executor, OnRay)
        assert run.executor.crew is not None
        assert [member.in_service for member in run.executor.crew.members] == [True, True]


class Own(nn.Module):
    """A network as it would be written in a script or a notebook."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.fc = nn.Linear(64, 5), nn.Dropout(0.5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.fc(self.drop(self.body(x.flatten(1)).relu()))
        return made


def test_a_network_of_a_script_and_its_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Own, "__module__", "__main__")  # which no actor can import
    torch.manual_seed(3)
    model = suited(adapt(Own(), head="fc"))
    with closing(over_ray(model=model)) as run:
        assert same(run.rounds(2), over_ray(model=model, executor=Sequential).rounds(2))


def test_double_precision_is_the_actors_too(float64: None) -> None:
    with closing(over_ray()) as run:
        assert same(run.rounds(1), over_ray(executor=Sequential).rounds(1))
        assert all(tensor.dtype == torch.float64 for tensor in run.state["model"].values())


def test_an_exception_is_its_clients_failure_with_its_traceback() -> None:
    with closing(over_ray(Trouble("raise"), tolerate=0.25)) as run:
        run.rounds(2)
        assert run.replies is not None
        assert run.replies.ids == (0, 1, 3)
        assert "no such luck" in run.replies.missing[2]
        assert "Traceback" in run.replies.missing[2]
        assert same(run, over_ray(Trouble("raise"), tolerate=0.25, executor=Sequential).rounds(2))
    with closing(over_ray(Trouble("raise"))) as run, pytest.raises(RunError, match="1 of 4 clients failed"):
        run.rounds(1)


def test_diverged_training_ends_the_run() -> None:
    with (
        closing(over_ray(Trouble("diverge"))) as run,
        pytest.raises(DivergedError, match=r"round 1 on client 2: mean loss nan"),
    ):
        run.rounds(1)


def test_a_killed_actor_is_replaced_and_its_client_run_again(tmp_path: Path) -> None:
    with closing(over_ray(Deadly(tmp_path, 1, signal.SIGKILL, (2,), os.getpid()))) as run:
        run.rounds(1)
        assert run.replies is not None
        assert run.replies.missing == {}
        assert same(run, over_ray(executor=Sequential).rounds(1))
    assert [mark.name for mark in tmp_path.iterdir()] == ["2-0"]


def test_sums_of_blocks_do_not_depend_on_actors_or_their_ends(tmp_path: Path) -> None:
    states = []
    for workers, part in ((1, Deadly(tmp_path, 0)), (2, Deadly(tmp_path, 0)), (2, Deadly(tmp_path, 1, clients=(0,)))):
        with closing(summed(over_ray(part, workers=workers))) as run:
            exchange = run.exchange()
            run.state, replies = run.algorithm.round(run.state, run.world(), exchange)
            states.append(run.state)
            assert replies.ids == (0, 1, 2, 3)
            assert exchange.bytes_up == 4 * num_bytes({name: run.state[name] for name in ("model", "buffers")})
            with pytest.raises(RunError, match="set partial_sums to 0"):
                dict(replies.results[0].reply["model"])
    assert equal_trees(states[0], states[1])
    assert equal_trees(states[0], states[2]), "a mean made here is that of an actor"
    plain = over_ray(executor=Sequential).rounds(1).state
    assert not equal_trees(states[0], plain), "another order of adding"
    for name, tensor in plain["model"].items():
        assert torch.allclose(states[0]["model"][name], tensor, atol=1e-6)


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    with closing(over_ray(executor=partial(OnRay, workers=2, done=lambda *how: seen.append(how)))) as run:
        run.rounds(1)
    assert seen[-1] == (4, 4)
    assert sorted(seen) == seen


def test_what_it_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OnRay.pays(torch.device("cpu"), 100) == NEVER
    monkeypatch.setattr(session, "missing", lambda: True)
    with pytest.raises(ConfigError, match=r"executor = 'ray' needs Ray: pip install 'accord-fl\[ray\]'"):
        choose("ray", torch.device("cpu"), 3)


def test_an_address_for_outsiders_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(session, "_SESSION", session._Session())
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ConfigError, match="start the run on a machine of the cluster"):
        session.join()
    assert session._SESSION.users == 0


def test_a_cluster_that_is_not_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def refuse(**options: object) -> None:
        assert options["address"] == "10.0.0.1:6379"
        assert "num_cpus" not in options
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(session, "_SESSION", session._Session())
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(RunError, match=r"cannot join the Ray cluster at RAY_ADDRESS = '10.0.0.1:6379': nobody answers"):
        session.join()
    assert session._SESSION.users == 0


def test_actors_of_another_version_are_refused() -> None:
    from accord.executors.ray.trainer import Surroundings

    crew = Crew({"num_cpus": 1})
    other = Surroundings("far", 1, {**Surroundings.here().versions, "torch": "1.0"})
    with pytest.raises(RunError, match=r"far has torch 1\.0, and this machine .*: install the same version"):
        crew.greet(None, other)  # type: ignore[arg-type]


def works(*sizes: int) -> tuple[list[Work], np.ndarray]:
    return [Work(client, {}, None) for client in range(len(sizes))], np.array(sizes)


def clients(pile: Pile) -> list[list[int]]:
    return [[work.client for work in pile.next()] for _ in range(len(pile))]


def test_clients_are_dealt_longest_first_in_pieces_that_shrink() -> None:
    assert clients(Pile(*works(5, 50, 5, 7), 2, False)) == [[1], [3], [0], [2]]
    pieces = clients(Pile(*works(*[10] * 100), 2, False))
    assert pieces[0] == list(range(12)), "an eighth of all"
    lengths = [len(piece) for piece in pieces]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-8:] == [1] * 8, "nobody waits long for another one's last"
    assert sorted(client for piece in pieces for client in piece) == list(range(100))


def test_gpus_have_their_clients_side_by_side() -> None:
    assert clients(Pile(*works(1, 2, 3, 4, 5), 2, True)) == [[4, 2, 0], [3, 1]]
    assert clients(Pile(*works(7), 4, True)) == [[0]]
    assert [len(piece) for piece in clients(Pile(*works(*[1] * 600), 2, True))] == [100] * 6


def test_a_client_an_actor_was_lost_with_is_tried_by_itself_first() -> None:
    pile = Pile(*works(1, 1, 9), 1, False)
    pile.back([Work(7, {}, None)])
    pile.apart([Work(8, {}, None), Work(9, {}, None)])
    assert clients(pile) == [[8], [9], [7], [2], [0], [1]]


def test_parcels_keep_bits_kinds_and_empty_trees() -> None:
    trees = {
        "a": {"x": torch.randn(3, 5).bfloat16(), "n": torch.tensor(3), "none": torch.empty(0, 2)},
        "b": {"flag": torch.tensor([True, False]), "t": torch.randn(4, 3).t()},
        "c": {},
    }
    parcel = packed(trees)
    parcel.values.setflags(write=False)  # as the object store gives it
    assert equal_trees(unpacked(parcel), trees)
    mine = taken_out(parcel, torch.device("cpu"))
    assert equal_trees(mine, trees)
    mine["b"]["t"].zero_()
    assert not torch.equal(unpacked(parcel)["b"]["t"], mine["b"]["t"])
    shifted = parcel._replace(values=np.frombuffer(b"\0" + parcel.values.tobytes(), np.uint8)[1:])
    assert equal_trees(unpacked(shifted), trees)
    assert all(t.data_ptr() % 64 == 0 for t in unpacked(shifted)["a"].values() if t.numel())


def test_never_more_actors_than_clients() -> None:
    data = tiny_data((3,))
    with closing(over_ray(data=data, workers=0)) as run:
        assert same(run.rounds(1), over_ray(data=data, executor=Sequential).rounds(1))
        assert isinstance(run.executor, OnRay)
        assert run.executor.crew is not None
        assert len(run.executor.crew.members) == 1


def test_a_session_of_the_users_is_used_and_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    # As if Ray had been started by somebody else; the actors that are there are taken over, and end.
    parked, session._SESSION.parked = session._SESSION.parked, {}
    monkeypatch.setattr(session, "_SESSION", session._Session(parked=parked))
    with closing(over_ray(workers=1)) as run:
        assert same(run.rounds(1), over_ray(executor=Sequential).rounds(1))
    assert ray.is_initialized()
    assert vars(session._SESSION) == vars(session._Session())
