"""FedFusion against a convolutional network written out in plain torch, in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedfusion import FusionMethod, fedfusion, init_fusion
from accord.client import Request, Site, Work, run_client
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.task import Corner, Part
from accord.core.types import Batch, Job, Replies
from accord.errors import ConfigError
from accord.executors.processes import Processes
from accord.models import adapt
from accord.models.around.fusion import fuse
from accord.models.network import Network
from support.federation import SIZES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.reference import Params, gradient, samples

COHORTS = ([0, 2], [1, 3], [0, 1])
CHANNELS = 3
OPERATORS = ["conv", "multi", "single"]


def small(norm: bool = False) -> Model:
    """One convolution (3 maps of 4 x 4), one hidden layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        extra = [nn.BatchNorm2d(CHANNELS)] if norm else []
        maps = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), *extra, nn.ReLU(), nn.MaxPool2d(2))
        neck = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU())
        return Model(Network(maps, neck, nn.Linear(6, 3), (CHANNELS, 4, 4)))


def built(options: dict[str, Any], *, model: Model | None = None, **more: Any) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), model or small()
    setup = tiny_setup(data, model, **{name: value for name, value in more.items() if name != "with_test"})
    return TinyRun(fedfusion(setup, **options), data=data, model=model, **more)


# the reference ---------------------------------------------------------------------
def extract(p: Params, x: Tensor) -> Tensor:
    return F.max_pool2d(torch.relu(F.conv2d(x, p["maps.0.weight"], p["maps.0.bias"], padding=1)), 2)


def classify(p: Params, maps: Tensor) -> Tensor:
    hidden = torch.relu(maps.flatten(1) @ p["neck.1.weight"].T + p["neck.1.bias"])
    return hidden @ p["head.weight"].T + p["head.bias"]


def operate(f: Params, own: Tensor, other: Tensor) -> Tensor:
    """Pixel by pixel as printed: W (local || global) + b, or lambda * global + (1 - lambda) * local."""
    if "weight" in f:
        both = torch.cat([own, other], 1)
        return torch.einsum("oc,bchw->bohw", f["weight"], both) + f["bias"][None, :, None, None]
    share = f["lambda"].expand(own.shape[1])[None, :, None, None]
    return share * other + (1 - share) * own


def train(run: TinyRun, client: int, start: Params, fusion: Params, round: int) -> tuple[Params, Params]:
    """SGD with momentum 0.5 and weight decay 0.01 on the network and the operator."""
    x, y = samples(run, client)
    p = {**start, **{f"F.{n}": t for n, t in fusion.items()}}
    velocity = {n: torch.zeros_like(t) for n, t in p.items()}
    for rows in run.batches(client, "train", round):
        index = torch.as_tensor(rows)
        other = extract(start, x[index])

        def loss(p: Params, index: Tensor = index, other: Tensor = other) -> Tensor:
            fused = operate({n: p[f"F.{n}"] for n in fusion}, extract(p, x[index]), other)
            return F.cross_entropy(classify(p, fused), y[index])

        grads = gradient(loss, p)
        velocity = {n: 0.5 * velocity[n] + grads[n] + 0.01 * p[n] for n in p}
        p = {n: t - 0.1 * velocity[n] for n, t in p.items()}
    return {n: p[n] for n in start}, {n: p[f"F.{n}"] for n in fusion}


def mean(trees: list[Params], weights: list[float]) -> Params:
    return {n: sum(w * t[n] for w, t in zip(weights, trees, strict=True)) / sum(weights) for n in trees[0]}


def close(ours: Params, theirs: Params, tolerance: float = 1e-9) -> bool:
    return ours.keys() == theirs.keys() and all(torch.allclose(ours[n], theirs[n], atol=tolerance) for n in ours)


# the operators ---------------------------------------------------------------------
def test_operators_by_hand() -> None:
    """One pixel, two channels: local (1, 2), global (10, 20)."""
    own, other = torch.tensor([1.0, 2.0]).view(1, 2, 1, 1), torch.tensor([10.0, 20.0]).view(1, 2, 1, 1)
    assert fuse({"lambda": torch.tensor(0.5)}, own, other).flatten().tolist() == [5.5, 11.0]
    assert fuse({"lambda": torch.tensor([0.0, 1.0])}, own, other).flatten().tolist() == [1.0, 20.0]
    assert fuse({"lambda": torch.tensor([2.0, -1.0])}, own, other).flatten().tolist() == [19.0, -16.0]
    weight = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 3.0, 0.5, 0.0]])  # local first, then global
    fused = fuse({"weight": weight, "bias": torch.tensor([100.0, 0.0])}, own, other)
    assert fused.flatten().tolist() == [1 + 20 + 100, 6 + 5]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_and_their_gradients(operator: str, float64: None) -> None:
    """Values against the printed formulas; gradients against central differences of those."""
    rng = np.random.default_rng(0)
    own, other, up = (torch.tensor(rng.normal(size=(2, CHANNELS, 2, 2))) for _ in range(3))
    fusion = {n: t + 0.3 for n, t in init_fusion(rng, operator, CHANNELS, "default", 0.2).items()}
    assert torch.allclose(fuse(fusion, own, other), operate(fusion, own, other), atol=1e-13)
    inputs = {"own": own, **fusion}
    leaves = {n: t.clone().requires_grad_() for n, t in inputs.items()}
    out = fuse({n: leaves[n] for n in fusion}, leaves["own"], other)
    grads = dict(zip(leaves, torch.autograd.grad((out * up).sum(), list(leaves.values())), strict=True))

    def value(changed: Params) -> float:
        return float((operate({n: changed[n] for n in fusion}, changed["own"], other) * up).sum())

    for name, tensor in inputs.items():
        for place in np.ndindex(*tensor.shape):
            step = torch.zeros_like(tensor)
            step[place] = 1e-5
            ends = [value({**inputs, name: tensor + sign * step}) for sign in (1, -1)]
            assert float(grads[name][place]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


def test_first_values() -> None:
    rng = np.random.default_rng(0)
    conv = init_fusion(rng, "conv", 50, "default", 0.0)
    assert {n: tuple(t.shape) for n, t in conv.items()} == {"weight": (50, 100), "bias": (50,)}
    for tensor in conv.values():  # torch's convolution: uniform within 1 / sqrt(inputs)
        assert 0.08 < float(tensor.abs().max()) <= 0.1
        assert abs(float(tensor.mean())) < 0.03
    identity = init_fusion(rng, "conv", 2, "identity", 0.0)
    assert identity["weight"].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert identity["bias"].tolist() == [0, 0]
    assert init_fusion(rng, "multi", 2, "identity", 0.25)["lambda"].tolist() == [0.25, 0.25]
    single = init_fusion(rng, "single", 2, "identity", 1)["lambda"]
    assert single.shape == ()
    assert single.is_floating_point()


def test_drawn_values_follow_the_seed() -> None:
    runs = [TinyRun(built({"init": "default"}).algorithm, model=small(), seed=seed) for seed in (1, 1, 2)]
    weights = [run.state["fusion"]["weight"] for run in runs]
    assert weights[0].dtype == torch.float32
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


# local training and rounds ---------------------------------------------------------------------
CASES = [
    {"operator": "conv"},
    {"operator": "conv", "init": "default"},
    {"operator": "multi", "mu": 0.9},
    {"operator": "multi", "lambda0": 0.4, "mu": 0.0},
    {"operator": "single", "mu": 0.5, "weight": "uniform"},
]


@pytest.mark.parametrize("options", CASES)
def test_three_rounds_with_partial_participation(options: dict[str, Any], float64: None) -> None:
    run = built(options, sampler=Given(*COHORTS), optimizer=SGD(0.5, 0.01))
    w, f = dict(run.state["model"]), dict(run.state["fusion"])
    x = run.data.test_pool.x[:7]
    for round, cohort in enumerate(COHORTS):
        done = [train(run, k, w, f, round) for k in cohort]
        run.rounds(1)
        assert run.replies is not None
        for (model, fusion), ours in zip(done, run.replies.results, strict=True):
            assert ours.reply.keys() == {"model", "buffers", "fusion"}
            assert close(ours.reply["model"], model)
            assert close(ours.reply["fusion"], fusion)
        weights = [1.0, 1.0] if options.get("weight") == "uniform" else [float(SIZES[k]) for k in cohort]
        old, w = w, mean([m for m, _ in done], weights)
        average = mean([fusion for _, fusion in done], weights)
        keep = 0.0 if options["operator"] == "conv" else options["mu"]
        f = {n: (1 - keep) * average[n] + keep * f[n] for n in f}
        assert close(run.state["model"], w)
        assert close(run.state["fusion"], f)
        assert close(run.state["previous"], old)
        logits = classify(w, operate(f, extract(w, x), extract(old, x)))
        predictor = run.algorithm.predictor(run.state)
        assert predictor is not None
        assert torch.allclose(predictor(x).logits, logits, atol=1e-9)
    assert not torch.allclose(f[next(iter(f))], run.algorithm.init(run.world())["fusion"][next(iter(f))])


def test_moving_average_by_hand() -> None:
    """lambda_t = 1, clients with 1 and 3 samples say 0 and 4: mean 3, then 0.1 * 3 + 0.9 * 1."""
    run = built({"operator": "single", "lambda0": 1.0})
    result = run.rounds(1).replies
    assert result is not None
    results = tuple(
        r._replace(reply={**r.reply, "fusion": {"lambda": torch.tensor(v)}})
        for r, v in zip(result.results[:2], (0.0, 4.0), strict=True)
    )
    algorithm = run.algorithm
    assert isinstance(algorithm, FusionMethod)
    state = {**run.state, "fusion": {"lambda": torch.tensor(1.0)}}
    new = algorithm.fold(state, run.world(), Replies((0, 1), results, torch.tensor([1, 3]), {}))
    assert float(new["fusion"]["lambda"]) == pytest.approx(1.2)


@pytest.mark.parametrize("evaluate", ["prev", "same", "local"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_what_the_server_judges(evaluate: str, operator: str, float64: None) -> None:
    options = {"operator": operator, "evaluate": evaluate, "mu": 0.2}
    run = built(options).rounds(2)
    state, x = run.state, run.data.test_pool.x[:9]
    now, fusion = state["model"], state["fusion"]
    other = state["previous"] if evaluate == "prev" else now
    expected = classify(now, operate(fusion, extract(now, x), extract(other, x)))
    predictor = run.algorithm.predictor(state)
    assert predictor is not None
    assert torch.allclose(predictor(x).logits, expected, atol=1e-12)
    plain = classify(now, extract(now, x))
    if evaluate != "prev":
        assert "previous" not in state
        assert torch.allclose(expected, plain, atol=1e-12) == (operator != "conv")
    elif operator != "single":
        assert not torch.allclose(expected, plain, atol=1e-6)


@pytest.mark.parametrize("operator", OPERATORS)
def test_before_the_first_round_the_model_is_its_own_predecessor(operator: str) -> None:
    run = built({"operator": operator})
    x = run.data.test_pool.x[:5]
    predictor = run.algorithm.predictor(run.state)
    assert predictor is not None
    assert torch.allclose(predictor(x).logits, classify(run.state["model"], extract(run.state["model"], x)), atol=1e-6)


@pytest.mark.parametrize("options", [*CASES[:3], {"operator": "multi", "lambda0": 0.7, "train_fusion": False}])
def test_personal_accuracy_is_that_of_the_fused_network(options: dict[str, Any], float64: None) -> None:
    run = built(options, with_test=True, lr=0.5)
    run.rounds(1)
    received, fusion = dict(run.state["model"]), dict(run.state["fusion"])
    run.rounds(1)
    assert run.replies is not None
    for client, result in enumerate(run.replies.results):
        x, y = samples(run, client)
        own = result.reply["model"]
        trained = result.reply.get("fusion", fusion)
        logits = classify(own, operate(trained, extract(own, x), extract(received, x)))
        assert int(result.metrics["personal_correct"]) == int((logits.argmax(1) == y).sum())
        assert int(result.metrics["personal_examples"]) == SIZES[client]


# what changes nothing ---------------------------------------------------------------------
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("norm", [False, True])
def test_local_maps_only_are_fedavg(operator: str, norm: bool) -> None:
    """A fixed lambda of 0, or a fixed identity: bit for bit."""
    model = small(norm)
    options = {"operator": operator, "train_fusion": False, "evaluate": "same"}
    run = built(options, model=model, optimizer=SGD(0.9, 1e-3)).rounds(3)
    plain = TinyRun(fedavg(run.setup), data=run.data, model=model).rounds(3)
    assert equal_trees({t: run.state[t] for t in ("model", "buffers")}, plain.state)
    assert run.replies is not None
    assert not run.replies.has("fusion")
    assert equal_trees({"fusion": run.state["fusion"]}, {"fusion": run.algorithm.init(run.world())["fusion"]})


@pytest.mark.parametrize("operator", ["conv", "multi"])
@pytest.mark.parametrize("norm", [False, True])
def test_maps_that_do_not_fit_are_computed_again(
    operator: str, norm: bool, monkeypatch: pytest.MonkeyPatch, float64: None
) -> None:
    seen: list[int] = []
    plain = Model.maps

    def counted(self: Model, params: Params, buffers: Params, x: Tensor) -> Tensor:
        seen.append(len(x))
        return plain(self, params, buffers, x)

    monkeypatch.setattr(Model, "maps", counted)
    options = {"operator": operator, "lambda0": 0.0 if operator == "conv" else 0.4}
    plan = Plan(epochs=2, batch_size=3)
    kept = built(options, model=small(norm), plan=plan).rounds(1)
    assert seen == list(SIZES)
    seen.clear()
    again = built({**options, "cache_mb": 0}, model=small(norm), plan=plan).rounds(1)
    assert seen == [3] * (2 * sum(SIZES) // 3)
    for tree in ("model", "buffers", "fusion"):
        for name, value in kept.state[tree].items():
            assert torch.allclose(value, again.state[tree][name], atol=1e-12)


def test_memory_bound_is_exact() -> None:
    """48 numbers of 4 bytes a sample: 192 bytes each, 2880 for the largest client."""
    run = built({})
    part = run.algorithm.tasks["train"].parts[1]
    job = Job(
        run.algorithm.message(run.state),
        {},
        {},
        {},
        Site(run.data, Key(0), torch.device("cpu")).client_data(3),
    )
    assert replace(part, cache_bytes=2880).begin(run.model, job)["maps"].shape == (15, 3, 4, 4)
    assert replace(part, cache_bytes=2879).begin(run.model, job)["maps"] is None
    made = built({"cache_mb": 3}, model=small(False)).algorithm.tasks["train"].parts
    assert [one.cache_bytes for one in made if isinstance(one, type(part))] == [3 * 1024 * 1024]


@dataclass(frozen=True)
class Halved(Part):
    """A part that changes the inputs, and says so."""

    def batch(self, job: Job, corner: Corner, batch: Batch) -> Batch:
        return batch._replace(x=batch.x / 2, index=batch.index[:0])


def test_mixed_batches_are_not_looked_up(float64: None) -> None:
    """Halving the inputs on the way must be the same as halving them beforehand."""
    data, model = tiny_data(dtype=torch.float64), small()
    method = fedfusion(tiny_setup(data, model), operator="multi", lambda0=0.5)
    local = replace(method.local, parts=(*method.local.parts, Halved()))
    mixed = TinyRun(replace(method, local=local), data=data, model=model).rounds(2)
    half = replace(data, train_pool=replace(data.train_pool, x=data.train_pool.x / 2))
    before = TinyRun(method, data=half, model=model).rounds(2)
    assert close(mixed.state["model"], before.state["model"], 1e-12)
    assert close(mixed.state["fusion"], before.state["fusion"], 1e-12)


def test_sequential_and_processes_agree() -> None:
    data, model = tiny_data(), small(norm=True)
    for operator in OPERATORS:
        algorithm = fedfusion(tiny_setup(data, model, plan=Plan(batch_size=3)), operator=operator)
        one = TinyRun(algorithm, data=data, model=model).rounds(2)
        many = TinyRun(algorithm, data=data, model=model, executor=partial(Processes, workers=2))
        try:
            assert equal_trees(one.state, many.rounds(2).state)
        finally:
            many.close()


# a client that joins later ---------------------------------------------------------------------
@pytest.mark.parametrize("options", CASES[:3])
def test_newcomers_start_from_the_trained_operator(options: dict[str, Any], float64: None) -> None:
    """Client 3 never took part; it begins with the server's (E, F, C), and E_g stays the server's E."""
    run = built(options, sampler=Given([0, 1, 2]), optimizer=SGD(0.5, 0.01)).rounds(2)
    site = Site(run.data, run.key, torch.device("cpu"), with_test=True)
    task, message = run.algorithm.tasks["train"], run.algorithm.message(run.state)
    request = Request("train", 2, 0.1, message, ())
    result = run_client(site, task, request, Work(3, {}, None))
    model, fusion = train(run, 3, run.state["model"], run.state["fusion"], 2)
    assert close(result.reply["model"], model)
    assert close(result.reply["fusion"], fusion)
    idle = run_client(site, replace(task, plan=Plan(epochs=0)), request, Work(3, {}, None))
    assert equal_trees(idle.reply, {tree: message[tree] for tree in ("model", "buffers", "fusion")})
    x, y = samples(run, 3)
    logits = classify(model, operate(fusion, extract(model, x), extract(run.state["model"], x)))
    assert int(result.metrics["personal_correct"]) == int((logits.argmax(1) == y).sum())


# settings ---------------------------------------------------------------------
def test_networks_without_maps_are_refused() -> None:
    data = tiny_data()
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
    blind = [tiny_model(), Model(adapt(module, "2")), Model(adapt(module, "2", maps="0"))]
    for model, found in zip(blind, (r"\(64,\)", "unknown", "unknown"), strict=True):
        with pytest.raises(ConfigError, match=f"fusion shape mismatch.*{found}.*mcmahan_cnn"):
            fedfusion(tiny_setup(data, model))
    known = Model(adapt(module, "2", maps="0", example=torch.zeros(2, 1, 8, 8)))
    run = TinyRun(fedfusion(tiny_setup(data, known)), data=data, model=known).rounds(1)
    assert run.state["fusion"]["weight"].shape == (2, 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"operator": "conv", "lambda0": 0.5}, "lambda0 = 0.5 is not used by operator 'conv'"),
        ({"operator": "multi", "mu": 1.0}, "mu"),
        ({"operator": "multi", "mu": -0.1}, "mu"),
        ({"operator": "multi", "mu": float("nan")}, "mu"),
        ({"operator": "multi", "lambda0": float("nan")}, "lambda0"),
        ({"cache_mb": -1}, "cache_mb"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        fedfusion(tiny_setup(tiny_data(), small()), **options)


# running statistics ---------------------------------------------------------------------
def normal(params: Params, buffers: Params, x: Tensor, f: Params, other: tuple[Params, Params]) -> Tensor:
    """Logits in evaluation mode: each extractor with running statistics of its own, eps 1e-5."""

    def maps(p: Params, b: Params) -> Tensor:
        z = F.conv2d(x, p["maps.0.weight"], p["maps.0.bias"], padding=1)
        mean, variance = (b[f"maps.1.{name}"][None, :, None, None] for name in ("running_mean", "running_var"))
        scale, shift = (p[f"maps.1.{name}"][None, :, None, None] for name in ("weight", "bias"))
        return F.max_pool2d(torch.relu((z - mean) / (variance + 1e-5).sqrt() * scale + shift), 2)

    return classify(params, operate(f, maps(params, buffers), maps(*other)))


@pytest.mark.parametrize("evaluate", ["prev", "same"])
@pytest.mark.parametrize("options", [{"operator": "conv", "init": "default"}, {"operator": "multi", "lambda0": 0.5}])
def test_every_extractor_has_running_statistics_of_its_own(
    options: dict[str, Any], evaluate: str, float64: None
) -> None:
    """Inputs far from where the layer expects them: other statistics would let other samples be right."""
    data, model = tiny_data(dtype=torch.float64), small(norm=True)
    pool = replace(data.train_pool, x=5 + 3 * data.train_pool.x)
    data = replace(data, train_pool=pool, test_pool=pool)
    setup = tiny_setup(data, model, plan=Plan(epochs=2, batch_size=3))
    run = TinyRun(fedfusion(setup, **options, evaluate=evaluate), data=data, model=model, with_test=True)
    before = dict(run.state["model"]), dict(run.state["buffers"])
    run.rounds(1)
    assert run.replies is not None
    counts: list[list[int]] = [[], [], []]
    for client, result in enumerate(run.replies.results):
        x, y = samples(run, client)
        sent = result.reply
        for found, (own, other) in zip(
            counts,
            ((sent["buffers"], before[1]), (before[1], before[1]), (sent["buffers"], sent["buffers"])),
            strict=True,
        ):
            logits = normal(sent["model"], own, x, sent["fusion"], (before[0], other))
            found.append(int((logits.argmax(1) == y).sum()))
    assert run.replies.metric("personal_correct").tolist() == counts[0]
    assert counts[0] not in counts[1:]
    now, f, x = (run.state["model"], run.state["buffers"]), run.state["fusion"], run.data.test_pool.x[:9]
    expected = normal(*now, x, f, before if evaluate == "prev" else now)
    predictor, exported = run.algorithm.predictor(run.state), run.algorithm.export(run.state)
    assert predictor is not None
    assert exported is not None
    torch.testing.assert_close(predictor(x).logits, expected)
    torch.testing.assert_close(exported(x).detach(), expected)
    own = run.replies.results[2]
    mine = own.reply["model"], own.reply["buffers"]
    theirs = run.algorithm.local_predictor(run.state, own)(x).logits  # type: ignore[attr-defined]
    other = (run.state["previous"], run.state["previous_buffers"]) if evaluate == "prev" else mine
    torch.testing.assert_close(theirs, normal(*mine, x, own.reply["fusion"], other))
    if evaluate == "prev":
        assert close(run.state["previous"], before[0])
        assert torch.equal(run.state["previous_buffers"]["maps.1.running_mean"], before[1]["maps.1.running_mean"])


def test_what_is_kept_of_the_received_models_maps(float64: None) -> None:
    model = small(norm=True)
    run = built({"operator": "multi", "lambda0": 0.5}, model=model, plan=Plan(batch_size=3)).rounds(1)
    part = run.algorithm.tasks["train"].parts[1]
    site = Site(run.data, Key(0), torch.device("cpu")).client_data(1)
    found = part.begin(model, Job(run.algorithm.message(run.state), {}, {}, {}, site))["maps"]
    ones = {"lambda": torch.ones(CHANNELS)}
    now = run.state["model"], run.state["buffers"]
    torch.testing.assert_close(classify(now[0], found), normal(*now, site.x, ones, now))
