"""The values that travel between server and clients. K clients, S steps, B batch, C classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from accord.core.fields import Fields
from accord.core.keys import Key
from accord.core.tensors import Tree, Trees, ordered
from accord.errors import RunError

State = Trees  # all the server remembers; counters and histories are tensors too
Own = Mapping[int, Trees] | None  # what single clients are sent beside what all are
Carry = dict[str, Any]  # what a task keeps between its own steps; never leaves the client


class ClientData(NamedTuple):
    """A client's own samples, as the task may see them."""

    x: Tensor
    y: Tensor
    test_x: Tensor  # empty unless the run measures personal accuracy
    test_y: Tensor
    num_classes: int

    @property
    def has_test(self) -> bool:
        """Whether the client is to be judged on its own test data."""
        return len(self.test_y) > 0

    def class_counts(self) -> Tensor:
        """[C] how many training samples of each class the client holds."""
        return torch.bincount(self.y, minlength=self.num_classes)


@dataclass(frozen=True)
class Facts:
    """What is known of a federation's data without seeing a sample: all that a model and a method are built from."""

    sample_shape: tuple[int, ...]
    num_classes: int  # outputs of a network: classes, labels, or numbers asked for
    sizes: np.ndarray[Any, np.dtype[np.int64]]  # [K] training samples of every client
    unseen: frozenset[int] = frozenset()  # clients that are never asked to train
    problem: str = "classification"  # an entry of `accord.problems`
    vocabulary: int = 0  # token ids there are, where inputs are whole numbers
    fields: Fields | None = None  # where a sample is several inputs: how they are packed into one
    class_weights: tuple[float, ...] = ()  # of the training loss, where `local.class_weights` wants some

    @cached_property
    def members(self) -> list[int]:
        """The clients that may be asked: those with samples, newcomers aside."""
        may_train = self.sizes > 0
        may_train[list(self.unseen)] = False
        return [int(client) for client in np.flatnonzero(may_train)]


class Job(NamedTuple):
    """All a client is given."""

    shared: Trees  # the same for every client of this exchange
    private: Trees  # addressed to this client
    memory: Trees  # what it kept from earlier rounds
    info: Tree  # 0-d tensors: client, round, examples, steps, lr
    data: ClientData  # its own samples; read in begin and finish, where nothing is captured


class Batch(NamedTuple):
    """One minibatch. `weight` 0 marks padding; `noise` holds random tensors drawn beforehand."""

    x: Tensor
    y: Tensor  # [B] labels, [B, C] soft labels, or as the problem has them
    weight: Tensor
    index: Tensor  # type: ignore[assignment]  # [B] positions in the client's own data: what `begin` computed per sample is found by it
    noise: Tree


class Result(NamedTuple):
    """`reply` travels to the server, `memory` stays with the client, `metrics` are 0-d sums."""

    reply: Trees
    memory: Trees
    metrics: Tree


class World(NamedTuple):
    """What the server knows of the federation in this round."""

    round: int
    clients: Sequence[int]  # those that may be asked
    sizes: np.ndarray[Any, np.dtype[np.int64]]  # [K] training samples of every client
    key: Key


class Began(NamedTuple):
    """What a client's work began from, where that need not be what the server has now."""

    version: int  # as `Streaming.begin` was told
    shared: Trees  # the message the client was given


@dataclass(frozen=True)
class Block:
    """Clients whose trees of one name were averaged where they were trained, so that only the mean came here."""

    clients: tuple[int, ...]
    weight: str  # by `examples`, or `uniform`
    mean: Tree


class Share(dict[str, Tensor]):
    """In the place of a client's tree of which only a block's mean came. It has a size, and no values of its own."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def values(self) -> Any:
        """As many and as large as the client's own: for counting bytes."""
        return self.block.mean.values()

    def _refuse(self, *_: object) -> Any:
        raise RunError(
            "a client's own answer is asked for, and only means of blocks of clients are here: set partial_sums to 0"
        )

    __iter__ = __getitem__ = keys = items = get = _refuse


@dataclass(frozen=True)
class Replies:
    """Answers ordered by client id, never by arrival. Clients that failed are in `missing`, with the reason."""

    ids: tuple[int, ...]
    results: tuple[Result, ...]
    examples: Tensor  # [k] training samples of those who answered
    missing: Mapping[int, str]
    began: tuple[Began, ...] = ()  # of each, for those that came by `Streaming.arrivals`

    def __len__(self) -> int:
        return len(self.ids)

    def each(self, tree: str) -> Iterator[Tree]:
        """One client's tree after the other."""
        return (result.reply[tree] for result in self.results)

    def has(self, tree: str) -> bool:
        """Whether the clients sent such a tree."""
        return bool(self.results) and tree in self.results[0].reply

    def stacked(self, tree: str) -> Tree:
        """[k, ...] tensors."""
        first = self.results[0].reply[tree]
        return {name: torch.stack([one[name] for one in self.each(tree)]) for name in first}

    def weights(self, by: str = "examples") -> Tensor:
        """[k] float64 weights that sum to one: by training samples, or `uniform`."""
        if by == "examples":
            counts = self.examples.double()
        elif by == "uniform":
            counts = torch.ones(len(self), dtype=torch.float64)
        else:
            raise ValueError(f"unknown weighting {by!r}; allowed: examples, uniform")
        return counts / counts.sum()

    def mean(self, tree: str, weight: str | Tensor = "examples") -> Tree:
        """Weighted mean, one client after the other so that they are never stacked."""
        weights = self.weights(weight) if isinstance(weight, str) else weight
        if self.results and isinstance(self.results[0].reply[tree], Share):
            return self._mean_of_blocks(tree, weight, weights)
        return weighted_sum(self.each(tree), weights)

    def _mean_of_blocks(self, tree: str, weight: str | Tensor, weights: Tensor) -> Tree:
        """The blocks' means one after the other, each by the weight of its clients."""
        of = dict(zip(self.ids, weights.tolist(), strict=True))
        blocks = {share.block.clients: share.block for share in self.each(tree) if isinstance(share, Share)}
        if any(block.weight != weight or not of.keys() >= {*block.clients} for block in blocks.values()):
            raise RunError(f"{tree!r} was averaged in blocks of clients, and not as asked for: set partial_sums to 0")
        shares = [sum(of[client] for client in clients) for clients in blocks]
        return weighted_sum((block.mean for block in blocks.values()), torch.tensor(shares, dtype=torch.float64))

    def measured(self, name: str) -> bool:
        """Whether the clients sent such a metric (under privacy they keep their losses to themselves)."""
        return bool(self.results) and name in self.results[0].metrics

    def metric(self, name: str) -> Tensor:
        """[k] one metric of every client, float64."""
        return torch.stack([result.metrics[name].double().cpu() for result in self.results])


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    """The mean of values of samples over those that count (weight 0 is padding)."""
    return (values * weight).sum() / weight.sum()


def weighted_sum(trees: Iterator[Tree], weights: Tensor) -> Tree:
    """`sum_k w_k tree_k` in the given order. Integer tensors are counters: the largest is kept, never a mean."""
    total: Tree = {}
    for tree, weight in zip(trees, weights.tolist(), strict=True):
        real = [name for name in tree if tree[name].is_floating_point()]
        values = [tree[name] for name in real]
        if real and real[0] in total:
            torch._foreach_add_([total[name] for name in real], values, alpha=weight)
        elif real:
            total.update(zip(real, torch._foreach_mul(values, weight), strict=True))
        for name in tree.keys() - set(real):
            total[name] = torch.maximum(total[name], tree[name]) if name in total else tree[name]
    return ordered(total)


class Exchange(Protocol):
    """The only door between server and clients."""

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        """Ask `clients` to run the named task."""
        ...


@runtime_checkable
class Streaming(Protocol):
    """What an exchange may be beside: one whose clients begin at any time and answer whenever they are done.

    Work that has begun outlives the round, and a resume. A client is at work once at a time, and answers at most once
    in a round. `accord.core.streaming.streaming(exchange)` makes one of any exchange.
    """

    def begin(
        self, task: str, clients: Sequence[int], shared: Trees, private: Own = None, *, version: int = 0, slots: int = 0
    ) -> None:
        """Have clients begin in this order, while fewer than `slots` are at work (0: all of them, at once).

        The others wait. The first of them who is not at work, has not answered in this round and can be reached begins
        wherever a place becomes free; whoever still waits at the round's end was never asked. `version` comes back
        with the answers.
        """
        ...

    def arrivals(self, count: int) -> Replies:
        """The next `count` answers, whatever they began from; fewer where no more can come in this round.

        A round in which nobody answers at all ends here, as one of an exchange with no answers does.
        """
        ...
