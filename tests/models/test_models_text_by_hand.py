"""The network for token ids against torch's own attention, its sizes, and every way to give it tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from accord.core.fields import Field, Fields
from accord.core.types import Facts
from accord.errors import ConfigError
from accord.models import MODELS
from accord.models.text import Block, _mean

T = torch.tensor


def facts(shape: tuple[int, ...] = (5,), vocabulary: int = 7, fields: Fields | None = None, problem: str = "") -> Facts:
    problem = problem or "classification"
    return Facts(shape, 3, np.array([3]), problem=problem, vocabulary=vocabulary, fields=fields)


def made(known: Facts, **settings: Any) -> Any:
    torch.manual_seed(0)
    return MODELS["transformer"](known.sample_shape, known.num_classes, facts=known, **settings).eval()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_attention_is_torchs(causal: bool, masked: bool) -> None:
    torch.manual_seed(0)
    block = Block(6, 3, 0.0, causal).double()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    mask = T([[1.0, 1.0, 1.0, 0.0], [1.0, 2.0, 0.0, 0.0]]) if masked else None
    seen = torch.ones(2, 4, 4, dtype=torch.bool)
    if causal:
        seen = seen.tril()
    if mask is not None:
        seen = seen & (mask > 0)[:, None, :]
    query, key, value = block.qkv(x).split(6, dim=-1)
    heads = [
        functional.scaled_dot_product_attention(*(t[..., 2 * h : 2 * h + 2] for t in (query, key, value)), seen)
        for h in range(3)
    ]
    assert torch.allclose(block._attended(x, mask), torch.cat(heads, -1))
    after = x + block.out(block._attended(block.norm1(x), mask))
    assert torch.allclose(block(x, mask), after + block.mlp(block.norm2(after)))


def test_sizes_of_a_block() -> None:
    block = Block(6, 3, 0.5, False)
    assert [(layer.in_features, layer.out_features) for layer in (block.qkv, block.out)] == [(6, 18), (6, 6)]
    first, between, second = block.mlp
    assert (first.in_features, first.out_features, second.in_features, second.out_features) == (6, 12, 12, 6)
    assert isinstance(between, nn.GELU)
    assert isinstance(block.drop, nn.Dropout)
    assert block.drop.p == 0.5


def test_what_is_made_without_a_word() -> None:
    network = made(facts())
    assert network.embed.weight.shape == (7, 32)
    assert network.places.shape == (5, 32)
    assert len(network.blocks) == 2
    for block in network.blocks:
        assert (block.heads, block.causal) == (2, False)
        assert isinstance(block.drop, nn.Identity)
    assert (network.head.in_features, network.head.out_features) == (32, 3)
    assert not network.each
    assert network.head_name == "head"
    assert network.map_shape is None
    assert network.takes_fields


def test_what_is_asked_for_is_made() -> None:
    network = made(facts(problem="tokens"), width=9, layers=1, heads=3, dropout=0.25, causal=True, vocabulary=8)
    assert network.embed.weight.shape == (8, 9)
    (block,) = network.blocks
    assert (block.heads, block.causal, block.drop.p) == (3, True, 0.25)
    assert network.each
    assert made(facts(), vocabulary=7).embed.num_embeddings == 7


def test_places_begin_small() -> None:
    kept = made(facts((2000,)), width=8).places
    places = kept.detach()
    assert float(places.std()) == pytest.approx(0.02, rel=0.05)
    assert float(places.mean()) == pytest.approx(0.0, abs=0.001)
    assert kept.requires_grad


def test_a_text_is_the_mean_of_the_positions_it_has() -> None:
    hidden = T([[[1.0], [2.0], [6.0]]]).repeat(3, 1, 1)
    mask = T([[1.0, 1.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    assert _mean(hidden, mask).flatten().tolist() == [1.5, 6.0, 0.0]


def test_every_way_to_give_tokens() -> None:
    network = made(facts(), width=8)
    tokens, mask = T([[1, 2, 3, 0], [6, 0, 0, 0]]), T([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    plain = network(tokens)  # shorter than the data's longest
    assert torch.equal(network(tokens=tokens), plain)
    assert torch.equal(network({"tokens": tokens}), plain)
    masked = network(tokens=tokens, mask=mask)
    assert torch.equal(network({"tokens": tokens, "mask": mask}), masked)
    assert torch.allclose(masked[0], plain[0])
    assert torch.allclose(masked[1], network(tokens[1:, :1])[0])
    hidden = network.embed(tokens) + network.places[:4]
    for block in network.blocks:
        hidden = block(hidden, None)
    features = network.norm(hidden).mean(1)
    assert torch.allclose(network.features(tokens), features)
    assert torch.allclose(network.head(features), plain)


def test_there_are_no_maps() -> None:
    network = made(facts(), width=8)
    tokens = T([[1, 2]])
    for use in (network.feature_maps, lambda x: network.logits_and_features(x, lambda maps: maps)):
        with pytest.raises(ConfigError, match="has no feature maps"):
            use(tokens)


def test_sequences_are_known_by_their_field() -> None:
    tokens, mask = Field("tokens", (4,), 9), Field("mask", (4,))
    for fields in (Fields((tokens,)), Fields((tokens, mask))):
        network = made(facts((fields.size,), 0, fields), width=8)
        assert (len(network.places), network.embed.num_embeddings) == (4, 9)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (facts((2, 3)), r"got samples of shape \(2, 3\)"),
        (facts((4,), 0), r"got samples of shape \(4,\)"),
        (facts((4,), 9, Fields((Field("mask", (4,)),))), "got the inputs mask"),
        (facts((4,), 9, Fields((Field("tokens", (4,)),))), "got the inputs tokens"),
        (facts((4,), 9, Fields((Field("tokens", (2, 2), 9),))), "got the inputs tokens"),
    ],
)
def test_data_that_holds_no_tokens_is_refused(known: Facts, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(known)


def test_heads_divide_the_width_and_ids_have_their_place() -> None:
    with pytest.raises(ConfigError, match="width = 8 must be a multiple of heads = 3"):
        made(facts(), width=8, heads=3)
    with pytest.raises(ConfigError, match="vocabulary = 6, but the data has token ids up to 6"):
        made(facts(), vocabulary=6)
