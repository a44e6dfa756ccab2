"""Compose: FedAvg with parts of other methods, listed by name.

    [algorithm]
    name = "compose"
    parts = ["mixup", "fedcm: alpha=0.2", "feddecorr"]

The name may be left out: `accord run --set 'algorithm.parts=["mixup", "feddecorr"]'`.

Each part brings what it has as a method of its own (see the cards of mixup, fedcm, feddecorr, fedntd,
fedprox): its loss term, its gradient rule, what it sends and what the server keeps. Loss terms are added,
hooks run in the listed order. Without parts it is FedAvg. Refused: a part listed twice, two parts that both
replace the gradient rule, and parts that do not fit the local optimizer.

Sent: the model, and what the parts send. Defaults: weights by samples; those parts' papers that average
uniformly (fedcm) are matched with weight = "uniform".
"""

from __future__ import annotations

from typing import Annotated

import accord.authoring as fl
from accord.parts.composition import build_parts, check_together


@fl.method("ends")
def compose(
    setup: fl.Setup,
    *,
    parts: Annotated[tuple[str, ...], 'names of parts, such as "mixup" or, with settings, "fedcm: alpha=0.2"'] = (),
    weight: fl.Weight = "examples",
) -> fl.Method:
    """Average models trained with the listed parts."""
    chosen = build_parts(setup, parts)
    check_together(chosen)
    return fl.averaging(setup, *chosen, weight=weight)
