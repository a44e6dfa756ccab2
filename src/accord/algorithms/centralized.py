"""Centralized: all data in one place, the ceiling a federation is measured against.

    server:  the same optimizer and the same number of epochs on the union of all clients' data

Nothing is sent in a federation's sense: the run gathers the clients' data into one client before it starts.
"""

from __future__ import annotations

import accord.authoring as fl


@fl.method("ends")
def centralized(setup: fl.Setup) -> fl.Method:
    """Train on the pooled data."""
    return fl.averaging(setup, pools_data=True)
