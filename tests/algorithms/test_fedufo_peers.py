"""What a group's models say of a client's samples: who is asked, and what is kept of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from accord.algorithms.fedufo.peers import Peers, class_shares, group_message, group_target
from accord.core.model import Model
from accord.core.types import Replies, Result
from accord.models import adapt

T = torch.tensor
X = T([[1.0], [2.0]])


def model() -> Model:
    """x -> a x -> (b1 a x, b2 a x); the feature is a x."""
    layers = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    return Model(adapt(layers, head="1", example=torch.zeros(1, 1)))


def message() -> Any:
    """Clients 4, 7 and 9: features x, 2 x and 3 x, logits (x, 0) times that, and class counts."""
    results = tuple(
        Result(
            {
                "model": {"module.0.weight": T([[a]]), "module.1.weight": T([[1.0], [0.0]])},
                "buffers": {},
                "counts": {"classes": T(counts)},
            },
            {},
            {},
        )
        for a, counts in ((1.0, [3, 0]), (2.0, [1, 0]), (3.0, [0, 0]))
    )
    return group_message(Replies((4, 7, 9), results, torch.ones(3), {}), torch.device("cpu"))


def job(round: int, client: int = 7, **shared: Any) -> Any:
    info = {"round": T(round), "client": T(client), "lr": T(0.1)}
    return SimpleNamespace(info=info, shared=shared or message(), data=SimpleNamespace(x=X))


def test_features_of_the_others_and_from_its_round_on_the_groups_target() -> None:
    part = Peers(features=True, target="normalise", target_from=5)
    early = part.begin(model(), job(4))
    assert set(early) == {"features"}
    # one row per sample, one column per member: x, nothing of its own, 3 x
    assert early["features"][..., 0].tolist() == [[1.0, 0.0, 3.0], [2.0, 0.0, 6.0]]
    late = part.begin(model(), job(5))
    assert set(late) == {"features", "target"}
    assert late["features"][..., 0].tolist() == [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]
    # of class 0 client 4 holds three of four samples and 7 one; nobody holds class 1
    assert late["target"][:, 0].exp().tolist() == pytest.approx([1.0, 1.0])
    assert late["target"][:, 1].tolist() == pytest.approx([torch.log(T(1e-8)).item()] * 2)


def test_nobody_is_asked_for_nothing() -> None:
    assert Peers(features=False).begin(model(), job(0)) == {}
    assert Peers(features=True, target="softmax").begin(model(), job(0, alone={})) == {}
    only = Peers(features=False, target="softmax", target_from=2)
    assert only.begin(model(), job(1)) == {}
    assert set(only.begin(model(), job(2))) == {"target"}
    assert set(Peers(features=True).begin(model(), job(9))) == {"features"}
    batch: Any = SimpleNamespace(index=T([1]), x=X[1:])
    carry = {"Peers": Peers(features=True).begin(model(), job(0))}
    rows = Peers(features=True).rows(model(), job(0), carry, batch, "features")
    assert rows is not None
    assert rows[..., 0].tolist() == [[2.0, 0.0, 6.0]]
    assert Peers(features=True).rows(model(), job(0), carry, batch, "target") is None


def test_what_a_group_agrees_on() -> None:
    shares = class_shares(T([[3.0, 0.0, 1.0], [1.0, 0.0, 1.0]]))
    assert shares.tolist() == [[0.75, 0.0, 0.5], [0.25, 0.0, 0.5]]
    said = T([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]]).log()
    merged = T([[0.75 * 0.2 + 0.25 * 0.6, 0.0, 0.5 * 0.5 + 0.5 * 0.1]])
    assert torch.allclose(group_target(said, shares, "softmax"), merged.log_softmax(1))
    assert group_target(said, shares, "normalise").exp().tolist()[0] == pytest.approx([0.5, 1e-8, 0.5])
    weighed = T([[0.75 * said[0, 0, 0] + 0.25 * said[0, 1, 0], 0.0, 0.5 * said[0, 0, 2] + 0.5 * said[0, 1, 2]]])
    assert torch.allclose(group_target(said, shares, "logits"), weighed.log_softmax(1))
