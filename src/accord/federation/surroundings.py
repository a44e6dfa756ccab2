"""The environment Flower's processes get: a home inside the federation's folder, and no word to anybody outside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

LOOPBACK = ("127.0.0.1", "localhost")
INSTALLED = ("site-packages", "dist-packages")


def surroundings(home: Path, commands: Path | None = None) -> dict[str, str]:
    """This process's environment with Flower's home at `home`, and `commands` first where commands are looked for.

    Settings of Flower that the user has for other work are left out, telemetry and the question for updates are off.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    kept.pop("FORWARDED_ALLOW_IPS", None)  # it would let anybody claim to call from this machine
    folders = [*([str(commands)] if commands else []), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    not_by_proxy = [*filter(None, [kept.get("NO_PROXY") or kept.get("no_proxy")]), *LOOPBACK]
    kept |= {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": os.pathsep.join(filter(None, folders)),
        "NO_PROXY": ",".join(not_by_proxy),
        "no_proxy": ",".join(not_by_proxy),
    }
    source = Path(__file__).resolve().parents[2]
    if source.name not in INSTALLED:  # a checkout: the processes must run the same code as this one
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(source), kept.get("PYTHONPATH")]))
    return kept
