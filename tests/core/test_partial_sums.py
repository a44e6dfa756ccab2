"""Means of blocks of clients in the place of their answers: the numbers, and who may have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from accord import Federation, load_config
from accord.client import Answer, Sums, Work
from accord.core.sums import averaged_trees
from accord.core.tensors import num_bytes
from accord.core.types import Block, Replies, Result, Share
from accord.errors import ConfigError, RunError
from accord.executors.ray.partial import block_means, is_whole, with_shares, without
from support.federation import TinyRun

SIZES = np.array([1, 2, 3, 4, 5])
VALUES = np.array([[1.0, 5.0], [-2.0, 0.5], [7.0, 3.0], [0.25, 9.0], [4.0, -8.0]])


def answers() -> list[Answer]:
    made = [Answer(k, Result({"w": {"x": torch.tensor(VALUES[k])}, "own": {}}, {}, {})) for k in range(5)]
    made[1] = replace(made[1], result=None, error="no")
    return made


def folded(sums: Sums) -> Replies:
    shared: list[Answer] = []
    for block in sums.blocks([Work(k, {}, None) for k in (4, 2, 0, 1, 3)]):
        mine = [answers()[work.client] for work in block]
        shared += with_shares(mine, block_means(mine, sums, SIZES))
    good = [answer for answer in shared if answer.result is not None]
    assert [answer.client for answer in good] == [0, 2, 3, 4]
    assert not any(map(is_whole, shared))
    results = tuple(answer.result for answer in good if answer.result is not None)
    return Replies((0, 2, 3, 4), results, torch.tensor(SIZES[[0, 2, 3, 4]]), {})


@pytest.mark.parametrize("block", [1, 2, 3, 9])
@pytest.mark.parametrize(("weight", "counts"), [("examples", [1, 3, 4, 5]), ("uniform", [1, 1, 1, 1])])
def test_a_mean_of_blocks_is_the_mean(block: int, weight: str, counts: list[int]) -> None:
    mean = folded(Sums({"w": weight}, block)).mean("w", weight)["x"]
    assert torch.allclose(mean, torch.tensor(np.average(VALUES[[0, 2, 3, 4]], axis=0, weights=counts)), atol=1e-12)


def test_other_weights_or_clients_are_refused() -> None:
    replies = folded(Sums({"w": "examples"}, 2))
    for wrong in ("uniform", torch.ones(4)):
        with pytest.raises(RunError, match="not as asked for: set partial_sums to 0"):
            replies.mean("w", wrong)
    fewer = Replies(replies.ids[:2], replies.results[:2], replies.examples[:2], {})  # half of a block
    with pytest.raises(RunError, match="not as asked for"):
        fewer.mean("w")


def test_a_share_has_a_size_and_no_values() -> None:
    share = next(folded(Sums({"w": "uniform"}, 2)).each("w"))
    assert [tensor.shape for tensor in share.values()] == [(2,)]
    block = Block((0, 1), "uniform", {"a": torch.zeros(3), "b": torch.zeros(2)})
    assert num_bytes({"model": Share(block)}) == 20, "as large as an answer of its own"
    for read in (
        list,
        dict,
        lambda tree: {**tree},
        lambda tree: tree["x"],
        lambda tree: tree.items(),
        lambda tree: tree.get("x"),
    ):
        with pytest.raises(RunError, match="a client's own answer is asked for"):
            read(share)  # type: ignore[operator]


def test_a_block_of_which_nobody_answered_has_no_mean() -> None:
    assert block_means([Answer(0, None, "no")], Sums({"w": "uniform"}, 2), SIZES) == {}
    assert without(answers()[:1], {"w": 0})[0].result == Result({"own": {}}, {}, {})


@pytest.mark.parametrize(
    ("name", "trees"),
    [
        ("fedavg", {"model": "examples", "buffers": "examples"}),
        ("fedcm", {}),  # its part reads the answers
        ("fedavgm", {"model": "examples", "buffers": "examples"}),
        ("scaffold", {}),
        ("median", {}),
        ("qffl", {}),
        ("fedbr", {}),
        ("centralized", {}),
    ],
)
def test_who_reads_means_only(name: str, trees: dict[str, str]) -> None:
    assert averaged_trees(TinyRun(name).algorithm) == trees


def test_what_would_read_more_is_refused_before_the_start() -> None:
    with pytest.raises(ConfigError, match="partial_sums = 4 is for executor = 'ray', not 'auto'"):
        load_config(None, ["partial_sums=4"])
    with pytest.raises(ConfigError, match=r"own answer, which compress and evaluate\.drift would read: set it to 0"):
        load_config(None, ["partial_sums=4", "executor=ray", "compress.bits=8", "evaluate.drift=true"])
    pytest.importorskip("ray")
    small = ["executor=ray", "device=cpu", "partial_sums=4", "data.limit=200"]
    with pytest.raises(ConfigError, match="the server of 'scaffold' reads more of the clients' answers than one"):
        Federation.build(load_config(None, [*small, "algorithm.name=scaffold"]))
    assert Federation.build(load_config(None, small)).sums == Sums({"model": "examples", "buffers": "examples"}, 4)
