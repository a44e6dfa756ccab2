"""Whether this machine has what a federation on Flower needs, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import sys

from accord.errors import ConfigError


def require_flower() -> None:
    """ConfigError that says what to install."""
    if tuple(sys.version_info) < (3, 11):
        raise ConfigError(
            f"a federation runs on Flower, which needs Python 3.11 or newer, and this is {sys.version.split()[0]}: "
            "make an environment with a newer one; simulations (`accord run`) work here"
        )
    if os.name != "posix":
        raise ConfigError("a federation's processes need Linux or macOS; simulations (`accord run`) work here")
    if importlib.util.find_spec("flwr") is None:
        raise ConfigError("a federation runs on Flower, which is not installed: pip install 'accord-fl[flower]'")
