"""Federated averaging, with whatever parts: the base most methods share."""

from __future__ import annotations

from typing import Annotated, Any

from accord.aggregate import Mean, Weighting
from accord.core.algorithm import Aggregator, Method, Setup
from accord.core.task import Part
from accord.parts.losses import SampleLoss

Weight = Annotated[Weighting, "average by samples, or every client alike"]


def averaging(setup: Setup, *parts: Part, weight: Weighting = "examples", **fields: Any) -> Method:
    """The problem's loss and further parts, the clients' models averaged; `fields` are the method's others."""
    rules: dict[str, Aggregator] = {"model": Mean(weight), "buffers": Mean(weight)}
    method: Method = setup.method(setup.local(SampleLoss(), *parts), rules, **fields)
    return method
