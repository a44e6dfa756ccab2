"""What holds where nothing is said, by hand: a changed default changes everybody's runs, and must be meant.

Defaults of methods are in `tests/algorithms/test_defaults.py`, those of data in `tests/data/test_data_defaults.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from accord.algorithms import feddyn, fedmeta
from accord.core import fields, judgement, keys, model, optim, task, tensors, types, whole
from accord.core.algorithm import Method, Setup
from accord.core.plan import Plan
from accord.core.question import Question
from accord.engine import build, exchange, federation, identity, profile
from accord.executors import kernels, registry, worker
from accord.executors.gpu import batched, buffers, lanes
from accord.executors.processes import TRIES, Processes
from accord.executors.ray import OnRay
from accord.measures import MEASURES, accuracy, column, measure, predictions, scene
from accord.measures.confusion import LARGEST
from accord.measures.ece import BINS
from accord.measures.metric import Metric, metric
from accord.parts import averaging, lookup, momentum, phases
from accord.problems import PROBLEMS
from accord.problems.problem import Problem
from accord.problems.tokens import NO_LABEL
from accord.wire.codec import decode

DEFAULTS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (Method, {"pools_data": False, "personal": False, "has_global_model": True}),
    (Setup, {"clip": 0.0, "free_last_batch": True, "keeps_optimizer": False}),
    (fields.Field, {"vocabulary": 0}),
    (judgement.Judgement, {"together": False, "batch_size": 512}),
    (keys.Key.at, {"round": -1, "client": -1}),
    (keys.Key.number, {"round": -1, "client": -1}),
    (model.Model, {"bf16": False, "channels_last": False, "compiled": False}),
    (optim.SGD, {"momentum": 0.0, "weight_decay": 0.0, "nesterov": False}),
    (optim.Adam, {"betas": (0.9, 0.999), "weight_decay": 0.0, "decoupled": False}),
    (optim.Schedule, {"decay": 1.0, "every": 1, "min_lr": 0.0, "rounds": 1}),
    (Plan, {"epochs": 1, "steps": 0, "batch_size": 32, "last_batch": "pad"}),
    (task.LocalTraining, {"clip": 0.0, "keeps_optimizer": False, "hands_over": False}),
    (tensors.add, {"scale": 1.0}),
    (types.Replies.weights, {"by": "examples"}),
    (types.Replies.mean, {"weight": "examples"}),
    (types.Facts, {"vocabulary": 0}),
    (build.fits, {"share": 0.1}),
    (exchange.Policy, {"minimum": 1, "tolerate": 0.0, "diverged_ends": True}),
    (exchange.LocalExchange, {"drop_rate": 0.0, "keep_memory": True, "cohort": (0, 0)}),
    (federation.Federation, {"own_data": False, "own_network": False, "real": False}),
    (federation.Federation.site, {"with_test": False}),
    (federation.Federation.executor, {"with_test": False, "more": None}),
    (federation.Federation.exchange, {"rehearsal": False}),
    (identity.network_identity, {"whole": False, "fields": None}),
    (profile.profile, {"rounds": 3}),
    (batched.Batched, {"lanes": 0}),
    (buffers.Buffers.load, {"most": 0}),
    (lanes.Lanes, {"stacked": True}),
    (kernels.layers_for, {"channels_last": False, "compiled": False}),
    (kernels.rows_at_once, {"wanted": True}),
    (Processes, {"workers": 0}),
    (OnRay, {"workers": 0}),
    (registry.make_executor, {"workers": 0}),
    (accuracy.top_mean, {"count": 5, "higher": True}),
    (column.Column, {"compared": True}),
    (column.leading, {"spread": False, "compared": True, "beside": ""}),
    (measure.switch, {"default": False}),
    (Metric, {"percent": False}),
    (metric, {"better": "higher", "doc": "", "percent": False}),
    (predictions.Predictions, {"together": False}),
    (scene.Scene, {"every": 1, "batch_size": 512}),
    (averaging.averaging, {"weight": "examples"}),
    (lookup.in_chunks, {"size": 0}),
    (momentum.ClientMomentum, {"alpha": 0.1}),
    (phases.Gated, {"clip": 0.0}),
    (decode, {"expected": None, "finite": False}),
]


@pytest.mark.parametrize(("made", "expected"), DEFAULTS, ids=lambda value: getattr(value, "__qualname__", ""))
def test_defaults(made: Callable[..., Any], expected: dict[str, Any]) -> None:
    parameters = inspect.signature(made).parameters
    assert {name: parameters[name].default for name in expected} == expected


def test_said_of_kinds_of_things() -> None:
    assert optim.SGD.stacks
    assert not optim.Adam.stacks
    assert phases.Gated.stacks is False
    assert whole.Whole.together is False
    assert task.Part.stacks is True
    assert task.Part.mixes is False
    assert (measure.Measure.every_round, measure.Measure.at_clients) == (False, False)
    assert (MEASURES["personal"].every_round, MEASURES["personal"].at_clients) == (True, True)
    assert registry.Choice.compiles is False
    assert batched.Batched.compiles is True
    assert worker.Worker.turn == 0
    assert (registry.NEVER, registry.AT_LEAST, registry.GLADLY) == (0, 1, 2)
    assert (TRIES, LARGEST, BINS, NO_LABEL) == (3, 50, 15, -100)
    assert (worker.PATIENCE, worker.PR_SET_PDEATHSIG) == (1.0, 1)


def test_a_question_has_no_steps_and_nobody_says_otherwise() -> None:
    plan = next(field for field in dataclasses.fields(Question) if field.name == "plan")
    assert plan.init is False
    assert plan.default_factory() == Plan(epochs=0)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (feddyn.AverageReported, ["alpha"]),
        (fedmeta.MetaUpdated, ["meta", "meta_lr", "num_classes"]),
        (phases.TakingTurns, ["order", "turns"]),
    ],
)
def test_settings_that_are_named_where_they_are_given(kind: type, names: list[str]) -> None:
    parameters = inspect.signature(kind).parameters
    assert [parameters[name].kind for name in names] == [inspect.Parameter.KEYWORD_ONLY] * len(names)


def test_problems_by_hand() -> None:
    """Whether more is better, whether it is a share of 1, whether samples have one class, whether outputs weigh."""
    said = {name: (p.higher_is_better, p.share, p.one_class, p.weighs) for name, p in PROBLEMS.items()}
    assert said == {
        "classification": (True, True, True, True),
        "multilabel": (True, True, False, True),
        "regression": (False, False, False, False),
        "tokens": (True, True, False, False),
    }
    assert (Problem.one_class, Problem.weighs) == (False, False)
