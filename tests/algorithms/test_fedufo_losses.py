"""FedUFO's losses by hand, and the properties they must have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.algorithms.fedufo.alignment import Discriminator, UniformAlignment, naming_loss, uniform_loss
from accord.algorithms.fedufo.consensus import Divergence
from accord.algorithms.fedufo.peers import Peers, class_shares, group_target
from accord.core.keys import Key
from accord.core.plan import Plan

# the losses, by hand -------------------------------------------------------------------------------------------


def test_uniform_loss_by_hand(float64: None) -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.2]]))
    expected = [(math.log(2) + 2 * math.log(4)) / 3, math.log(3)]
    assert uniform_loss(logits).tolist() == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=20))
def test_uniform_loss_is_least_where_uniform(values: list[float]) -> None:
    logits = torch.tensor(values, dtype=torch.float64)
    loss, least = float(uniform_loss(logits)), math.log(len(values))
    assert loss >= least - 1e-12
    spread = max(values) - min(values)
    assert spread > 1e-7 or loss - least < 1e-12
    assert spread < 1e-4 or loss - least > 1e-12


def test_naming_loss_by_hand(float64: None) -> None:
    """One sample, three members of four clients: own weight 1, the two others 1/2 each."""
    logits = torch.log(torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.5, 0.3, 0.1, 0.1]]]))
    loss = naming_loss(logits, torch.tensor([0, 1, 3]), torch.tensor([False, True, False]))
    assert loss.tolist() == pytest.approx([-math.log(0.25) - (math.log(0.1) + math.log(0.1)) / 2])


def test_the_other_of_two_counts_as_much_as_the_own(float64: None) -> None:
    logits = torch.log(torch.tensor([[[0.25, 0.75], [0.5, 0.5]]]))
    loss = naming_loss(logits, torch.tensor([0, 1]), torch.tensor([True, False]))
    assert loss.tolist() == pytest.approx([-math.log(0.25) - math.log(0.5)])


def test_the_only_sample_of_a_class_is_all_of_it() -> None:
    assert class_shares(torch.tensor([[1, 0, 2], [0, 0, 2]])).tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.5]]


def test_naming_loss_of_a_group_that_shrank_to_one(float64: None) -> None:
    loss = naming_loss(torch.zeros(2, 1, 4), torch.tensor([2]), torch.tensor([True]))
    assert loss.tolist() == pytest.approx([math.log(4)] * 2)


@pytest.mark.parametrize(
    ("kl", "reduction", "value"),
    [
        ("reverse", "batch", 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)),
        ("forward", "batch", 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)),
        ("reverse", "mean", 0.25 * math.log(0.5 / 0.75) + 0.25 * math.log(0.5 / 0.25)),
    ],
)
def test_divergence_by_hand(kl: Any, reduction: Any, value: float, float64: None) -> None:
    """One value per sample; those of equal predictions are 0."""
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    target = torch.log(torch.tensor([[0.75, 0.25], [0.9, 0.1]]))
    assert Divergence(kl, reduction)(logits, target).tolist() == pytest.approx([value, 0])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-30, 30), min_size=6, max_size=6), st.lists(st.floats(-30, 30), min_size=6, max_size=6))
def test_divergence_is_zero_when_equal_and_never_negative(a: list[float], b: list[float]) -> None:
    logits, other = (torch.tensor(v, dtype=torch.float64).view(2, 3) for v in (a, b))
    for kl in ("reverse", "forward"):
        measure = Divergence(kl, "batch")  # type: ignore[arg-type]
        assert measure(logits, logits.log_softmax(1)).tolist() == [0, 0]
        assert float(measure(logits, other.log_softmax(1)).min()) >= -1e-12


def test_group_target_by_hand(float64: None) -> None:
    """Two members; nobody holds the third class."""
    shares = class_shares(torch.tensor([[3, 1, 0], [1, 1, 0]]))
    assert shares.tolist() == [[0.75, 0.5, 0.0], [0.25, 0.5, 0.0]]
    logits = torch.log(torch.tensor([[[0.6, 0.3, 0.1], [0.2, 0.4, 0.4]]]))
    u = [0.75 * 0.6 + 0.25 * 0.2, 0.5 * 0.3 + 0.5 * 0.4, 0.0]
    total = sum(math.exp(v) for v in u)
    assert group_target(logits, shares, "softmax").exp()[0].tolist() == pytest.approx([math.exp(v) / total for v in u])
    assert group_target(logits, shares, "normalise").exp()[0].tolist() == pytest.approx([0.5 / 0.85, 0.35 / 0.85, 1e-8])
    powers = [0.6**0.75 * 0.2**0.25, 0.3**0.5 * 0.4**0.5, 1.0]
    expected = [v / sum(powers) for v in powers]
    assert group_target(logits, shares, "logits").exp()[0].tolist() == pytest.approx(expected)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 5), st.integers(0, 2**31))
def test_printed_group_target_is_nearly_flat(members: int, seed: int) -> None:
    """u lies in [0, 1], so no two classes are more than e : 1 apart, and shares of a held class sum to one."""
    rng = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 3, (members, 10), generator=rng)
    shares = class_shares(counts)
    assert torch.allclose(shares.sum(0), (counts.sum(0) > 0).float())
    target = group_target(10 * torch.randn(7, members, 10, generator=rng), shares, "softmax").exp()
    assert float((target.max(1).values / target.min(1).values).max()) <= math.e * (1 + 1e-5)


# the discriminator, by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "home", "epochs", "rate", "learns"),
    [
        ("round", "server", 1, 0.01, True),
        ("round", "client", 1, 0.01, True),
        ("round", "fresh", 1, 0.01, False),  # it would be thrown away as soon as it has learned
        ("round", "server", 0, 0.01, False),
        ("batch", "fresh", 1, 0.01, True),
        ("batch", "server", 0, 0.01, True),  # its steps are the model's
        ("batch", "server", 1, 0.0, False),
        ("round", "client", 1, 0.0, False),
    ],
)
def test_when_a_discriminator_learns(train: Any, home: Any, epochs: int, rate: float, learns: bool) -> None:
    made = Discriminator(train=train, home=home, rate=rate, plan=Plan(epochs=epochs))
    assert made.learns is learns
    alignment = UniformAlignment(Peers(True), 1.0, made, 4)
    assert set(alignment.discloses()) == ({"discriminator"} if learns and home == "server" else set())
    assert alignment.has_own("after") is (train == "batch")
    assert alignment.has_own("loss")


@pytest.mark.parametrize(
    ("layers", "hidden", "shapes"),
    [
        (1, 0, [(3, 4)]),
        (2, 0, [(4, 4), (3, 4)]),
        (2, 7, [(7, 4), (3, 7)]),
        (3, 5, [(5, 4), (5, 5), (3, 5)]),
    ],
)
def test_the_layers_of_a_discriminator(layers: int, hidden: int, shapes: list[tuple[int, int]]) -> None:
    made = Discriminator(layers=layers, hidden=hidden)
    drawn = made.draw(Key(1), 4, 3)
    assert [tuple(t.shape) for t in drawn.values() if t.dim() == 2] == shapes
    others = (made.draw(Key(2), 4, 3), made.draw(Key(1), 4, 3, 0, -1), made.draw(Key(1), 4, 3, -1, 0))
    assert all(not torch.equal(other["0.weight"], drawn["0.weight"]) for other in others)
    assert torch.equal(made.draw(Key(1), 4, 3, -1, -1)["0.weight"], drawn["0.weight"])


def test_the_batches_of_a_discriminator() -> None:
    """Five samples in twos: the last batch goes on with the epoch's first sample where it is filled up."""
    order = torch.tensor([[4, 0], [2, 1], [0, 2], [1, 3], [3, 4]])
    for policy, last in (("fill", 2), ("pad", 1)):
        made = Discriminator(plan=Plan(epochs=2, batch_size=2, last_batch=policy))
        batches = UniformAlignment(Peers(True), 1.0, made, 4)._batches(order)
        first, second = [4, 2, 0, 1, 3, 4], [0, 1, 2, 3, 4, 0]
        expected = [one for e in (first, second) for one in (e[:2], e[2:4], e[4 : 4 + last])]
        assert [rows.tolist() for rows in batches] == expected
