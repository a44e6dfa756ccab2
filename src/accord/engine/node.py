"""Home to one client: its own data and its own key, and nothing of anybody else's.

What a node is given to work with: the facts of the federation and the settings of the method (to build the same tasks
the server has), the initial model as values (never the seed it was drawn from), and a key that was derived one-way from
the run's, so that it can draw its own batches and cannot know anybody else's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from accord.client import Draws
from accord.core.keys import Key
from accord.core.types import ClientData
from accord.errors import RunError


@dataclass(frozen=True)
class Node:
    """A `Home` for one client."""

    client: int
    data: ClientData
    key: Key  # the client's own
    device: torch.device

    def client_data(self, client: int) -> ClientData:
        """Of the one client there is."""
        self._check(client)
        return self.data

    def draws(self, client: int, task: str, round: int) -> Draws:
        """By address, below the client's own key."""
        self._check(client)
        return Draws(self.key, task, round)

    def _check(self, client: int) -> None:
        if client != self.client:
            raise RunError(f"this node is client {self.client}, and was asked to be client {client}")
