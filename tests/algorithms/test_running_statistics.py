"""Running statistics of batch norm: averaged with the weights of the model, or kept where the model is."""

from __future__ import annotations

import copy
from dataclasses import replace
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
        ("groupdro", {"eta": 0.0}, ALIKE),
        ("fedyogi", {}, BY_SAMPLES),
        ("mixup", {}, BY_SAMPLES),
        ("mixup", {"weight": "uniform"}, ALIKE),
        ("feddecorr", {"weight": "uniform"}, ALIKE),
        ("fedntd", {"weight": "uniform"}, ALIKE),
        ("fedl2", {}, ALIKE),
        ("fedl2", {"weight": "examples"}, BY_SAMPLES),
        ("fedmmd", {"weight": "examples"}, BY_SAMPLES),
        ("fedmix", {"means": 4}, BY_SAMPLES),
        ("vhl", {"count": 9}, BY_SAMPLES),
        ("fedrod", {}, BY_SAMPLES),
        ("fedbabu", {}, BY_SAMPLES),
        ("fedper", {}, BY_SAMPLES),
        ("fedrep", {"head_epochs": 1}, BY_SAMPLES),
        ("spherefed", {}, BY_SAMPLES),
        ("fedmeta", {"share": 0.0, "uga": True}, BY_SAMPLES),
        ("fedrane", {}, BY_SAMPLES),
        ("fedrane", {"lra": False, "power": "uniform"}, BY_SAMPLES),
        ("fedufo", {"terms": "cgl"}, BY_SAMPLES),
        ("compose", {"weight": "uniform", "bargain": True, "server_momentum": 0.5}, ALIKE),
        ("fml", {"weight": "uniform"}, ALIKE),
        ("pfedme", {"weight": "examples", "beta": 2.0}, BY_SAMPLES),
        ("trimmed_mean", {"trim": 0.0}, ALIKE),
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


@pytest.mark.parametrize(("name", "settings"), [("median", {}), ("trimmed_mean", {"trim": 0.34})])
def test_robust_rules_take_the_middle_one_of_three(name: str, settings: dict[str, Any], float64: None) -> None:
    run = TinyRun(name, settings, model=norm_model(), sampler=Given(COHORT), plan=FILLED).rounds(1)
    assert run.replies is not None
    for leaf in FLOATS:
        sent = torch.stack([tree[leaf] for tree in run.replies.each("buffers")])
        torch.testing.assert_close(run.state["buffers"][leaf], sent.sort(0).values[1])


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


OWN = {"local": ("personal",), "ditto": ("own", "own_buffers"), "fml": ("private", "private_buffers")}
OPTIONS: dict[str, dict[str, float]] = {"local": {}, "ditto": {"lam": 0.7}, "fml": {"alpha": 1.0}}


@pytest.mark.parametrize("name", OWN)
def test_a_personal_models_own_are_kept_and_judged_with(name: str, float64: None) -> None:
    """Under alpha = 1 the private model of fml learns from labels alone, as if it had no company."""
    settings = OPTIONS[name]
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
        found = {leaf: t for tree in OWN[name] for leaf, t in memory[tree].items()}
        same(found, own[k])
        assert found.keys() >= set(FLOATS)
        assert run.replies.metric("personal_correct")[k] == right(own[k], *samples(run, k))


def own_trees(*trees: str) -> Any:
    return lambda run, k, result, received: {n: t for tree in trees for n, t in run.store.get(k)[tree].items()}


def both_heads(run: TinyRun, k: int, result: Any, received: Params) -> Params:
    own = run.store.get(k)["own_head"]
    sent = {**result.reply["model"], **result.reply["buffers"]}
    return {**sent, **{name: sent[name] + own[name] for name in own}}


def mixture(run: TinyRun, k: int, result: Any, received: Params) -> Params:
    """Everyone's core model as received, the client's as trained."""
    memory = run.store.get(k)
    shares = memory["relation"]["relation"]
    cores = {name: t.clone() for name, t in received.items()}
    for name, t in result.reply["core"].items():
        cores[name][k] = t
    return {**{n: torch.tensordot(shares, c, 1) for n, c in cores.items()}, **memory["personal"]}


def tuned(run: TinyRun, k: int, result: Any, received: Params) -> Params:
    """Eight epochs on batches of four in the samples' own order, the last one filled from the start."""
    x, y = samples(run, k)
    module = network(received).train()
    for _ in range(8):
        for left in range(0, len(y), 4):
            rows = [place % len(y) for place in range(left, left + 4)]
            loss = F.cross_entropy(module(x[rows]), y[rows])
            for p, g in zip(module.parameters(), torch.autograd.grad(loss, list(module.parameters())), strict=True):
                p.data -= 0.1 * g
    return {f"module.{name}": t for name, t in module.state_dict().items()}


JUDGED: dict[str, tuple[dict[str, Any], Any]] = {
    "fedavg": ({}, lambda run, k, result, received: {**result.reply["model"], **result.reply["buffers"]}),
    "pfedme": ({"lam": 1.0}, own_trees("own", "own_buffers")),
    "ditto": ({}, own_trees("own", "own_buffers")),
    "fml": ({}, own_trees("private", "private_buffers")),
    "fedmtl": ({}, own_trees("personal")),
    "fedrod": ({}, both_heads),
    "apple": ({}, mixture),
    "fedbabu": ({"tune_epochs": 8}, tuned),
}


@one_thread()
@pytest.mark.parametrize("name", JUDGED)
def test_personal_accuracy_is_that_of_the_statistics_after_training(name: str, float64: None) -> None:
    """Inputs far from where the layer expects them: other statistics would let other samples be right."""
    data = tiny_data(dtype=torch.float64)
    pool = replace(data.train_pool, x=5 + 3 * data.train_pool.x)
    data = replace(data, train_pool=pool, test_pool=pool)
    settings, judged = JUDGED[name]
    run = TinyRun(name, settings, data=data, model=norm_model(), plan=FILLED, with_test=True)
    first = dict(run.state["buffers"])
    received = {**run.state["model"], **run.state["buffers"]} if name != "apple" else dict(run.state["cores"])
    run.rounds(1)
    assert run.replies is not None
    values = [judged(run, k, result, received) for k, result in enumerate(run.replies.results)]
    found = run.replies.metric("personal_correct").tolist()
    assert found == [right(one, *samples(run, k)) for k, one in enumerate(values)]
    assert found != [right({**one, **first}, *samples(run, k)) for k, one in enumerate(values)]
    before = run.replies.metric("personal_before").tolist()
    if name not in ("apple", "fedrod"):  # whose clients bring a mixture, and two heads
        assert before == [right({**received, **first}, *samples(run, k)) for k in range(4)]
