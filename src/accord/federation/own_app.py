"""The client app a node runs: the one in its owner's installation of Accord, whatever app the server sends.

`python -m accord.federation.own_app ...` is `flwr-clientapp ...`. Flower sends the app's code with every run and nodes
execute it. A node of Accord does not: code from the network is neither unpacked nor imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

REPLACED = ("install_from_fab", "get_project_dir", "get_load_client_app_fn")


def main() -> None:
    """Flower's own command, with our own app in the place of the one that was sent."""
    from flwr.supernode.cli import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as running

    if missing := [name for name in REPLACED if not hasattr(running, name)]:
        raise SystemExit(f"this version of Flower loads apps in another way ({missing}); Accord knows flwr 1.41")

    def nothing(*given: Any, **more: Any) -> None:
        """The sent app stays packed."""

    def folder(*given: Any) -> Path:
        return Path(__file__).parent

    def own_app(*given: Any, **more: Any) -> Any:
        from accord.flower import client_app

        app = client_app()
        return lambda *identity: app

    for name, ours in zip(REPLACED, (nothing, folder, own_app), strict=True):
        setattr(running, name, ours)
    flwr_clientapp()


if __name__ == "__main__":
    main()
