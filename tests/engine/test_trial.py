"""What cannot be trained is refused before the start, in one sentence; what can is left as it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import accord
from accord.data.federated import Dataset
from accord.data.partitions import PARTITIONS
from accord.engine.trial import _two_samples
from accord.errors import ConfigError
from accord.executors.sequential import Sequential as OneByOne
from support.federation import tiny_data

FEATURES, CLASSES = 6, 2
Made = Callable[[], nn.Module]


def vectors(samples: int = 60, dtype: Any = np.float32, clients: Sequence[int] | None = None) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (samples, FEATURES)).astype(dtype)
    owners = None if clients is None else np.repeat(np.arange(len(clients)), clients)
    y = np.arange(samples) % CLASSES
    return accord.from_arrays(x, y, owners, test=(x, y), name="vectors", classes=["a", "b"])


def config(tmp_path: Path, *sets: str, clients: int = 3, partition: str = "iid") -> accord.RunConfig:
    common = ["rounds=2", f"partition.name={partition}", f"partition.clients={clients}", "executor=sequential"]
    common += ["partition.test=matching"]
    return accord.load_config(sets=[*common, f"out={tmp_path}", *sets])


def stack(first: nn.Module | None = None, last: nn.Module | None = None, middle: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(first or nn.Linear(FEATURES, 5), middle or nn.ReLU(), last or nn.Linear(5, CLASSES))


class Forward(nn.Module):
    """Ends as it is told."""

    def __init__(self, end: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.body, self.head, self.end = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES), end

    def forward(self, x: Tensor) -> Any:
        return self.end(self.head(self.body(x)))


class Own(nn.Module):
    """A classifier of the user's own making, without `adapt`."""

    head_name, map_shape = "head", None

    def __init__(self, num_features: int = 5, wrong: str = "") -> None:
        super().__init__()
        self.body, self.head = nn.Linear(FEATURES, 5), nn.Linear(5, CLASSES)
        self.num_features, self.wrong = num_features, wrong

    def logits_and_features(self, x: Tensor, fuse: Any = None) -> tuple[Any, Any]:
        features = self.body(x)
        logits = self.head(features)
        if self.wrong == "features":
            return logits, features[:, :, None]
        if self.wrong == "whole":
            return logits.long(), features
        return (logits, features) if self.wrong != "nothing" else (None, features)


def with_tensor(tensor: Tensor) -> nn.Module:
    network = stack()
    network.register_buffer("extra", tensor)
    return network


def with_nan() -> nn.Module:
    network = stack()
    with torch.no_grad():
        network.get_submodule("2").weight[0, 0] = torch.nan  # type: ignore[index, operator]
    return network


class Root(nn.Module):
    """Finite, with a slope that is not."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 0).sqrt()


WRONG: dict[str, tuple[Made, str]] = {
    "one logit": (lambda: stack(last=nn.Linear(5, 1)), "gives 1 output for each sample, but the data has 2 classes"),
    "three": (lambda: stack(last=nn.Linear(5, 3)), "gives 3 outputs for each sample, but the data has 2 classes"),
    "shape": (lambda: stack(nn.Linear(7, 5)), r"cannot compute samples of shape \(6,\).*2x6 and 7x5"),
    "precision": (lambda: stack().double(), r"parameters are torch.float64; give the network as network.to\(torch.fl"),
    "images": (lambda: stack(nn.Conv2d(1, 5, 3)), r"cannot compute samples of shape \(6,\)"),
    "lazy": (lambda: stack(nn.LazyLinear(5)), "has no shape yet"),
    "lazy norm": (lambda: stack(middle=nn.LazyBatchNorm1d()), "has no shape yet"),
    "complex": (lambda: with_tensor(torch.zeros(3, dtype=torch.complex64)), "'module.extra' .* is complex"),
    "sparse": (lambda: with_tensor(torch.eye(3).to_sparse()), "is a sparse tensor"),
    "meta": (lambda: stack(nn.Linear(FEATURES, 5, device="meta")), "has no values"),
    "NaN": (with_nan, "NaN or infinity before any training"),
    "slope": (lambda: stack(middle=Root()), "first gradient of the network Sequential holds NaN"),
    "all frozen": (lambda: stack().requires_grad_(False), "has nothing to train"),
}
ENDS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "detached": (lambda out: out.detach(), "no gradient reaches any parameter"),
    "three dimensions": (lambda out: out[:, :, None], r"for 2 samples the network Forward gives \(2, 2, 1\)"),
    "a pair": (lambda out: (out, out), "must return one tensor of logits .* a tuple"),
    "a class": (lambda out: out.argmax(1), "must return one tensor of logits"),
    "one sample": (lambda out: out[:1], r"for 2 samples the network Forward gives \(1, 2\)"),
}


@pytest.mark.parametrize(("made", "message"), WRONG.values(), ids=WRONG)
def test_networks_that_cannot_be_trained(made: Made, message: str, tmp_path: Path) -> None:
    refuse(accord.adapt(made(), head="2"), message, tmp_path)


@pytest.mark.parametrize(("end", "message"), ENDS.values(), ids=ENDS)
def test_outputs_that_cannot_be_trained(end: Any, message: str, tmp_path: Path) -> None:
    refuse(accord.adapt(Forward(end), head="head"), message, tmp_path)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Own(num_features=9), r"says that it has 9 features \(num_features\), but gives 5"),
        (Own(wrong="features"), r"gives features \(2, 5, 1\)"),
        (Own(wrong="whole"), r"gives \(2, 2\) torch.int64"),
        (Own(wrong="nothing"), "gives a NoneType"),
    ],
)
def test_classifiers_without_adapt(network: nn.Module, message: str, tmp_path: Path) -> None:
    refuse(network, message, tmp_path)
    accord.Federation.build(config(tmp_path), data=vectors(), model=Own())


def refuse(network: nn.Module, message: str, out: Path, data: Dataset | None = None) -> None:
    """One sentence, and nothing written."""
    with pytest.raises(ConfigError, match=message) as caught:
        accord.run(config(out), data=data or vectors(), model=network)
    assert "\n" not in str(caught.value)
    assert not list(out.iterdir())


def test_what_is_no_data_and_no_network(tmp_path: Path) -> None:
    data, given = vectors(), {"data": (np.zeros((4, 2)), np.zeros(4))}
    with pytest.raises(ConfigError, match=r"accord.from_arrays\(x, y\) or its like, not tuple"):
        accord.run(config(tmp_path), **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"must be a torch.nn.Module, not a function"):
        accord.run(config(tmp_path), data=data, model=stack)  # type: ignore[arg-type]


def test_scripted_modules_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would have nobody script any more
        scripted = torch.jit.script(stack())
    for module in (scripted, nn.Sequential(scripted)):
        with pytest.raises(ConfigError, match=r"compiled by torch\.jit"):
            accord.adapt(module, head="2")


def test_whole_numbers_are_for_networks_that_look_them_up(tmp_path: Path) -> None:
    refuse(accord.adapt(stack(), head="2"), "these inputs are whole numbers", tmp_path, vectors(dtype=np.int64))
    words = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(4 * FEATURES, CLASSES))
    outcome = accord.run(config(tmp_path), data=vectors(dtype=np.int64), model=accord.adapt(words, head="2"))
    assert outcome.summary["accuracy"] is not None
    accord.resume(outcome.folder, data=vectors(dtype=np.int64), model=accord.adapt(words, head="2"))


OLD, NEW = nn.utils, nn.utils.parametrizations
NORMED: dict[str, Made] = {
    "weight norm, old": lambda: stack(OLD.weight_norm(nn.Linear(FEATURES, 5))),
    "weight norm, old, in the head": lambda: stack(last=OLD.weight_norm(nn.Linear(5, CLASSES))),
    "spectral norm, old": lambda: stack(OLD.spectral_norm(nn.Linear(FEATURES, 5))),
    "weight norm": lambda: stack(NEW.weight_norm(nn.Linear(FEATURES, 5))),
    "weight norm in the head": lambda: stack(last=NEW.weight_norm(nn.Linear(5, CLASSES))),
    "spectral norm": lambda: stack(NEW.spectral_norm(nn.Linear(FEATURES, 5))),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("made", NORMED.values(), ids=NORMED)
@pytest.mark.parametrize("algorithm", ["fedavg", "fedrane"])
def test_normed_weights_are_trained(made: Made, algorithm: str, tmp_path: Path) -> None:
    module = made()
    module(torch.zeros(2, FEATURES))  # leaves a result in the older ones, which cannot be copied just so
    sets = ["local.lr=0.5", f"algorithm.name={algorithm}"]
    settings = config(tmp_path, *sets, "checkpoint.every=1")
    network = accord.adapt(module, head="2")
    outcome = accord.run(settings, data=vectors(), model=network)
    again = accord.resume(outcome.folder, data=vectors(), model=network)
    assert again.summary["accuracy"] == outcome.summary["accuracy"]


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
def test_one_step_with_weight_norm_is_that_of_plain_torch(tmp_path: Path) -> None:
    data = vectors()
    module = NORMED["weight norm, old"]()
    sets = ["rounds=1", "local.batch_size=0", "local.epochs=1", "local.lr=0.1", "clients.count=1"]
    outcome = accord.run(config(tmp_path, *sets, clients=1), data=data, model=accord.adapt(module, head="2"))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    x, y = data.train.take(np.arange(60))
    nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()
    assert outcome.model is not None
    wanted, got = module(x), outcome.model(x)
    assert torch.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_nothing_is_drawn_and_nothing_moves(tmp_path: Path) -> None:
    network = accord.adapt(stack(middle=nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5))), head="2")
    before = {name: t.clone() for name, t in network.state_dict().items()}
    torch.manual_seed(4)
    state = torch.get_rng_state()
    federation = accord.Federation.build(config(tmp_path), data=vectors(), model=network)
    assert torch.equal(torch.get_rng_state(), state)
    for owner in (network, federation.model.network, federation.model._train.network):
        assert all(torch.equal(before[name], t) for name, t in owner.state_dict().items())


def test_a_single_sample_in_all_is_tried_twice(tmp_path: Path) -> None:
    assert accord.Federation.build(config(tmp_path), data=tiny_data((1,), classes=10)).facts.members == [0]


# batches -------------------------------------------------------------------------------------------------------


def normed(tmp_path: Path, sizes: Sequence[int], *sets: str) -> accord.Federation:
    data = vectors(sum(sizes), clients=sizes)
    network = accord.adapt(stack(middle=nn.BatchNorm1d(5)), head="2")
    made = config(tmp_path, *sets, clients=len(sizes), partition="natural")
    return accord.Federation.build(made, data=data, model=network)


@pytest.mark.parametrize(
    ("sizes", "sets", "count"),
    [
        ((1, 8, 1), (), "2 of 3"),  # fill, which batch norm gets by itself, needs a second batch
        ((9, 8, 17), ("local.batch_size=8", "local.last_batch=pad"), "2 of 3"),
        ((4, 5, 6), ("local.batch_size=1",), "3 of 3"),
    ],
)
def test_batch_norm_is_not_asked_to_train_on_one_sample(
    sizes: Sequence[int], sets: Sequence[str], count: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"{count} clients come to a batch of one sample, on which batch norm"):
        normed(tmp_path, sizes, *sets)
    if "local.batch_size=1" not in sets:
        tolerant = normed(tmp_path, sizes, *sets, "clients.tolerate=0.7")
        assert f"{count} clients come to a batch of one sample" in tolerant.data.note


@pytest.mark.parametrize(
    ("sizes", "sets"),
    [
        ((9, 8, 17), ("local.batch_size=8",)),
        ((9, 8, 17), ("local.batch_size=8", "local.last_batch=pad", "local.steps=1")),  # it never comes to the last
    ],
)
def test_batches_of_two_are_enough(sizes: Sequence[int], sets: Sequence[str], tmp_path: Path) -> None:
    assert normed(tmp_path, sizes, *sets).data.note == ""


def test_batch_norm_of_images_may_see_one(tmp_path: Path) -> None:
    maps = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 3))
    network = accord.adapt(maps, head="3")
    federation = accord.Federation.build(config(tmp_path), data=tiny_data((1, 6)), model=network)
    assert federation.model.couples_batch
    assert federation.data.note == ""
    executor = OneByOne(federation.site(), federation.algorithm.tasks)
    with federation.memory() as store:
        exchange = federation.exchange(executor, store, 0)
        state = federation.first_state(exchange)
        _, replies = federation.algorithm.round(state, federation.world(0), exchange)
    assert not replies.missing


def test_dropping_every_batch_is_refused(tmp_path: Path) -> None:
    sets = ("local.last_batch=drop", "local.batch_size=21")
    with pytest.raises(ConfigError, match=r"no client has as many \(the largest has 20\), so nobody would train"):
        accord.run(config(tmp_path, "model.name=mlp", *sets), data=vectors())
    assert not list(tmp_path.iterdir())


def test_clients_without_a_step_are_counted(tmp_path: Path) -> None:
    sets = ("model.name=mlp", "local.last_batch=drop", "local.batch_size=10", "clients.count=3")
    made = config(tmp_path, *sets, clients=3, partition="natural")
    outcome = accord.run(made, data=vectors(38, clients=(9, 20, 9)))
    assert "2 of 3 clients take no step, as local.last_batch = drop" in outcome.summary["note"]


def test_the_pool_of_all_clients_is_what_counts_for_centralized(tmp_path: Path) -> None:
    sets = ("model.name=mlp", "local.last_batch=drop", "local.batch_size=40", "algorithm.name=centralized")
    assert accord.Federation.build(config(tmp_path, *sets), data=vectors()).data.note == ""


# sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sets", [("model.hidden=[1000000000]",), ("model.name=2nn", "model.hidden=1000000000")])
def test_a_network_that_does_not_fit_is_refused_before_it_is_made(sets: Sequence[str], tmp_path: Path) -> None:
    sets = sets if "model.name=2nn" in sets else ("model.name=mlp", *sets)
    with pytest.raises(ConfigError, match=r"GB or more, and a run keeps 4 copies, but only .* GB of memory are free"):
        accord.Federation.build(config(tmp_path, *sets), data=vectors())


@pytest.mark.parametrize("partition", PARTITIONS)
def test_more_clients_than_samples_are_refused_at_once(partition: str, tmp_path: Path) -> None:
    made = config(tmp_path, clients=1_000_000_000, partition=partition)
    with pytest.raises(ConfigError, match="1,000,000,000 clients cannot share 60 training samples"):
        accord.Federation.build(made, data=vectors())


def test_the_largest_client_shows_its_first_two_samples_as_it_sees_them() -> None:
    data = tiny_data(sizes=(2, 5, 3))
    x, y = _two_samples(data)
    assert torch.equal(x, data.train_pool.x[2:4])
    assert torch.equal(y, data.train_pool.y[2:4])
    moved = replace(data, transform=lambda client, index, x: x + 10 * client + int(index[0]))
    assert torch.equal(_two_samples(moved)[0], data.train_pool.x[2:4] + 10 + 2)
    alone, _ = _two_samples(tiny_data(sizes=(1, 1)))
    assert torch.equal(alone, tiny_data(sizes=(1, 1)).train_pool.x[[0, 0]])
