"""FedUFO and FedUAD: whole rounds against a reference, hand-computed losses, messages, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_origin, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from accord.algorithms.fedufo import feduad, fedufo
from accord.config.values import Misfit, fit
from accord.core.algorithm import Method
from accord.core.model import Model
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.core.task import Corner, LocalTraining, Part
from accord.core.tensors import num_bytes
from accord.core.types import Batch, Job
from accord.engine.processes import Processes, can_fork
from accord.errors import ConfigError
from accord.models import adapt
from accord.parts.alignment import naming_loss, uniform_loss
from accord.parts.consensus import Divergence
from accord.parts.peers import class_shares, group_target
from accord.sampling import Uniform
from support.federation import CLASSES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.fedufo_reference import Options, Reference

PAIRS = ([0, 2], [1, 3], [0, 1])
TRIPLES = ([0, 1, 3], [1, 2, 3], [0, 2, 3])
ALL = ("uad", "cgr", "cgl")


def tiny(factory: Any = fedufo, *, seed: int = 1, executor: Any = None, method: Any = None, **given: Any) -> TinyRun:
    """A run of the method; `model`, `data`, `plan`, `optimizer`, `sampler`, `rounds` go to the setup."""
    names = {"plan", "optimizer", "sampler", "rounds", "lr"}
    data = given.pop("data", None) or tiny_data(dtype=torch.get_default_dtype())
    model = given.pop("model", None) or tiny_model()
    shared = {name: given.pop(name) for name in names & given.keys()}
    algorithm = factory(tiny_setup(data, model, **shared), **given)
    extra = {} if executor is None else {"executor": executor}
    return TinyRun(method(algorithm) if method else algorithm, data=data, model=model, seed=seed, **extra, **shared)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[list[int], ...]]] = {
    "cls": ({"terms": "cls"}, {}, PAIRS),
    "defaults": ({"terms": "all", "dynamic": False}, {"terms": ALL, "stage_one": 1}, PAIRS),
    "triples": (
        {"terms": "all", "dynamic": False, "stage_one_rounds": 0, "disc_lr": 0.7, "disc_epochs": 2},
        {"terms": ALL, "rate": 0.7, "epochs": 2},
        TRIPLES,
    ),
    "batch": (
        {"terms": "uad", "disc_train": "batch", "disc_lr": 1.0, "disc_momentum": 0.5},
        {"terms": ("uad",), "train": "batch", "rate": 1.0, "momentum": 0.5},
        TRIPLES,
    ),
    "client": (
        {"terms": "uad", "disc_home": "client", "disc_lr": 0.5, "disc_layers": 3, "uad_weight": 0.3},
        {"terms": ("uad",), "home": "client", "rate": 0.5, "layers": 3, "uad": 0.3},
        PAIRS,
    ),
    "fresh": ({"terms": "uad", "disc_home": "fresh"}, {"terms": ("uad",), "home": "fresh"}, PAIRS),
    "fresh group": (
        {"terms": "uad", "disc_home": "fresh", "disc_classes": "group", "disc_train": "batch", "disc_lr": 1.0},
        {"terms": ("uad",), "home": "fresh", "classes": "group", "train": "batch", "rate": 1.0},
        TRIPLES,
    ),
    "never learns": ({"terms": "uad", "disc_lr": 0.0}, {"terms": ("uad",), "rate": 0.0}, PAIRS),
    "cgr": ({"terms": "cgr"}, {"terms": ("cgr",)}, TRIPLES),
    "logits": ({"terms": "cgr", "cgr_target": "logits"}, {"terms": ("cgr",), "target": "logits"}, PAIRS),
    "literal": (
        {"terms": "uad+cgr", "stage_one_rounds": 1, "kl_reduction": "batch", "disc_lr": 1.0},
        {"terms": ("uad", "cgr"), "stage_one": 1, "reduction": "batch", "rate": 1.0},
        PAIRS,
    ),
    "normalise": (
        {"terms": "cgr", "cgr_target": "normalise", "kl": "forward", "cgr_weight": 2.0},
        {"terms": ("cgr",), "target": "normalise", "kl": "forward", "cgr": 2.0},
        TRIPLES,
    ),
    "late cgr": ({"terms": "cgr", "stage_one_rounds": 2}, {"terms": ("cgr",), "stage_one": 2}, PAIRS),
    "cgl": ({"terms": "cgl"}, {"terms": ("cgl",)}, PAIRS),
    "forward": (
        {"terms": "uad+cgl", "stage_one_rounds": 1, "kl": "forward", "cgl_weight": 1.0},
        {"terms": ("uad", "cgl"), "stage_one": 1, "kl": "forward", "cgl": 1.0},
        PAIRS,
    ),
    "prior": (
        {"terms": "all", "dynamic": False, "stage_one_rounds": 1, "start": "prior"},
        {"terms": ALL, "stage_one": 1, "start": "prior"},
        PAIRS,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_three_rounds(case: str, float64: None) -> None:
    """Model, discriminator and client memory after three rounds with partial participation."""
    chosen, options, cohorts = CASES[case]
    epochs = 2 if case == "defaults" else 1
    plan = Plan(epochs=epochs, batch_size=4)
    run = tiny(**chosen, sampler=Given(*cohorts), optimizer=SGD(0.9, 2e-4), plan=plan)
    o = Options(**options, model_momentum=0.9, decay=2e-4)
    reference = Reference(run, o, dict(run.state["model"]), dict(run.state.get("discriminator", {})))
    for round, group in enumerate(cohorts):
        reference.round(round, group)
        run.rounds(1)
    assert_close(run.state["model"], reference.w)
    assert ("discriminator" in run.state) == ("uad" in o.terms and o.home == "server")
    assert_close(run.state.get("discriminator", {}), reference.d)
    for client in reference.own:
        memory = run.store.get(client) or {}
        assert set(memory) == ({"discriminator"} if o.home == "client" else set())
        assert_close(memory.get("discriminator", {}), reference.own[client] if memory else {})


def assert_close(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> None:
    assert ours.keys() == reference.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], reference[name], rtol=1e-8, atol=1e-9)


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
    assert (loss - least < 1e-12) == (max(values) - min(values) < 1e-5)


def test_naming_loss_by_hand(float64: None) -> None:
    """One sample, three members of four clients: own weight 1, the two others 1/2 each."""
    logits = torch.log(torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25], [0.5, 0.3, 0.1, 0.1]]]))
    loss = naming_loss(logits, torch.tensor([0, 1, 3]), torch.tensor([False, True, False]))
    assert loss.tolist() == pytest.approx([-math.log(0.25) - (math.log(0.1) + math.log(0.1)) / 2])


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
    """The padded row counts nothing."""
    logits = torch.log(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    target = torch.log(torch.tensor([[0.75, 0.25], [0.5, 0.5]]))
    assert float(Divergence(kl, reduction)(logits, target, torch.tensor([1.0, 0.0]))) == pytest.approx(value)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-30, 30), min_size=6, max_size=6), st.lists(st.floats(-30, 30), min_size=6, max_size=6))
def test_divergence_is_zero_when_equal_and_never_negative(a: list[float], b: list[float]) -> None:
    logits, other = (torch.tensor(v, dtype=torch.float64).view(2, 3) for v in (a, b))
    one = torch.ones(2, dtype=torch.float64)
    for kl in ("reverse", "forward"):
        measure = Divergence(kl, "batch")  # type: ignore[arg-type]
        assert float(measure(logits, logits.log_softmax(1), one)) == 0
        assert float(measure(logits, other.log_softmax(1), one)) >= -1e-12


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


# identities ----------------------------------------------------------------------------------------------------


def shown(run: TinyRun) -> dict[str, Any]:
    return {tree: run.state[tree] for tree in ("model", "buffers")}


@pytest.mark.parametrize(
    "off",
    [
        {"terms": "cls"},
        {"terms": "all", "uad_weight": 0.0, "cgr_weight": 0.0, "cgl_weight": 0.0},
        {"terms": "cgl", "cgl_weight": 0.0},
    ],
)
def test_without_terms_it_is_fedavg(off: dict[str, Any]) -> None:
    chosen = {"sampler": Given(*PAIRS), "optimizer": SGD(0.9)}
    ours = tiny(**off, **chosen).rounds(3)
    assert equal_trees(ours.state, TinyRun("fedavg", **chosen).rounds(3).state)
    assert set(ours.algorithm.tasks) == {"train"}


def test_stage_one_is_feduad() -> None:
    """Before stage two, FedUFO's rounds are FedUAD's, bit for bit; and then they are not."""
    ufo, uad = tiny(stage_one_rounds=3, rounds=5), tiny(feduad, rounds=5)
    assert equal_trees(shown(ufo.rounds(3)), shown(uad.rounds(3)))
    assert not equal_trees(shown(ufo.rounds(1)), shown(uad.rounds(1)))


def test_feduad_is_the_uad_row() -> None:
    chosen = {"disc_lr": 0.5, "disc_epochs": 2, "uad_weight": 0.7, "start": "prior"}
    assert equal_trees(tiny(feduad, **chosen).rounds(2).state, tiny(terms="uad", **chosen).rounds(2).state)


def test_a_discriminator_that_never_learns_needs_no_priors() -> None:
    for chosen in ({"disc_lr": 0.0}, {"disc_home": "fresh"}, {"disc_epochs": 0}):
        assert set(tiny(feduad, **chosen).rounds(1).algorithm.tasks) == {"train"}
    assert set(tiny(feduad, disc_home="fresh", disc_train="batch").algorithm.tasks) == {"train", "prior"}


# what is sent --------------------------------------------------------------------------------------------------


def traffic(run: TinyRun) -> tuple[int, int]:
    exchange = run.exchange()
    run.algorithm.round(run.state, run.world(), exchange)
    return exchange.bytes_down, exchange.bytes_up


def test_cgl_alone_sends_nothing_extra() -> None:
    ours, fedavg = tiny(terms="cgl", sampler=Given([0, 2])), TinyRun("fedavg", sampler=Given([0, 2]))
    assert traffic(ours) == traffic(fedavg)
    assert set(ours.algorithm.tasks) == {"train"}
    assert ours.rounds(1).state.keys() == fedavg.state.keys()


def test_everything_that_is_sent() -> None:
    """m = 2: the model twice and the two priors down, prior and posterior up; class counts, ids, D, its seed."""
    run = tiny(dynamic=False, stage_one_rounds=0, sampler=Given([0, 2]))
    w, d = (num_bytes({"": run.state[tree]}) for tree in ("model", "discriminator"))
    counts = 8 * CLASSES
    assert traffic(run) == (2 * (w + w + 2 * w + d + 16 + 2 * counts + 2 * 8), 2 * (w + counts + w + d))


def test_stage_one_without_uad_exchanges_no_priors() -> None:
    """A late CGR begins as FedAvg: the model down and up, and the two ids of the group."""
    run = tiny(terms="cgr", stage_one_rounds=1, sampler=Given([0, 2]))
    w = num_bytes({"": run.state["model"]})
    assert traffic(run) == (2 * (w + 2 * 8), 2 * w)
    assert equal_trees(shown(run.rounds(1)), TinyRun("fedavg", sampler=Given([0, 2])).rounds(1).state)


@pytest.mark.parametrize(("performance", "down", "up"), [("fresh", 4, 4), ("stale", 0, 2)])
def test_what_dynamic_sampling_sends(performance: Any, down: int, up: int) -> None:
    run = tiny(terms="cgl", dynamic=True, performance=performance, sampler=Uniform(2))
    w = num_bytes({"": run.state["model"]})
    assert traffic(run) == ((2 + down) * w, 2 * w + 4 * up)


def test_no_group_no_cgr() -> None:
    """A client asked on its own (the final personal accuracy) trains with what the message alone allows."""
    for chosen in ({}, {"disc_home": "client"}, {"disc_home": "fresh", "disc_classes": "group", "disc_train": "batch"}):
        run = tiny(stage_one_rounds=0, **chosen).rounds(1)
        before = run.algorithm.message(run.state)
        replies = run.exchange()("train", [0, 1, 2, 3], before)
        for result in replies.results:
            if "discriminator" in result.reply:
                assert equal_trees({"d": result.reply["discriminator"]}, {"d": run.state["discriminator"]})


# how it runs ---------------------------------------------------------------------------------------------------


class Normed(nn.Module):
    """A network with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.body(x))
        return out


def normed() -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Model(adapt(Normed(), head="fc"))


@pytest.mark.skipif(not can_fork(), reason="needs fork")
@pytest.mark.parametrize("chosen", [{}, {"disc_home": "client", "start": "prior", "disc_train": "batch"}])
def test_processes_are_bitwise_equal(chosen: dict[str, Any]) -> None:
    model = normed()
    ours = tiny(model=model, stage_one_rounds=1, sampler=Uniform(3), **chosen)
    other = tiny(model=model, stage_one_rounds=1, sampler=Uniform(3), executor=partial(Processes, workers=2), **chosen)
    try:
        assert equal_trees(ours.rounds(3).state, other.rounds(3).state)
        assert all(equal_trees(ours.store.get(k) or {}, other.store.get(k) or {}) for k in range(4))
    finally:
        other.close()


def test_peers_run_with_their_own_statistics(float64: None) -> None:
    """A prior with BatchNorm is judged in evaluation mode with the buffers it was sent with."""
    run = tiny(model=normed(), dynamic=False, stage_one_rounds=0, sampler=Given([0, 3]))
    priors = run.exchange()("prior", [0, 3], {t: run.state[t] for t in ("model", "buffers")})
    seen: dict[str, Any] = {}

    def watch(method: Method) -> Method:
        class Watching(LocalTraining):
            def finish(self, job: Job, carry: Any) -> Any:
                seen[str(int(job.info["client"]))] = carry["Peers"]["features"]
                return super().finish(job, carry)

        return replace(method, local=Watching(**vars(method.local)))

    method = watch(run.algorithm)  # type: ignore[arg-type]
    watched = TinyRun(method, data=run.data, model=run.model).rounds(1)
    x, _ = watched.data.client(3)
    for position, result in enumerate(priors.results):
        module = run.model.module(result.reply["model"], result.reply["buffers"]).eval()
        expected = module.network.body(x) if hasattr(module, "network") else module.module.body(x)
        torch.testing.assert_close(seen["3"][:, position], expected.detach())


@pytest.mark.parametrize(("start", "batches"), [("global", 8), ("prior", 16)])
def test_a_prior_hands_on_its_statistics(start: Any, batches: int) -> None:
    """Two epochs of 15 samples in batches of four are eight steps, twice if the posterior goes on from the prior."""
    run = tiny(feduad, model=normed(), start=start, sampler=Given([0, 3])).rounds(1)
    assert [int(v) for n, v in run.state["buffers"].items() if n.endswith("num_batches_tracked")] == [batches]


class Unstored(Part):
    """Says that the batch holds no stored samples, as mixing does, and leaves it as it is."""

    def batch(self, job: Job, corner: Corner, batch: Batch) -> Batch:
        return batch._replace(index=batch.index[:0])


@pytest.mark.parametrize("chosen", [{}, {"disc_train": "batch", "disc_lr": 1.0}])
def test_mixed_batches_are_computed_anew(chosen: dict[str, Any], float64: None) -> None:
    def unstored(method: Method) -> Method:
        return replace(method, local=replace(method.local, parts=(Unstored(), *method.local.parts)))

    ours = tiny(stage_one_rounds=0, **chosen).rounds(2)
    other = tiny(stage_one_rounds=0, method=unstored, **chosen).rounds(2)
    for tree in ours.state:
        assert_close(ours.state[tree], other.state[tree])


@pytest.mark.parametrize("train", ["round", "batch"])
def test_padding_counts_nothing(train: Any, float64: None) -> None:
    """A batch of three, alone and with two rows of weight 0."""
    run = tiny(dynamic=False, stage_one_rounds=0, disc_train=train, disc_lr=1.0)
    results = []

    def probe(method: Method) -> Method:
        class Probe(LocalTraining):
            def begin(self, job: Job) -> Any:
                for rows in ([0, 1, 2], [0, 1, 2, 4, 4]):
                    index = torch.tensor(rows)
                    weight = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])[: len(rows)]
                    carry = super().begin(job)
                    for _ in range(3):
                        carry = self.step(job, carry, Batch(job.data.x[index], job.data.y[index], weight, index, {}))
                    results.append((carry["train"]["model"], carry["UniformAlignment"]["discriminator"]))
                return super().begin(job)

        return replace(method, local=Probe(**vars(method.local)))

    TinyRun(probe(run.algorithm), data=run.data, model=run.model, sampler=Given([0, 3])).rounds(1)  # type: ignore[arg-type]
    assert len(results) == 8
    for (model, disc), (padded, padded_disc) in zip(results[::2], results[1::2], strict=True):
        assert_close(model, padded)
        assert_close(disc, padded_disc)


def test_inputs_are_left_as_they_were() -> None:
    run = tiny(stage_one_rounds=0, disc_train="batch")
    before = {t: {n: v.clone() for n, v in run.state[t].items()} for t in run.state}
    run.algorithm.round(run.state, run.world(), run.exchange())
    assert equal_trees(before, run.state)


def test_the_discriminator_learns_to_name_clients(float64: None) -> None:
    """Trained for many epochs it tells the features of a group apart better than by chance."""
    run = tiny(feduad, disc_lr=5.0, disc_epochs=40, uad_weight=1e-6, sampler=Given([0, 3]))
    priors = run.exchange()("prior", [0, 3], {t: run.state[t] for t in ("model", "buffers")})
    run.rounds(1)

    def loss(d: dict[str, Tensor]) -> float:
        from accord.parts.mlp import mlp

        x, _ = run.data.client(0)
        features = [run.model.reference(r.reply["model"], {}, x).features for r in priors.results]
        return sum(float(-mlp(d, f).log_softmax(1)[:, k].mean()) for f, k in zip(features, (0, 3), strict=True))

    assert loss(run.state["discriminator"]) < 2 * math.log(2) < loss(tiny(feduad).state["discriminator"])


def test_drop_outs_between_the_exchanges() -> None:
    """Clients lost with their prior are not asked again; a group may shrink to one."""

    class Leaky:
        def __init__(self, inner: Any, lost: set[int]) -> None:
            self.inner, self.lost = inner, lost

        def __call__(self, task: str, clients: Any, shared: Any, private: Any = None) -> Any:
            kept = [c for c in clients if task != "prior" or c not in self.lost]
            return self.inner(task, kept, shared, private)

    for lost, left in (({1}, (0, 2, 3)), ({0, 1, 3}, (2,))):
        run = tiny(stage_one_rounds=0, dynamic=False)
        _, replies = run.algorithm.round(run.state, run.world(), Leaky(run.exchange(), lost))
        assert replies.ids == left


# settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"terms": "uda"}, "terms must be one of"),
        ({"kl": "sideways"}, "kl must be one of"),
        ({"disc_home": "cloud"}, "disc_home must be one of"),
        ({"terms": "cgr", "dynamic": True}, "CGL loss only"),
        ({"terms": "all", "cgl_weight": 0.0, "dynamic": True}, "CGL loss only"),
        ({"terms": "cgl", "start": "prior"}, "needs UAD or CGR"),
        ({"disc_classes": "group"}, "disc_home to 'fresh'"),
        ({"stage_one_rounds": 3}, "below rounds"),
        ({"sampler": Uniform(1)}, "at least two"),
        ({"terms": "cgr", "sampler": Uniform(1)}, "at least two"),
        ({"data": tiny_data((9,)), "terms": "uad"}, "at least two"),
    ],
)
def test_refusals(chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tiny(**chosen)


def test_a_model_without_features_is_refused() -> None:
    model = tiny_model()
    model.num_features = 0
    with pytest.raises(ConfigError, match=r"accord\.models\.adapt"):
        tiny(model=model)
    tiny(model=model, terms="cgl").rounds(1)


def test_one_client_is_enough_for_cgl() -> None:
    tiny(terms="cgl", data=tiny_data((9,))).rounds(1)


def test_rows_and_presets() -> None:
    """Left alone: all terms with dynamic sampling; a row by its terms alone has none."""
    parts = {
        "cls": [],
        "cgr": ["Peers", "GroupConsensus"],
        "cgl": ["GlobalConsensus"],
        "uad": ["Peers", "UniformAlignment"],
        "uad+cgr": ["Peers", "UniformAlignment", "GroupConsensus"],
        "uad+cgl": ["Peers", "UniformAlignment", "GlobalConsensus"],
        "all": ["Peers", "UniformAlignment", "GroupConsensus", "GlobalConsensus", "Performance"],
    }
    for terms, names in parts.items():
        method = tiny(terms=terms).algorithm
        assert [part.name for part in method.local.parts] == ["CrossEntropy", *names]  # type: ignore[attr-defined]
    for terms in ("cgl", "uad+cgl"):
        assert "performance" in tiny(terms=terms, dynamic=True).algorithm.tasks


@pytest.mark.parametrize("factory", [fedufo, feduad])
def test_every_setting_fits_its_own_annotation(factory: Any) -> None:
    hints = get_type_hints(factory, include_extras=True)
    for name, default in factory.__kwdefaults__.items():
        assert fit(hints[name], default) == default
        if get_origin(get_type_hints(factory)[name]) is Literal:
            with pytest.raises(Misfit):
                fit(hints[name], "nonsense")


def test_any_local_optimizer_will_do() -> None:
    tiny(optimizer=Adam(weight_decay=0.1), lr=1e-3, stage_one_rounds=1).rounds(3)
