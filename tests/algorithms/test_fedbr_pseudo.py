"""Pseudo-data: who is asked for how many means, what they are means of; and the small network beside the model."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from accord.algorithms.fedbr import fedbr
from accord.algorithms.fedbr.pseudo import Contribute, PseudoData, as_proxy, balanced_picks, uniform_picks
from accord.config import from_dict
from accord.core.keys import Key
from accord.core.types import ClientData, Job, Replies, Result, World
from accord.data.public import load_dataset
from accord.engine.build import public_samples
from accord.engine.exchange import LocalExchange
from accord.engine.federation import Federation
from accord.engine.problem import facts_of
from accord.errors import ConfigError, DataError
from accord.parts.mlp import init_mlp, mlp
from accord.parts.samples import share_of
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup
from support.reference import samples


def tiny(options: dict[str, Any]) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    return TinyRun(fedbr(tiny_setup(data, model), **options), data=data, model=model)


class Spy:
    """Records what the server asks, and answers from the run."""

    def __init__(self, exchange: LocalExchange) -> None:
        self.exchange = exchange
        self.asked: list[tuple[str, list[int], dict[int, int]]] = []

    def __call__(self, task: str, clients: Any, shared: Any, private: Any = None) -> Any:
        counts = {k: int(trees["wanted"]["count"]) for k, trees in (private or {}).items()}
        self.asked.append((task, list(clients), counts))
        return self.exchange(task, clients, shared, private)


def test_clients_are_asked_only_for_what_they_were_drawn_for() -> None:
    run = tiny({"size": 6})
    total = np.zeros(4)
    for round in range(60):
        run.round = round
        spy = Spy(run.exchange())
        made = PseudoData(6).make(run.world(), [0, 1, 2, 3], spy)  # type: ignore[arg-type]
        ((task, clients, counts),) = spy.asked
        assert task == "contribute"
        assert sorted(counts) == clients
        assert sum(counts.values()) == 6 == len(made["x"])
        for k, n in counts.items():
            assert n > 0
            total[k] += n
    assert total.min() > 60  # 90 each, whatever a client's size
    assert total.max() < 120


def test_means_of_own_samples_by_hand() -> None:
    run = tiny({"size": 3, "means": 2, "every_round": False})
    x = torch.cat([samples(run, k)[0] for k in range(4)])
    pairs = (x.unsqueeze(0) + x.unsqueeze(1)).flatten(0, 1) / 2
    for sample in run.state["pseudo"]["x"]:
        assert float((pairs - sample).flatten(1).norm(dim=1).min()) < 1e-6


def test_balanced_picks_take_classes_evenly() -> None:
    y = torch.tensor([2] * 90 + [0] * 9 + [7])
    data = ClientData(torch.zeros(100, 1), y, torch.zeros(0, 1), y[:0], 10)
    draws = torch.rand(2, 300, 10, generator=torch.Generator().manual_seed(0))
    even = y[balanced_picks(data, draws)].flatten().bincount(minlength=10) / 3000
    assert torch.allclose(even[[0, 2, 7]], torch.full((3,), 1 / 3), atol=0.03)
    plain = y[uniform_picks(data, draws)].flatten().bincount(minlength=10) / 3000
    assert torch.allclose(plain[[0, 2, 7]], torch.tensor([0.09, 0.9, 0.01]), atol=0.03)
    members = y[balanced_picks(data, draws)] == 2
    inside = balanced_picks(data, draws)[members].unique()
    assert len(inside) > 80  # every sample of a class can be drawn


def test_draws_rounded_up_to_one_stay_inside() -> None:
    assert share_of(torch.tensor([0.0, 0.999, 1.0]), 5).tolist() == [0, 4, 4]
    assert share_of(torch.tensor([0.5, 1.0]), torch.tensor(3.0)).tolist() == [1, 2]


def test_clients_that_do_not_answer_are_made_up_for() -> None:
    run = tiny({"size": 8})
    exchange = LocalExchange(run.executor, run.store, run.key, 5, 0.1, drop_rate=0.5)
    made = PseudoData(8).make(run.world(), [0, 1, 2, 3], exchange)["x"]
    assert exchange.missing
    assert len(made) == 8
    whole = {tuple(row.flatten().tolist()) for row in made}
    assert len(whole) < 8


def test_balanced_run_and_memory_of_other_parts() -> None:
    run = tiny({"balanced": True}).rounds(2)
    assert run.state["pseudo"]["x"].shape == (4, 1, 8, 8)
    assert len(run.store) == 0  # contributing leaves no trace with the client


def test_proxy_images_come_from_python() -> None:
    maker = torch.Generator().manual_seed(0)
    proxy = torch.rand(9, 1, 8, 8, generator=maker)
    run = tiny({"proxy": proxy, "mixed": 1, "means": 3})
    assert "contribute" not in run.algorithm.tasks
    picks = run.key.at("pseudo", 0).integers(9, size=(4, 3))
    expected = torch.stack([proxy[row].mean(0) for row in picks])
    assert torch.allclose(run.state["pseudo"]["x"], expected)
    run.rounds(2)
    assert not torch.allclose(run.state["pseudo"]["x"], expected)


@pytest.mark.parametrize(
    "proxy",
    [
        torch.rand(3, 1, 8, 9),
        torch.rand(0, 1, 8, 8),
        torch.rand(3),
        torch.full((2, 1, 8, 8), float("nan")),
        torch.cat([torch.rand(1, 1, 8, 8), torch.full((1, 1, 8, 8), float("inf"))]),
        torch.zeros(2, 1, 8, 8, dtype=torch.int64),
        np.zeros((2, 1, 8, 8)),
    ],
)
def test_bad_proxies_are_refused(proxy: Any) -> None:
    with pytest.raises(ConfigError, match="proxy"):
        fedbr(tiny_setup(tiny_data(), tiny_model()), proxy=proxy)


TINY = (
    *("algorithm.name=fedbr", "data.limit=120", "partition.clients=3", "model.name=2nn", "local.steps=1"),
    *("local.batch_size=4", "rounds=1", "data.normalise=false", "algorithm.means=3", "algorithm.mixed=1"),
)


def federation(*sets: str) -> Federation:
    return Federation.build(from_dict({}, [*TINY, *sets], "a test"))


def test_a_configuration_names_a_public_data_set() -> None:
    built = federation("algorithm.public=mnist5k")
    assert "contribute" not in built.algorithm.tasks
    held = getattr(built.algorithm, "pseudo").proxy  # noqa: B009 - a field of FedBR's, not of every method's
    public, _ = load_dataset("mnist5k", normalise=False).train.take(np.arange(len(held)))
    assert len(held) > 120  # the clients hold no more
    assert torch.equal(held.cpu(), public)


def test_public_data_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mnist5'.*mnist5k"):
        federation("algorithm.public=mnist5")
    built = federation("algorithm.public=mnist5k")
    other = replace(facts_of(built.config, built.data), sample_shape=(3, 32, 32))
    with pytest.raises(ConfigError, match=r"'mnist5k' have shape \(1, 28, 28\), the clients' \(3, 32, 32\)"):
        public_samples(built.config, other, "mnist5k")


def test_public_data_needs_a_run_and_is_not_given_twice() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    with pytest.raises(ConfigError, match="no public data 'mnist5k' here"):
        fedbr(setup, public="mnist5k")
    with pytest.raises(ConfigError, match="choose one"):
        fedbr(setup, proxy=torch.rand(3, 1, 8, 8), public="mnist5k")


def test_mlp_is_torchs_sequential() -> None:
    tree = init_mlp(np.random.default_rng(0), (7, 5, 4, 2))
    net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    net.load_state_dict({f"{2 * int(n[0])}{n[1:]}": t for n, t in tree.items()})
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(mlp(tree, x), net(x).detach())


def test_mlp_starts_like_torchs_linear() -> None:
    tree = init_mlp(np.random.default_rng(0), (100, 400))
    for leaf in tree.values():
        assert float(leaf.abs().max()) <= 0.1
        assert float(leaf.std()) == pytest.approx(0.1 / math.sqrt(3), rel=0.1)


def test_contribute_has_no_training() -> None:
    task = Contribute(4, 10, balanced=False)
    assert len(task.plan.schedule(np.random.default_rng(0), 50)) == 1
    assert task.noise(np.random.default_rng(0), 1, 1)["contribute.draws"].shape == (1, 2, 4, 10)


def test_clients_with_one_sample_are_asked_and_those_with_none_are_not() -> None:
    asked: dict[int, int] = {}

    def exchange(task: str, clients: Any, shared: Any, private: Any) -> Any:
        assert task == "contribute"
        asked.update({client: int(private[client]["wanted"]["count"]) for client in clients})
        results = tuple(Result({"pseudo": {"x": torch.ones(1, 2)}}, {}, {}) for _ in clients)
        return Replies(tuple(clients), results, torch.ones(len(clients)), {})

    world = World(0, [0, 1, 2], np.array([5, 0, 1]), Key(3))
    made = PseudoData(40).make(world, [2, 1, 0], exchange)["x"]
    assert set(asked) == {0, 2}
    assert sum(asked.values()) == 40
    assert list(asked) == [0, 2], "in the order of their numbers"
    assert made.shape == (40, 2)


def test_a_proxy_of_another_shape_is_named() -> None:
    with pytest.raises(ConfigError, match=r"proxy samples of shape \(1, 5, 5\) do not fit the model"):
        fedbr(tiny_setup(tiny_data(), tiny_model()), proxy=torch.rand(3, 1, 5, 5))


def test_who_is_asked_does_not_depend_on_the_order_of_the_clients() -> None:
    """Drawn by position among those with samples, by number; answers that are missing are repeated."""
    world = World(2, [9, 4, 0, 2], np.array([1, 0, 3, 0, 5, 0, 0, 0, 0, 2]), Key(7))
    for clients in ([9, 4, 0, 2, 1], [0, 1, 2, 4, 9]):
        asked: dict[int, int] = {}

        def exchange(task: str, some: Any, shared: Any, private: Any = None) -> Replies:
            assert (task, shared) == ("contribute", {})
            asked.update({client: int(private[client]["wanted"]["count"]) for client in some})  # noqa: B023
            results = (Result({"pseudo": {"x": torch.tensor([[1.0], [2.0]])}}, {}, {}),)
            return Replies((some[0],), results, torch.ones(1), {})

        made = PseudoData(5, 3).make(world, clients, exchange)["x"]
        counts = np.bincount(Key(7).at("pseudo", 2).integers(4, size=5), minlength=4)
        assert asked == {client: n for client, n in zip((0, 2, 4, 9), counts.tolist(), strict=True) if n}
        assert made[:, 0].tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]


def test_rows_of_numbers_are_a_proxy_too() -> None:
    rows = torch.rand(1, 64)
    assert torch.equal(as_proxy(rows, tiny_model()), rows)


def test_one_sample_is_enough_to_be_asked_in_whatever_order_clients_come() -> None:
    data, model = tiny_data(sizes=(1, 0, 5)), tiny_model()
    run = TinyRun(fedbr(tiny_setup(data, model), size=8, means=2), data=data, model=model)
    asked = []
    for clients in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        spy = Spy(run.exchange())
        PseudoData(8, 2).make(run.world(), clients, spy)  # type: ignore[arg-type]
        asked += spy.asked
    assert asked[0][1] == [0, 2]
    assert asked == asked[:1] * 3


@pytest.mark.parametrize(("balanced", "wanted"), [(False, [[0.5], [4.0]]), (True, [[0.5], [9.0]])])
def test_means_that_are_sent_by_hand(balanced: bool, wanted: list[list[float]]) -> None:
    """Samples 0, 1, 8, 9 of classes 1, 1, 1, 0: of three means the first two are asked for.

    Uniformly by the second draws: positions 0 and 1, then 0 and 2. Balanced: class 1 by its first and its second
    sample; then class 0, which has one, twice.
    """
    x, y = torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([1, 1, 1, 0])
    info = {"lr": torch.tensor(0.1)}
    data = ClientData(x, y, x[:0], y[:0], 3)
    job = Job({}, {"wanted": {"count": torch.tensor(2)}}, {}, info, data)
    task = Contribute(3, 2, balanced)
    first = torch.tensor([[0.9, 0.9], [0.1, 0.2], [0.0, 0.0]])
    second = torch.tensor([[0.1, 0.4], [0.2, 0.6], [0.9, 0.9]])
    carry = task.begin(job)
    assert carry["draws"].shape == (2, 3, 2)
    batch: Any = SimpleNamespace(noise={"contribute.draws": torch.stack([first, second])})
    sent = task.finish(job, task.step(job, carry, batch))
    assert sent.reply["pseudo"]["x"].tolist() == wanted
    tokens = job._replace(data=ClientData(x.long(), y, x[:0].long(), y[:0], 3))
    with pytest.raises(DataError, match="real numbers"):
        task.finish(tokens, carry)
