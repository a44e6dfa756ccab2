"""Python as the command line has it: names, keyword arguments, and the examples in the docstrings."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import numpy as np
import pytest

import accord
from accord.config import RunConfig, load_config
from accord.data.federated import Dataset
from accord.errors import ConfigError

SMALL = ("data.limit=200", "executor=sequential", "device=cpu")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_everything_there_is_can_be_seen_and_has_a_docstring() -> None:
    assert set(accord.__all__) <= set(dir(accord))
    for name in accord.__all__:
        value = getattr(accord, name)
        assert name.startswith("__") or inspect.getdoc(value), name
    for name in ("run", "resume", "compare", "tune", "describe", "explain"):
        signature = inspect.signature(getattr(accord, name))
        assert all(p.annotation is not p.empty for p in signature.parameters.values()), name


@pytest.mark.parametrize("name", ["run", "compare", "tune", "describe", "explain"])
def test_examples_in_docstrings_run(name: str) -> None:
    function = getattr(accord, name)
    (found,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={"accord": accord})
    assert found.examples
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.DocTestRunner(optionflags=flags).run(found)
    assert results.failed == 0


def test_keyword_arguments_are_settings_and_win() -> None:
    config = load_config(sets=["rounds=7", "local.lr=0.3", "algorithm.name=fedprox", "algorithm.mu=0.5", *SMALL])
    outcome = accord.run(
        config, rounds=1, seed=3, clients=4, partition="iid", epochs=2, batch_size=8, lr=0.1, device="cpu",
        executor="sequential", out="there", name="it", sets=["local.momentum=0.5", "local.lr=0.9"],
    )  # fmt: skip
    assert outcome.folder == Path("there/it")
    made = load_config(outcome.folder / "config.toml")
    assert (made.rounds, made.seed, made.local.epochs, made.local.batch_size) == (1, 3, 2, 8)
    assert (made.local.lr, made.local.momentum) == (0.1, 0.5)
    assert (made.partition.clients, made.partition.name) == (4, "iid")
    assert (made.algorithm.name, made.algorithm.options["mu"]) == ("fedprox", 0.5)
    Path("a.toml").write_text('rounds = 1\nname = "from-a-file"\n[data]\nlimit = 100\n[partition]\nclients = 3\n')
    assert accord.run("a.toml", algorithm="scaffold").summary["algorithm"] == "scaffold"


def test_what_is_not_given_is_the_default() -> None:
    outcome = accord.run(sets=[*SMALL, "rounds=1"])
    defaults = RunConfig()
    made = load_config(outcome.folder / "config.toml")
    assert (made.algorithm, made.local, made.seed) == (defaults.algorithm, defaults.local, defaults.seed)
    with pytest.raises(ConfigError, match="rounds = 0"):
        accord.run(rounds=0)
    with pytest.raises(ConfigError, match="Did you mean 'scaffold'"):
        accord.run(algorithm="scafold")


def own() -> Dataset:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    return accord.from_arrays(
        (rng.normal(size=(60, 4)) + y[:, None]).astype(np.float32), y, clients=[f"site-{k % 3}" for k in range(60)]
    )


def test_own_data_is_run_and_described() -> None:
    sets = ["model.name=mlp", "model.hidden=[4]", "device=cpu"]
    outcome = accord.run(data=own(), algorithm="scaffold", rounds=1, clients=3, partition="natural", sets=sets)
    assert outcome.summary["accuracy"] > 0
    found = accord.describe(data=own(), sets=["partition.name=natural", "partition.clients=3"])
    assert int(found.counts.sum()) == len(own().train)
    dealt = accord.federate(own(), clients=3, partition="natural")
    assert accord.describe(data=dealt, split="test").split == "test"


def test_progress_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    accord.run(rounds=1, sets=SMALL)
    assert capsys.readouterr().err == "", "nobody looks"
    accord.run(rounds=1, sets=SMALL, progress=True)
    assert "round 1/1" in capsys.readouterr().err


def test_explain_and_unknown_names() -> None:
    card = accord.explain("fedprox")
    assert "algorithm.mu = 0.01: " in card
    with pytest.raises(ConfigError, match=r"nothing is called 'fedprx'. Did you mean 'fedprox'"):
        accord.explain("fedprx")
