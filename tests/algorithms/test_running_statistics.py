"""Running statistics of batch norm: averaged with the weights of the model, or kept where the model is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.executors.sequential import one_thread
from support.federation import SIZES, Given, TinyRun, tiny_data
from support.personal import FILLED, norm_model
from support.reference import Params, samples

COHORT = [0, 2, 3]
BY_SAMPLES = [SIZES[k] / sum(SIZES[j] for j in COHORT) for k in COHORT]
ALIKE = [1 / 3] * 3
FLOATS = ("module.2.running_mean", "module.2.running_var")


@pytest.mark.parametrize(
    ("name", "settings", "shares"),
    [
        ("fedavg", {}, BY_SAMPLES),
        ("fedavg", {"weight": "uniform"}, ALIKE),
        ("fedprox", {}, BY_SAMPLES),
        ("fedcm", {}, ALIKE),
        ("fedcm", {"server_lr": 0.5}, ALIKE),
        ("scaffold", {}, ALIKE),
        ("scaffold", {"server_lr": 0.5}, ALIKE),
        ("fedavgm", {}, BY_SAMPLES),
        ("fedadam", {}, BY_SAMPLES),
        ("norm_clip", {"limit": 1e-3}, BY_SAMPLES),
        ("fedbr", {}, ALIKE),
        ("fedmmd", {}, ALIKE),
        ("qffl", {}, ALIKE),
        ("dann", {}, ALIKE),
        ("feddyn", {}, ALIKE),
        ("fednova", {}, BY_SAMPLES),
        ("ditto", {}, BY_SAMPLES),
        ("pfedme", {}, ALIKE),
        ("moon", {}, BY_SAMPLES),
        ("fml", {}, BY_SAMPLES),
        ("server_rprop", {}, ALIKE),
        ("fedreptile", {}, ALIKE),
        ("qffl", {"q": 0.0}, ALIKE),
        ("fedbr", {"lam": 0.0, "mu": 0.0}, ALIKE),
        ("fedbuff", {"buffer": 3}, ALIKE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_servers_are_the_mean_of_the_clients(
    name: str, settings: dict[str, Any], shares: list[float], float64: None
) -> None:
    run = TinyRun(name, settings, model=norm_model(), sampler=Given(COHORT), plan=FILLED).rounds(1)
    assert run.replies is not None
    sent = list(run.replies.each("buffers"))
    assert len({tuple(tree[FLOATS[0]].tolist()) for tree in sent}) == 3, "the clients' statistics differ"
    for leaf in FLOATS:
        expected = sum(share * tree[leaf] for share, tree in zip(shares, sent, strict=True))
        torch.testing.assert_close(run.state["buffers"][leaf], expected, rtol=1e-12, atol=1e-12)


def test_multi_krum_averages_those_of_the_chosen_models(float64: None) -> None:
    data = tiny_data(sizes=(6, 8, 10, 12, 14), dtype=torch.float64)
    run = TinyRun("krum", {"hostile": 0.2, "keep": 3}, data=data, model=norm_model(), plan=FILLED).rounds(1)
    assert run.replies is not None
    models, sent = list(run.replies.each("model")), list(run.replies.each("buffers"))

    def apart(a: Params, b: Params) -> float:
        return sum(float(((a[n] - b[n]) ** 2).sum()) for n in a)

    # f = 1 of 5: the score is the sum over the 5 - 1 - 2 = 2 nearest others
    scores = [sum(sorted(apart(a, b) for b in models if b is not a)[:2]) for a in models]
    chosen = sorted(sorted(range(5), key=lambda k: scores[k])[:3])
    assert chosen != [0, 1, 2]
    for tree, values in (("model", models), ("buffers", sent)):
        for leaf in run.state[tree]:
            if values[0][leaf].is_floating_point():
                expected = sum(values[k][leaf] for k in chosen) / 3
                torch.testing.assert_close(run.state[tree][leaf], expected, rtol=1e-12, atol=1e-12)


def network(values: Params) -> nn.Sequential:
    """The perceptron of `norm_model` once more, with these values."""
    layers = (nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    module = nn.Sequential(*copy.deepcopy(layers))
    module.load_state_dict({name.removeprefix("module."): t for name, t in values.items()})
    return module


@one_thread()
def trained(
    run: TinyRun, client: int, round: int, start: Params, lam: float = 0.0, near: Params | None = None
) -> Params:
    """SGD of an ordinary module in training mode, pulled to `near` by lam."""
    x, y = samples(run, client)
    module = network(start).train()
    for rows in run.batches(client, round=round):
        index = torch.as_tensor(rows)
        loss = F.cross_entropy(module(x[index]), y[index])
        grads = torch.autograd.grad(loss, list(module.parameters()))
        for (name, p), g in zip(module.named_parameters(), grads, strict=True):
            pull = lam * (p.data - near[f"module.{name}"]) if near else 0.0
            p.data -= 0.1 * (g + pull)
    return {f"module.{name}": t.clone() for name, t in module.state_dict().items()}


def right(values: Params, x: Tensor, y: Tensor) -> int:
    return int((network(values).eval()(x).argmax(1) == y).sum())


def same(found: Params, wanted: Params) -> None:
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["local", "ditto"])
def test_a_personal_models_own_are_kept_and_judged_with(name: str, float64: None) -> None:
    settings = {"lam": 0.7} if name == "ditto" else {}
    run = TinyRun(name, settings, model=norm_model(), plan=FILLED, with_test=True)
    start = {**run.state["model"], **run.state["buffers"]}
    own = dict.fromkeys(range(4), start)
    for round in range(2):
        received = {**run.state["model"], **run.state["buffers"]}
        own = {k: trained(run, k, round, own[k], settings.get("lam", 0.0), received) for k in own}
        run.rounds(1)
    assert run.replies is not None
    for k in range(4):
        memory = run.store.get(k) or {}
        found = memory["personal"] if name == "local" else {**memory["own"], **memory["own_buffers"]}
        same(found, own[k])
        assert found.keys() >= set(FLOATS)
        assert run.replies.metric("personal_correct")[k] == right(own[k], *samples(run, k))
