"""FedMeta: what is given, training without it, the server's own epochs, and unbiased gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedmeta import KeptSamples, UnbiasedGradient, fedmeta
from accord.core.model import Model
from accord.core.optim import SGD
from accord.core.plan import Plan
from accord.core.task import LocalTraining
from accord.core.types import Batch, ClientData, Exchange, Job, Replies, Trees
from accord.errors import ConfigError
from accord.executors.sequential import one_thread
from accord.models import adapt
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import SIZES, Given, TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup
from support.personal import norm_model
from support.reference import Params, forward, gradient, samples

SETTINGS = {"share": 0.4, "meta_lr": 0.3, "meta_epochs": 2}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():  # the server trains in these tests, on as many threads as it is given
        yield


def given(run: TinyRun, k: int) -> Tensor:
    return (run.store.get(k) or {})["meta"]["given"]


def kept_loss(run: TinyRun, k: int):  # type: ignore[no-untyped-def]
    """Cross-entropy over the samples of a batch that were not given; 0 when all were."""
    x, y = samples(run, k)
    mask = given(run, k)

    def loss(p: Params, index: Tensor) -> Tensor:
        rows = index[~mask[index]]
        if not len(rows):
            return sum((t * 0).sum() for t in p.values())  # type: ignore[return-value]
        return F.cross_entropy(forward(p, x[rows]), y[rows])

    return loss


def server_epochs(run: TinyRun, w: Params, round: int, **sgd: float) -> Params:
    """Two shuffled passes over everything given, in batches of four, a short one last."""
    x = torch.cat([samples(run, k)[0][given(run, k)] for k in range(4)])
    y = torch.cat([samples(run, k)[1][given(run, k)] for k in range(4)])
    rng = run.key.at("fedmeta", round)
    batches = []
    for _ in range(2):
        order = rng.permutation(len(y))
        batches += [order[i : i + 4] for i in range(0, len(order), 4)]
    return descend(w, batches, lambda p, index: F.cross_entropy(forward(p, x[index]), y[index]), lr=0.3, **sgd)


def test_the_given_share(float64: None) -> None:
    run = make(fedmeta, SETTINGS)
    counts = [int(given(run, k).sum()) for k in range(4)]
    assert counts == [2, 4, 5, 6]  # 0.4 of 6, 9, 12 and 15, rounded
    pool = run.state["meta"]
    assert torch.equal(pool["x"], torch.cat([samples(run, k)[0][given(run, k)] for k in range(4)]))
    assert torch.equal(pool["y"], torch.cat([samples(run, k)[1][given(run, k)] for k in range(4)]))
    other = make(fedmeta, SETTINGS, seed=2)
    assert any(not torch.equal(given(run, k), given(other, k)) for k in range(4)), "the draw follows the seed"


def test_someone_with_one_sample_keeps_it() -> None:
    run = make(fedmeta, {"share": 0.9}, data=tiny_data(sizes=(1, 2, 12)))
    assert [int(given(run, k).sum()) for k in range(3)] == [0, 1, 11]
    run.rounds(1)


def test_three_rounds(float64: None) -> None:
    run = make(fedmeta, SETTINGS, sampler=Given(*COHORTS), optimizer=SGD(0.5))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = [descend(w, run.batches(k, round=round), kept_loss(run, k), momentum=0.5) for k in cohort]
        w = server_epochs(run, mean(models, [SIZES[k] for k in cohort]), round)
    assert close(run.rounds(3).state["model"], w)


def test_the_servers_momentum_and_decay_begin_anew_in_every_round(float64: None) -> None:
    run = make(fedmeta, {**SETTINGS, "meta_momentum": 0.7, "meta_decay": 0.02}, sampler=Given(*COHORTS))
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        models = [descend(w, run.batches(k, round=round), kept_loss(run, k)) for k in cohort]
        w = server_epochs(run, mean(models, [SIZES[k] for k in cohort]), round, momentum=0.7, decay=0.02)
    assert close(run.rounds(3).state["model"], w)


def test_batches_of_one_that_were_given_away(float64: None) -> None:
    """Every such batch is empty; the loss is 0 and no number is lost."""
    run = make(fedmeta, SETTINGS, plan=Plan(epochs=1, batch_size=1))
    w = dict(run.state["model"])
    models = [descend(w, run.batches(k), kept_loss(run, k)) for k in range(4)]
    x, y = run.state["meta"]["x"], run.state["meta"]["y"]
    rng = run.key.at("fedmeta", 0)
    order = np.concatenate([rng.permutation(len(y)) for _ in range(2)]).reshape(-1, 1)
    ce = lambda p, index: F.cross_entropy(forward(p, x[index]), y[index])  # noqa: E731
    expected = descend(mean(models, SIZES), list(order), ce, lr=0.3)
    run.rounds(1)
    assert close(run.state["model"], expected)
    assert run.replies is not None
    seen = run.replies.metric("seen")
    assert seen.tolist() == [int((~given(run, k)).sum()) for k in range(4)]


@pytest.mark.parametrize("uga", [False, True])
def test_given_samples_touch_nothing_afterwards(uga: bool) -> None:
    """Spoiled after the hand-over, with batch norm in the network: the same bits."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    runs = []
    for spoil in (False, True):
        model = Model(adapt(network, "4", example=torch.zeros(2, 1, 8, 8)))
        run = make(fedmeta, {**SETTINGS, "uga": uga}, model=model, plan=Plan(epochs=2, batch_size=3))
        if spoil:
            for k in range(4):
                rows = torch.as_tensor(run.data.train[k])[given(run, k)]
                run.data.train_pool.x[rows] = torch.nan
        runs.append(run.rounds(2))
    assert equal_trees(runs[0].state, runs[1].state)


@pytest.mark.parametrize(("epochs", "share"), [(1, 0.0), (3, 0.0), (3, 0.4)])
def test_unbiased_gradients(epochs: int, share: float, float64: None) -> None:
    """All epochs but the last are SGD (with momentum and decay); in the last the gradients are only gathered."""
    settings = {**SETTINGS, "share": share, "uga": True, "server_lr": 0.25}
    plan = Plan(epochs=epochs, batch_size=4)
    run = make(fedmeta, settings, sampler=Given(*COHORTS), optimizer=SGD(0.5, 0.01), plan=plan)
    w = dict(run.state["model"])
    for round, cohort in enumerate(COHORTS):
        gradients = []
        for k in cohort:
            loss = kept_loss(run, k) if share else labels_loss(run, k)
            batches = run.batches(k, round=round)
            last = len(batches) // epochs
            there = descend(w, batches[:-last], loss, momentum=0.5, decay=0.01)
            found = [gradient(lambda p, r=r, f=loss: f(p, torch.as_tensor(r)), there) for r in batches[-last:]]
            gradients.append(mean(found))
        g = mean(gradients, [SIZES[k] for k in cohort])
        w = {n: w[n] - 0.25 * g[n] for n in w}
        w = server_epochs(run, w, round) if share else w
    assert close(run.rounds(3).state["model"], w)


def test_one_epoch_of_unbiased_gradients_is_a_gradient_step(float64: None) -> None:
    """Batches of the whole data: g_k is the gradient at w_t, so FedAvg with one such step at the same rate."""
    plan = Plan(epochs=1, batch_size=0)
    ours = make(fedmeta, {"share": 0.0, "uga": True, "server_lr": 0.1}, plan=plan).rounds(2)
    assert close(ours.state["model"], make(fedavg, plan=plan).rounds(2).state["model"])


def test_a_client_missing_at_the_start_gives_nothing_and_trains_on_all(float64: None) -> None:
    class Absent:
        """Client 3 does not answer before round 0."""

        def __init__(self, exchange: Exchange) -> None:
            self.exchange = exchange

        def __call__(self, task: str, clients: list[int], shared: Trees, private: object = None) -> Replies:
            return self.exchange(task, [k for k in clients if k != 3], shared)

    run = make(fedmeta, SETTINGS, sampler=Given([3]))
    run.store.restore({})
    run.state = run.algorithm.start(run.algorithm.init(run.world()), run.world(), Absent(run.exchange()))
    assert len(run.state["meta"]["y"]) == 11
    run.rounds(2)
    assert run.replies is not None
    assert run.replies.metric("seen").tolist() == [30.0]
    assert run.store.get(3) is None


def test_share_zero_is_fedavg() -> None:
    ours = make(fedmeta, {"share": 0.0}, sampler=Given(*COHORTS)).rounds(3)
    assert equal_trees(ours.state, make(fedavg, sampler=Given(*COHORTS)).rounds(3).state)


@pytest.mark.parametrize("uga", [False, True])
def test_processes_agree(uga: bool) -> None:
    assert processes_agree(fedmeta, {**SETTINGS, "uga": uga})


def test_dropout_at_the_server_is_drawn_by_address() -> None:
    """Two runs agree although torch's own generator stands elsewhere, and it is left alone."""
    ours = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        ours.append(make(fedmeta, SETTINGS, model=tiny_model(dropout=0.5)).rounds(2))
        after = torch.rand(1)
        torch.manual_seed(seed)
        assert torch.equal(after, torch.rand(1))
    assert equal_trees(ours[0].state, ours[1].state)


def test_a_dropped_last_batch_does_not_silence_the_server() -> None:
    """A D_meta smaller than a batch would never be seen under `drop`."""
    plan = Plan(epochs=1, batch_size=6, last_batch="drop")
    ours = make(fedmeta, {"share": 0.1}, plan=plan)
    assert len(ours.state["meta"]["y"]) == 5
    slower = make(fedmeta, {"share": 0.1, "meta_lr": 1e-9}, plan=plan)
    assert not equal_trees({"m": ours.rounds(1).state["model"]}, {"m": slower.rounds(1).state["model"]})


def test_bad_settings() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    for settings, word in (
        ({"share": 1.0}, "share"),
        ({"share": -0.1}, "share"),
        ({"meta_lr": 0.0}, "meta_lr"),
        ({"meta_epochs": 0}, "meta_epochs"),
        ({"meta_epochs": 1.5}, "meta_epochs"),
        ({"meta_momentum": 1.0}, "meta_momentum"),
        ({"meta_decay": -0.1}, "meta_decay"),
        ({"server_lr": -1.0, "uga": True}, "server_lr"),
    ):
        with pytest.raises(ConfigError, match=word):
            fedmeta(setup, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"local\.steps"):
        fedmeta(replace(setup, plan=Plan(steps=5)), uga=True)
    with pytest.raises(ConfigError, match="too few"):
        make(fedmeta, {"share": 0.01})


def test_the_servers_own_training_takes_no_short_cut() -> None:
    """Batches of the local size, its own number of epochs, plain SGD; no short last batch where samples are coupled."""
    plan = Plan(epochs=7, steps=3, batch_size=4, last_batch="drop")
    setup = replace(tiny_setup(tiny_data(), tiny_model(), optimizer=SGD(0.9, 0.1), plan=plan), clip=1.0)
    method = fedmeta(setup, share=0.4, meta_lr=0.3, meta_epochs=2)
    assert method.meta.plan == Plan(2, 0, 4, "pad")  # type: ignore[attr-defined]
    assert (method.meta.optimizer, method.meta.clip) == (SGD(), 0.0)  # type: ignore[attr-defined]
    assert (method.meta_lr, method.num_classes) == (0.3, 3)  # type: ignore[attr-defined]
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    coupled = replace(setup, model=Model(adapt(network, head="3", example=torch.zeros(2, 1, 8, 8))))
    assert fedmeta(coupled, share=0.4).meta.plan == Plan(1, 0, 4, "fill")  # type: ignore[attr-defined]


def test_the_servers_plan_by_hand() -> None:
    """All of D_meta in every epoch, whatever the clients do with a last batch; filled up where batches are coupled."""
    plan = Plan(epochs=3, steps=2, batch_size=4, last_batch="drop")
    for model, policy in ((tiny_model(), "pad"), (norm_model(), "fill")):
        method = fedmeta(tiny_setup(tiny_data(), model, plan=plan), meta_epochs=5, meta_lr=0.3)
        assert method.meta.plan == Plan(epochs=5, steps=0, batch_size=4, last_batch=policy)  # type: ignore[attr-defined]
        assert (method.meta.optimizer, method.meta_lr, method.num_classes) == (SGD(), 0.3, 3)  # type: ignore[attr-defined]


def test_the_servers_running_statistics_follow_its_own_batches(float64: None) -> None:
    """Seventeen given samples in batches of four, filled up: five an epoch, two epochs, after those of the clients."""
    run = make(fedmeta, SETTINGS, model=norm_model(), plan=Plan(epochs=1, batch_size=4, last_batch="fill")).rounds(1)
    assert run.replies is not None
    sent = [tree["module.2.num_batches_tracked"] for tree in run.replies.each("buffers")]
    assert int(run.state["buffers"]["module.2.num_batches_tracked"]) == int(max(sent)) + 10
    mean_of_clients = mean(list(run.replies.each("buffers")), SIZES)["module.2.running_mean"]
    assert not torch.allclose(run.state["buffers"]["module.2.running_mean"], mean_of_clients, atol=1e-3)


def test_the_servers_dropout_is_another_in_every_round() -> None:
    seen: list[int] = []

    class Watching(LocalTraining):
        def begin(self, job: Job) -> dict[str, object]:
            seen.append(torch.initial_seed())
            return super().begin(job)

    run = make(fedmeta, SETTINGS)
    run.algorithm = replace(run.algorithm, meta=Watching(**vars(run.algorithm.meta)))  # type: ignore[attr-defined,type-var]
    run.rounds(2)
    assert seen == [run.key.number("torch.fedmeta", round) for round in (0, 1)]
    assert seen[0] != seen[1]


def test_kept_samples_stand_in_for_given_ones_in_turn() -> None:
    """Of five samples 1, 2 and 4 were given: 0, 3 and 0 again are shown in their place, and count nothing."""
    x, y = torch.arange(5.0).view(5, 1), torch.tensor([0, 1, 2, 0, 1])
    mask = torch.tensor([False, True, True, False, True])
    job = Job({}, {}, {"meta": {"given": mask}}, {"lr": torch.tensor(0.1)}, ClientData(x, y, x[:0], y[:0], 3))
    corner = KeptSamples().begin(tiny_model(), job)
    assert corner["shown"].tolist() == [0, 0, 3, 3, 0]
    batch = Batch(x[[4, 3, 2]], y[[4, 3, 2]], torch.tensor([1.0, 1.0, 0.5]), torch.tensor([4, 3, 2]), {})
    shown = KeptSamples().batch(job, corner, batch)
    assert (shown.x[:, 0].tolist(), shown.y.tolist()) == ([0.0, 3.0, 3.0], [0, 0, 0])
    assert (shown.weight.tolist(), shown.index.tolist()) == ([0.0, 1.0, 0.0], [0, 3, 3])


def test_gradients_are_gathered_while_the_gate_is_closed() -> None:
    """Of slopes 2, 4 and 8 the first moves the model; server_lr 1/2 times (4 + 8) / 2 from where it began."""
    part, start = UnbiasedGradient(0.5), {"w": torch.tensor([10.0])}
    job = Job({"model": start}, {}, {}, {"lr": torch.tensor(0.1)}, None)  # type: ignore[arg-type]
    gate = torch.tensor(1.0)
    carry = {part.name: part.begin(tiny_model(), job), "optimizer": {"model": {"gate": {"rest": gate}}}}
    for slope, moves in ((2.0, 1.0), (4.0, 0.0), (8.0, 0.0)):
        gate.fill_(moves)
        grads = {"model": {"w": torch.tensor([slope])}, "other": {}}
        assert part.grad(job, carry, grads) is grads
    assert part.finish(tiny_model(), job, carry)[0]["model"]["w"].tolist() == [7.0]


def test_the_server_needs_each_client_for_what_it_gave_only() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    assert "samples each client gave" in fedmeta(setup).needs_each  # type: ignore[attr-defined]
    assert fedmeta(setup, share=0.0, uga=True).needs_each == ""  # type: ignore[attr-defined]
