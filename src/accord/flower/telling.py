"""A line for every round in the server's log, which `flwr run --stream` shows."""

from __future__ import annotations

import logging
from pathlib import Path

from accord.config import RunConfig
from accord.observe import Observer, Record

log = logging.getLogger("accord.flower")
TOLD = ("accuracy", "test_loss", "loss")


class Telling(Observer):
    """Says how far the run is, and where its results lie."""

    def started(self, config: RunConfig, folder: Path, total_rounds: int, first_round: int) -> None:
        """From the beginning, or from where it was stopped."""
        self.folder, self.total = folder, total_rounds
        log.info("%s: rounds %d to %d", config.algorithm.name, first_round + 1, total_rounds)

    def round_ended(self, round: int, record: Record) -> None:
        """Who took part, and what it came to."""
        values = ", ".join(f"{name} {record[name]:.4g}" for name in TOLD if isinstance(record.get(name), float))
        log.info("round %d of %d, %d sites: %s", round, self.total, len(record["cohort"]), values or "not measured")

    def ended(self, summary: Record) -> None:
        """All is written."""
        log.info("done: the results are in %s", self.folder)
