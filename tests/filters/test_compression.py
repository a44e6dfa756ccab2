"""Top-k with error feedback and eight bits: what leaves, what stays, what arrives, and how many bytes it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.tensors import Trees, num_bytes
from accord.errors import DataError
from accord.filters import Compression
from accord.wire.codec import decode, encode


def trees(seed: int, dtype: torch.dtype = torch.float32) -> Trees:
    """A model with a counter, and something that is not sent down."""
    g = torch.Generator().manual_seed(seed)
    return {
        "model": {
            "a": torch.randn(7, 5, generator=g).to(dtype),
            "b": torch.randn(40, generator=g).to(dtype),
            "count": torch.tensor(seed),
        },
        "extra": {"c": torch.randn(20, generator=g).to(dtype), "few": torch.randn(3, generator=g).to(dtype)},
        "none": {},
    }


def shared_of(seed: int = 1) -> Trees:
    return {"model": {name: t for name, t in trees(seed)["model"].items() if name != "count"}, "other": {}}


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_the_largest_changes_travel_by_hand() -> None:
    shared = {"model": {"w": torch.tensor([1.0, 1.0, 1.0, 1.0]), "v": torch.tensor([0.0])}}
    reply = {"model": {"w": torch.tensor([1.1, -1.0, 1.0, 1.5]), "v": torch.tensor([0.3])}}
    way = Compression(keep=0.4)  # two of five: those of -2 and 0.5
    sent, kept = way.packed(shared, reply, {}, rng())
    assert sent.keys() == {"model", "filter.model"}
    assert sent["model"] == {}
    assert sent["filter.model"]["values"].tolist() == [-2.0, 0.5]  # in the order v, w
    arrived = way.unpacked(shared, sent)["model"]
    assert arrived["v"].tolist() == [0.0]
    assert arrived["w"].tolist() == [1.0, -1.0, 1.0, 1.5]
    held = kept["filter.kept.model"]
    assert held["v"].tolist() == pytest.approx([0.3])
    assert held["w"].tolist() == pytest.approx([0.1, 0.0, 0.0, 0.0])
    # the next time nothing changes, and what was held back leaves
    still = {"model": {name: t.clone() for name, t in shared["model"].items()}}
    sent, kept = way.packed(shared, still, kept, rng())
    assert way.unpacked(shared, sent)["model"]["v"].tolist() == pytest.approx([0.3])
    assert not any(bool(t.any()) for t in kept["filter.kept.model"].values())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 50), st.floats(0.01, 0.99), st.sampled_from([8, 32]), st.integers(0, 5))
def test_what_left_and_what_is_kept_are_the_change(seed: int, keep: float, bits: int, again: int) -> None:
    way, shared, reply = Compression(keep, bits), shared_of(), trees(seed)
    before: Trees = {"filter.kept.model": {name: 0.1 * t for name, t in shared_of(again)["model"].items()}}
    sent, kept = way.packed(shared, reply, before, rng())
    arrived = way.unpacked(shared, sent)
    for name in ("a", "b"):
        start = shared["model"][name].double()
        left = arrived["model"][name].double() - start
        due = reply["model"][name].double() - start + before["filter.kept.model"][name].double()
        assert torch.allclose(left + kept["filter.kept.model"][name].double(), due, rtol=0, atol=1e-6)
    assert int(arrived["model"]["count"]) == seed
    assert len(sent["filter.model"]["values"]) == -(-75 * keep // 1) or abs(75 * keep - round(75 * keep)) < 1e-6


@pytest.mark.parametrize("keep", [1.0, 0.1])
@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_must_be_exact_is(keep: float, bits: int, dtype: torch.dtype) -> None:
    way, reply = Compression(keep, bits), trees(4, dtype)
    shared = {"model": {name: t.to(dtype) for name, t in shared_of()["model"].items()}}
    sent, _ = way.packed(shared, reply, {}, rng())
    arrived = way.unpacked(shared, sent)
    assert arrived.keys() == reply.keys()
    assert arrived["none"] == {}
    assert torch.equal(arrived["model"]["count"], reply["model"]["count"])
    assert torch.equal(arrived["extra"]["few"], reply["extra"]["few"])  # too few values to gain anything
    for name, tree in reply.items():
        for leaf, value in tree.items():
            assert arrived[name][leaf].dtype == value.dtype
            assert arrived[name][leaf].shape == value.shape
    step = float(reply["extra"]["c"].abs().max()) / 127
    atol = step * 1.001 if bits == 8 else 0.0
    assert torch.allclose(arrived["extra"]["c"], reply["extra"]["c"], rtol=0, atol=atol)  # never thinned: no change
    assert all(
        torch.equal(a, b) for a, b in zip(reply["model"].values(), trees(4, dtype)["model"].values(), strict=True)
    )


def test_what_travels_is_what_the_wire_carries() -> None:
    shared = {"model": {"w": torch.zeros(100_000)}}
    reply = {"model": {"w": torch.randn(100_000, generator=torch.Generator().manual_seed(0))}}
    plain = num_bytes(reply)
    sizes = {}
    for keep, bits in ((1.0, 8), (0.01, 32), (0.01, 8)):
        sent, _ = Compression(keep, bits).packed(shared, reply, {}, rng())
        there = decode(encode(sent))
        assert there.keys() == sent.keys()
        assert all(torch.equal(there[n][leaf], t) for n, tree in sent.items() for leaf, t in tree.items())
        sizes[keep, bits] = num_bytes(sent)
        assert len(encode(sent)) - num_bytes(sent) < 600  # the message's header
    assert plain == 400_000
    assert sizes[1.0, 8] == 100_000 + 4
    assert 4 * 1000 + 1000 < sizes[0.01, 32] < 4 * 1000 + 1400
    assert sizes[0.01, 8] == sizes[0.01, 32] - 3 * 1000 + 4


def test_tensors_that_stay_with_a_client_are_not_made_up() -> None:
    shared, reply = shared_of(), trees(2)
    del reply["model"]["a"]
    way = Compression(0.2, 8)
    sent, kept = way.packed(shared, reply, {}, rng())
    assert way.unpacked(shared, sent)["model"].keys() == {"b", "count"}
    assert kept["filter.kept.model"].keys() == {"b"}


def damaged(sent: Trees, tree: str, leaf: str, value: torch.Tensor | None) -> Trees:
    new = {name: dict(own) for name, own in sent.items()}
    new.setdefault(tree, {})
    if value is None:
        del new[tree][leaf]
    else:
        new[tree][leaf] = value
    return new


@pytest.mark.parametrize(
    ("tree", "leaf", "value"),
    [
        ("filter.model", "values", None),
        ("filter.model", "places", torch.zeros(2)),
        ("filter.model", "places", torch.tensor([0, 200, 3], dtype=torch.uint8)),
        ("filter.model", "values", torch.zeros(3, dtype=torch.int8)),
        ("filter.model", "values", torch.zeros(15)),
        ("filter.model", "steps", torch.zeros(9)),
        ("filter.model", "tensors", torch.zeros(5, dtype=torch.uint8)),
        ("filter.gone", "values", torch.zeros(3, dtype=torch.int8)),
        ("filter.steps.extra", "c", torch.zeros(3)),
        ("filter.steps.extra", "nothing", torch.zeros(())),
    ],
)
def test_what_no_client_sends_is_refused(tree: str, leaf: str, value: torch.Tensor | None) -> None:
    way, shared = Compression(0.2, 8), shared_of()
    sent, _ = way.packed(shared, trees(3), {}, rng())
    with pytest.raises(DataError):
        way.unpacked(shared, damaged(sent, tree, leaf, value))
