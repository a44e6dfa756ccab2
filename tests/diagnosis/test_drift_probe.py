"""The probe: a few rounds of FedAvg, and the same with samples dealt at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from accord.config import load_config
from accord.core.keys import Key
from accord.data.federated import FederatedData
from accord.diagnosis import probe
from accord.diagnosis.features import views_of
from accord.diagnosis.finding import Finding
from accord.diagnosis.gathered import gathered
from support.skewed import dealt, generated


def probed(data: FederatedData, *sets: str) -> Finding:
    some = gathered(data, Key(0))
    views = views_of(some, data.vocabulary, Key(0))
    return probe.client_drift(data, some, views, load_config(sets=sets), None, Key(0))


def test_clients_of_other_labels_pull_apart() -> None:
    data = generated("labels, two classes each", 70, 8).data
    drift = probed(data)
    assert drift.severity == "strong"
    assert drift.numbers["update_cosine"] < 0.3 < drift.numbers["update_cosine_if_dealt_at_random"]  # type: ignore[operator]
    assert len(drift.picture["cells"]) == 8
    assert len(drift.picture["curves"]["as they are"]) == probe.ROUNDS
    assert "Clients pull apart" in drift.sentence


def test_clients_alike_pull_alike_and_nothing_of_the_test_data_is_read() -> None:
    data = dealt("digits", 71, 8)
    blind = replace(data, test_pool=replace(data.test_pool, x=torch.zeros_like(data.test_pool.x)))
    seen, unseen = (probed(one) for one in (data, blind))
    assert seen.severity == "none"
    assert seen == unseen


def test_samples_are_dealt_anew_in_the_same_sizes() -> None:
    lists = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]
    turned = probe._redealt(lists, np.random.default_rng(0))
    assert [len(one) for one in turned] == [3, 1, 2]
    assert sorted(np.concatenate(turned)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["2nn", "mlp"])
def test_the_configured_network_is_probed(name: str) -> None:
    drift = probed(dealt("table", 72, 4), f"model.name={name}")
    assert "small network" not in drift.sentence
