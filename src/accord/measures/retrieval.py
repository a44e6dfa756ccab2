"""Re-identification: how well queries find their identity in a gallery."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from accord.errors import ConfigError, DataError
from accord.measures.column import Column
from accord.measures.map import MAX_SCORES
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.predictions import Vector
from accord.measures.scene import Moment, Scene
from accord.measures.spread import spread_record

RANKS = (1, 5, 10)


@entry
class Retrieval(Measure):
    """mAP and CMC of the data's queries against its gallery, by the global model's features of length one.

    Pictures of the query's identity by the query's own camera are left out of its gallery, as is the standard. Queries
    without a match are left out. `clients` is the spread of mAP where the queries' identities are dealt to the clients
    in turn, the gallery being everyone's.
    """

    name = "retrieval"
    setting = switch("retrieval", "mAP and CMC of queries against a gallery, for data sets of re-identification")
    columns = (
        Column("retrieval", "retrieval mAP %", ("retrieval", "map")),
        Column("cmc1", "rank-1 %", ("retrieval", "cmc1")),
    )
    reads = frozenset({"features"})

    def check(self, scene: Scene) -> None:
        """There must be queries and a gallery."""
        search = scene.data.search
        if search is None or len(search.cameras) != len(scene.data.test_pool):
            raise ConfigError(
                "evaluate.retrieval needs a data set with queries and a gallery (market1501, msmt17, veri776) judged "
                "on its test data; evaluate.map searches the test data of any"
            )

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Of the test pool as it is."""
        search = scene.data.search
        if moment.predictions is None or search is None:
            return {}
        scores = moment.predictions.plain
        precision, rank = searched(scores.features, scores.labels, torch.from_numpy(search.cameras), search.queries)
        found = ~np.isnan(precision)
        if not found.any():
            raise DataError("no query has a match by another camera in the gallery, so nothing can be found")
        cmc = {f"cmc{k}": float((rank[found] <= k).mean()) for k in RANKS}
        _, identity = np.unique(scores.labels[: search.queries].numpy(), return_inverse=True)
        owner = identity % len(scene.members)
        means = [_mean(precision[(owner == client) & found]) for client in range(len(scene.members))]
        return {
            "retrieval": {
                "map": float(precision[found].mean()),
                **cmc,
                "queries": int(found.sum()),
                "clients": spread_record(np.array(means)),
            }
        }


def _mean(values: Vector) -> float:
    return float(values.mean()) if len(values) else float("nan")


def searched(
    features: Tensor, identities: Tensor, cameras: Tensor, queries: int, max_scores: int = MAX_SCORES
) -> tuple[Vector, Vector]:
    """[Q] average precision and rank of the first match of each of the first `queries` samples among all others.

    NaN and infinity for a query whose identity no other camera has seen. Equal scores keep the gallery's order.
    """
    if not 0 < queries < len(features):
        raise DataError(f"{queries} of {len(features)} samples are queries: there must be some, and a gallery")
    wide = features if features.dtype == torch.float64 else features.float()
    if not bool(wide.isfinite().all()):
        raise DataError("features hold values that are not finite numbers")
    unit = normalize(wide.flatten(1), dim=1)
    gallery = unit[queries:]
    precisions, ranks = [], []
    for rows in torch.split(torch.arange(queries), max(1, max_scores // len(gallery))):
        same = identities[rows, None] == identities[queries:]
        hidden = same & (cameras[rows, None] == cameras[queries:])
        scores = (unit[rows] @ gallery.T).masked_fill(hidden, -torch.inf)  # behind all others, and no match
        order = scores.argsort(dim=1, descending=True, stable=True)
        match = (same & ~hidden).gather(1, order)
        hits = match.cumsum(1)
        place = torch.arange(1, len(gallery) + 1)
        total = hits[:, -1]
        average = (hits.double() / place * match).sum(1) / total.clamp(min=1)
        first = match.long().argmax(1) + 1
        precisions.append(average.masked_fill(total == 0, torch.nan).numpy())
        ranks.append(first.double().masked_fill(total == 0, torch.inf).numpy())
    return np.concatenate(precisions), np.concatenate(ranks)
