"""Every setting reaches what it sets: data, division, network, local work, executor, measures. All values by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from accord.client import Request, Work
from accord.config import load_config
from accord.core.disclosure import Disclosure
from accord.core.optim import SGD, Adam, Schedule
from accord.core.plan import Plan
from accord.core.types import Facts
from accord.data.federated import Dataset, Pool
from accord.engine import build, evaluation, federation
from accord.engine.build import build_algorithm, build_data, build_model, build_setup, load_data, public_samples
from accord.engine.federation import Federation
from accord.errors import ConfigError
from accord.executors.kernels import cpu_layers
from accord.problems import PROBLEMS
from accord.sampling import Cyclic
from support.federation import TinyRun, tiny_model

CPU = torch.device("cpu")
LINEAR = ["model.name=linear"]


def facts(*sizes: int, unseen: frozenset[int] = frozenset(), **known: Any) -> Facts:
    return Facts((3,), 4, np.array(sizes), unseen, **known)


def test_a_data_set_is_loaded_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(build, "load_dataset", lambda *given, **named: asked.append((given, named)))
    load_data(load_config(sets=["data.name=cub200", "data.image_size=40"]))
    load_data(load_config(sets=["data.dir=here", "data.download=false", "data.normalise=false", "task=multilabel"]))
    assert asked[0][0] == ("cub200", None)
    assert asked[0][1].items() >= {"download": True, "normalise": True, "task": "auto", "image_size": 40}.items()
    assert asked[1] == (("mnist5k", Path("here")), {"download": False, "normalise": False, "task": "multilabel"})


def test_data_is_divided_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(build, "federate", lambda dataset, **named: asked.append(named))
    dataset: Any = SimpleNamespace(problem="classification")
    division = ["name=quantity", "spread=2", "clients=7", "test=holdout", "holdout=0.4", "validation=0.15", "unseen=2"]
    sets = [*(f"partition.{one}" for one in division), "data.limit=77", "seed=5"]
    build_data(load_config(sets=[*sets, "transform.name=crop_flip", "transform.padding=2"]), dataset)
    build_data(load_config(sets=["partition.seed=9", "seed=5"]), dataset)
    assert asked[0] == {
        **{"clients": 7, "partition": "quantity", "test": "holdout", "holdout": 0.4, "validation": 0.15, "unseen": 2},
        "partition_settings": {"law": "power", "spread": 2.0, "min_size": 10},
        **{"transform": "crop_flip", "transform_settings": {"padding": 2}, "limit": 77, "seed": 5},
    }
    assert (asked[1]["limit"], asked[1]["seed"]) == (None, 9)


def test_a_network_is_made_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(build, "Model", lambda network, device, **form: made.append(form))
    build_model(load_config(sets=LINEAR), facts(1), None, CPU)
    build_model(load_config(sets=[*LINEAR, "precision=bf16", "channels_last=true"]), facts(1), None, CPU)
    build_model(load_config(sets=[*LINEAR, "precision=tf32"]), facts(1, class_weights=(1.0, 2.0, 3.0, 4.0)), None, CPU)
    plain = {"bf16": False, "channels_last": False, "compiled": False, "layers": cpu_layers, "fields": None}
    assert made[0] == {**plain, "problem": PROBLEMS["classification"]}
    assert made[1] == {**made[0], "bf16": True, "channels_last": True, "layers": None}
    assert made[2] == {**plain, "problem": PROBLEMS["classification"].weighted((1.0, 2.0, 3.0, 4.0), 4)}


def test_a_networks_first_weights_follow_from_the_runs_seed_alone() -> None:
    def weights(*sets: str) -> torch.Tensor:
        return build_model(load_config(sets=[*LINEAR, *sets]), facts(1), None, CPU).init()[0]["head.weight"]

    torch.manual_seed(1)
    first, after = weights("seed=3"), torch.rand(1)
    torch.manual_seed(2)
    assert torch.equal(weights("seed=3"), first)
    assert torch.equal(weights("seed=3", "partition.seed=8", "rounds=2"), first)
    assert not torch.equal(weights("seed=4"), first)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after), "torch's own generator is left as it was"
    own = torch.nn.Linear(3, 4)
    with pytest.raises(ConfigError, match=r"model\.init = 'keras' is for networks chosen by name"):
        build_model(load_config(sets=["model.init=keras"]), facts(1), own, CPU)


def test_local_work_is_as_it_is_set() -> None:
    local = ["epochs=2", "steps=3", "batch_size=4", "last_batch=fill", "lr=0.5", "schedule=step", "decay=0.25"]
    local += ["decay_every=6", "min_lr=0.125", "clip=7.0", "momentum=0.75", "nesterov=true", "weight_decay=0.5"]
    sets = [*(f"local.{one}" for one in local), "rounds=9", "clients.sampler=cyclic", "clients.count=2"]
    setup = build_setup(load_config(sets=sets), facts(5, 6, 7, unseen=frozenset({0})), tiny_model())
    assert setup.plan == Plan(2, 3, 4, "fill")
    assert setup.schedule == Schedule(0.5, "step", 0.25, 6, 0.125, 9)
    assert setup.optimizer == SGD(0.75, 0.5, True)
    assert setup.sampler == Cyclic(2)
    assert (setup.rounds, setup.clip, setup.num_clients, setup.num_classes) == (9, 7.0, 2, 4)
    half = build_setup(
        load_config(sets=["clients.fraction=0.5", "clients.over=0.5", "pace.step=1"]), facts(*[9] * 8), tiny_model()
    )
    assert half.sampler.size(8) == 6, "four of eight, and half as many beyond"
    sets = ["local.optimizer=adam", "local.betas=[0.5,0.25]", "local.eps=0.125", "local.weight_decay=0.5"]
    assert build_setup(load_config(sets=sets), facts(5), tiny_model()).optimizer == Adam((0.5, 0.25), 0.125, 0.5)


def test_a_short_last_batch_is_filled_where_a_network_couples_its_batch() -> None:
    normed = tiny_model("resnet18", norm="batch")
    for config, model, policy, free in (
        (load_config(), normed, "fill", True),
        (load_config(), tiny_model(), "pad", True),
        (load_config(sets=["local.last_batch=pad"]), normed, "pad", False),
    ):
        setup = build_setup(config, facts(5), model)
        assert (setup.plan.last_batch, setup.free_last_batch) == (policy, free)


def test_public_samples_are_the_first_of_the_other_data_sets_training_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(torch.arange(15.0).reshape(5, 3), torch.zeros(5, dtype=torch.int64))
    asked: list[Any] = []

    def load(*given: Any, **named: Any) -> Any:
        asked.append((given, named))
        return SimpleNamespace(train=pool, test=None)

    monkeypatch.setattr(build, "load_dataset", load)
    config = load_config(sets=["data.dir=here", "data.download=false", "data.normalise=false"])
    assert torch.equal(public_samples(config, facts(1), "mnist"), pool.x)
    assert asked == [(("mnist", Path("here")), {"download": False, "normalise": False})]
    monkeypatch.setattr(build, "PUBLIC", 2)
    assert public_samples(load_config(), facts(1), "mnist").tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert asked[1] == (("mnist", None), {"download": True, "normalise": True})
    with pytest.raises(ConfigError, match=r"'mnist' have shape \(3,\), the clients' \(4,\)"):
        public_samples(config, Facts((4,), 2, np.array([1])), "mnist")


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("split", ["test", "validation"])
def test_a_federation_is_built_step_by_step(monkeypatch: pytest.MonkeyPatch, own: bool, split: str) -> None:
    """Everything is looked at before it is used, and with the configuration that the data has settled."""
    said: list[Any] = []
    sets = ["evaluate.split=validation", "partition.validation=0.5"] if split == "validation" else []
    config = load_config(sets=["executor=sequential", "algorithm.name=fedprox", *sets])
    handed, settled = load_config(sets=["rounds=7"]), replace(config, rounds=8)
    pool = Pool(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
    given: Any = Dataset("x", pool, pool, ("a",)) if own else "loaded"
    network = torch.nn.Linear(1, 1)
    members = SimpleNamespace(members=[0, 2], sizes=np.array([1, 0, 1]))
    answers = {"choose_device": CPU, "load_data": "loaded", "handed_over": handed, "settled": settled}
    answers |= {
        "build_data": "divided",
        "judged_on_validation": "held out",
        "facts_of": members,
        "build_model": "model",
    }
    answers |= {"build_setup": "setup", "budget_of": "budget", "privately": "private", "build_algorithm": "method"}
    answers |= {"filters_of": "filters", "check_asked": None, "check_data": None, "try_network": None}
    answers |= {"check_defined": None, "choose": None}

    def note(name: str) -> Any:
        return lambda *call, **named: (said.append((name, *call, *named.items())), answers[name])[1]

    class Built:
        @property
        def pace(self) -> None:
            said.append("pace")

        @property
        def sums(self) -> None:
            said.append("sums")

    made: list[Federation] = []
    for name in answers:
        monkeypatch.setattr(federation, name, note(name))
    monkeypatch.setattr(Federation, "_looked_over", lambda self: (made.append(self), Built())[1])
    Federation.build(config, given if own else None, network if own else None)
    judged = "held out" if split == "validation" else "divided"
    assert said == [
        ("choose_device", "auto"),
        *([("handed_over", config)] if own else [("load_data", config)]),
        ("settled", handed if own else config, given),
        ("build_data", settled, given),
        ("check_asked", "auto", "divided"),
        ("check_data", "divided"),
        *([("judged_on_validation", "divided")] if split == "validation" else []),
        ("facts_of", settled, judged),
        ("build_model", settled, members, network if own else None, CPU),
        ("try_network", "model", judged),
        ("build_setup", settled, members, "model"),
        ("budget_of", settled, members, "setup"),
        ("privately", "setup", "budget"),
        ("build_algorithm", settled, "private"),
        ("check_defined", "fedprox", "method", members),
        ("filters_of", settled, "budget", "method"),
        ("choose", "sequential", CPU, 2),
        *("pace", "sums"),
    ]
    (one,) = made
    assert (one.algorithm, one.data, one.model, one.config) == ("method", judged, "model", settled)
    assert (one.own_data, one.own_network, one.filters, one.real) == (own, own, "filters", False)


def test_remarks_on_a_federation_follow_what_its_data_has_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    run = TinyRun("fedavg").federation
    asked: list[Any] = []
    remarks: list[str] = []
    monkeypatch.setattr(federation, "check_filters", lambda *given: asked.append(given))
    monkeypatch.setattr(federation, "check_steps", lambda *given: (asked.append(given), remarks)[1])

    def noted(note: str, hostile: Any) -> str:
        given = replace(run, data=replace(run.data, note=note))
        given.__dict__["hostile"] = hostile
        return given._looked_over().data.note

    two: Any = SimpleNamespace(note=lambda count: f"of {count} clients two attack", poisoned=lambda data: data)
    assert noted("", None) == ""
    assert noted("few samples", None) == "few samples"
    assert noted("", two) == "of 4 clients two attack"
    remarks.append("one takes no step")
    assert noted("few samples", None) == "few samples; one takes no step"
    assert noted("few samples", two) == "few samples; one takes no step; of 4 clients two attack"
    config, members, method, site, filters = asked[0]
    assert (config, members, method, filters) == (run.config, run.facts, run.algorithm, run.filters)
    assert site.key == run.key
    method, members, tolerate, on_one = asked[1]
    assert (method, members, tolerate, on_one()) == (run.algorithm, run.facts, run.config.clients.tolerate, True)


def test_clients_train_on_their_own_data_the_poisoned_ones_on_theirs() -> None:
    run = TinyRun("fedavg").federation
    other = replace(run.data, name="poisoned")
    hostile: Any = SimpleNamespace(poisoned=lambda data: other if data is run.data else None, attack=None)

    def trained(hostile: Any, pools: bool) -> Any:
        seen: Any = SimpleNamespace(data=run.data, hostile=hostile, algorithm=SimpleNamespace(pools_data=pools))
        return Federation.train_data.func(seen)  # type: ignore[attr-defined]

    assert trained(None, False) is run.data
    assert trained(hostile, False) is other
    assert (trained(hostile, True).name, len(trained(hostile, True))) == ("poisoned", 1)
    assert (trained(None, True).name, len(trained(None, True))) == ("tiny", 1)


def test_what_is_known_of_a_federation_is_of_those_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Any = SimpleNamespace(config="config", data="data", train_data="trained", key="key", device=CPU, pace="pace")
    monkeypatch.setattr(federation, "facts_of", lambda *given: given)
    monkeypatch.setattr(federation, "Clock", lambda *given: given)
    assert Federation.facts.func(seen) == ("config", "trained")  # type: ignore[attr-defined]
    assert Federation.clock(seen, {"clock": {}}) == ("key", "pace", {"clock": {}})  # type: ignore[comparison-overlap]
    site = Federation.site(seen, with_test=True)
    assert (site.data, site.key, site.device, site.with_test) == ("trained", "key", CPU, True)
    assert not Federation.site(seen).with_test
    monkeypatch.setattr(federation, "identity", lambda *given: {"of": given[:2], "settings": {}})
    monkeypatch.setattr(federation, "config_hash", lambda config: "hash")
    monkeypatch.setattr("accord.engine.federation.catalog.sources", lambda config: {})
    seen.model = "model"
    for pace, settings in (
        *((None, {}), (SimpleNamespace(digest=""), {})),
        (SimpleNamespace(digest="abc"), {"traces": "abc"}),
    ):
        seen.pace = pace
        found = Federation.identity.func(seen)  # type: ignore[attr-defined]
        assert found == {"of": ("data", "model"), "settings": settings}, "its own data, whatever is made of it"


def test_attacks_on_answers_need_answers() -> None:
    run = TinyRun("fedavg").federation

    def attackers(name: str, pools: bool) -> Any:
        config = load_config(sets=[f"attack.name={name}", "attack.share=0.5"] if name != "none" else [])
        method = SimpleNamespace(pools_data=pools)
        seen: Any = SimpleNamespace(config=config, algorithm=method, data=run.data, key=run.key)
        return Federation.hostile.func(seen)  # type: ignore[attr-defined]

    assert attackers("none", False) is attackers("none", True) is None
    assert attackers("sign_flip", False) is not None
    assert attackers("label_flip", False) is not None
    assert attackers("label_flip", True) is not None, "labels are flipped wherever the samples lie"
    with pytest.raises(ConfigError, match="sign_flip changes what clients send"):
        attackers("sign_flip", True)


def test_who_attacks_sends_what_an_attack_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "make_executor", lambda *given, **named: "plain")
    monkeypatch.setattr(federation, "Attacked", lambda *given: given)
    run = TinyRun("fedavg").federation
    for change in (None, "flip"):
        attacked: Any = SimpleNamespace(attack=SimpleNamespace(change=change))
        run.__dict__["hostile"] = attacked
        said: Any = run.executor()
        if change is None:
            assert said == "plain", "it has changed data, and no answers"
        else:
            assert said[:3] == ("plain", attacked, "flip")
            assert said[3]["train"]["model"] is Disclosure.UPDATE
    run.__dict__["hostile"] = None
    assert run.executor() == "plain"  # type: ignore[comparison-overlap]


def test_an_executor_is_made_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(federation, "make_executor", lambda *given, **named: asked.append((given, named)))
    sets = ["executor=processes", "workers=3", "partition.clients=5", "partition.unseen=2", "partition.name=iid"]
    run = Federation.build(load_config(sets=[*sets, "data.limit=60", "device=cpu", "model.name=linear"]))
    more: Any = {"more": "a task"}
    run.executor(len, with_test=True, more=more)  # type: ignore[arg-type]
    (name, site, tasks), named = asked[0]
    assert (name, site.with_test, set(tasks)) == ("processes", True, {"train", "evaluate", "more"})
    assert named == {"clients": 3, "workers": 3, "done": len}
    run.executor()
    assert asked[1][0][1].with_test is False


def test_what_clients_remember_may_take_so_much(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(config=SimpleNamespace(checkpoint=SimpleNamespace(memory_limit_mb=3)), facts=facts(4, 5))
    with Federation.memory(run, tmp_path) as store:
        assert (store.folder, store.limit, store.sizes.tolist()) == (tmp_path, 3 * 2**20, [4, 5])
    with Federation.memory(run) as store:
        passing = store.folder
        assert passing.is_dir()
        assert store.limit == 3 * 2**20
    assert not passing.exists()


def test_measures_look_at_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    run = TinyRun("fedavg").federation
    evaluate = SimpleNamespace(every=4, batch_size=17, split="validation", options={"clients": True})
    config = SimpleNamespace(rounds=9, evaluate=evaluate, targets=(0.5,), algorithm=SimpleNamespace(name="x"), seed=6)
    seen: Any = SimpleNamespace(
        config=config, data=run.data, judged="judged", algorithm=run.algorithm, device=CPU, facts=run.facts
    )
    seen.key, seen.filters = run.key, SimpleNamespace(budget="spent")
    scene: Any = evaluation.scene_of(seen)
    assert (scene.rounds, scene.every, scene.batch_size, scene.targets) == (9, 4, 17, (0.5,))
    assert (scene.data, scene.settings, scene.budget) == ("judged", {"clients": True}, "spent")
    assert list(scene.members) == [0, 1, 2, 3]
    said = {name: scene.facts[name] for name in ("algorithm", "dataset", "seed", "rounds", "split")}
    assert said == {"algorithm": "x", "dataset": run.data.name, "seed": 6, "rounds": 9, "split": "validation"}
    assert not {"note", "client_names"} & scene.facts.keys()
    seen.data = replace(run.data, note="few samples", names=("Aix", "Lyon", "Nice", "Pau"))
    told = evaluation.scene_of(seen).facts
    assert (told["note"], told["client_names"]) == ("few samples", ["Aix", "Lyon", "Nice", "Pau"])
    seen.data = run.data
    visits: list[Any] = []

    def visit(*given: Any, epoch_end: Any) -> None:
        visits.append((*given, epoch_end, torch.get_num_threads()))

    monkeypatch.setattr(evaluation, "run_client", visit)
    seen.algorithm = SimpleNamespace(schedule=SimpleNamespace(at=lambda round: 0.5**round))
    message, task = {"model": {"w": torch.ones(1)}}, object()
    evaluation.scene_of(seen).visit(3, task, message, 2, len)  # type: ignore[misc,arg-type]
    site, *rest = visits[0]
    assert (site.with_test, site.data, site.key) == (True, run.data, run.key)
    assert rest == [task, Request("train", 2, 0.25, message, ()), Work(3, {}, None), len, 1]


def test_an_optimizers_state_is_kept_by_methods_that_train_one_model_in_the_usual_way() -> None:
    def built(name: str) -> Any:
        run = TinyRun("fedavg", keeps_optimizer=True)
        return build_algorithm(load_config(sets=[f"algorithm.name={name}"]), run.setup)

    assert built("fedavg").tasks["train"].keeps_optimizer
    with pytest.raises(ConfigError, match="does not fit algorithm apple, as it is set: it trains"):
        built("apple")
    training = TinyRun("fedavg", keeps_optimizer=True).algorithm.tasks["train"]
    plain = TinyRun("fedavg").algorithm.tasks["train"]
    build._check_one_optimizer("mine", SimpleNamespace(tasks={"train": training, "ask": object()}))  # type: ignore[arg-type]
    for tasks, words in (
        ({"train": training, "again": training}, "its clients train more than one model in a round"),
        ({"train": plain}, "it trains in its own way"),
        ({"ask": object()}, "it trains in its own way"),
    ):
        with pytest.raises(ConfigError, match=f"does not fit algorithm mine, as it is set: {words}; set"):
            build._check_one_optimizer("mine", SimpleNamespace(tasks=tasks))  # type: ignore[arg-type]
