"""What works off a node's messages: Flower's SuperExec, with the client app of this installation already loaded.

`python -m accord.federation.own_superexec ...` is `flower-superexec ...` on a node. Flower starts a program for every
message, which unpacks and runs the app's code that came with the run. Here
- the app is the one in its owner's installation of Accord, whatever is sent: code from the network is neither unpacked
  nor imported, and other kinds of work that Flower knows (agents, models, connectors) are refused;
- a message is worked off by a fork of this process, which has imported everything: milliseconds instead of seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL
from types import SimpleNamespace
from typing import Any

CLIENT_APP = "flwr-clientapp"
REPLACED = ("install_from_fab", "get_project_dir", "get_load_client_app_fn")
VERSION = "Accord knows flwr 1.41"


class Forks:
    """Stands where Flower starts programs."""

    def __init__(self) -> None:
        self.children: list[int] = []

    def start(self, words: Sequence[str], **more: Any) -> None:
        """Work off one message in a fork; anything but a client app's is refused."""
        self.children = [child for child in self.children if os.waitpid(child, os.WNOHANG) == (0, 0)]
        if words[0] != CLIENT_APP:
            sys.stderr.write(f"{words[0]} is refused: this node runs no code that is sent to it\n")
            return
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            self.children.append(child)
            return
        code = 1
        try:
            code = work_off(words)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # nothing of the parent's is closed or tidied up here


def work_off(words: Sequence[str]) -> int:
    """Be the client app's program, as Flower would have started it; its exit code."""
    from flwr.supercore.exit import exit_handler
    from flwr.supernode.cli import flwr_clientapp

    exit_handler.registered_exit_handlers.clear()  # they are the parent's
    sys.argv = list(words)
    try:
        flwr_clientapp()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def pin_client_app() -> None:
    """Whatever app is sent, our own is loaded."""
    from flwr.supernode.runtime import run_clientapp as running

    from accord.config import from_dict
    from accord.core.methods import ALGORITHMS
    from accord.flower import client_app

    if missing := [name for name in REPLACED if not hasattr(running, name)]:
        raise SystemExit(f"this version of Flower loads apps in another way ({', '.join(missing)}); {VERSION}")
    app = client_app()
    from_dict({"algorithm": {"name": next(iter(ALGORITHMS))}})  # every method and network is imported before a fork

    def nothing(*given: Any, **more: Any) -> None:
        """The sent app stays packed."""

    def folder(*given: Any) -> Path:
        return Path(__file__).parent

    def own_app(*given: Any, **more: Any) -> Any:
        return lambda *identity: app

    for name, ours in zip(REPLACED, (nothing, folder, own_app), strict=True):
        setattr(running, name, ours)


def main() -> None:
    """Flower's own command, with our app and our way to start it."""
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.superexec.executor import subprocess_executor

    if not hasattr(subprocess_executor, "subprocess"):
        raise SystemExit(f"this version of Flower starts programs in another way; {VERSION}")
    pin_client_app()
    subprocess_executor.subprocess = SimpleNamespace(Popen=Forks().start, DEVNULL=DEVNULL)
    flower_superexec()


if __name__ == "__main__":
    main()
