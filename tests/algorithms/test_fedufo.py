"""FedUFO and FedUAD: whole rounds against a reference, hand-computed losses, messages, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from accord.algorithms.fedufo import feduad
from accord.core.algorithm import Method
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.task import Corner, LocalTraining, Part
from accord.core.tensors import num_bytes
from accord.core.types import Batch, Job
from accord.executors.processes import Processes, can_fork
from accord.models import adapt
from accord.models.network import Network
from accord.sampling import Uniform
from support.federation import CLASSES, Given, TinyRun, equal_trees
from support.fedufo_reference import Options, Reference, with_maps
from support.fedufo_runs import ALL, PAIRS, TRIPLES, tiny

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
    follow(run, Options(**options, model_momentum=0.9, decay=2e-4), cohorts)


MAP_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "server": (
        {"terms": "all", "dynamic": False, "stage_one_rounds": 1, "disc_lr": 0.5, "disc_momentum": 0.5},
        {"terms": ALL, "stage_one": 1, "rate": 0.5, "momentum": 0.5},
    ),
    "report": (  # a new one for every client and round, three layers
        {"terms": "uad", "disc_home": "fresh", "disc_train": "batch", "disc_lr": 1.0, "disc_layers": 3},
        {"terms": ("uad",), "home": "fresh", "train": "batch", "rate": 1.0, "layers": 3},
    ),
}


@pytest.mark.parametrize("case", MAP_CASES)
def test_three_rounds_with_a_discriminator_of_the_maps(case: str, float64: None) -> None:
    """It reads 2 x 6 x 6 numbers of a sample, and is 7 wide."""
    chosen, options = MAP_CASES[case]
    torch.manual_seed(3)
    maps, neck = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.ReLU())
    model = Model(Network(maps, neck, nn.Linear(5, CLASSES), (2, 6, 6)))
    run = tiny(**chosen, disc_reads="maps", disc_hidden=7, model=model, sampler=Given(*TRIPLES), optimizer=SGD(0.9))
    if case == "server":
        assert {n: tuple(t.shape) for n, t in run.state["discriminator"].items()} == {
            **{"0.weight": (7, 72), "0.bias": (7,)},
            **{"1.weight": (4, 7), "1.bias": (4,)},
        }
    follow(run, Options(**options, model_momentum=0.9, hidden=7, width=72, reads=with_maps), TRIPLES)


def follow(run: TinyRun, o: Options, cohorts: tuple[list[int], ...]) -> None:
    """The run and the reference side by side."""
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
    assert set(ours.algorithm.tasks) == {"train", "evaluate"}


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
        assert set(tiny(feduad, **chosen).rounds(1).algorithm.tasks) == {"train", "evaluate"}
    assert set(tiny(feduad, disc_home="fresh", disc_train="batch").algorithm.tasks) == {"train", "prior", "evaluate"}


# what is sent --------------------------------------------------------------------------------------------------


def traffic(run: TinyRun) -> tuple[int, int]:
    exchange = run.exchange()
    run.algorithm.round(run.state, run.world(), exchange)
    return exchange.bytes_down, exchange.bytes_up


def test_cgl_alone_sends_nothing_extra() -> None:
    ours, fedavg = tiny(terms="cgl", sampler=Given([0, 2])), TinyRun("fedavg", sampler=Given([0, 2]))
    assert traffic(ours) == traffic(fedavg)
    assert set(ours.algorithm.tasks) == {"train", "evaluate"}
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
    model, plan = normed(), Plan(epochs=2, batch_size=4, last_batch="fill")  # no batch of one to normalise
    options: dict[str, Any] = {"model": model, "plan": plan, "stage_one_rounds": 1, "sampler": Uniform(3)}
    ours = tiny(**options, **chosen)
    other = tiny(**options, executor=partial(Processes, workers=2), **chosen)
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
