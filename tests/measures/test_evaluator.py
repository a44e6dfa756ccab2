"""The evaluator: when it measures, what it refuses, and how often it runs the network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.core.model import Out
from accord.core.types import Replies
from accord.data.federated import Environment, FederatedData, Groups, Pool
from accord.errors import ConfigError, DataError
from accord.measures import MEASURES, Column, Evaluator, Measure, Scene
from support.federation import apart_data, tiny_data, tiny_model, tiny_setup
from support.personal import tiny
from support.reference import forward

NOBODY = Replies((), (), torch.zeros(0, dtype=torch.int64), {})


class Counting:
    """A method whose model sees the class in the first number; it counts the samples it is shown."""

    personal = judges_together = False

    def __init__(self) -> None:
        self.shown = 0

    def predictor(self, state: Any) -> Any:
        return self.answer if state else None

    def readings(self, state: Any) -> Any:
        return {}

    def answer(self, x: Tensor) -> Out:
        self.shown += len(x)
        logits = torch.stack([x[:, 0], 1 - x[:, 0], torch.zeros(len(x))], 1)
        return Out(logits, torch.cat([logits, x], 1))


def scene(data: FederatedData, algorithm: Any = None, **given: Any) -> Scene:
    settings = {m.setting.name: m.setting.default for m in MEASURES.values() if m.setting is not None}
    options = {"batch_size": 7, "rounds": 10, **given}
    settings |= options.pop("settings", {})
    return Scene(algorithm or Counting(), data, torch.device("cpu"), range(len(data)), settings=settings, **options)


def judged(evaluator: Evaluator, round: int = 0, state: Any = None) -> dict[str, Any]:
    given = {"model": {}} if state is None else state
    return evaluator.round(round, given, given, NOBODY, memory_of=lambda client: {})


EVERYTHING = {"map": True, "balanced_accuracy": True, "macro_f1": True, "clients": True}


def test_the_network_runs_once_over_what_all_measures_read() -> None:
    data = replace(apart_data(), validation=Groups.of([[]] * 4))
    assert sorted(data.test.order) == list(range(34)), "the clients hold the whole test pool"
    one = replace(data, environments=data.environments[:1])
    for settings in ({}, EVERYTHING):
        evaluator = Evaluator(scene(one, settings=settings))
        record = judged(evaluator)
        assert evaluator.scene.algorithm.shown == 34
        assert record["accuracy"] == pytest.approx(record["clients"]["weighted_mean"])
    both = Evaluator(scene(data, settings=EVERYTHING))
    judged(both)
    assert both.scene.algorithm.shown == 2 * 34


def test_samples_that_lie_elsewhere_are_shown_once_more() -> None:
    data = apart_data()
    part = replace(data, environments=data.environments[:1], test=Groups.of([[0, 1], [1, 2], [], [1]]))
    evaluator = Evaluator(scene(part, settings=EVERYTHING))
    record = judged(evaluator)
    assert evaluator.scene.algorithm.shown == 34 + 3 + 15  # the pool, three of its samples, validation
    y = data.test_pool.y
    right = [int(p == t) for p, t in zip(Counting().answer(data.test_pool.x).logits.argmax(1), y, strict=True)]
    expected = [(right[0] + right[1]) / 2, (right[1] + right[2]) / 2, right[1]]
    assert record["clients"]["mean"] == pytest.approx(np.mean(expected))
    assert (record["clients"]["clients"], record["clients"]["skipped"]) == (3, 1)


def test_clients_that_see_other_inputs_are_judged_on_theirs() -> None:
    def mirrored(client: int, index: Any, x: Tensor) -> Tensor:
        return -x if client == 1 else x

    data = replace(apart_data(), transform=mirrored)
    record = judged(Evaluator(scene(data, settings={"balanced_accuracy": True})))
    values = []
    for client in range(4):
        rows = torch.as_tensor(data.test[client])
        x = data.test_pool.x[rows] * (-1 if client == 1 else 1)
        values.append(float((Counting().answer(x).logits.argmax(1) == data.test_pool.y[rows]).double().mean()))
    found = record["clients"]
    assert (found["best"], found["worst"], found["mean"]) == (max(values), min(values), pytest.approx(np.mean(values)))
    assert record["clients_balanced_accuracy"]["clients"] == 4


def test_retrieval_is_of_the_pool_as_it_is() -> None:
    data = apart_data()
    plain = judged(Evaluator(scene(data, settings=EVERYTHING)))["map"]
    changed = replace(data, environments=(Environment("shifted", lambda x: x + 3),))
    assert judged(Evaluator(scene(changed, settings=EVERYTHING)))["map"] == plain


def test_large_tensors_are_kept_only_where_they_are_read() -> None:
    data = apart_data()
    bare = Evaluator(scene(data, settings={"confusion": False, "calibration": False}))
    predictions = bare.scene.predictions(bare.scene.algorithm.answer, frozenset())
    assert [s.logits.numel() + s.features.numel() for s in predictions.environments] == [0, 0]
    kept = bare.scene.predictions(bare.scene.algorithm.answer, frozenset({"logits"})).plain
    assert (tuple(kept.logits.shape), kept.features.numel()) == ((34, 3), 0)
    assert bare._keep == frozenset()
    assert Evaluator(scene(data, settings=EVERYTHING))._keep == {"logits", "features"}


def test_when_it_measures() -> None:
    evaluator = Evaluator(scene(apart_data(), every=4))
    assert [round for round in range(10) if judged(evaluator, round)] == [3, 7, 9]


def test_the_end_asks_again_what_was_said_of_the_last_state_and_of_no_other() -> None:
    evaluator, ask = Evaluator(scene(apart_data())), lambda *given: NOBODY
    last: Any = {"model": {}}
    for round in (8, 9):
        judged(evaluator, round, last)
    shown = evaluator.scene.algorithm.shown
    final = evaluator.final(last, ask)
    assert (final.scene, final.state, final.ask) == (evaluator.scene, last, ask)
    assert final.state is last
    assert final.predictions is not None
    assert len(final.predictions.environments) == 2
    assert evaluator.scene.algorithm.shown == shown, "it was said in the last round"
    other = evaluator.final({"model": {}}, ask)
    assert other.predictions is not None
    assert other.predictions is not final.predictions
    assert len(other.predictions.environments) == 2
    assert evaluator.scene.algorithm.shown == shown + 2 * 34
    resumed = Evaluator(scene(apart_data()))
    assert resumed.final(last, ask).predictions is not None
    assert resumed.final({}, ask).predictions is None, "there is no global model"
    middle = Evaluator(scene(apart_data()))
    judged(middle, 8, last)
    assert middle._last is None, "only the last round's is kept"


def test_a_method_without_a_global_model_and_a_round_without_answers() -> None:
    evaluator = Evaluator(
        scene(apart_data(), settings={**EVERYTHING, "personal": True, "drift": True, "local_on_global": True})
    )
    assert judged(evaluator, state={}) == {}
    summary = evaluator.summary([{"round": 1, "bytes_up": 3, "bytes_down": 4}], [{"round": 1, "train": 0.5}])
    assert summary == {
        "accuracy": None,
        "best_accuracy": None,
        "top5_accuracy": None,
        "rounds_to": {},
        "client_accuracy": {},
        "judged_by": "personal_accuracy",
        "bytes_up": 3,
        "bytes_down": 4,
        "seconds": 0.5,
    }


@pytest.mark.parametrize(
    ("value", "personal", "asked"),
    [("auto", False, False), ("auto", True, True), (False, True, False), (True, False, True)],
)
def test_who_is_judged_by_the_clients_own_models(value: Any, personal: bool, asked: bool) -> None:
    method = Counting()
    method.personal = personal
    evaluator = Evaluator(scene(apart_data(), method, settings={"personal": value}))
    assert evaluator.at_clients is asked
    records = [{"round": 1, "accuracy": 0.5, "bytes_up": 0, "bytes_down": 0}]
    assert evaluator.summary(records, [])["judged_by"] == ("personal_accuracy" if personal else "accuracy")


def test_what_could_not_be_measured_is_refused() -> None:
    data = apart_data()
    method = ALGORITHMS["fedavg"](tiny_setup(tiny_data(), tiny_model()))
    visit = lambda *given: None  # noqa: E731
    for changed, words in (
        ({"data": replace(data, unseen=frozenset())}, r"partition\.unseen above 0"),
        ({"visit": None}, "data here"),
        ({"algorithm": SimpleNamespace(tasks={"train": object()}, personal=False)}, "train a model of their own"),
    ):
        given = {"data": data, "algorithm": method, "visit": visit, "settings": {"unseen_epochs": 1}, **changed}
        with pytest.raises(ConfigError, match=words):
            Evaluator(scene(**given))
    few = replace(data, test_pool=replace(data.test_pool, x=data.test_pool.x[:3], y=torch.arange(3)))
    with pytest.raises(DataError, match="two samples of a class"):
        Evaluator(scene(few, settings={"map": True}))


@pytest.mark.parametrize("name", ["fedper", "apple"])
def test_local_models_are_made_of_replies_memory_and_the_new_state(name: str, float64: None) -> None:
    """Memory is asked for where it is kept: from a real node it does not come with the reply."""
    run = tiny(ALGORITHMS[name], {"relation_lr": 0.3} if name == "apple" else {}).rounds(1)
    old = run.state
    run.rounds(1)
    assert run.replies is not None
    sent = replace(run.replies, results=tuple(r._replace(memory={}) for r in run.replies.results))
    noise = torch.randn(300, *run.data.sample_shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(300) % 3
    data = replace(run.data, test_pool=Pool(noise + labels.view(-1, 1, 1, 1) / 2, labels))
    evaluator = Evaluator(scene(data, run.algorithm, settings={"local_on_global": True}))
    record = evaluator.round(1, old, run.state, sent, memory_of=run.store.get)
    values = []
    for client, result in zip(sent.ids, sent.results, strict=True):
        kept = run.store.get(client)
        if name == "fedper":
            model = {**result.reply["model"], **kept["personal"]}
        else:
            shares = kept["relation"]["relation"]
            model = {n: torch.tensordot(shares, core, 1) for n, core in run.state["cores"].items()}
        right = forward(model, data.test_pool.x).argmax(1) == data.test_pool.y
        values.append(float(right.double().mean()))
    found = record["local_on_global"]
    assert len(set(values)) > 1
    assert (found["best"], found["worst"], found["mean"]) == (max(values), min(values), pytest.approx(np.mean(values)))


def test_two_measures_of_one_name() -> None:
    class Mine(Measure):
        name = "drift"

    with pytest.raises(ConfigError, match="two measures called 'drift'"):
        Evaluator(scene(apart_data()), [Mine()])


class Noted(Measure):
    """Says what it is asked, in every round or in those that are evaluated."""

    def __init__(self, name: str, every_round: bool = False) -> None:
        self.name, self.every_round = name, every_round
        self.columns = (Column(name, f"{name} %", (name,)),)

    def round(self, scene: Scene, moment: Any) -> dict[str, Any]:
        return {self.name: (moment.round, moment.old, moment.new, moment.predictions is not None)}

    def end(self, scene: Scene, final: Any) -> dict[str, Any]:
        return {f"end of {self.name}": final}

    def sites(self, scene: Scene, final: Any) -> dict[str, Any]:
        return {self.name: np.array([0.0, 1.0, 2.0, np.nan])}


class Picky(Scene):
    """Admits accuracy alone."""

    def admits(self, measure: Any) -> bool:
        return bool(measure.name == "accuracy")


def picky(**given: Any) -> Picky:
    made = scene(apart_data(), **given)
    return Picky(**{name: getattr(made, name) for name in made.__dataclass_fields__})


def test_all_measures_of_a_round_of_the_end_and_of_the_sites() -> None:
    labels = {"class": ["a", "b", "c", ""], "class_share": [1.0, 0.5, 0.25, None]}
    evaluator = Evaluator(picky(every=4, labels=labels), [Noted("always", True), Noted("sometimes")])
    assert [measure.name for measure in evaluator.measures] == ["accuracy", "always", "sometimes"]
    old, new = {"model": {"w": torch.zeros(1)}}, {"model": {"w": torch.ones(1)}}
    plain = evaluator.round(2, old, new, NOBODY, memory_of=lambda client: {})
    assert plain == {"always": (2, old, new, False)}, "not evaluated"
    due = evaluator.round(3, old, new, NOBODY, memory_of=lambda client: {})
    assert due["always"] == due["sometimes"] == (3, old, new, True)
    assert "accuracy" in due
    assert "clients" not in due, "it was not admitted"
    final: Any = "the end"
    assert evaluator.end(final) == {"end of always": "the end", "end of sometimes": "the end"}
    sites = evaluator.sites(final)
    assert sites is not None
    assert sites.columns["class"] == ["a", "b", "c", ""], "as the clients told"
    assert sites.columns["always"] == sites.columns["sometimes"] == [0.0, 1.0, 2.0, None]
    assert Evaluator(picky()).sites(final) is None


@pytest.mark.parametrize("together", [True, False])
def test_samples_are_judged_together_where_the_method_does(together: bool) -> None:
    method = Counting()
    method.judges_together = together
    found = scene(apart_data(), method, batch_size=9).judged({"model": {}}, frozenset({"logits"}))
    assert found is not None
    assert (found.together, found.size, found.keep, found.device.type) == (together, 9, {"logits"}, "cpu")


def test_a_summary_by_hand() -> None:
    facts = {"algorithm": "mine", "seed": 3}
    evaluator = Evaluator(picky(facts=facts, targets=(0.5,)), [Noted("mine")])
    records = [
        {"round": 1, "accuracy": 0.75, "mine": 1, "bytes_up": 10, "bytes_down": 20, "start_bytes_up": 5, "clock": 2.0},
        {"round": 2, "accuracy": 0.25, "mine": 2, "bytes_up": 1, "bytes_down": 2, "start_bytes_down": 7, "clock": 9.0},
    ]
    timings = [{"round": 1, "train": 0.25, "other": 1.0}, {"round": 2, "train": 0.1239}]
    found = evaluator.summary(records, timings)
    assert list(found)[:2] == ["algorithm", "seed"]
    assert found == {
        **facts,
        **{"accuracy": 0.25, "best_accuracy": 0.75, "top5_accuracy": 0.5, "rounds_to": {"0.5": 1}},
        **{"clock_to": {"0.5": 2.0}, "mine": 2, "judged_by": "accuracy"},
        "columns": [
            {"key": "mine", "title": "mine %", "path": ["mine"], "write": "percent", "better": "higher"}
            | {"compared": True, "beside": ""}
        ],
        **{"bytes_up": 16, "bytes_down": 29, "clock": 9.0, "seconds": 1.374},
    }
    plain = Evaluator(picky()).summary([], [])
    assert (plain["bytes_up"], plain["seconds"], "clock" in plain, "columns" in plain) == (0, 0, False, False)
    with pytest.raises(ConfigError, match="two measures called 'mine'"):
        Evaluator(picky(), [Noted("mine"), Noted("mine")])


def test_nothing_is_asked_that_was_not_switched_on(tmp_path: Path) -> None:
    sets = ["rounds=3", "evaluate.every=2", "evaluate.clients=false", "partition.unseen=1", "partition.clients=4"]
    data = apart_data(torch.float32)
    outcome = accord.run(load_config(None, [*sets, f"out={tmp_path}", "executor=sequential"]), data=data)
    switched = {"clients", "personal", "drift", "map", "local_on_global", "balanced_accuracy", "macro_f1"}
    assert [("accuracy" in record, "validation_accuracy" in record) for record in outcome.metrics] == [
        (False, False),
        (True, True),
        (True, True),  # the last round always
    ]
    assert not any(switched & record.keys() for record in outcome.metrics)
    assert not {"client_accuracy", "personal_accuracy", "unseen", *switched} & outcome.summary.keys()
