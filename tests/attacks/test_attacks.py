"""Hostile clients do what they are said to, nobody else does, and every executor agrees about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
from accord.attacks import ATTACKS, Attack, Hostile
from accord.client import Executor
from accord.config import RunConfig, config_hash, load_config
from accord.core.tensors import Trees
from accord.core.types import Replies
from accord.data.federated import Groups
from accord.engine.federation import Federation
from accord.errors import ConfigError
from support.federation import equal_trees, tiny_data

SMALL = ["data.limit=160", "partition.name=iid", "partition.clients=4", "clients.fraction=1.0", "device=cpu"]
SMALL += ["rounds=2", "local.batch_size=16", "model.hidden=[6]", "model.name=mlp", "evaluate.clients=false"]


def configured(*sets: str) -> RunConfig:
    return load_config(sets=[*SMALL, "executor=sequential", *sets])


def one_round(*sets: str, executor: Callable[[Federation], Executor] | None = None) -> tuple[Trees, Replies, Trees]:
    """The state before it, what came back, and the state after it."""
    federation = Federation.build(configured(*sets))
    made = federation.executor() if executor is None else executor(federation)
    try:
        with federation.memory() as store:
            exchange = federation.exchange(made, store, 0)
            state = federation.first_state(exchange)
            after, replies = federation.algorithm.round(state, federation.world(0), exchange)
    finally:
        made.close()
    return state, replies, after


WANTED: dict[str, Callable[[Tensor], Tensor]] = {
    "sign_flip": lambda change: -2 * change,
    "scaled": lambda change: 7 * change,
    "same_value": lambda change: torch.full_like(change, 0.25),
}
SETTINGS = {"sign_flip": "attack.factor=2", "scaled": "attack.factor=7", "same_value": "attack.value=0.25"}


@pytest.mark.parametrize("name", WANTED)
def test_what_a_hostile_client_sends(name: str) -> None:
    state, honest, _ = one_round()
    _, sent, after = one_round(f"attack.name={name}", "attack.clients=[1, 3]", SETTINGS[name])
    for client, before, now in zip(honest.ids, honest.each("model"), sent.each("model"), strict=True):
        for leaf, value in before.items():
            start = state["model"][leaf]
            wanted = start + WANTED[name](value - start) if client in (1, 3) else value
            torch.testing.assert_close(now[leaf], wanted, rtol=0, atol=0 if client in (0, 2) else 1e-6)
    for leaf, value in after["model"].items():  # 40 samples each
        torch.testing.assert_close(value, torch.stack([tree[leaf] for tree in sent.each("model")]).mean(0))


def test_noise_is_gaussian_new_in_every_place_and_the_same_every_time() -> None:
    sets = ("attack.name=noise", "attack.clients=[2]", "attack.deviation=0.5")
    state, sent, _ = one_round(*sets)
    drawn = {leaf: value - state["model"][leaf] for leaf, value in list(sent.each("model"))[2].items()}
    largest = max(drawn.values(), key=Tensor.numel)
    assert float(largest.std()) == pytest.approx(0.5, rel=0.05)
    assert float(largest.mean()) == pytest.approx(0, abs=0.05)
    assert len({value.flatten()[0].item() for value in drawn.values()}) == len(drawn)
    assert equal_trees(one_round(*sets)[2], one_round(*sets)[2])


def test_sign_flip_reverses_what_has_no_counterpart_in_the_message() -> None:
    _, honest, _ = one_round("algorithm.name=scaffold")
    _, sent, _ = one_round("algorithm.name=scaffold", "attack.name=sign_flip", "attack.clients=[0]")
    before, now = (next(iter(found.each("control_change"))) for found in (honest, sent))
    assert all(torch.equal(now[leaf], -before[leaf]) for leaf in before)


def test_only_updates_are_changed() -> None:
    sets = ("algorithm.name=qffl", "attack.clients=[0]")
    _, honest, _ = one_round("algorithm.name=qffl")
    _, sent, _ = one_round(*sets, "attack.name=same_value")
    assert torch.equal(next(iter(honest.each("loss_before")))["loss"], next(iter(sent.each("loss_before")))["loss"])
    assert not equal_trees({"m": next(iter(honest.each("model")))}, {"m": next(iter(sent.each("model")))})


def test_flipped_labels_are_the_hostile_clients_own_and_nobody_elses() -> None:
    clean = Federation.build(configured("partition.validation=0.2"))
    hostile = Federation.build(configured("partition.validation=0.2", "attack.name=label_flip", "attack.clients=[1]"))
    for client in range(4):
        before, now = (f.train_data.train_pool.y[f.train_data.train[client]] for f in (clean, hostile))
        assert torch.equal(now, 9 - before if client == 1 else before)
        held = [f.train_data.train_pool.y[f.train_data.validation[client]] for f in (clean, hostile)]
        assert torch.equal(*held)
    assert torch.equal(clean.data.train_pool.y, hostile.data.train_pool.y), "models are judged by true labels"
    assert torch.equal(clean.train_data.test_pool.y, hostile.train_data.test_pool.y)


def test_flipped_labels_are_what_is_trained_on() -> None:
    _, honest, _ = one_round()
    _, sent, _ = one_round("attack.name=label_flip", "attack.clients=[1]")
    same = [equal_trees({"m": a}, {"m": b}) for a, b in zip(honest.each("model"), sent.each("model"), strict=True)]
    assert same == [True, False, True, True]


@pytest.mark.parametrize("name", ["label_flip", "sign_flip", "noise"])
def test_executors_agree_to_the_bit(name: str) -> None:
    sets = (f"attack.name={name}", "attack.share=0.5")
    _, _, alone = one_round(*sets)
    _, _, workers = one_round(*sets, "executor=processes", "workers=2")
    assert equal_trees(alone, workers)


def hostile_of(seed: int, *sets: str) -> tuple[int, ...]:
    found = Federation.build(configured("partition.clients=20", "attack.name=scaled", f"seed={seed}", *sets)).hostile
    assert found is not None
    return found.clients


def test_who_is_hostile_follows_from_the_seed() -> None:
    assert len(hostile_of(0, "partition.seed=5")) == 4  # 0.2 of 20
    assert hostile_of(0) == hostile_of(0, "rounds=3") != hostile_of(1)
    assert len(hostile_of(0, "attack.share=0.01")) == 1
    assert hostile_of(0, "attack.clients=[7, 3]") == (3, 7)
    some = Federation.build(configured("partition.unseen=2", "attack.name=scaled", "attack.share=1"))
    assert some.hostile is not None
    assert set(some.hostile.clients) == set(range(4)) - some.data.unseen


def test_nobody_is_hostile_without_a_name() -> None:
    plain = configured()
    assert Federation.build(plain).hostile is None
    assert config_hash(plain) != config_hash(configured("attack.name=scaled"))
    assert ATTACKS["none"]() == Attack()


def refused(*sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Federation.build(configured(*sets))
    return str(caught.value)


def test_what_cannot_be_attacked_is_refused_before_the_first_round() -> None:
    assert "names client 9, which does not train" in refused("attack.name=scaled", "attack.clients=[9]")
    assert "send nothing" in refused("attack.name=noise", "algorithm.name=centralized")
    assert Federation.build(configured("attack.name=label_flip", "algorithm.name=centralized")).hostile is not None
    assert "unknown attack" in refused("attack.name=sign_flp")


def test_shared_samples_and_other_tasks_have_no_flipped_labels() -> None:
    hostile = Hostile("label_flip", ATTACKS["label_flip"](), (0,), Federation.build(configured()).key)
    data = tiny_data()
    rows = [data.train[0], np.concatenate([data.train[0][:1], data.train[1]]), data.train[2], data.train[3]]
    with pytest.raises(ConfigError, match="share samples with others"):
        hostile.poisoned(replace(data, train=Groups.of(rows)))
    with pytest.raises(ConfigError, match="regression has none"):
        hostile.poisoned(replace(data, problem="regression"))


def test_the_run_says_who_attacked(tmp_path: Path) -> None:
    sets: Any = ["attack.name=sign_flip", "attack.clients=[2]", "rounds=1", f"out={tmp_path}"]
    outcome = accord.run(configured(*sets))
    assert outcome.summary["note"].endswith("; simulated attack: sign_flip by 1 of 4 clients (2)")
    text = (outcome.folder / "config.toml").read_text()
    assert 'name = "sign_flip"' in text
    assert "clients = [2]" in text
    assert "sign_flip" in (outcome.folder / "model" / "README.md").read_text()
