"""Small pieces of the engine on a few numbers: batches looked at beforehand, tasks asked for, files by site."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Answer, Draws
from accord.config import load_config
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.plan import Plan
from accord.core.task import LocalTraining, Part
from accord.core.types import Facts, Result
from accord.data.federated import Dataset, Pool
from accord.engine import personal
from accord.engine.build import build_model, build_setup
from accord.engine.card import _use
from accord.engine.earlier import in_words
from accord.engine.exchange import EmptyRound, LocalExchange, Policy, _shortened, collect
from accord.engine.federation import Federation
from accord.engine.identity import _difference, _near
from accord.engine.model_folder import file_names
from accord.engine.node import Node
from accord.engine.personal import OwnModels
from accord.engine.planned import Shortage, _alone, _idle, check_steps
from accord.engine.problem import as_asked, check_asked, check_defined, check_labels, facts_of, problem_of
from accord.engine.settled import handed_over, settled
from accord.engine.sites import read_sites, write_sites
from accord.errors import ConfigError, DataError, RunError
from accord.measures.sites import Sites
from accord.models import adapt
from accord.parts.losses import SampleLoss
from support.federation import tiny_model


def facts(*sizes: int, unseen: frozenset[int] = frozenset()) -> Facts:
    return Facts((1,), 2, np.array(sizes), unseen)


def test_batches_nobody_can_train_on_are_counted() -> None:
    sizes = facts(9, 8, 3, 3, 1, 0, 1, unseen=frozenset({6}))
    # batches of 8: 9 = 8 + 1, 8, 3, 3, 1; the sixth client has nothing, the seventh is a newcomer
    assert Shortage.of(Plan(batch_size=8, last_batch="pad"), sizes) == Shortage(5, 0, 2)
    assert Shortage.of(Plan(batch_size=8, last_batch="drop"), sizes) == Shortage(5, 3, 0)


def test_what_is_said_of_short_batches() -> None:
    plan = Plan(batch_size=8, last_batch="pad")
    with pytest.raises(
        ConfigError, match=r"fewer than local.batch_size = 8 samples, and no client has as many \(the la"
    ):
        _idle(Shortage(5, 5, 0), plan, 7)
    assert _idle(Shortage(5, 0, 0), plan, 7) == []
    assert _idle(Shortage(5, 4, 0), plan, 7)[0].startswith("4 of 5 clients take no step, as local.last_batch = drop")
    assert _alone(Shortage(4, 0, 1), plan, 0.25) == [
        "1 of 4 clients come to a batch of one sample, on which batch norm cannot train (clients.tolerate = 0.25)"
    ]
    for other, words in ((plan, "set local.last_batch to fill, or see"), (replace(plan, batch_size=1), "train: see")):
        with pytest.raises(ConfigError, match=words):
            _alone(Shortage(4, 0, 2), other, 0.25)
    with pytest.raises(ConfigError, match="train: see"):
        _alone(Shortage(4, 0, 2), replace(plan, last_batch="drop"), 0.25)


def dataset(y: list[Any], problem: str = "classification", classes: tuple[str, ...] = ("a", "b")) -> Dataset:
    pool = Pool(torch.zeros(len(y), 1), torch.tensor(y))
    return Dataset("toy", pool, pool, classes, problem=problem)


def test_tasks_that_may_be_asked_of_data() -> None:
    data = dataset([0, 1])
    assert as_asked("auto", data) is data
    assert as_asked("classification", data) is data
    amounts = as_asked("regression", data)
    assert (amounts.problem, amounts.classes, amounts.train.y.tolist()) == ("regression", ("y",), [0.0, 1.0])
    assert amounts.test.y.dtype == torch.get_default_dtype()
    for task, wrong in (("multilabel", data), ("classification", dataset([0.5], "regression", ("y",)))):
        with pytest.raises(ConfigError, match=f"task = '{task}', but the labels of the data 'toy'"):
            as_asked(task, wrong)
    divided: Any = SimpleNamespace(problem="tokens", name="texts")
    check_asked("auto", divided)
    check_asked("tokens", divided)
    with pytest.raises(ConfigError, match="task = 'regression', but the labels of the data 'texts' are for tokens"):
        check_asked("regression", divided)


def test_numbers_asked_for_are_in_the_precision_models_are_trained_in(float64: None) -> None:
    amounts = as_asked("regression", dataset([0, 1]))
    assert (amounts.train.y.dtype, amounts.test.y.dtype) == (torch.float64, torch.float64)


def test_labels_and_inputs_are_as_many_in_both_parts() -> None:
    good, bad = Pool(torch.zeros(2, 1), torch.tensor([0, 1])), Pool(torch.zeros(3, 1), torch.tensor([0, 1]))
    for part, train, test in (("train", bad, good), ("test", good, bad)):
        data: Any = SimpleNamespace(train_pool=train, test_pool=test, problem="classification", num_classes=2)
        with pytest.raises(DataError, match=f"the {part} data has 3 inputs and 2 labels"):
            check_labels(data)
    many = Pool(torch.zeros(2, 1), torch.tensor([0, 1, 1]))
    data = SimpleNamespace(train_pool=many, test_pool=good, problem="classification", num_classes=2)
    with pytest.raises(DataError, match="the train data has 2 inputs and 3 labels"):
        check_labels(data)
    wrong = Pool(torch.zeros(1, 1), torch.tensor([2]))
    data = SimpleNamespace(train_pool=good, test_pool=wrong, problem="classification", num_classes=2)
    with pytest.raises(DataError, match="1 labels of the test part"):
        check_labels(data)


def test_weights_of_the_members_alone() -> None:
    """Two members hold 0, 0, 0, 1; a newcomer holds 1: 4 / (2 * 3) and 4 / (2 * 1)."""
    known = Facts((1,), 2, np.array([2, 2, 1]), frozenset({2}))
    groups = [np.array([0, 1]), np.array([2, 3]), np.array([4])]
    pool = Pool(torch.zeros(5, 1), torch.tensor([0, 0, 0, 1, 1]))
    data: Any = SimpleNamespace(facts=known, problem="classification", train=groups, train_pool=pool, num_classes=2)

    def asked(value: Any) -> Any:
        return SimpleNamespace(local=SimpleNamespace(class_weights=value))

    assert facts_of(asked("none"), data) is known
    assert facts_of(asked("balanced"), data).class_weights == pytest.approx((2 / 3, 2.0))
    weighted = facts_of(asked((1, 3)), data)
    assert weighted.class_weights == (1.0, 3.0)
    assert problem_of(weighted).weights == (1.0, 3.0)
    assert problem_of(known).weights == ()


def test_what_a_configuration_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config()
    assert settled(config).partition.clients == 20
    assert settled(config).task == "auto"
    known = settled(config, dataset([0, 1]))
    assert (known.task, known.partition.name, known.partition.test) == ("classification", "dirichlet", "matching")
    some = load_config(sets=["partition.name=iid", "partition.clients=3", "partition.test=shared"])
    assert settled(some).partition == some.partition
    partly = settled(load_config(sets=["partition.name=iid", "partition.clients=3"]))
    assert (partly.partition.clients, partly.partition.test) == (3, "matching")
    given = handed_over(config)
    assert (given.data.name, given.data.options) == ("given", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    placed = settled(load_config(sets=["data.name=folder", "data.path=here"]))
    assert placed.data.options["path"] == str(tmp_path / "here")
    elsewhere = settled(load_config(sets=["data.name=folder", "data.path=nowhere"]))
    assert elsewhere.data.options["path"] == "nowhere"


def test_what_is_set_stays_and_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled(load_config(sets=["task=regression"]), dataset([0, 1])).task == "regression"
    given = handed_over(load_config(sets=["data.name=cub200", "data.image_size=40"]))
    assert (given.data.name, given.data.options) == ("given", {}), "its settings were those of other data"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for name in ("train.csv", "test.csv", "devices.csv", "there.csv", "home/mine.csv"):
        (tmp_path / name).write_text("x")
    files = ["data.name=table", "data.label=y", "data.path=train.csv", "data.test=test.csv"]
    traces = ["pace.devices=devices.csv", "pace.intervals=there.csv", "pace.presence=trace"]
    found = settled(load_config(sets=[*files, *traces]))
    assert (found.data.options["path"], found.data.options["test"]) == (
        str(tmp_path / "train.csv"),
        str(tmp_path / "test.csv"),
    )
    assert (found.pace.devices, found.pace.intervals) == (str(tmp_path / "devices.csv"), str(tmp_path / "there.csv"))
    home = settled(load_config(sets=["data.name=table", "data.label=y", "data.path=~/mine.csv"]))
    assert home.data.options["path"] == str(tmp_path / "home" / "mine.csv")
    paced = settled(load_config(sets=["pace.devices=devices.csv"]))
    assert (paced.pace.devices, paced.pace.intervals) == (str(tmp_path / "devices.csv"), "")
    nowhere = settled(load_config(sets=["pace.devices=nowhere.csv"]))
    assert nowhere.pace.devices == "nowhere.csv"


def test_sites_are_read_as_they_were_written(tmp_path: Path) -> None:
    sites = Sites(
        {
            "site": ['north, "old"', "south\nwest", "plain"],
            "client": [0, 1, 2],
            "samples": [3, 4, 0],
            "test_samples": [1, 1, 0],
            "class": ["", "a", "b"],
            "accuracy": [0.1, None, 1 / 3],
        }
    )
    assert read_sites(tmp_path) is None
    write_sites(tmp_path, None)
    assert read_sites(tmp_path) is None
    write_sites(tmp_path, sites)
    first = (tmp_path / "sites.csv").read_text().splitlines()
    assert first[:2] == ["site,client,samples,test_samples,class,accuracy", '"north, ""old""",0,3,1,,0.1']
    assert read_sites(tmp_path) == sites
    head = "site,client,samples,test_samples,class"
    for damaged in ("site,client\na,1\n", f"{head}\na,1,2,3\n", f"{head}\na,x,2,3,b\n", ""):
        (tmp_path / "sites.csv").write_text(damaged)
        with pytest.raises(DataError, match=r"cannot read .*sites\.csv"):
            read_sites(tmp_path)


def test_clients_hand_their_models_over_where_all_train() -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []
    sent: list[Any] = []

    def exchange(task: str, clients: Any, shared: Any, private: Any = None) -> Any:
        asked.append((task, tuple(clients)))
        sent.append((shared, private))
        results = tuple(SimpleNamespace(reply={"model": {"w": torch.tensor([float(c)])}}) for c in clients)
        return SimpleNamespace(ids=tuple(clients), results=results)

    own = OwnModels(object(), [0, 2])  # type: ignore[arg-type]
    assert own.tasks.keys() == {personal.TASK}
    watched = own.watching(exchange)  # type: ignore[arg-type]
    watched("train", [0], {})
    watched("judge", [0, 2], {})
    assert own.found == {}
    watched("train", [0, 2], {})
    assert asked == [("train", (0,)), ("judge", (0, 2)), ("personal", (0, 2))]
    assert {client: trees["model"]["w"].tolist() for client, trees in own.found.items()} == {0: [0.0], 2: [2.0]}
    own.complete(exchange, {})  # type: ignore[arg-type]
    assert len(asked) == 3, "they are there"
    later = OwnModels(object(), [0, 2])  # type: ignore[arg-type]
    later.complete(exchange, {})  # type: ignore[arg-type]
    assert asked[-1] == ("personal", (0, 2))
    nobody = OwnModels(None, [0])
    assert nobody.tasks == {}
    assert nobody.watching(exchange) is exchange  # type: ignore[arg-type,comparison-overlap]
    nobody.complete(exchange, {})  # type: ignore[arg-type]
    assert len(asked) == 4
    sent.clear()
    for clients in ([0], [0, 2]):
        watched("train", clients, {"model": {}}, {0: {"note": {}}})
    assert sent == [({"model": {}}, {0: {"note": {}}})] * 2, "what single clients are sent passes too"
    replies = watched("train", [0, 2], {})
    replies.results[0].reply["model"]["w"].fill_(9.0)
    assert own.found[0]["model"]["w"].tolist() == [0.0], "what is kept is nobody else's"


def test_rounds_in_words() -> None:
    assert in_words([3]) == "round 3"
    assert in_words([2, 3, 4, 7]) == "rounds 2 to 4, 7"
    assert in_words([1, 3]) == "rounds 1, 3"
    assert in_words([1, 2]) == "rounds 1 to 2"


def test_how_a_difference_is_told() -> None:
    assert _difference("data", "classes", ["a", "b"], ["a", "c"]) == "data classes: ['b'] became ['c']"
    assert _difference("data", "classes", ["a"], ["a", "c", "d", "e"]) == "data classes: nothing became ['c', 'd']"
    assert _difference("data", "classes", ["a", "b", "c"], []) == "data classes: ['a', 'b'] became nothing"
    assert _difference("data", "classes", None, ["a"]) == "data classes was None, is ['a']"
    assert _difference("data", "classes", ["a"], 3) == "data classes was ['a'], is 3"
    assert _difference("data", "train_values", "0" * 64, "1" * 64) == "data train values differ"
    assert _difference("data", "name", "x", "1" * 63) == f"data name was 'x', is '{'1' * 63}'"


def test_answers_that_are_near() -> None:
    assert _near([1.0, None, 0], [1.005, None, 0.009])
    for was in ([1.0, None], [1.0, 0.0, 0.0], ["1", None, 0.0], [1.02, None, 0.0], [1.0, None, None], None, "abc"):
        assert not _near(was, [1.0, None, 0.0])
    assert _near([100.0], [101.0])
    assert not _near([100.0], [102.0])


def test_in_a_rehearsal_everybody_answers_and_nobody_keeps_anything() -> None:
    clients = SimpleNamespace(
        minimum=5, tolerate=0.25, drop_rate=0.5, cohort=lambda count: count - 1, asked=lambda count: count
    )
    federation: Any = SimpleNamespace(
        config=SimpleNamespace(clients=clients),
        key=Key(1),
        algorithm=SimpleNamespace(schedule=SimpleNamespace(at=lambda round: 0.1 * round)),
        train_data=SimpleNamespace(name_of=chr),
        facts=SimpleNamespace(members=[0, 1, 2]),
        filters="filters",
        sums="sums",
    )
    store: Any = object()
    real = Federation.exchange(federation, store, store, 3)
    assert (real.policy, real.drop_rate, real.keep_memory) == (Policy(5, 0.25), 0.5, True)
    assert (real.round, real.lr) == (3, pytest.approx(0.3))
    assert (real.cohort, real.sums, real.filters, real.name_of) == ((2, 3), "sums", "filters", chr)
    played = Federation.exchange(federation, store, store, 3, rehearsal=True)
    assert (played.policy, played.drop_rate, played.keep_memory) == (Policy(1, 0.25), 0.0, False)
    assert (played.cohort, played.sums, played.filters, played.name_of) == ((2, 3), None, "filters", chr)
    clock: Any = SimpleNamespace(now=5.0)
    assert Federation.exchange(federation, store, store, 3, clock=clock).clock is clock


def test_who_is_there_by_the_clock_makes_a_rounds_world() -> None:
    """Three members of four clients; five must answer, or all where there are fewer."""
    waits: list[int] = []
    federation: Any = SimpleNamespace(
        config=SimpleNamespace(clients=SimpleNamespace(minimum=5)),
        facts=facts(3, 2, 1, 5, unseen=frozenset({1})),
        key=Key(1),
    )

    def clock(*there: int, pace: Any = "some") -> Any:
        return SimpleNamespace(pace=pace, present=lambda round, members: list(there), wait=lambda: waits.append(1))

    world = Federation.world(federation, 4, clock(0, 2, 3))
    assert (world.round, list(world.clients), world.key) == (4, [0, 2, 3], Key(1))
    assert world.sizes.tolist() == [3, 2, 1, 5]
    assert waits == []
    with pytest.raises(EmptyRound, match="2 of 3 clients are there, at least 3 are needed"):
        Federation.world(federation, 4, clock(0, 3))
    assert waits == [1], "time passes"
    federation.config.clients.minimum = 2
    assert list(Federation.world(federation, 4, clock(0, 3)).clients) == [0, 3]
    for still in (None, clock(pace=None)):
        assert list(Federation.world(federation, 4, still).clients) == [0, 2, 3]


def test_a_model_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accord.engine import model_folder

    own: Any = SimpleNamespace(found={}, why_not="")
    federation: Any = SimpleNamespace(data=SimpleNamespace(name_of=str))
    for name in ("_trained_network", "Subject"):
        monkeypatch.setattr(model_folder, name, lambda *_: None)
    monkeypatch.setattr(model_folder, "_record", lambda subject: {"kept": 1})

    def files(subject: Any, own: Any, record: Any) -> Any:
        yield "values", b"new"
        record["weights"] = "a checksum"

    monkeypatch.setattr(model_folder, "_files", files)
    monkeypatch.setattr(model_folder, "card", lambda *_: "a card")

    def write() -> None:
        model_folder.write_model(tmp_path, federation, None, own, {}, None)

    left = tmp_path / model_folder.TEMPORARY
    left.mkdir()
    (left / "old").write_text("of a process that was killed")
    write()
    final = tmp_path / "model"
    assert sorted(path.name for path in final.iterdir()) == ["README.md", "model.json", "values"]
    record = json.loads((final / "model.json").read_text())
    assert record == {"kept": 1, "weights": "a checksum"}, "what is noted of files while they are written"
    (final / "stale").write_text("of an earlier end")
    write()
    assert not (final / "stale").exists()

    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_folder, "card", full)
    with pytest.raises(RunError, match=r"cannot write the model .*: No space left on device"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (final / "values").read_bytes() == b"new", "what was there stays"


def test_who_is_missing_and_what_may_be() -> None:
    def answer(client: int, error: str = "") -> Any:
        return SimpleNamespace(client=client, error=error, fatal=False, result=None if error else object())

    good, missing = collect(
        "train", 0, [3, 1, 2, 0], [answer(3), answer(1, "no"), answer(0)], Policy(2, 0.25), {2: "away"}
    )
    assert [one.client for one in good] == [0, 3]
    assert list(missing.items()) == [(2, "away"), (1, "no")]
    with pytest.raises(RunError, match=r"round 1: 2 of 4 clients failed in task 'train', and at most 25 % may"):
        collect("train", 0, [0, 1, 2, 3], [answer(0, "a"), answer(1, "b"), answer(2), answer(3)], Policy(2, 0.25), {})
    with pytest.raises(RunError, match=r"without them\.\nclient 1: broken$"):  # who was away has failed in nothing
        collect("train", 0, [0, 1, 2, 3], [answer(1, "broken"), answer(0)], Policy(), {3: "away", 2: "away"})
    gone = collect("train", 0, [0, 1, 2, 3], [answer(0), answer(1)], Policy(), {3: "away", 2: "late"})[1]
    assert list(gone.items()) == [(2, "late"), (3, "away")], "by client"
    with pytest.raises(EmptyRound, match="1 of 4 clients answered task 'train', at least 2 are needed"):
        collect("train", 0, [0, 1, 2, 3], [answer(0)], Policy(2), {1: "x", 2: "x", 3: "x"})
    assert len(collect("train", 0, [0], [answer(0)], Policy(2), {})[0]) == 1, "no more than were asked"
    with pytest.raises(EmptyRound, match="0 of 1 clients answered task 'train', at least 1 are needed"):
        collect("train", 0, [0], [], Policy(0), {0: "x"})
    assert _shortened("x" * 4000) == "x" * 4000
    assert _shortened("x" * 4001) == "x" * 4000 + "\n..."


def test_files_are_called_by_their_clients_where_that_can_be() -> None:
    assert file_names({0: "a b", 1: "c"}) == {0: "a_b-0.safetensors", 1: "c.safetensors"}
    assert file_names({0: "n" * 60, 1: "m" * 61}) == {0: "n" * 60 + ".safetensors", 1: "m" * 60 + "-1.safetensors"}
    assert file_names({4: "/"}) == {4: "client-4.safetensors"}
    assert file_names({0: "Lyon", 1: "lyon", 2: "Pau"}) == {
        **{0: "Lyon-0.safetensors", 1: "lyon-1.safetensors"},  # some disks do not tell them apart
        2: "Pau.safetensors",
    }
    assert file_names({0: "a b", 1: "a_b-0"}) == {0: "0.safetensors", 1: "1.safetensors"}


def test_how_a_model_may_be_used() -> None:
    def lines(model: Any, clients: dict[int, str], own: bool) -> list[str]:
        subject: Any = SimpleNamespace(model=model, clients=clients, federation=SimpleNamespace(own_network=own))
        return [line for line in _use(subject) if line.startswith(("model", "`My"))]

    assert lines(object(), {}, False)[0] == 'model = accord.load("model")  # this folder'
    assert lines(None, {3: "Lyon"}, False) == ["model = accord.load(\"model\", client='Lyon')"]
    both = lines(object(), {3: "Lyon"}, True)
    assert both[0] == 'model = accord.load("model", network=MyNetwork())  # this folder'
    assert both[2] == "model = accord.load(\"model\", client='Lyon', network=MyNetwork())"
    assert both[3].startswith("`MyNetwork()` is your own network")


def test_models_that_are_too_large_to_be_kept_are_named_by_their_size() -> None:
    trained = LocalTraining(tiny_model(), (SampleLoss(),))
    size = sum(t.numel() * t.element_size() for tree in trained.model.init() for t in tree.values())

    def kept(
        members: int, megabytes: float, personal_method: bool = True, task: Any = trained, budget: Any = None
    ) -> OwnModels:
        federation: Any = SimpleNamespace(
            algorithm=SimpleNamespace(personal=personal_method, tasks={"train": task}),
            facts=SimpleNamespace(members=list(range(members))),
            config=SimpleNamespace(checkpoint=SimpleNamespace(personal_mb=megabytes)),
            filters=SimpleNamespace(budget=budget),
        )
        return OwnModels.of(federation)

    many = (1 << 20) // size
    assert kept(many, 1).task is not None
    assert kept(many, 1).task.hands_over  # type: ignore[union-attr]
    refused = kept(3 * many, 2)
    assert refused.task is None
    assert refused.why_not == f"{3 * many} models would take 3.0 MB, and checkpoint.personal_mb = 2 allows no more"
    assert kept(1, 1, personal_method=False) == OwnModels(None, [0])
    for name, unit, stay in (("local", "client", True), ("central", "client", True), ("sample", "sample", False)):
        spent = SimpleNamespace(name=name, protection=SimpleNamespace(unit=unit))
        assert (kept(1, 1, budget=spent).task is None) == stay
        why = f"privacy.name = '{name}' keeps the clients' own models with them"
        assert kept(1, 1, budget=spent).why_not == (why if stay else "")
    layers = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.BatchNorm1d(1 << 17, affine=False))
    wide = torch.nn.Sequential(*layers, torch.nn.Linear(1, 1, bias=False))
    statistics = LocalTraining(Model(adapt(wide, head="2", example=None)), (SampleLoss(),))  # a megabyte of them
    assert kept(1, 1, task=statistics).task is None
    assert kept(1, 2, task=statistics).task is not None
    assert "in a way of its own" in kept(1, 1, task=object()).why_not


def test_a_setup_counts_the_clients_that_may_train() -> None:
    model = tiny_model()
    config = load_config(sets=["rounds=7", "local.lr=0.5", "local.batch_size=4", "local.clip=2.0", "clients.count=2"])
    setup = build_setup(config, facts(3, 2, 1, 5, unseen=frozenset({1})), model)
    assert (setup.num_clients, setup.num_classes, setup.rounds, setup.clip) == (3, 2, 7, 2.0)
    assert (setup.plan.batch_size, setup.plan.last_batch, setup.free_last_batch) == (4, "pad", True)
    assert not setup.keeps_optimizer
    other = load_config(sets=["local.last_batch=drop", "local.optimizer_state=kept", "local.momentum=0.9"])
    setup = build_setup(other, facts(3, 2), model)
    assert (setup.plan.last_batch, setup.free_last_batch, setup.keeps_optimizer) == ("drop", False, True)


def test_a_network_by_name_needs_two_classes() -> None:
    config, cpu = load_config(sets=["model.name=linear"]), torch.device("cpu")
    assert build_model(config, Facts((3,), 2, np.array([1])), None, cpu).network(torch.zeros(1, 3)).shape == (1, 2)
    with pytest.raises(ConfigError, match="needs at least 2 classes to tell apart, got 1"):
        build_model(config, Facts((3,), 1, np.array([1])), None, cpu)
    amount = Facts((3,), 1, np.array([1]), problem="regression")
    assert build_model(config, amount, None, cpu).network(torch.zeros(1, 3)).shape == (1, 1)


def test_remarks_of_all_tasks_that_train() -> None:
    plan = Plan(batch_size=4, last_batch="drop")
    task = LocalTraining(tiny_model(), (SampleLoss(),), plan=plan)
    method: Any = SimpleNamespace(tasks={"train": task, "again": task, "asked": object()})
    remarks = check_steps(method, facts(4, 3), 0.0, lambda: True)
    assert len(remarks) == 1, "said once"
    assert remarks[0].startswith("1 of 2 clients take no step")
    with pytest.raises(ConfigError, match=r"no client has as many \(the largest has 3\), so nobody would train"):
        check_steps(method, facts(2, 3, 1), 0.0, lambda: True)
    method.tasks = {"train": replace(task, plan=replace(plan, epochs=0))}
    assert check_steps(method, facts(3, 3), 0.0, lambda: True) == []
    method.tasks = {"train": replace(task, plan=replace(plan, epochs=0, steps=2))}
    with pytest.raises(ConfigError, match="nobody would train"):
        check_steps(method, facts(3, 3), 0.0, lambda: True)


def test_a_batch_of_one_sample_is_no_harm_but_to_batch_norm() -> None:
    """Of 5 and 4 samples in batches of 4 the first client has one left over."""
    layers = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    normed = LocalTraining(Model(adapt(layers, head="2")), (SampleLoss(),), plan=Plan(batch_size=4))
    plain = replace(normed, model=tiny_model())

    def remarks(task: LocalTraining, tolerate: float, on_one: bool) -> list[str]:
        method: Any = SimpleNamespace(tasks={"train": task})
        return check_steps(method, facts(5, 4), tolerate, lambda: on_one)

    assert remarks(plain, 0.0, False) == remarks(normed, 0.0, True) == []
    assert remarks(normed, 0.5, False)[0].startswith("1 of 2 clients come to a batch of one sample")
    with pytest.raises(ConfigError, match="on which batch norm cannot train"):
        remarks(normed, 0.4, False)


def test_what_a_client_keeps_is_of_its_round_and_exchange() -> None:
    """Rounds are counted from 1 in files, exchanges of a round from 0."""
    kept: list[Any] = []
    store: Any = SimpleNamespace(
        sizes=np.array([4, 4]), get=lambda client: None, put=lambda *given: kept.append(given[:2])
    )

    class Executor:
        def run(self, request: Any) -> list[Any]:
            empty = Result({}, {"own": {}}, {})
            return [Answer(work.client, empty) for work in request.works]

    exchange = LocalExchange(Executor(), store, Key(0), 6, 0.1)  # type: ignore[arg-type]
    exchange("train", [0], {})
    exchange("train", [1, 0], {})
    assert kept == [(0, (7, 0)), (0, (7, 1)), (1, (7, 1))]
    LocalExchange(Executor(), store, Key(0), 6, 0.1, keep_memory=False)("train", [0], {})  # type: ignore[arg-type]
    assert len(kept) == 3


def test_what_a_method_is_not_defined_for() -> None:
    """Real numbers mix, token ids and several inputs in one row do not; and a part may be for some problems only."""
    mixing = type("Mixing", (Part,), {"mixes": True})()
    plain = type("Plain", (Part,), {})()
    choosy = type("Choosy", (Part,), {"problems": ("classification", "tokens"), "needs": "classes"})()

    def check(part: Any, **known: Any) -> None:
        task = LocalTraining(tiny_model(), (part,))
        method: Any = SimpleNamespace(tasks={"ask": object(), "train": task})
        check_defined("mine", method, Facts((1,), 2, np.array([1]), **known))

    task, other = (LocalTraining(tiny_model(), (part,)) for part in (plain, mixing))
    method: Any = SimpleNamespace(tasks={"train": task, "again": other})
    with pytest.raises(ConfigError, match="its part Mixing"):  # whichever task it is in
        check_defined("mine", method, Facts((1,), 2, np.array([1]), vocabulary=5))
    several: Any = object()
    check(mixing)
    check(plain, vocabulary=5)
    check(plain, fields=several)
    for known, words in (({"vocabulary": 5}, "token ids"), ({"fields": several}, "several inputs in one row")):
        with pytest.raises(ConfigError, match=f"its part Mixing computes .* and these are {words}"):
            check(mixing, **known)
    amounts = type("Amounts", (Part,), {"problems": ("regression",), "needs": "real numbers"})()
    check(amounts, problem="regression")
    with pytest.raises(ConfigError, match=r"not defined for task classification, .* part Amounts needs real numbers"):
        check(amounts, problem="classification")
    anything = type("Anything", (Part,), {"problems": ("any",)})()
    check(anything, problem="regression")
    check(choosy, problem="classification")
    check(choosy, problem="tokens")
    with pytest.raises(ConfigError, match=r"mine is not defined for task regression, .* part Choosy needs classes"):
        check(choosy, problem="regression")


def test_a_node_is_one_client_and_nobody_else() -> None:
    data: Any = object()
    node = Node(3, data, Key(8), torch.device("cpu"))
    assert node.client_data(3) is data
    assert node.draws(3, "judge", 2) == Draws(Key(8), "judge", 2)
    for asked in (lambda: node.client_data(4), lambda: node.draws(4, "judge", 2)):
        with pytest.raises(RunError, match="this node is client 3, and was asked to be client 4"):
            asked()


def test_a_plot_is_of_what_was_asked_or_of_what_a_run_is_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    from accord.engine import run

    drawn: list[Any] = []
    monkeypatch.setattr(run, "figure_of", lambda *given: drawn.append(given))
    outcome = run.Outcome(None, [{"round": 1, "accuracy": 0.5}], {"algorithm": "fedavg", "task": "x"}, Path("x"))
    monkeypatch.setattr(run, "judged_value", lambda runs, summaries: (runs, summaries))
    outcome.plot("clients/worst")
    outcome.plot()
    runs = {"fedavg": [outcome.metrics]}
    assert drawn == [(runs, "clients/worst"), (runs, (runs, [outcome.summary]))]
