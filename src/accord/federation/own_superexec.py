"""What works off a node's messages: Flower's SuperExec, with the client app of this installation already loaded.

`python -m accord.federation.own_superexec ...` is `flower-superexec ...` on a node. Flower starts a program for every
message, which unpacks and runs the app's code that came with the run. Here
- the app is the one in its owner's installation of Accord, whatever is sent: code from the network is neither unpacked
  nor imported, and other kinds of work that Flower knows (agents, models, connectors) are refused;
- one process that stays works the messages off (`workshop`): milliseconds instead of seconds.
"""

from __future__ import annotations

from typing import Any

VERSION = "Accord knows flwr 1.41"


def main() -> None:
    """Flower's own command, with our app and our way to start it."""
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.inflatable import inflatable_utils
    from flwr.supercore.superexec import run_superexec as running

    from accord.config import from_dict
    from accord.core.methods import ALGORITHMS
    from accord.federation.bell import Waiting
    from accord.federation.sooner import fetch_sooner
    from accord.federation.workshop import Workshop
    from accord.flower import client_app

    if not hasattr(running, "get_executor") or not hasattr(running, "time"):
        raise SystemExit(f"this version of Flower starts programs in another way; {VERSION}")
    from_dict({"algorithm": {"name": next(iter(ALGORITHMS))}})  # every method and network is imported before a fork
    fetch_sooner(inflatable_utils)
    workshop = Workshop(client_app())

    def ours(*given: Any, **more: Any) -> Workshop:
        return workshop

    vars(running).update(get_executor=ours, time=Waiting())
    flower_superexec()


if __name__ == "__main__":
    main()
