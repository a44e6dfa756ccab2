"""The network for token ids: what it gives, what padding and later tokens change, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accord.core.fields import Field, Fields
from accord.core.model import Model
from accord.core.types import Facts
from accord.errors import ConfigError
from accord.models import MODELS

SIZES = np.array([3])


def facts(problem: str = "classification", fields: Fields | None = None, vocabulary: int = 7, length: int = 5) -> Facts:
    shape = (length,) if fields is None else (fields.size,)
    return Facts(shape, 3, SIZES, problem=problem, vocabulary=0 if fields else vocabulary, fields=fields)


def made(known: Facts, **settings: Any) -> Any:
    torch.manual_seed(0)
    return MODELS["transformer"](known.sample_shape, known.num_classes, facts=known, width=8, **settings).eval()


def test_one_answer_for_a_text_or_one_for_every_position() -> None:
    tokens = torch.tensor([[0, 1, 2, 3, 6], [6, 6, 0, 0, 1]])
    network = made(facts())
    logits, features = network.logits_and_features(tokens)
    assert (logits.shape, features.shape, network.num_features) == ((2, 3), (2, 8), 8)
    assert network.embed.num_embeddings == 7
    logits, features = made(facts("tokens")).logits_and_features(tokens)
    assert (logits.shape, features.shape) == ((2, 5, 3), (2, 5, 8))
    assert made(facts(), vocabulary=100).embed.num_embeddings == 100


@pytest.mark.parametrize("problem", ["classification", "tokens"])
def test_padding_changes_nothing(problem: str) -> None:
    network = made(facts(problem))
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0]])
    one, two = (network(tokens=torch.tensor([[1, 2, 3, *rest]]), mask=mask) for rest in ([0, 0], [5, 6]))
    shown = slice(0, 3)
    alike = torch.allclose(one, two) if problem == "classification" else torch.allclose(one[:, shown], two[:, shown])
    assert alike
    assert not torch.allclose(one, network(torch.tensor([[1, 2, 3, 0, 0]])))


def test_a_causal_one_does_not_look_ahead() -> None:
    network = made(facts("tokens"), causal=True)
    one, two = network(torch.tensor([[1, 2, 3, 4, 5]])), network(torch.tensor([[1, 2, 3, 6, 0]]))
    assert torch.allclose(one[:, :3], two[:, :3])
    assert not torch.allclose(one[:, 3:], two[:, 3:])


def test_packed_sequences_arrive_as_they_were() -> None:
    fields = Fields((Field("tokens", (4,), 9), Field("mask", (4,))))
    network = made(facts("tokens", fields))
    tokens, mask = torch.tensor([[1, 8, 0, 0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    model = Model(network, fields=fields)
    out = model.reference(*model.init(), fields.packed({"tokens": tokens, "mask": mask}))
    assert torch.equal(out.logits, network(tokens=tokens, mask=mask))
    assert torch.allclose(out.features, network.features({"tokens": tokens, "mask": mask}).mean(1))


@pytest.mark.parametrize(
    ("known", "settings", "message"),
    [
        (facts(vocabulary=0), {}, r"wants token ids.*samples of shape \(5,\)"),
        (facts(fields=Fields((Field("age", ()), Field("tokens", (4,), 9)))), {}, "got the inputs age, tokens"),
        (facts(), {"heads": 3}, "multiple of heads"),
        (facts(), {"vocabulary": 3}, "token ids up to 6"),
    ],
)
def test_what_it_refuses(known: Facts, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(known, **settings)
