"""Variants of an algorithm, and sweeps: which rows there are, what each is set to, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from accord.errors import ConfigError
from accord.study.plan import Comparison, Tuning
from accord.study.trials import plan_trials
from accord.study.variants import folder_name, read_variant, split


def labels(algorithms: list[str], sweep: Any = (), *sets: str) -> list[str]:
    return [variant.label for variant in Comparison(None, sets, algorithms, [0], sweep=sweep).variants]


def test_a_variant_is_a_name_with_settings() -> None:
    variant = read_variant(" fedprox :mu = 0.1,  local.lr=0.3")
    assert (variant.algorithm, variant.sets) == ("fedprox", ("algorithm.mu=0.1", "local.lr=0.3"))
    assert variant.label == "fedprox: mu=0.1, local.lr=0.3"
    entries = Comparison(None, [], ["fedprox: mu=0.1, local.lr=0.3", "fedprox: mu=1", "fedprox"], [0, 1]).entries()
    found = [(e.run, e.config.algorithm.options["mu"], e.config.local.lr) for e in entries[::2]]
    assert found == [
        (("fedprox: mu=0.1, local.lr=0.3", 0), 0.1, 0.3),
        (("fedprox: mu=1", 0), 1.0, 0.05),
        (("fedprox", 0), 0.01, 0.05),
    ]  # fmt: skip
    assert [e.folder.name for e in entries[::2]] == ["fedprox,mu=0.1,local.lr=0.3-0", "fedprox,mu=1-0", "fedprox-0"]


def test_folders_tell_labels_apart() -> None:
    names = [folder_name(f"fedavg: model.hidden={value}") for value in ("[4,4]", "[4.4]", "(4,4)", "[4,4]" * 40)]
    assert len(set(names)) == 4
    assert all(len(name) <= 120 and "/" not in name and "[" not in name for name in names)
    assert folder_name("fedavg") == "fedavg"


def test_a_sweep_is_a_grid_and_own_settings_go_to_those_that_have_them() -> None:
    sweep = {"algorithm.mu": [0.1, 1], "partition.alpha": [0.5]}
    expected = ["fedavg: partition.alpha=0.5", *(f"fedprox: mu={mu}, partition.alpha=0.5" for mu in (0.1, 1))]
    assert labels(["fedavg", "fedprox"], sweep) == expected
    assert labels(["fedavg", "fedprox"], ["algorithm.mu=0.1,1", "partition.alpha=0.5"]) == expected
    assert labels(["fedavg"], {"partition.clients": [5, 10]}) == [f"fedavg: partition.clients={n}" for n in (5, 10)]
    assert labels(["fedavg"], {"model.hidden": [[4], [8, 8]]}, "model.name=mlp") == [
        "fedavg: model.hidden=[4]", "fedavg: model.hidden=[8, 8]",
    ]  # fmt: skip


def test_a_swept_choice_takes_only_the_settings_it_has() -> None:
    found = labels(["fedavg"], {"partition.name": ["iid", "dirichlet"], "partition.alpha": [0.1, 1.0]})
    assert found == [
        "fedavg: partition.name=iid",
        "fedavg: partition.name=dirichlet, partition.alpha=0.1",
        "fedavg: partition.name=dirichlet, partition.alpha=1.0",
    ]


def test_more_variants_join_the_folder_and_other_settings_do_not() -> None:
    def folder(algorithms: list[str], sweep: Any = (), *sets: str) -> str:
        return Comparison(None, sets, algorithms, [0], sweep=sweep).folder.name

    plain = folder(["fedavg"])
    assert folder(["fedprox: mu=1", "fedavg: local.lr=0.3"]) == plain
    assert folder(["fedavg"], {"partition.alpha": [0.1, 1]}) == plain
    assert folder(["fedavg"], (), "partition.alpha=0.1") != plain


def test_a_variants_settings_are_not_searched() -> None:
    comparison = Comparison(None, [], ["fedprox: mu=0.5", "fedprox"], [0], Tuning(2))
    trials = plan_trials(comparison, range(2), {})
    assert [set(trial.settings) for trial in trials] == [
        set(), {"local.lr"}, set(), {"local.lr", "algorithm.mu"},
    ]  # fmt: skip
    assert trials[1].settings["local.lr"] == trials[3].settings["local.lr"]
    assert [trial.folder.name for trial in trials] == ["fedprox,mu=0.5-0", "fedprox,mu=0.5-1", "fedprox-0", "fedprox-1"]


def test_lists_are_split_outside_of_brackets_and_quotes() -> None:
    assert split("a=1, b=[1, {x = 2, y = 3}], c='p, q'") == ["a=1", "b=[1, {x = 2, y = 3}]", "c='p, q'"]
    assert split("  ") == []


@pytest.mark.parametrize(
    ("algorithms", "sweep", "sets", "words"),
    [
        (["fedprox: nu=1"], (), (), r"fedprox has no setting 'nu'. Did you mean 'mu'\? Its own: mu"),
        (["fedprox: mu"], (), (), "write settings as key=value"),
        (["fedprox:"], (), (), "settings are missing"),
        (["fedprox: mu=-1"], (), (), "must be at least 0"),
        (["fedprox: mu=1", "fedprox:  mu=1"], (), (), "more than once"),
        (["fedprox: mu=1, mu=2"], (), (), "algorithm.mu is there more than once"),
        (["fedprox: seed=1"], (), (), "use --seeds"),
        (["fedavg,fedprox: mu=1"], (), (), "unknown 'fedavg,fedprox'"),
        (["fedavg"], ["algorithm.mu=1,2"], (), "nothing that is compared has this setting"),
        (["fedprox"], ["algorithm.mu=1,1"], (), "'1' is there more than once"),
        (["fedprox"], ["algorithm.mu"], (), "write it as key=value,value"),
        (["fedprox"], ["algorithm.mu="], (), "name at least one"),
        (["fedprox"], {"algorithm.mu": 3}, (), "give a list"),
        (["fedprox"], "algorithm.mu=3", (), "sweep: give a list"),
        (["fedprox"], ["seed=0,1"], (), "use --seeds"),
        (["fedprox"], ["algorithm.mu=1,2"], ("algorithm.mu=3",), "it is set already"),
        (["fedprox: mu=1"], ["algorithm.mu=1,2"], (), "it is set already"),
        (["fedprox"], ["nothing.such=1,2"], (), "nothing"),
        (["fedprox"], ["rounds=1,none"], (), "rounds"),
    ],
)
def test_what_makes_no_sense_is_refused(algorithms: list[str], sweep: Any, sets: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Comparison(None, sets, algorithms, [0], sweep=sweep)
