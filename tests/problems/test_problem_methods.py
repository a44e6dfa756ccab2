"""Every method with every task: it can be had, or is refused before the start in a sentence that says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import accord
from accord.core.methods import ALGORITHMS
from accord.engine.build import build_algorithm, build_setup
from accord.engine.problem import check_defined
from accord.errors import ConfigError
from support.problems import CLIENTS, problem_config, problem_data

TASKS = ("multilabel", "regression", "tokens")
# What reads more of labels or outputs than their loss: refused for all tasks but classification.
CLASSES = {"fedbr", "fedmix", "fedntd", "fedrod", "fedufo", "fml", "mixup", "naivemix", "spherefed", "vhl"}
VECTORS = {"fedl2", "fedmmd", "fedrane"}  # compare one vector per sample
# What a network may lack, whatever the task.
NETWORKS = {"fedfusion": "fuses maps", "fedbn": "keeps normalisation layers at home"}


def build(task: str, method: str, out: Path, *sets: str) -> accord.Federation:
    return accord.Federation.build(problem_config(task, method, out, "local.lr=0.01", *sets), problem_data(task))


@pytest.mark.parametrize("task", TASKS)
def test_methods_can_be_had_or_say_why_not(task: str, tmp_path: Path) -> None:
    had, refused = set(), {}
    known = build(task, "fedavg", tmp_path)
    for method in ALGORITHMS:
        config = problem_config(task, method, tmp_path, "local.lr=0.01")
        try:
            made = build_algorithm(config, build_setup(config, known.facts, known.model))
            check_defined(method, made, known.facts)
            had.add(method)
        except ConfigError as error:
            refused[method] = str(error)
    expected = CLASSES | (VECTORS if task == "tokens" else set())
    lacking = {"fedfusion"} if task == "tokens" else set(NETWORKS)  # the transformer has norms to keep at home
    assert set(refused) == expected | lacking
    for method, said in refused.items():
        if method in NETWORKS:
            assert NETWORKS[method] in said
        elif method == "spherefed":
            assert f"a direction for every class, and {task} has no classes" in said
        else:
            assert f"algorithm {method} is not defined for task {task}" in said
    assert {"fedavg", "fedprox", "scaffold", "fednova", "fedadam", "krum", "ditto", "fedrep", "moon", "pfedme"} <= had


def test_it_is_the_parts_that_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"its part \w+ needs class counts.* for CGR, and regression has none"):
        build("regression", "fedufo", tmp_path, "algorithm.terms=cgr")
    build("regression", "feduad", tmp_path)
    build("regression", "fedufo", tmp_path, "algorithm.terms=uad", "algorithm.stage_one_rounds=0")
    with pytest.raises(ConfigError, match="its part Mixup needs soft labels to mix, and multilabel has none"):
        build("multilabel", "compose", tmp_path, 'algorithm.parts=["fedcm", "mixup"]')
    build("multilabel", "compose", tmp_path, 'algorithm.parts=["fedcm", "feddecorr"]')
    build("regression", "fedmix", tmp_path, "algorithm.lam=0")  # mixes nothing: FedAvg


@pytest.mark.parametrize("method", ["mixup", "fedmix", "naivemix", "fedbr", "vhl"])
def test_inputs_that_have_no_mean(method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y, owners = rng.integers(0, 9, (160, 5)), rng.integers(0, 3, 160), np.arange(160) % CLIENTS
    tokens = accord.from_arrays(x, y, owners)
    several = accord.from_arrays({"a": x, "b": x.astype(np.float32)}, y, owners)
    text = ("model.name=transformer", "model.width=4")
    with pytest.raises(ConfigError, match=f"algorithm {method} is not defined for such inputs.*token ids"):
        accord.Federation.build(problem_config("classification", method, tmp_path, *text), tokens)
    with pytest.raises(ConfigError, match=f"algorithm {method} is not defined for such inputs.*several inputs"):
        accord.Federation.build(problem_config("classification", method, tmp_path), several)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["moon", "fedmeta", "qffl", "pfedme", "fedbabu", "feddecorr", "dann", "apple"])
def test_more_of_a_method_than_its_loss_runs_too(task: str, method: str, tmp_path: Path) -> None:
    sets = ["rounds=1", "local.epochs=1", "local.batch_size=20", "local.lr=0.01", "evaluate.personal=true"]
    sets += ["algorithm.personal_lr=0.01"] if method == "pfedme" else []
    outcome = accord.run(problem_config(task, method, tmp_path, *sets), data=problem_data(task))
    name = "rmse" if task == "regression" else "accuracy"
    assert outcome.summary[f"personal_{name}"]["clients"] == CLIENTS
