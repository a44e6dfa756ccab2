"""What a client asks a frozen model about its samples is asked in evaluation mode, with the statistics sent along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedbr.components import BiasReduction
from accord.algorithms.fedmmd import MMD, OutputL2
from accord.algorithms.fedmtl import TiedTasks
from accord.algorithms.fedntd import NotTrueDistillation
from accord.algorithms.fedufo.alignment import Discriminator, UniformAlignment
from accord.algorithms.fedufo.consensus import Divergence, GlobalConsensus
from accord.algorithms.fedufo.peers import Peers
from accord.algorithms.fedufo.performance import Performance, own_accuracy
from accord.algorithms.moon import ModelContrast
from accord.algorithms.qffl import FairStep
from accord.algorithms.spherefed import Moments
from accord.core.keys import Key
from accord.core.model import Out
from accord.core.optim import SGD, Schedule
from accord.core.types import Batch, ClientData, Job, World
from accord.core.view import View
from support.personal import norm_model

Values = dict[str, Tensor]
DATA = torch.Generator().manual_seed(2)
X = 5 + 3 * torch.randn(7, 1, 8, 8, generator=DATA)
Y = torch.tensor([0, 2, 1, 1, 0, 2, 2])


def drawn(seed: int) -> tuple[Values, Values]:
    """Weights and running statistics, none of them as a layer is made."""
    maker = torch.Generator().manual_seed(seed)
    params, buffers = norm_model().init()
    moved = {name: t + 0.3 * torch.randn(t.shape, generator=maker) for name, t in params.items()}
    floats = {name: 1 + 3 * torch.rand(t.shape, generator=maker) for name, t in buffers.items() if t.dim()}
    return moved, {**buffers, **floats}


def plain(values: tuple[Values, Values], x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and features of an ordinary module in evaluation mode."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    module.load_state_dict({name.removeprefix("module."): t for tree in values for name, t in tree.items()})
    module.eval()
    with torch.no_grad():
        return module(x), module[:-1](x)


MODEL, BUFFERS = drawn(0)
OLD, OLD_BUFFERS = drawn(1)
LOGITS, FEATURES = plain((MODEL, BUFFERS), X)


def job(**shared: Any) -> Job:
    info = {"round": torch.tensor(3), "client": torch.tensor(1), "lr": torch.tensor(0.1), "steps": torch.tensor(2.0)}
    memory = {"previous": OLD, "previous_buffers": OLD_BUFFERS}
    received = {"model": MODEL, "buffers": BUFFERS, **shared}
    return Job(received, {}, memory, info, ClientData(X, Y, X[:0], Y[:0], 3))


def the_same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted.to(found.dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (MMD(0.5, kernel="dan"), {"received": LOGITS}),
        (OutputL2(0.5, "features"), {"received": FEATURES}),
        (NotTrueDistillation(), {"logits": LOGITS}),
        (GlobalConsensus(1.0, Divergence(), 3), {"target": LOGITS.log_softmax(1), "guess": LOGITS.argmax(1)}),
        (ModelContrast(1.0, 0.5, 0), {"global": FEATURES, "previous": plain((OLD, OLD_BUFFERS), X)[1]}),
        (FairStep(1.0, Schedule(0.1)), {"loss": F.cross_entropy(LOGITS, Y)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_received_model_answers_with_its_statistics(part: Any, wanted: Values) -> None:
    found = part.begin(norm_model(), job())
    for name, value in wanted.items():
        the_same(found[name], value)


def test_the_received_model_sees_pseudo_data_with_its_statistics() -> None:
    part = BiasReduction(1.0, 0.5, 0.5, 4, 0, False, False, SGD(), 0.0)
    found = part.begin(norm_model(), job(pseudo={"x": X[:4]}))
    the_same(found["received"], FEATURES[:4])


def test_moments_are_those_of_features_under_the_received_statistics() -> None:
    unit = FEATURES.double()
    unit = unit / unit.norm(dim=1, keepdim=True).clamp(min=1e-4)  # one has none at all
    found = Moments(norm_model()).answer(job())["moments"]
    the_same(found["V"], unit.T @ unit)
    the_same(found["U"], unit.T @ F.one_hot(Y, 3).double())


def test_performance_is_measured_under_the_received_statistics() -> None:
    """Here the statistics of a new layer would name other classes."""
    right = LOGITS.argmax(1) == Y
    other = plain((MODEL, norm_model().init()[1]), X)[0].argmax(1) == Y
    assert not torch.equal(right, other)
    assert float(own_accuracy(norm_model(), job(), 0.0)) == pytest.approx(float(right.float().mean()))
    # Of seven samples the second and the sixth are held out: floor(2/5 * 7), evenly spaced.
    assert float(own_accuracy(norm_model(), job(), 0.4)) == pytest.approx(float(right[[1, 5]].float().mean()))


@pytest.mark.parametrize("member", [0, 1])
def test_every_peer_answers_with_its_own_statistics(member: int) -> None:
    stack: Callable[[Values, Values], Values] = lambda a, b: {n: torch.stack([a[n], b[n]]) for n in a}  # noqa: E731
    group = {"ids": torch.tensor([0, 4]), "counts": torch.tensor([[1, 2, 3], [3, 2, 1]])}
    priors = {"priors": stack(MODEL, OLD), "prior_buffers": stack(BUFFERS, OLD_BUFFERS), "group": group}
    found = Peers(features=True, target="softmax").begin(norm_model(), job(**priors))
    answers = [(LOGITS, FEATURES), plain((OLD, OLD_BUFFERS), X)]
    the_same(found["features"][:, member], answers[member][1])
    shares = torch.tensor([[1 / 4, 1 / 2, 3 / 4], [3 / 4, 1 / 2, 1 / 4]])
    merged = sum(share * logits.softmax(1) for share, (logits, _) in zip(shares, answers, strict=True))
    the_same(found["target"], torch.as_tensor(merged).log_softmax(1))


def test_a_discriminator_sees_the_trained_model_with_the_trained_statistics() -> None:
    part = UniformAlignment(Peers(True), 1.0, Discriminator(), 5)
    carry = {"train": {"model": OLD}, "buffers": OLD_BUFFERS}
    the_same(part._own_features(norm_model(), carry, X), plain((OLD, OLD_BUFFERS), X)[1])


def test_servers_have_room_for_clients_that_are_not_asked() -> None:
    """Three clients, two of whom may be asked."""
    world, model = World(0, [0, 2], np.array([3, 4, 1]), Key(0)), norm_model()
    trees = UniformAlignment(Peers(True), 1.0, Discriminator(), 5).state(model, world)
    assert int(trees["alignment"]["clients"]) == len(trees["discriminator"]["1.bias"]) == 3
    consensus = GlobalConsensus(1.0, Divergence(), 0)
    assert Performance(True, 0.0, consensus).state(model, world)["performance"]["accuracy"].tolist() == [-1.0] * 3
    total = TiedTasks("mean", 0.1, 3).state(model, world)["total"]
    assert torch.allclose(total["module.4.bias"], 3 * model.init()[0]["module.4.bias"])


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_the_consensus_with_mixed_samples_is_that_of_probabilities_too(direction: Any) -> None:
    """KL of two distributions, whether the received model's answers were stored or are asked for again."""
    part, model = GlobalConsensus(0.5, Divergence(direction, "batch"), 0), norm_model()
    said = plain((OLD, OLD_BUFFERS), X)[0]
    ours, theirs = said.log_softmax(1), LOGITS.log_softmax(1)
    first, second = (ours, theirs) if direction == "reverse" else (theirs, ours)
    wanted = 0.5 * (first.exp() * (first - second)).sum(1).mean()
    carry = {part.name: part.begin(model, job())}
    for index in (torch.arange(7), torch.arange(0)):
        batch = Batch(X, Y, torch.ones(7), index, {})
        term = part.loss(View(model, job(), carry, {}, Out(said, said), batch))
        assert term is not None
        the_same(term.value, wanted)
