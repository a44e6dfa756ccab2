"""The model card, section by section: every number by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from accord.config import RunConfig, load_config
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine import card
from accord.measures.sites import Sites


def data(**others: Any) -> FederatedData:
    """Two sites with 3 and 1 training samples, and 2 test samples of the first one's."""
    pool = Pool(torch.zeros(5, 1), torch.tensor([0, 1, 0, 1, 0]))
    train, test = Groups.of([[0, 1, 2], [3]]), Groups.of([[3, 4], []])
    return FederatedData("wards", pool, pool, 2, train, Groups.of([[], []]), test, **others)


def subject(config: RunConfig | None = None, given: FederatedData | None = None, **others: Any) -> Any:
    config = config or load_config()
    house: dict[str, Any] = {"own_data": False, "own_network": False, "real": False, "data": given or data()}
    house |= {"config": config, "algorithm": SimpleNamespace(has_global_model=True)}
    house |= {"facts": SimpleNamespace(members=[0, 1, 4])} | others.pop("house", {})
    known = {"network": nn.Linear(3, 2), "model": nn.Linear(3, 2), "clients": {}, "why_not": ""} | others
    return SimpleNamespace(federation=SimpleNamespace(**house), **known)


def test_names_are_listed_up_to_twelve() -> None:
    twelve = [f"n{k}" for k in range(12)]
    assert card._some(twelve) == ", ".join(twelve)
    assert card._some([*twelve, "x", "y"]) == f"{', '.join(twelve)} and 2 more"


def test_somebodys_words_stay_in_one_line() -> None:
    assert card._plain("a\nb|c`d<e") == "a b\\|c'd&lt;e"
    assert card._plain("x" * 401) == "x" * 400


def test_numbers_of_a_table() -> None:
    assert [card._number(value) for value in (None, 0.123456, 7, "a|b")] == ["", "0.1235", "7", "a\\|b"]


def test_the_title_says_what_was_trained_and_by_whom() -> None:
    """A linear layer of 3 by 2 and 2."""
    lines = list(card._title(subject(load_config(sets=["rounds=7"]))))
    assert lines[0] == "# fedavg on wards"
    assert lines[2].startswith("**Trained in a simulation**")
    assert lines[4].endswith(", 8 parameters")
    assert lines[5] == "- method: fedavg (`accord explain fedavg`), 7 rounds"
    real = list(card._title(subject(house={"real": True, "own_network": True})))
    assert real[2].startswith("**Trained in a federation**")
    assert real[4] == "- network: Linear, 8 parameters"


def test_the_data_are_counted() -> None:
    assert list(card._data(subject()))[3:] == [
        "- wards: 4 training samples at 2 sites",
        "- test data: 5 samples, the sites' own 2",
        "- a site's training samples: 1 to 3, mean 2.0",
    ]
    named = data(names=("Aix", "Lyon"), classes=("no", "yes"), note="of one winter")
    lines = list(card._data(subject(given=named, house={"real": True, "data": named})))
    assert lines[4] == "- test data: the sites' own 2"
    assert lines[6:] == ["- 2 classes: no, yes", "- sites: Aix, Lyon", "- note: of one winter"]


def test_results_are_numbers_and_spreads() -> None:
    summary = {"accuracy": 0.512345, "seconds": 3.5, "rounds": 9, "note": "x", "clients": {"mean": 0.5, "std": 0.25}}
    assert list(card._results(summary))[3:] == [
        "- accuracy: 0.5123",
        "",
        "How evenly it serves the sites (`std` is the deviation over sites):",
        "",
        "|  | mean | worst | best | std |",
        "|---|---|---|---|---|",
        "| clients | 0.5 |  |  | 0.25 |",
    ]
    assert list(card._results({"accuracy": 1.0}))[3:] == ["- accuracy: 1"]


def sites(count: int) -> Sites:
    values: list[float | None] = [0.5 + k / 100 for k in range(count)]
    values[2], values[-1] = 0.25, None
    columns = {"site": [f"s{k}" for k in range(count)], "client": [*range(count)], "accuracy": values}
    return Sites({**columns, "class": ["x"] * count})


def test_sites_are_a_table_with_the_lowest_named() -> None:
    lines = list(card._sites(sites(4)))
    assert lines[3:] == [
        "| site | accuracy |",
        "|---|---|",
        "| s0 | 0.5 |",
        "| s1 | 0.51 |",
        "| s2 | 0.25 |",
        "| s3 |  |",
        "",
        "Lowest accuracy: s2, 0.25.",
    ]
    assert list(card._sites(None)) == []


def test_of_many_sites_the_first_forty_are_shown() -> None:
    assert sum(line.startswith("| s") for line in card._sites(sites(40))) == 41
    assert not any("of 40 sites" in line for line in card._sites(sites(40)))
    many = sites(42)
    many.columns["accuracy"][40] = 0.125
    assert "Lowest accuracy: s40, 0.125." in list(card._sites(many)), "of all of them"
    lines = list(card._sites(sites(41)))
    assert sum(line.startswith("| s") for line in lines) == 41, "and the head"
    assert lines[-1] == "The first 40 of 41 sites; all of them are in the run's `sites.csv`."


def test_limits_are_said_where_they_are() -> None:
    always = 2
    assert len(list(card._limits(subject(), {}))[3:]) == always
    lines = list(
        card._limits(
            subject(
                load_config(sets=["evaluate.split=validation", "partition.validation=0.1"]),
                data(transform=lambda *_: None),
                model=None,
                clients={0: "Aix"},
            ),
            {"left_out": {"3": {}, "5": {}}},
        )
    )[3 + always :]
    assert [line[:45] for line in lines] == [
        "- The numbers above are those of validation s",
        "- Every site saw its inputs changed in a way ",
        "- 2 sites failed in some rounds and were left",
        "- There is no model for all sites: the method",
        "- `clients/` holds the own models of 1 sites,",
        "- 2 sites have none, as they failed in the la",
    ]
    assert lines[-1].endswith("last exchange: 1, 4")
    assert "predicts in a way that it cannot hand over" in lines[3]
    alone = {"algorithm": SimpleNamespace(has_global_model=False)}
    said = list(card._limits(subject(model=None, why_not="too large", house=alone), {}))
    assert "keeps one for each of them" in said[-2]
    assert said[-1] == "- The sites' own models are **not** in this folder: too large."


def test_how_it_is_made_again() -> None:
    config = load_config(sets=["rounds=7", "algorithm.name=scaffold"])
    again = list(card._again(subject(config)))[4]
    assert again == "accord run --set rounds=7 --set 'algorithm.name=\"scaffold\"'"
    assert "`federation.json`" in list(card._again(subject(house={"real": True})))[-1]
    both = list(card._again(subject(house={"own_data": True, "own_network": True})))[-1]
    assert "with data=your own data and model=your own model, and" in both
    one = list(card._again(subject(house={"own_network": True})))[-1]
    assert "with model=your own model, and" in one
    where = load_config(sets=["data.dir=/x"])
    assert list(card._again(subject(where)))[-1].startswith("and `--data-dir`")


def test_only_what_is_set_is_listed() -> None:
    assert list(card._settings(subject()))[3:] == ["- none"]
    assert list(card._settings(subject(load_config(sets=["rounds=7"]))))[3:] == ["- `rounds = 7`"]
