"""FML against two models trained side by side in plain torch, in double precision."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fml import MutualLearning, fml, taught
from accord.core.optim import SGD
from accord.core.types import Batch
from accord.core.view import View
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, make, mean, prefixed, processes_agree, tree_of
from support.federation import SIZES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, samples


def train(run: TinyRun, k: int, start: Params, round: int, alpha: float, beta: float) -> Params:
    """Leaves `g/...` and `l/...`: the sum of both losses, teachers held fixed."""
    x, y = samples(run, k)

    def divergence(teacher: Tensor, student: Tensor) -> Tensor:
        p = teacher.detach().softmax(1)
        return (p * (p.log() - student.softmax(1).log())).sum(1).mean()

    def loss(p: Params, index: Tensor) -> Tensor:
        g, l = forward(tree_of(p, "g/"), x[index]), forward(tree_of(p, "l/"), x[index])
        for_g = beta * F.cross_entropy(g, y[index]) + (1 - beta) * divergence(l, g)
        for_l = alpha * F.cross_entropy(l, y[index]) + (1 - alpha) * divergence(g, l)
        return for_g + for_l

    return descend(start, run.batches(k, round=round), loss, momentum=0.5)


@pytest.mark.parametrize(("alpha", "beta", "weight"), [(0.3, 0.6, "examples"), (1.0, 0.0, "uniform")])
def test_three_rounds(alpha: float, beta: float, weight: str, float64: None) -> None:
    settings = {"alpha": alpha, "beta": beta, "weight": weight}
    run = make(fml, settings, sampler=Given(*COHORTS), optimizer=SGD(0.5))
    g = dict(run.state["model"])
    private: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        shared = []
        for k in cohort:
            start = prefixed("g/", g) | prefixed("l/", private.get(k, g))
            trained = train(run, k, start, round, alpha, beta)
            private[k] = tree_of(trained, "l/")
            shared.append(tree_of(trained, "g/"))
        g = mean(shared, [SIZES[k] for k in cohort] if weight == "examples" else None)
    run.rounds(3)
    assert close(run.state["model"], g)
    for k in range(4):
        assert close((run.store.get(k) or {})["private"], private[k])


def test_the_mixture_by_hand() -> None:
    """Teacher (1/2, 1/2), student (3/4, 1/4), label 0: CE = log 4/3, KL = log(1/2) - log(3/16) / 2."""
    student = torch.tensor([[3.0, 1.0]]).log()
    batch = Batch(student, torch.tensor([0]), torch.ones(1), torch.tensor([0]), {})
    ce, kl = torch.tensor(4 / 3).log(), torch.tensor(0.5).log() - torch.tensor(3 / 16).log() / 2
    for share in (0.0, 0.25, 1.0):
        view = View(tiny_model(), None, {}, {}, None, batch)  # type: ignore[arg-type]
        term = taught(view, student, torch.zeros(1, 2), share)
        assert float(term.value) == pytest.approx(float(share * ce + (1 - share) * kl), rel=1e-5)


def test_equal_models_stay_equal_in_the_first_visit() -> None:
    run = make(fml).rounds(1)
    assert run.replies is not None
    for k in range(4):
        own = (run.store.get(k) or {})["private"]
        assert equal_trees({"m": own}, {"m": run.replies.results[k].reply["model"]})
    run.rounds(1)
    assert not equal_trees({"m": (run.store.get(0) or {})["private"]}, {"m": run.replies.results[0].reply["model"]})


def test_the_private_model_is_judged_and_never_sent(float64: None) -> None:
    run = make(fml, {"alpha": 0.2}, with_test=True).rounds(2)
    assert run.replies is not None
    for k, result in enumerate(run.replies.results):
        assert set(result.reply) == {"model", "buffers"}
        x, y = samples(run, k)
        right = (forward((run.store.get(k) or {})["private"], x).argmax(1) == y).sum()
        assert result.metrics["personal_correct"] == right
    assert set(run.state) == {"model", "buffers"}


@pytest.mark.parametrize("weight", ["examples", "uniform"])
def test_beta_one_is_fedavg(weight: str) -> None:
    ours = make(fml, {"beta": 1.0, "weight": weight}, sampler=Given(*COHORTS), optimizer=SGD(0.9)).rounds(3)
    plain = make(fedavg, {"weight": weight}, sampler=Given(*COHORTS), optimizer=SGD(0.9)).rounds(3)
    assert equal_trees(ours.state, plain.state)


def test_processes_agree() -> None:
    assert processes_agree(fml)


@pytest.mark.parametrize("settings", [{"alpha": 1.1}, {"beta": -0.1}, {"beta": float("nan")}])
def test_bad_settings(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        fml(tiny_setup(tiny_data(), tiny_model()), **settings)


def test_a_share_of_nothing_is_not_computed() -> None:
    """Labels alone ask no teacher, a teacher alone asks no labels."""
    logits = torch.tensor([[0.0, 1.0]])

    def refuse(logits: Tensor) -> Tensor:
        raise AssertionError("nobody asked for the labels")

    labels = SimpleNamespace(losses=lambda logits: logits.sum(1), mean=Tensor.mean)
    assert float(taught(labels, logits, None, 1.0)) == 1.0  # type: ignore[arg-type]
    taught_alone = SimpleNamespace(losses=refuse, mean=Tensor.mean)
    assert float(taught(taught_alone, logits, logits, 0.0)) == 0.0  # type: ignore[arg-type]


def test_the_private_model_goes_with_its_own_statistics() -> None:
    """Those of the shared one are in the carry too."""
    part = MutualLearning(0.5, 0.5)
    private, own, shared = ({"w": torch.ones(1)} for _ in range(3))
    carry = {"train": {"private": private, "model": shared}, part.name: {"buffers": own}, "buffers": shared}
    model, buffers = part.judged(tiny_model(), None, carry)  # type: ignore[arg-type]
    assert (model is private, buffers is own) == (True, True)
    reply, memory = part.finish(tiny_model(), None, carry)  # type: ignore[arg-type]
    assert reply == {}
    assert memory.keys() == {"private", "private_buffers"}
    assert (memory["private"] is private, memory["private_buffers"] is own) == (True, True)
