"""Whatever is wrong with a configuration: exit code 2, key and allowed values on stderr, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# (contents of the file, --set texts, what the message must say)
BAD: list[tuple[str, list[str], list[str]]] = [
    ("rouns = 3", [], ["rouns", "'rounds'", "seed, rounds"]),
    ("lr = 0.1", [], ["lr: unknown key", "'local.lr'"]),
    ("mu = 0.1", [], ["mu: unknown key", "Allowed: seed"]),
    ("[algoritm]\nname = 'fedavg'", [], ["algoritm", "'algorithm'"]),
    ("[local]\nlerning_rate = 1", [], ["local.lerning_rate", "Allowed: epochs"]),
    ("[local]\nepoch = 1", [], ["local.epoch:", "'epochs'"]),
    ("[algorithm]\nname = 'fedagv'", [], ["algorithm.name", "'fedavg'", "Allowed: ", "fedavg"]),
    ("[algorithm]\nname = 'fedprox'\nmuu = 1", [], ["algorithm.muu", "'mu'", "fedprox"]),
    ("[algorithm]\nmu = 1", [], ["algorithm.mu", "algorithm fedavg", "Allowed: name"]),
    ("[algorithm]\nname = 'fedprox'\nmu = -0.1", [], ["algorithm.mu = -0.1", "at least 0"]),
    ("[algorithm]\nname = 'fedprox'\nmu = 'big'", [], ['algorithm.mu = "big"', "a number"]),
    ("[algorithm]\nname = 'fedprox'\nmu = true", [], ["algorithm.mu = true", "a number"]),
    ("[data]\nname = 'mnst5k'", [], ["data.name", "'mnist5k'", "Allowed:"]),
    ("[model]\nname = '2mn'", [], ["model.name", "'2nn'", "Allowed:"]),
    ("[model]\nhidden = 0", [], ["model.hidden = 0", "at least 1"]),
    ("[transform]\nname = 'rotat'", [], ["transform.name", "'rotate'", "none"]),
    ("[partition]\nname = 'dirchlet'", [], ["partition.name", "'dirichlet'", "iid"]),
    ("[partition]\nalpha = 0", [], ["partition.alpha = 0", "at least"]),
    ("[partition]\nalhpa = 1", [], ["partition.alhpa", "'alpha'"]),
    ("[partition]\nclients = -1", [], ["partition.clients = -1", "at least 0"]),
    ("[partition]\ntest = 'mathcing'", [], ["partition.test", "'matching'", "holdout"]),
    ("[partition]\nholdout = 1.0", [], ["partition.holdout = 1.0", "below 1"]),
    ("[partition]\nvalidation = 1.5", [], ["partition.validation = 1.5", "below 1"]),
    ("rounds = 0", [], ["rounds = 0", "at least 1"]),
    ("rounds = 2.5", [], ["rounds = 2.5", "a whole number"]),
    ("rounds = true", [], ["rounds = true", "a whole number"]),
    ("rounds = '20'", [], ['rounds = "20"', "without quotes"]),
    ("seed = -1", [], ["seed = -1", "at least 0"]),
    ("seed = 99999999999999999999", [], ["seed", "64 bits"]),
    ("device = 'gpu'", [], ["device", "auto, cpu, cuda"]),
    ("executor = 'proceses'", [], ["executor", "'processes'", "sequential"]),
    ("targets = 0.8", [], ["targets = 0.8", "a list of numbers"]),
    ("targets = [0.8, 80]", [], ["targets", "item 2", "at most 1"]),
    ("name = 'a/b'", [], ["name = 'a/b'", "folder name"]),
    ("out = ''", [], ["out is empty"]),
    ("out = 5", [], ["out = 5", "a string"]),
    ("local = 3", [], ["local = 3", "a section", "local.epochs"]),
    ("data = 'mnist'", [], ['data = "mnist"', "a section", "data.name"]),
    ("[local]\nlr = '1e-3'", [], ['local.lr = "1e-3"', "without quotes"]),
    ("[local]\nlr = 0", [], ["local.lr = 0", "above 0"]),
    ("[local]\nlr = nan", [], ["local.lr = nan", "finite"]),
    ("[local]\nlr = inf", [], ["local.lr = inf", "finite"]),
    ("[local]\nlr = 2024-01-01", [], ["local.lr = 2024-01-01", "a number"]),
    ("[local]\noptimizer = 'sdg'", [], ["local.optimizer", "sgd, adam, adamw", "'sgd'"]),
    ("[local]\nbetas = [0.9]", [], ["local.betas", "a list of 2 numbers"]),
    ("[local]\nnesterov = true", [], ["local.nesterov", "local.momentum"]),
    ("[local]\nmomentum = 1", [], ["local.momentum = 1", "below 1"]),
    ("[local]\nschedule = 'linear'", [], ["local.schedule", "constant, exponential, cosine, step"]),
    ("[clients]\ncount = 50\n[partition]\nclients = 20", [], ["clients.count = 50", "20 clients", "partition.clients"]),
    ("[clients]\nminimum = 15\n[partition]\nclients = 20", [], ["clients.minimum = 15", "10 clients"]),
    ("[clients]\nfraction = 0", [], ["clients.fraction = 0", "above 0"]),
    ("[clients]\nsampler = 'random'", [], ["clients.sampler", "uniform, weighted, cyclic"]),
    ("[evaluate]\nevery = 0", [], ["evaluate.every = 0", "at least 1"]),
    ("[checkpoint]\nkeep = 0", [], ["checkpoint.keep = 0", "at least 1"]),
    ("[log]\ntensorboard = 'yes'", [], ['log.tensorboard = "yes"', "true or false"]),
    ("rounds = = 3", [], ["mine.toml", "not valid TOML", "line 1"]),
    ("rounds = 3\nrounds = 4", [], ["mine.toml", "not valid TOML"]),
    ('"\\u001b[31mx" = 1', [], ["\\x1b[31mx: unknown key"]),  # must not colour the terminal
    ("", ["local.lr"], ["--set 'local.lr'", "key=value"]),
    ("", ["local.lrr=1"], ["local.lrr", "'lr'"]),
    ("", ["local.lr=fast"], ['local.lr = "fast"', "a number"]),
    ("", ["rounds=1e2"], ["rounds = 100.0", "a whole number"]),
    ("", ["algorithm=fedprox"], ["algorithm is a section", "algorithm.name"]),
    ("", ["algorithm.name=fedprx"], ["algorithm.name", "'fedprox'"]),
    ("", ["data.options.x=1"], ["data.options", "unknown key"]),
    ("", ["name=[bold]x[/bold]"], ["name = '[bold]x[/bold]'"]),  # printed as it is, not in bold
]


@pytest.mark.parametrize(("content", "sets", "said"), BAD)
def test_bad_configuration(
    accord: Callable[..., Any], engine: Any, content: str, sets: list[str], said: list[str]
) -> None:
    path = Path("mine.toml")
    path.write_text(content)
    result = accord("run", path, *(part for text in sets for part in ("--set", text)))
    assert result.exit_code == 2, result.output
    for part in said:
        assert part in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert list(Path().iterdir()) == [path]
    assert engine.calls == []


def test_several_at_once(accord: Callable[..., Any], engine: Any) -> None:
    result = accord("run", "--rounds", "-1", "--set", "local.lr=x", "-a", "fedagv", "--executor", "threads")
    assert result.exit_code == 2
    for part in ("4 problems", "rounds = -1", "local.lr", "algorithm.name", "executor"):
        assert part in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere.toml"], "no such file"),
        (["run", "."], "is a folder"),
        (["describe", "--set", "partition.name=x"], "partition.name"),
        (["compare", "--algorithms", "fedavg,fedprx"], "Did you mean 'fedprox'?"),
        (["compare", "--algorithms", ","], "--algorithms"),
        (["compare", "--algorithms", "fedavg", "--seeds", "0,x"], "--seeds"),
        (["compare", "--algorithms", "fedavg", "--seeds", "-1"], "--seeds"),
        (["compare", "--algorithms", "fedavg", "--set", "algorithm.mu=1"], "algorithm.mu: none of fedavg"),
        (["compare", "--algorithms", "fedavg", "--set", "algorithm.name=x"], "use --algorithms"),
        (["compare", "--algorithms", "fedavg", "--set", "seed=3"], "use --seeds"),
        (["compare", "--algorithms", "fedavg,fedprox", "--set", "algorithm.mu=-1"], "algorithm.mu = -1"),
        (["compare", "--algorithms", "fedavg", "--set", "local.lr"], "key=value"),
        (["list", "algorithm"], "Did you mean 'algorithms'?"),
        (["explain", "fedprx"], "Did you mean 'fedprox'?"),
    ],
)
def test_other_commands(accord: Callable[..., Any], engine: Any, arguments: list[str], said: str) -> None:
    result = accord(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert list(Path().iterdir()) == []
    assert engine.calls == []
