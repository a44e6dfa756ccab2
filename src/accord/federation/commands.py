"""The commands a SuperNode finds: of all that Flower could start on a node, our own SuperExec and nothing else.

Flower starts programs by name. The server says which kind of work there is, and most kinds run code that came with the
run, so a node gets a folder of commands in which all the others refuse.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from accord.federation.certificates import private_folder

OURS = "flower-superexec"
REFUSED = "this node runs no code that is sent to it"


def write_commands(folder: Path) -> Path:
    """The folder, with its commands written anew: the interpreter may be another than last time."""
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    private_folder(folder)
    ours = f"exec {shlex.quote(sys.executable)} -m accord.federation.own_superexec" + ' "$@"'
    for name in (OURS, *TASK_TYPE_TO_COMMAND.values()):
        does = ours if name == OURS else f"echo {shlex.quote(REFUSED)} >&2\nexit 1"
        script = folder / name
        script.unlink(missing_ok=True)
        script.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        script.chmod(0o700)
    return folder
