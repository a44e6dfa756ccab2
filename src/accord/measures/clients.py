"""How evenly the global model serves the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.predictions import Vector
from accord.measures.scene import Final, Moment, Scene
from accord.measures.spread import in_short, spread_record


@entry
class Clients(Measure):
    """Accuracy of the global model on each client's own test data: best, worst, mean, deviation, deciles."""

    name = "clients"
    setting = switch("clients", "accuracy of the global model on each client's test data", default=True)
    columns = (
        Column("best_client", "best client %", ("client_accuracy", "best"), compared=False),
        Column("worst_client", "worst client %", ("client_accuracy", "worst")),
        Column("mean_client", "mean client %", ("client_accuracy", "mean"), beside="personal_accuracy"),
        Column("client_std", "client std %", ("client_accuracy", "std"), better="lower"),
    )

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The spread, where there is a global model and clients have test data."""
        clients = moment.predictions.clients("test") if moment.predictions is not None else None
        return {} if clients is None else {"clients": spread_record(clients.accuracies, clients.sizes)}

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """That of the last evaluation."""
        spreads = [record["clients"] for record in records if "clients" in record]
        return {"client_accuracy": in_short(spreads[-1]) if spreads else {}}

    def sites(self, scene: Scene, final: Final) -> dict[str, Vector]:
        """Each client's own."""
        return {} if final.clients is None else {"accuracy": final.clients.accuracies}
