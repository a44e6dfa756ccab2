"""Bring a federation on this machine up, see how it is, bring it down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from accord.errors import ConfigError, RunError
from accord.federation import superlink, supernode
from accord.federation.folder import Folder, State, alone, read_state, write_state
from accord.federation.node_file import read_node
from accord.federation.processes import Process, end, exit_code, last_lines, planned
from accord.federation.watch import Watch, watched

Say = Callable[[str], None]
PORT_TAKEN = "address already in use"
PATIENCE = 120.0  # seconds until all nodes are in


def bring_up(
    folder: Folder, say: Say, host: str | None = None, port: int | None = None, *, with_nodes: bool = True
) -> State:
    """Start what does not run: the SuperLink, then the nodes of all sites. Returns when all are ready to work.

    If anything fails, what this call started has ended when the error is raised; what ran before goes on.
    """
    with alone(folder):
        before = read_state(folder) or State(port=superlink.free_port())
        state = replace(before, host=host or before.host, port=port or before.port)
        if before.running(superlink.NAME) and (state.host, state.port) != (before.host, before.port):
            raise ConfigError(f"the SuperLink runs at {before.host}:{before.port}: `accord federation down` first")
        end([process for process in state.processes if not process.alive])  # what a dead one has left behind
        with watched() as watch:
            if not state.running(superlink.NAME):
                free = port is None and not folder.database.exists()  # nobody has been told the port yet
                state = _with_superlink(folder, state, watch, free)
                say(f"SuperLink at {state.host}:{state.port}, TLS, nodes by key")
            if with_nodes:
                state = _with_nodes(folder, state, watch, say)
            watch.stay()
        return state


def bring_down(folder: Folder) -> int:
    """End everything, nodes first, so that they can say goodbye; how many there were."""
    with alone(folder):
        state = read_state(folder)
        if state is None:
            return 0
        alive = [process for process in state.processes if process.alive]
        end([process for process in state.processes if process.name != superlink.NAME])
        end(state.processes)
        write_state(folder, replace(state, processes=()))
        return len(alive)


@dataclass(frozen=True)
class Condition:
    """How a federation is."""

    address: str
    superlink: bool
    nodes: dict[str, bool]


def condition(folder: Folder) -> Condition:
    """Which processes run."""
    state = read_state(folder) or State()
    return Condition(
        state.address, state.running(superlink.NAME), {site: state.running(node(site)) for site in folder.sites}
    )


def node(site: str) -> str:
    """The name of a site's process."""
    return f"node {site}"


def _with_superlink(folder: Folder, state: State, watch: Watch, free: bool) -> State:
    """The state with a SuperLink that is ready; where the port is ours to choose, one taken meanwhile is no failure."""
    for last in (False, False, True):
        superlink.check(folder, state)
        said = size(folder.log)
        process = _started(folder, state, watch, superlink.NAME, partial(superlink.launch, folder, state))
        state = state.with_process(process)
        try:
            superlink.await_ready(folder, state, process)
            return state
        except RunError:
            if last or not free or PORT_TAKEN not in since(folder.log, said).lower():
                raise
            state = replace(state, port=superlink.free_port())
    raise AssertionError("the last attempt has returned or raised")


def _with_nodes(folder: Folder, state: State, watch: Watch, say: Say) -> State:
    """The state with all sites' nodes, let in by the SuperLink."""
    missing = [site for site in folder.sites if not state.running(node(site))]
    known = {site: read_node(folder.site(site) / "node.toml") for site in missing}
    until = time.monotonic() + PATIENCE
    waiting: dict[str, tuple[Process, int]] = {}
    while missing or waiting:
        for site in missing:
            said, there = size(folder.site(site) / supernode.LOG), replace(known[site].connection, server=state.address)
            launch = partial(supernode.launch, known[site].file, there, superlink.free_port())
            process = _started(folder, state, watch, node(site), launch)
            state, waiting[site] = state.with_process(process), (process, said)
        missing = []
        for site, (process, said) in list(waiting.items()):
            log = folder.site(site) / supernode.LOG
            words = since(log, said)
            if supernode.READY in words:
                say(f"node of {site} is in")
                del waiting[site]
            elif not process.alive:
                if supernode.REFUSED not in words and PORT_TAKEN not in words.lower():
                    code = exit_code(process)
                    raise RunError(f"the node of {site} ended with code {code}, see {log}: {last_lines(log)}")
                del waiting[site]
                missing.append(site)  # a killed one of that key counts as online for a minute
        if time.monotonic() > until:
            late = ", ".join([*waiting, *missing])
            raise RunError(f"the nodes of {late} are not in after {PATIENCE:.0f} s: see supernode.log in their folders")
        time.sleep(3.0 if missing else 0.1)
    return state


def _started(folder: Folder, state: State, watch: Watch, name: str, launch: Callable[[Process], Process]) -> Process:
    """Start a process that is written down and watched before it exists."""
    plan = planned(name)
    write_state(folder, state.with_process(plan))
    watch.over(plan)
    process = launch(plan)
    watch.over(process)
    write_state(folder, state.with_process(process))
    return process


def since(log: Path, said: int) -> str:
    """What was written to a log after its first `said` bytes."""
    try:
        with log.open("rb") as file:
            file.seek(said)
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def size(log: Path) -> int:
    """Bytes of a log, which may not be there yet."""
    return log.stat().st_size if log.exists() else 0
