"""Executors by name: who may be asked for, and who `auto` takes."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accord
from accord import load_config
from accord.client import Site
from accord.core.keys import Key
from accord.errors import ConfigError
from accord.executors import EXECUTORS, check_compiles, choose, make_executor, misfit, processes
from accord.executors.gpu.batched import Batched
from accord.executors.kernels import cpu_layers, gpu_layers, layers_for, stacked_layers
from accord.executors.processes import Processes
from accord.executors.ray import OnRay
from accord.executors.sequential import Sequential, one_thread
from support.federation import TinyRun, tiny_data

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SOURCE = Path(accord.__file__).parent


def test_all_files_of_the_package_are_looked_into() -> None:
    assert dict(EXECUTORS) == {"sequential": Sequential, "batched": Batched, "processes": Processes, "ray": OnRay}


@pytest.mark.parametrize(
    ("device", "clients", "cores", "fork", "taken"),
    [
        (CPU, 5, 4, True, Processes),
        (CPU, 1, 4, True, Sequential),
        (CPU, 5, 1, True, Sequential),
        (CPU, 5, 4, False, Sequential),
        (CUDA, 5, 4, True, Batched),
        (CUDA, 1, 1, False, Batched),
    ],
)
def test_auto_takes_what_pays(
    device: torch.device, clients: int, cores: int, fork: bool, taken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "cores", lambda: cores)
    monkeypatch.setattr(processes, "can_fork", lambda: fork)
    assert choose("auto", device, clients) is taken


@pytest.mark.parametrize(
    ("name", "device", "words"),
    [
        ("processes", CUDA, r"'processes' does not run on device = 'cuda': use device = 'cpu', or executor = 'auto'"),
        ("batched", CPU, r"'batched' does not run on device = 'cpu': use device = 'cuda', or executor = 'auto'"),
        ("proceses", CPU, r"unknown executor 'proceses'.*'processes'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_way_out(name: str, device: torch.device, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose(name, device, 5)


def test_a_system_that_cannot_fork_has_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    with pytest.raises(ConfigError, match="needs a system that can fork: use executor = 'auto'"):
        choose("processes", CPU, 5)
    assert load_config(None, ["executor=processes", "device=cpu"]).executor == "processes"  # to be read anywhere


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["auto", "sequential"])
def test_some_run_anywhere(name: str, device: str) -> None:
    assert misfit(name, device) == ""


def test_compiled_steps_are_refused_by_those_who_have_none() -> None:
    check_compiles("auto")
    check_compiles("batched")
    for name in ("sequential", "processes"):
        with pytest.raises(
            ConfigError, match=f"executor = '{name}' has none: use executor = 'auto' or 'batched' or 'ray', or"
        ):
            check_compiles(name)


def test_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SHARE", [])
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda who: {0, 2, 5}, raising=False)
    monkeypatch.setattr(processes.os, "cpu_count", lambda: 9)
    assert processes.cores() == 3
    processes.share_cores(2)
    assert processes.cores() == 2
    processes.share_cores(4)
    assert processes.cores() == 3, "no more than there are"
    monkeypatch.delattr(processes.os, "sched_getaffinity")
    monkeypatch.setattr(processes, "_SHARE", [])
    assert processes.cores() == 9
    monkeypatch.setattr(processes.os, "cpu_count", lambda: None)
    assert processes.cores() == 1


@pytest.mark.parametrize(
    ("workers", "share", "pinned"), [(0, [], [0, 2, 5]), (3, [], [0, 2, 5]), (2, [], []), (0, [3], []), (4, [], [])]
)
def test_workers_that_have_all_cores_stay_on_one_each(
    workers: int, share: list[int], pinned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(processes, "_SHARE", share)
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda who: {5, 0, 2}, raising=False)
    monkeypatch.setattr(processes.os, "sched_setaffinity", lambda *how: found.append(how), raising=False)
    made = [SimpleNamespace(process=SimpleNamespace(pid=100 + number)) for number in range(4)]
    arenas: list[Any] = []

    def start(site: Any, tasks: Any, room: Any) -> Any:
        arenas.append(room)
        return made[len(arenas) - 1]

    monkeypatch.setattr(processes, "start_worker", start)
    pool = Processes(Site(tiny_data(), Key(0), CPU), {}, workers)
    pool.room = (1000, 3000)
    for number in range(pool.count):
        assert pool._start(number) is made[number]
    assert found == [(100 + number, {core}) for number, core in enumerate(pinned)]
    assert all(room.broadcast is pool.broadcast for room in arenas)
    slack = processes.SLACK
    assert {(room.inbox.size - slack, *(box.size - slack for box in room.outboxes)) for room in arenas} == {
        (1000, 3000, 3000)
    }
    gone = SimpleNamespace(pid=None)
    processes._pin(gone, 0)  # type: ignore[arg-type]

    def refuse(*how: Any) -> None:
        raise OSError("not allowed")

    monkeypatch.setattr(processes.os, "sched_setaffinity", refuse, raising=False)
    processes._pin(made[0].process, 0)


def test_threads_are_given_back_also_after_an_error() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        with pytest.raises(KeyboardInterrupt), one_thread():
            raise KeyboardInterrupt
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_auto_is_made_for_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    site = Site(tiny_data(), Key(0), CPU)
    for clients, kind in ((2, Processes), (1, Sequential)):
        assert type(make_executor("auto", site, {}, clients=clients)) is kind


def test_made_ones_get_their_workers_and_tell_of_progress() -> None:
    site, tasks = Site(tiny_data(), Key(0), CPU), TinyRun("fedavg").algorithm.tasks
    pool = make_executor("processes", site, tasks, clients=4, workers=3)
    assert isinstance(pool, Processes)
    assert pool.count == 3
    pool.close()
    seen: list[tuple[int, int]] = []
    run = TinyRun(
        "fedavg",
        executor=lambda s, t: make_executor("sequential", s, t, clients=4, done=lambda *how: seen.append(how)),
    )
    run.rounds(1)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("device", "form", "layers"),
    [
        ("cpu", {}, cpu_layers),
        ("cpu", {"channels_last": True}, None),
        ("cpu", {"compiled": True}, stacked_layers),
        ("cuda", {}, None),
        ("cuda", {"channels_last": True}, None),
        ("cuda", {"compiled": True}, gpu_layers),
        ("cuda", {"channels_last": True, "compiled": True}, gpu_layers),
    ],
)
def test_layers_suit_the_place(device: str, form: dict[str, bool], layers: Any) -> None:
    assert layers_for(device, **form) is layers


def imported(folder: Path) -> set[str]:
    """The rooms of this package that a folder's files import, wherever in the file."""
    found = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {name.split(".")[1] for name in names if name.startswith("accord.")}
    return found


def test_core_knows_nobody_and_kernels_know_core() -> None:
    assert imported(SOURCE / "core") <= {"core", "errors", "problems", "settings"}
    assert imported(SOURCE / "models") <= {"core", "models", "errors", "settings"}
    assert imported(SOURCE / "executors" / "kernels") <= {"core", "executors"}
