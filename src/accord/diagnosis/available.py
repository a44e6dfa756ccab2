"""Which methods this federation can have: some are not defined for its task, or for its network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from accord.config import RunConfig, from_dict, to_dict
from accord.data.federated import FederatedData
from accord.engine.build import build_algorithm, build_model, build_setup
from accord.engine.problem import check_defined, facts_of
from accord.errors import AccordError

Refusal = Callable[[str], str]  # why a method cannot be had, nothing if it can


def refusals(config: RunConfig, data: FederatedData, network: nn.Module | None = None) -> Refusal:
    """By trying: a method is built, and nothing is trained."""
    given = to_dict(replace(config, compile=False))
    facts = facts_of(config, data)
    try:
        model = build_model(from_dict({**given, "device": "cpu"}), facts, network, torch.device("cpu"))
    except AccordError as error:
        reason = str(error)  # the network does not fit the data: nothing can be said about methods
        return lambda method: reason

    def why(method: str) -> str:
        try:
            settings = from_dict({**given, "algorithm": {"name": method}})
            check_defined(method, build_algorithm(settings, build_setup(settings, facts, model)), facts)
        except AccordError as error:
            return str(error)
        return ""

    return why
