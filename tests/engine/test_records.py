"""What a round's line says beyond accuracy: bytes of the start, the server's own numbers, local models everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import accord
from accord.aggregate.nash import Nash
from accord.algorithms.apple import apple
from accord.config import RunConfig, load_config
from accord.data.federated import FederatedData, Groups, Pool
from support.personal import tiny
from support.reference import forward


def small(out: Path, *sets: str) -> RunConfig:
    base = ["rounds=2", "data.limit=300", "partition.clients=4", "executor=sequential", f"out={out}"]
    return load_config(None, [*base, *sets])


def test_what_start_sends_is_counted_once(tmp_path: Path) -> None:
    x, y = torch.randn(45, 4), torch.arange(45) % 3
    groups = Groups.of([range(20), range(20, 45)])
    data = FederatedData("own", Pool(x, y), Pool(x, y), 3, groups, Groups.of([[], []]), groups)
    sets = ["algorithm.name=fedmix", "algorithm.means=10", "clients.fraction=1.0", "model.name=linear"]
    outcome = accord.run(small(tmp_path, *sets), data=data)
    first, second = outcome.metrics
    # two full groups of ten at each client, a mean has 4 + 3 numbers of 4 bytes; nothing goes down for it
    means = 4 * (4 + 3) * 4
    assert (first["start_bytes_up"], first["start_bytes_down"]) == (means, 0)
    assert "start_bytes_up" not in second
    model = 4 * (4 * 3 + 3)
    assert first["bytes_up"] == second["bytes_up"] == 2 * model
    assert outcome.summary["bytes_up"] == means + 4 * model
    assert outcome.summary["bytes_down"] == 2 * (2 * model + 2 * means)
    resumed = accord.resume(outcome.folder, data=data)
    assert resumed.summary["bytes_up"] == outcome.summary["bytes_up"]


def test_a_method_without_a_start_says_nothing_of_it(tmp_path: Path) -> None:
    record = accord.run(small(tmp_path)).metrics[0]
    assert not {"start_bytes_up", "start_bytes_down", "server"} & record.keys()


def test_rounds_without_an_agreement_are_in_the_metrics(tmp_path: Path) -> None:
    outcome = accord.run(small(tmp_path, "algorithm.name=fedrane", "model.name=mlp", "model.hidden=[8]"))
    counts = [record["server"] for record in outcome.metrics]
    assert [c["nash_agreed"] + c["nash_fallbacks"] for c in counts] == [1, 2]
    state = {"model.nash": {"agreed": torch.tensor(5), "fallbacks": torch.tensor(2)}}
    assert Nash().report(state, "model") == {"nash_agreed": 5, "nash_fallbacks": 2}


@pytest.mark.parametrize(
    "sets",
    [
        ["algorithm.name=fedavg"],
        ["algorithm.name=fedrane", "algorithm.gne=false", "algorithm.graph_size=16"],
        ["algorithm.name=fedfusion", "algorithm.init=default", "model.name=mcmahan_cnn"],
        ["algorithm.name=fedfusion", "algorithm.init=default", "algorithm.evaluate=same", "model.name=mcmahan_cnn"],
    ],
)
def test_the_local_model_of_a_lone_client_is_the_global_one(tmp_path: Path, sets: list[str]) -> None:
    """The average of one model is that model, so both must be judged alike: with graph, with fusion, or plainly."""
    outcome = accord.run(small(tmp_path, *sets, "clients.count=1", "evaluate.local_on_global=true"))
    for record in outcome.metrics:
        assert record["local_on_global"]["mean"] == record["accuracy"]


def test_the_local_model_of_apple_is_the_mixture(float64: None) -> None:
    run = tiny(apple).rounds(2)
    assert run.replies is not None
    x, _ = run.data.client(1)
    predicted = run.algorithm.local_predictor(run.state, run.replies.results[1])(x).logits
    shares, cores = run.store.get(1)["relation"]["relation"], run.state["cores"]
    mixed = {name: sum(shares[j] * core[j] for j in range(4)) for name, core in cores.items()}
    np.testing.assert_allclose(predicted.numpy(), forward(mixed, x).numpy(), rtol=1e-9)
