"""How evenly the global model serves the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accord.measures.column import leading
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.predictions import Vector
from accord.measures.scene import Final, Moment, Scene
from accord.measures.spread import in_short, spread_record

NAMED = 1000  # clients whose numbers a round's line holds one by one


@entry
class Clients(Measure):
    """Accuracy, or the problem's own number, of the global model on each client's own test data: its spread."""

    name = "clients"
    setting = switch("clients", "accuracy of the global model on each client's test data", default=True)
    columns = (
        *leading("best_client", "best client", ("client_{}", "best"), compared=False),
        *leading("worst_client", "worst client", ("client_{}", "worst")),
        *leading("mean_client", "mean client", ("client_{}", "mean"), beside="personal_{}"),
        *leading("client_std", "client std", ("client_{}", "std"), spread=True),
    )

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The spread, and every client's own, where there is a global model and clients have test data."""
        clients = moment.predictions.clients("test") if moment.predictions is not None else None
        if clients is None:
            return {}
        better = "higher" if scene.problem.higher_is_better else "lower"
        values = clients.headlines
        record: Record = {"clients": spread_record(values, clients.sizes, better)}
        if len(values) <= NAMED:
            record["each_client"] = [round(value, 4) if value == value else None for value in values.tolist()]
        return record

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """That of the last evaluation."""
        spreads = [record["clients"] for record in records if "clients" in record]
        return {f"client_{scene.problem.headline}": in_short(spreads[-1]) if spreads else {}}

    def sites(self, scene: Scene, final: Final) -> dict[str, Vector]:
        """Each client's own."""
        return {} if final.clients is None else {scene.problem.headline: final.clients.headlines}
