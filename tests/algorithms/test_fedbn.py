"""FedBN: normalisation layers, found by type, stay with the clients; the reference is an ordinary module."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from accord.algorithms.fedbn import fedbn, norm_layers
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.executors.sequential import one_thread
from accord.models import adapt
from support.baselines import COHORTS, close, make, mean, processes_agree
from support.federation import SIZES, Given, tiny_data, tiny_model, tiny_setup
from support.reference import Params, samples

PLAN = Plan(epochs=2, batch_size=3)  # divides all sizes: no batch of one


def network() -> nn.Sequential:
    """Names that would fool a search for "bn" or "norm"."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential()
        module.add_module("flat", nn.Flatten())
        module.add_module("norm_like_linear", nn.Linear(64, 6))
        module.add_module("second", nn.BatchNorm1d(6))
        module.add_module("act", nn.ReLU())
        module.add_module("third", nn.GroupNorm(2, 6))
        module.add_module("head", nn.Linear(6, 3))
        return module


def bn_model() -> Model:
    return Model(adapt(network(), "head", example=torch.zeros(2, 1, 8, 8)))


def is_norm(name: str) -> bool:
    return ".second." in name or ".third." in name


@one_thread()
def test_three_rounds(float64: None) -> None:
    run = make(fedbn, model=bn_model(), sampler=Given(*COHORTS), optimizer=SGD(0.5), plan=PLAN, with_test=True)
    w: Params = {**run.state["model"], **run.state["buffers"]}
    own: dict[int, Params] = {}
    trained: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        for k in cohort:
            x, y = samples(run, k)
            module = copy.deepcopy(network()).train()
            values = {**w, **own.get(k, {})}
            module.load_state_dict({n.removeprefix("module."): t.clone() for n, t in values.items()})
            velocity = [torch.zeros_like(p) for p in module.parameters()]
            for rows in run.batches(k, round=round):
                loss = F.cross_entropy(module(x[torch.as_tensor(rows)]), y[torch.as_tensor(rows)])
                grads = torch.autograd.grad(loss, list(module.parameters()))
                for p, v, g in zip(module.parameters(), velocity, grads, strict=True):
                    v.mul_(0.5).add_(g)
                    p.data -= 0.1 * v
            trained[k] = {f"module.{n}": t for n, t in module.state_dict().items()}
            own[k] = {n: t for n, t in trained[k].items() if is_norm(n)}
            trained[k]["right"] = (module.eval()(x).argmax(1) == y).sum()
        shared = [{n: t for n, t in trained[k].items() if n in w and not is_norm(n)} for k in cohort]
        w = {**w, **mean(shared, [SIZES[k] for k in cohort])}
    run.rounds(3)
    assert close({**run.state["model"], **run.state["buffers"]}, w), "the server's norm layers are as made"
    for k in range(4):
        assert close((run.store.get(k) or {})["personal"], own[k])
    assert run.replies is not None
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        sent = {**result.reply["model"], **result.reply["buffers"]}
        assert not any(is_norm(n) for n in sent)
        assert len(sent) == 4
        assert result.metrics["personal_correct"] == trained[k]["right"]


def test_names_are_found_by_type() -> None:
    leaves = ["second.weight", "second.bias", "third.weight", "third.bias"]
    leaves += [f"second.{leaf}" for leaf in ("running_mean", "running_var", "num_batches_tracked")]
    assert norm_layers(bn_model()) == {f"module.{leaf}" for leaf in leaves}


def test_there_is_no_global_model() -> None:
    run = make(fedbn, model=bn_model(), plan=PLAN).rounds(1)
    assert run.algorithm.predictor(run.state) is None


def test_processes_agree() -> None:
    assert processes_agree(fedbn, model=bn_model(), plan=PLAN)


def test_networks_without_norm_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="has none"):
        fedbn(tiny_setup(tiny_data(), tiny_model()))
    plain = nn.Sequential(nn.Flatten(), nn.LayerNorm(64, elementwise_affine=False), nn.Linear(64, 3))
    with pytest.raises(ConfigError, match="has none"):
        fedbn(tiny_setup(tiny_data(), Model(adapt(plain, "2"))))


class Counting(nn.Module):
    """A layer with a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))


class Watched(nn.BatchNorm1d):
    """A normalisation with another layer inside."""

    def __init__(self) -> None:
        super().__init__(6)
        self.inner = Counting()


def test_a_layer_inside_a_normalisation_is_none() -> None:
    model = Model(adapt(nn.Sequential(nn.Flatten(), nn.Linear(64, 6), Watched(), nn.Linear(6, 3)), "3"))
    kept = {name.rpartition("module.")[2] for name in norm_layers(model)}
    assert kept == {f"2.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
