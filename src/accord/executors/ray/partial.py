"""Means of blocks of clients, made where the clients were trained: the same arithmetic in an actor and here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from accord.client import Answer, Sums
from accord.core.types import Block, Share, weighted_sum

Sizes = np.ndarray[Any, np.dtype[np.int64]]


def block_means(answers: Sequence[Answer], sums: Sums, sizes: Sizes) -> dict[str, Share]:
    """The mean of every tree that is averaged, over those of a block who answered; nothing where nobody did."""
    results = {answer.client: answer.result for answer in answers if answer.result is not None}
    shares: dict[str, Share] = {}
    for tree, weight in sums.trees.items() if results else ():
        clients = sorted(results)
        counts = [float(sizes[client]) if weight == "examples" else 1.0 for client in clients]
        weights = torch.tensor(counts, dtype=torch.float64)
        mean = weighted_sum((results[client].reply[tree] for client in clients), weights / weights.sum())
        shares[tree] = Share(Block(tuple(clients), weight, mean))
    return shares


def with_shares(answers: Sequence[Answer], shares: Mapping[str, Share]) -> list[Answer]:
    """The answers with these in the place of the clients' own trees."""
    return [
        replace(answer, result=answer.result._replace(reply={**answer.result.reply, **shares}))
        if answer.result is not None
        else answer
        for answer in answers
    ]


def without(answers: Sequence[Answer], trees: Mapping[str, Any]) -> list[Answer]:
    """The answers less those trees."""
    left = []
    for answer in answers:
        if answer.result is not None:
            reply = {name: tree for name, tree in answer.result.reply.items() if name not in trees}
            answer = replace(answer, result=answer.result._replace(reply=reply))
        left.append(answer)
    return left


def is_whole(answer: Answer) -> bool:
    """Whether a client's own trees came."""
    return answer.result is not None and not any(isinstance(tree, Share) for tree in answer.result.reply.values())
