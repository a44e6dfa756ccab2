"""How far clients pull apart: the cosine between each client's update and the server's step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isnan

import numpy as np
import torch
from torch import Tensor

from accord.core.tensors import subtract
from accord.errors import DataError
from accord.measures.column import Column, number
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.scene import Moment, Scene


@entry
class Drift(Measure):
    """Cosine of each client's update with the step the server took: 1 where all pull alike."""

    name = "drift"
    setting = switch("drift", "how far the clients' updates point in different directions")
    columns = (Column("drift", "update cosine", ("drift", "mean"), number, better=None),)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Mean, lowest and each of the round's clients, where they sent a model."""
        replies = moment.replies
        if not replies.has("model") or not next(replies.each("model")):
            return {}
        old, new = moment.old["model"], moment.new["model"]
        sent = next(replies.each("model"))  # personal parameters never left the clients
        step = {name: new[name] - old[name] for name in sent}
        drifts = cosines((subtract(model, old) for model in replies.each("model")), step)
        each = [round(drift, 6) for drift in drifts]  # in the order of the cohort, for a heat map
        return {"drift": {"mean": float(np.mean(drifts)), "lowest": float(np.min(drifts)), "clients": each}}


def cosines(updates: Iterable[Mapping[str, Tensor]], reference: Mapping[str, Tensor]) -> list[float]:
    """Cosine of each update with `reference` over all tensors together; 0 where either is zero.

    Sums run in float64, tensor by tensor, so no update is copied as a whole; `updates` may be a generator.
    """
    square = _dot(reference, reference)
    return [_cosine(update, reference, square) for update in updates]


def _cosine(update: Mapping[str, Tensor], reference: Mapping[str, Tensor], reference_square: Tensor) -> float:
    if update.keys() != reference.keys():
        odd = sorted(update.keys() ^ reference.keys())
        raise DataError(f"the two updates must hold the same tensors; only one of them has {', '.join(odd)}")
    for name, tensor in update.items():
        if tensor.shape != reference[name].shape:
            raise DataError(
                f"{name!r} has shape {tuple(tensor.shape)} in one update "
                f"and {tuple(reference[name].shape)} in the other"
            )
    square = _dot(update, update)
    product, lengths = torch.stack(
        [_dot(update, reference), square.sqrt() * reference_square.sqrt().to(square.device)]
    ).tolist()
    if lengths == 0:
        return 0.0
    # Rounding can leave [-1, 1]. NaN stays NaN: a broken update must not pass for an idle one.
    ratio: float = product / lengths
    return ratio if isnan(ratio) else max(-1.0, min(1.0, ratio))


def _dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    if not a:
        raise DataError("an update without tensors has no direction")
    total: Tensor | None = None
    for name in sorted(a):
        left = a[name].detach().reshape(-1).double()
        right = left if a is b else b[name].detach().reshape(-1).to(left)
        term = torch.dot(left, right)
        total = term if total is None else total + term
    assert total is not None
    return total
