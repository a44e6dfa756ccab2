"""Ray for longer: every method on one, two and four actors, machines that die, and nothing that stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from accord.core.sums import averaged_trees
from accord.errors import RunError
from accord.executors.ray import OnRay, session
from accord.executors.sequential import Sequential
from executors.test_killed_workers import Deadly
from support.cases import CASES, start
from support.federation import equal_trees, same
from support.on_ray import Complete, closing, over_ray, summed

pytest.importorskip("ray")
pytestmark = pytest.mark.federation
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with session.joined(4):
        yield


@pytest.mark.parametrize("actors", [1, 2, 4])
@pytest.mark.usefixtures("cluster")
def test_every_method_has_the_bits_of_sequential(actors: int) -> None:
    differ = []
    for name, settings in (case.values for case in CASES):
        with closing(start(name, settings, executor=partial(Complete, workers=actors))) as run:
            run.rounds(3)
            assert isinstance(run.executor, OnRay)
            assert run.executor.crew is not None
            assert len(run.executor.crew.members) == actors
        if not same(run, start(name, settings).rounds(3)):
            differ.append((name, settings))
    assert not differ


@pytest.mark.usefixtures("cluster")
@pytest.mark.timeout(1500)
def test_sums_of_blocks_do_not_depend_on_the_actors_for_any_method_that_takes_them() -> None:
    """The first three rounds with one, two and four actors to the bit, and those of `sequential` up to rounding."""
    taken, differ = [], []
    for name, settings in (case.values for case in CASES):
        plain = start(name, settings)
        if not averaged_trees(plain.algorithm):
            continue
        taken.append(name)
        states = []
        for actors in (1, 2, 4):
            with closing(summed(start(name, settings, executor=partial(Complete, workers=actors)))) as run:
                states.append(run.rounds(3).state)
        close = all(
            torch.allclose(tensor, states[0]["model"][leaf], atol=1e-5)
            for leaf, tensor in plain.rounds(3).state["model"].items()
        )
        if not (equal_trees(states[0], states[1]) and equal_trees(states[0], states[2]) and close):
            differ.append((name, settings))
    assert {"fedavg", "fedprox", "fedavgm"} <= set(taken)
    assert not differ


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("clients", "lives"), [((2,), 2), ((0, 1, 2, 3), 1)])
def test_actors_killed_again_and_again(clients: tuple[int, ...], lives: int, tmp_path: Path) -> None:
    with closing(over_ray(Deadly(tmp_path, lives, signal.SIGKILL, clients, os.getpid()))) as run:
        run.rounds(1)
        assert run.replies is not None
        assert run.replies.missing == {}
        assert same(run, over_ray(executor=Sequential).rounds(1))
    assert sorted(mark.name for mark in tmp_path.iterdir()) == sorted(f"{client}-0" for client in clients)


@pytest.mark.usefixtures("cluster")
def test_a_client_that_kills_every_actor_is_named_after_three(tmp_path: Path) -> None:
    with closing(over_ray(Deadly(tmp_path, 99, spared=os.getpid()), tolerate=0.25)) as run:
        run.rounds(1)
        assert run.replies is not None
        assert run.replies.ids == (0, 1, 3)
        assert run.replies.missing[2].startswith("its actor was lost 3 times: ")
        assert (tmp_path / "2-0").read_text() == "xxx"
    with (
        closing(over_ray(Deadly(tmp_path, 99, spared=os.getpid()))) as run,
        pytest.raises(RunError, match="client 2: its actor was lost 3 times"),
    ):
        run.rounds(1)


SCRIPT = """
import os, sys
from functools import partial
from executors.test_killed_workers import Slow
from support.cases import CASES, start
from support.federation import same
from support.on_ray import over_ray
from accord.executors.ray import OnRay, session
run = over_ray(Slow(0.05), executor=partial(OnRay, workers=2)).rounds(1)
print(session._SESSION.folder, flush=True)
sys.stdin.readline()
if sys.argv[1] == "close":
    run.close()
    print("closed", flush=True)
    sys.stdin.readline()
elif sys.argv[1] == "busy":
    over_ray(Slow(600.0), executor=partial(OnRay, workers=2)).rounds(1)
"""


def holders(folder: str) -> list[str]:
    """Processes whose command, or output, has to do with a folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().decode().replace("\0", " ")
            files = [os.readlink(link) for link in (process / "fd").iterdir()] if process.name.isdigit() else []
        except OSError:
            continue
        if folder in words or any(folder in file for file in files):
            found.append(f"{process.name} {words}")
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="processes are found by /proc")
@pytest.mark.parametrize("way", ["close", "idle", "busy"])
def test_nothing_stays_behind_after_a_close_or_a_kill(way: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent / "src", TESTS)))}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, way]
    parent = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        folder = parent.stdout.readline().strip()
        assert len(holders(folder)) >= 4, "GCS, raylet and two actors at least"
        parent.stdin.write("go on\n")
        parent.stdin.flush()
        if way == "close":
            assert parent.stdout.readline() == "closed\n"
            assert not Path(folder).exists()
        else:
            time.sleep(2.0)
            parent.kill()
        # After a kill Ray's own two agents try for a minute to report it to what is gone.
        patience, itself = time.monotonic() + 120, f"{parent.pid} "
        while (left := [who for who in holders(folder) if not who.startswith(itself)]) and time.monotonic() < patience:
            time.sleep(0.2)
        assert not left, "\n".join(left)
    finally:
        parent.kill()
        _, said = parent.communicate()
    assert said == "", "it was quiet"


NODES = """
import os, threading, time
from functools import partial
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from executors.test_killed_workers import Slow
from support.cases import CASES, start
from support.federation import same
from support.federation import same
from support.on_ray import Complete, over_ray
from accord.executors.sequential import Sequential

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
nodes = [cluster.add_node(num_cpus=2), cluster.add_node(num_cpus=2)]
os.environ["RAY_ADDRESS"] = cluster.address
run = over_ray(Slow(2.0), executor=partial(Complete, workers=2))

def kill_one():
    while run.executor.crew is None or not any(member.pieces for member in run.executor.crew.members):
        time.sleep(0.1)
    first, second = [ray.get(member.ready).process for member in run.executor.crew.members]
    parent = {pid: int(Path(f"/proc/{pid}/stat").read_text().split(") ")[1].split()[1]) for pid in (first, second)}
    assert parent[first] != parent[second], "one on each node"
    (victim,) = [node for node in nodes if node.all_processes["raylet"][0].process.pid == parent[second]]
    cluster.remove_node(victim, allow_graceful=False)
    print("killed", flush=True)

killer = threading.Thread(target=kill_one)
killer.start()
run.rounds(2)
killer.join()
print(len(run.executor.crew.members), run.replies.missing)
print(same(run, over_ray(executor=Sequential).rounds(2)))
run.close()
print("left" if not ray.is_initialized() else "still there")
cluster.shutdown()
"""


def test_a_node_that_dies_costs_nothing() -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent / "src", TESTS))),
        "RAY_AUTH_MODE": "disabled",
    }
    done = subprocess.run([sys.executable, "-c", NODES], env=environment, capture_output=True, text=True, timeout=240)
    said = [line for line in done.stdout.splitlines() if line in ("killed", "2 {}", "True", "left")]
    assert said == ["killed", "2 {}", "True", "left"], done.stdout + done.stderr  # Ray says a lot about its node
