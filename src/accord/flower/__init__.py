"""Any method over Flower: the same algorithm, with SuperNodes for clients (extra `accord-fl[flower]`).

    # accord_app.py, named by a Flower app's pyproject.toml
    import accord.flower

    server = accord.flower.server_app()     # run config: config = "run.toml", folder = "runs/first"
    client = accord.flower.client_app()     # node config: node = "node.toml"

What is said between the two: docs/federation_inside.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accord.errors import ConfigError

if TYPE_CHECKING:
    from accord.flower.apps import client_app, server_app

__all__ = ["client_app", "server_app"]


def __getattr__(name: str) -> Any:
    """Flower is imported when it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("flwr")
    except ImportError as error:
        raise ConfigError("flwr is not installed: pip install 'accord-fl[flower]' (Python 3.11 or later)") from error
    return getattr(import_module("accord.flower.apps"), name)
