"""FedPer: bodies averaged, heads at home."""

from __future__ import annotations

import pytest

from accord.algorithms.fedper import fedper
from accord.core.optim import SGD
from accord.errors import ConfigError
from support.baselines import COHORTS, close, descend, labels_loss, make, mean, processes_agree
from support.federation import SIZES, Given, tiny_data, tiny_model, tiny_setup
from support.reference import Params, forward, samples

HEAD = ("head.bias", "head.weight")


def test_three_rounds(float64: None) -> None:
    run = make(fedper, sampler=Given(*COHORTS), optimizer=SGD(0.5), with_test=True)
    w = dict(run.state["model"])
    heads: dict[int, Params] = {}
    models: dict[int, Params] = {}
    for round, cohort in enumerate(COHORTS):
        for k in cohort:
            models[k] = descend(
                {**w, **heads.get(k, {})}, run.batches(k, round=round), labels_loss(run, k), momentum=0.5
            )
            heads[k] = {n: models[k][n] for n in HEAD}
        average = mean([models[k] for k in cohort], [SIZES[k] for k in cohort])
        w = {n: w[n] if n in HEAD else p for n, p in average.items()}
    run.rounds(3)
    assert close(run.state["model"], w), "the server's head is still the drawn one"
    for k in range(4):
        assert close((run.store.get(k) or {})["personal"], heads[k])
    assert run.replies is not None
    for k, result in zip(run.replies.ids, run.replies.results, strict=True):
        assert set(result.reply["model"]) == {"neck.0.bias", "neck.0.weight"}, "no head is sent"
        x, y = samples(run, k)
        assert result.metrics["personal_correct"] == (forward(models[k], x).argmax(1) == y).sum()
    assert run.algorithm.predictor(run.state) is None


def test_processes_agree() -> None:
    assert processes_agree(fedper)


def test_a_network_that_is_only_a_head_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fedper.*only a head"):
        fedper(tiny_setup(tiny_data(), tiny_model("linear")))
