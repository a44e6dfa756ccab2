"""A node that its owner starts and watches: it lives as long as the command does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from accord.errors import RunError
from accord.federation import supernode
from accord.federation.node_file import Node
from accord.federation.processes import Process, exit_code, last_lines, planned
from accord.federation.superlink import free_port
from accord.federation.up import since, size
from accord.federation.watch import watched

LOOK = 0.5  # seconds
AGAIN = 5.0  # seconds until the next attempt
Say = Callable[[str], None]


def attend(node: Node, say: Say) -> None:
    """Start it, and stay until it ends or Ctrl-C; whoever ends this command ends the node.

    A SuperLink that is not there yet, or gone for a while, is waited for by Flower itself.
    """
    log = node.file.parent / supernode.LOG
    say(f"connecting to {node.connection.server}; log in {log}; Ctrl-C ends the node")
    refused_until = time.monotonic() + supernode.STILL_ONLINE
    while True:
        said = size(log)
        with watched() as watch:
            plan = planned(node.owner.site)
            watch.over(plan)
            process = supernode.launch(node.file, node.connection, free_port(), plan)
            watch.over(process)
            was_in = _stay(process, log, said, say)
        if supernode.REFUSED not in since(log, said) or was_in:
            raise RunError(f"the node ended with code {exit_code(process)}, see {log}: {last_lines(log)}")
        if time.monotonic() > refused_until:
            raise RunError(
                "the server does not let this node in: it does not know its key (`accord federation admit` at the "
                "server), or another node with this key runs"
            )
        say("not let in yet; trying again")
        time.sleep(AGAIN)


def _stay(process: Process, log: Path, said: int, say: Say) -> bool:
    """Until it ends; whether it was let in before."""
    was_in = False
    while process.alive:
        if not was_in and supernode.READY in since(log, said):
            was_in = True
            say("the node is in, and works whenever the server asks")
        time.sleep(LOOK)
    return was_in
