"""Sections, chosen factories, `--set`, and checks across keys."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import pytest

from accord.config import AlgorithmConfig, ClientsConfig, RunConfig, from_dict, load_config
from accord.config.tree import LocalConfig
from accord.errors import ConfigError
from accord.settings import settings_of


def problems(given: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        from_dict(given)
    return str(caught.value)


def test_the_defaults_are_complete() -> None:
    config = from_dict({})
    assert config.algorithm == AlgorithmConfig("fedavg", {})
    assert (config.partition.name, config.partition.clients, config.partition.options) == ("auto", 0, {})
    assert config.model.options == {"hidden": 200}  # and not `plain`, which is not marked as a setting
    assert config.data.options == {}  # `normalise` belongs to the section
    assert config.local == LocalConfig()
    assert RunConfig() == config


def test_a_chosen_factory_brings_its_settings() -> None:
    config = from_dict({"algorithm": {"name": "fedprox", "mu": 1, "parts": ["mixup"]}})
    assert config.algorithm.options == {"mu": 1.0, "warmup": None, "parts": ("mixup",), "kind": "squared"}
    assert isinstance(config.algorithm.options["mu"], float)


def test_a_setting_of_the_usual_partition_names_it() -> None:
    """`auto` may become `natural`, where a concentration would be read by nobody."""
    assert from_dict({"partition": {"alpha": 1}}).partition.name == "dirichlet"
    assert from_dict({"partition": {"name": "auto", "alpha": 1}}).partition.options == {"alpha": 1.0}
    assert load_config(sets=["partition.alpha=1"]).partition.name == "dirichlet"
    message = problems({"partition": {"name": "natural", "alpha": 1}})
    assert "partition.alpha belongs to the partition dirichlet, not to natural" in message


def test_none_is_written_as_a_word() -> None:
    section = {"name": "fedprox", "warmup": "none"}
    assert from_dict({"algorithm": section}).algorithm.options["warmup"] is None
    assert from_dict({"algorithm": {**section, "warmup": 3}}).algorithm.options["warmup"] == 3


def test_a_configuration_built_in_python_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.name = \"nope\""):
        RunConfig(algorithm=AlgorithmConfig("nope"))
    with pytest.raises(ConfigError, match=r"algorithm\.mu = -1"):
        RunConfig(algorithm=AlgorithmConfig("fedprox", {"mu": -1}))
    with pytest.raises(ConfigError, match=r"local\.lr = 0"):
        RunConfig(local=LocalConfig(lr=0))


class Wide:
    """A class can be a factory."""

    def __init__(self, setup: object, *, width: Annotated[int, "how wide"] = 3) -> None:
        self.width = width


def test_classes_and_partial_functions_are_factories() -> None:
    assert settings_of(Wide)["width"].default == 3
    assert settings_of(functools.partial(Wide, width=5))["width"].default == 5


def test_settings_carry_their_notes() -> None:
    lr = settings_of(LocalConfig)["lr"]
    assert (lr.default, str(lr.bounds), lr.allowed) == (0.05, "above 0", "a number, above 0")
    assert lr.doc


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rouns": 3}, ["rouns: unknown key", "'rounds'", "seed, rounds,"]),
        ({"lr": 3}, ["lr: unknown key", "Did you mean 'local.lr'?"]),
        ({"local": {"mu": 3}}, ["local.mu: unknown key", "epochs, steps"]),
        ({"algorithm": {"name": "fedprx"}}, ["algorithm.name", "'fedprox'", "Allowed: fedavg, fedprox"]),
        ({"algorithm": {"mu": 1}}, ["algorithm.mu: unknown key of the algorithm fedavg", "Allowed: name"]),
        ({"algorithm": {"name": "fedprox", "lr": 1}}, ["algorithm.lr", "Did you mean 'local.lr'?"]),
        ({"algorithm": {"name": "fedprox", "mu": -1}}, ["algorithm.mu = -1: must be at least 0"]),
        ({"algorithm": {"name": "fedprox", "kind": "plan"}}, ["algorithm.kind", "plain, squared", "'plain'"]),
        ({"algorithm": {"name": "fedprox", "warmup": 0}}, ["algorithm.warmup = 0: must be at least 1"]),
        ({"algorithm": {"name": 3}}, ["algorithm.name = 3: must be a string"]),
        ({"algorithm": "fedprox"}, ['algorithm = "fedprox": algorithm is a section', "algorithm.name"]),
        ({"data": {"name": "folder"}}, ["data.path is required by the dataset folder: a string"]),
        ({"partition": {"normalise": True}}, ["partition.normalise", "Did you mean 'data.normalise'?"]),
        ({"model": {"plain": 4}}, ["model.plain: unknown key of the model 2nn", "name, init, hidden"]),
        ({"local": 3}, ["local = 3: local is a section", "local.epochs"]),
    ],
)
def test_problems_name_the_key_and_what_is_allowed(given: dict[str, object], said: list[str]) -> None:
    message = problems(given)
    assert message.startswith("a problem in the configuration")
    for part in said:
        assert part in message


def test_all_problems_come_together() -> None:
    message = problems(
        {
            "rounds": 0,
            "local": {"lr": -1, "optimizer": "sdg", "epocs": 2},
            "algorithm": {"name": "fedprox", "mu": "much", "mo": 1},
            "clients": {"count": 99},
            "partition": {"clients": 20},
        }
    )
    assert message.startswith("7 problems")
    assert len(message.splitlines()) == 8


def test_a_key_that_is_wrong_by_itself_is_not_complained_about_twice() -> None:
    message = problems({"partition": {"clients": "many"}, "clients": {"count": 99}})
    assert "partition.clients" in message
    assert "clients.count" not in message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clients": {"count": 21}, "partition": {"clients": 20}}, ["clients.count = 21", "20 clients"]),
        ({"clients": {"count": 16}, "partition": {"clients": 20, "unseen": 5}}, ["clients.count = 16", "15 clients"]),
        ({"clients": {"minimum": 11}, "partition": {"clients": 20}}, ["clients.minimum = 11", "10 clients"]),
        ({"clients": {"minimum": 3, "count": 2}, "partition": {"clients": 20}}, ["clients.minimum = 3", "2 clients"]),
        ({"partition": {"clients": 20, "unseen": 20}}, ["partition.unseen = 20", "partition.clients = 20"]),
        (
            {"partition": {"test": "holdout", "holdout": 0.6, "validation": 0.4}},
            ["partition.holdout = 0.6", "partition.validation = 0.4", "below 1"],
        ),
        ({"partition": {"name": "dirichlet", "test": "natural"}}, ["partition.test", "partition.name = 'dirichlet'"]),
        ({"local": {"nesterov": True}}, ["local.nesterov", "local.momentum"]),
        ({"local": {"momentum": 0.9, "optimizer": "adam"}}, ["local.momentum = 0.9", "local.optimizer"]),
        ({"local": {"min_lr": 0.1}}, ["local.min_lr = 0.1", "local.lr = 0.05"]),
        ({"executor": "processes", "device": "cuda"}, ["executor = 'processes'", "device = 'cuda'"]),
        ({"executor": "batched", "device": "cpu"}, ["executor = 'batched'", "device = 'cpu'", "use device = 'cuda'"]),
        ({"name": "../elsewhere"}, ["name = '../elsewhere'", "folder name"]),
        ({"name": ".hidden"}, ["name = '.hidden'", "dot"]),
        ({"name": "a\nb"}, ["name = 'a\\nb'"]),
        ({"name": "é" * 101}, ["200 bytes"]),
        ({"out": " "}, ["out is empty"]),
    ],
)
def test_settings_that_do_not_fit_together(given: dict[str, object], said: list[str]) -> None:
    message = problems(given)
    for part in said:
        assert part in message


def test_settings_that_fit_together() -> None:
    from_dict({"clients": {"count": 20, "minimum": 20}})
    from_dict({"name": "Größe-α=0.1"})
    from_dict({"partition": {"validation": 0.8}})  # holdout is not used unless test asks for it
    from_dict({"partition": {"name": "natural", "test": "natural"}})
    from_dict({"local": {"nesterov": True, "momentum": 0.9}})


def test_cohort_sizes() -> None:
    assert [ClientsConfig(fraction=0.5).cohort(n) for n in (1, 2, 3, 5, 20)] == [1, 1, 2, 3, 10]
    assert ClientsConfig(fraction=0.1).cohort(30) == 3
    assert ClientsConfig(fraction=0.01).cohort(10) == 1
    assert ClientsConfig(count=7).cohort(100) == 7


def test_the_partition_follows_the_run_seed_unless_it_has_its_own() -> None:
    assert from_dict({"seed": 5}).partition_seed == 5
    assert from_dict({"seed": 5, "partition": {"seed": 0}}).partition_seed == 0


def test_sets_are_read_like_toml_and_later_ones_win() -> None:
    config = load_config(
        None,
        [
            "local.lr=0.5",
            "local.lr=1e-3",
            "algorithm.parts=[\"mixup\", 'x']",
            "algorithm.name=fedprox",
            "algorithm.mu=.25",
            "data.download=False",
            "name=2024",
            "out = my runs ",
            "targets=[0.5, 1]",
            "clients.fraction=1",
        ],
    )
    assert config.local.lr == 0.001
    assert config.algorithm.options["parts"] == ("mixup", "x")
    assert config.algorithm.options["mu"] == 0.25
    assert config.data.download is False
    assert config.name == "2024"
    assert config.out == "my runs"
    assert config.targets == (0.5, 1.0)
    assert config.clients.fraction == 1.0


def test_a_list_whose_quotes_the_shell_took() -> None:
    config = load_config(None, ["algorithm.name=fedprox", "algorithm.parts=[mixup, x]"])
    assert config.algorithm.options["parts"] == ("mixup", "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rounds", "--set 'rounds': write it as key=value"),
        ("=3", "--set '=3'"),
        ("a..b=3", "--set 'a..b=3'"),
        ("rounds.x=3", "rounds = {"),
        ("rounds=1e2", "rounds = 100.0: must be a whole number"),
        ("rounds=3\nseed = 4", "must be a whole number"),
        ("local={lr=1}", "local is a section"),
        ("local.lr=fast", 'local.lr = "fast": must be a number'),
        ("local.lr=nan", "local.lr = nan: must be a finite number"),
        ("local.lr=", "must be a number"),
        ("algorithm.name=", "algorithm.name"),
    ],
)
def test_sets_that_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [text])
    assert said in str(caught.value)


def test_another_name_forgets_the_settings_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[algorithm]\nname = "fedprox"\nmu = 0.5\n[partition]\nalpha = 0.1\nclients = 7\n')
    assert load_config(path).algorithm.options["mu"] == 0.5
    config = load_config(path, ["algorithm.name=fedavg", "partition.name=iid"])
    assert config.algorithm == AlgorithmConfig("fedavg", {})
    assert (config.partition.clients, config.partition.options) == (7, {})
    assert load_config(path, ["algorithm.name=fedprox"]).algorithm.options["mu"] == 0.5
    with pytest.raises(ConfigError, match=r"algorithm\.mu: unknown key"):
        load_config(path, ["algorithm.name=fedavg", "algorithm.mu=1"])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content, said in (
        ("no.toml", None, "no such file"),
        ("bad.toml", b"rounds = = 3", "not valid TOML"),
        ("dup.toml", b"rounds = 3\nrounds = 4", "not valid TOML"),
        ("bin.toml", b"\xff\xfe\x00", "not UTF-8"),
        ("deep.toml", b"a = " + b"[" * 20000, "not valid TOML"),
        ("long.toml", b"a = " + b"9" * 5000, "not valid TOML"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert said in str(caught.value)
        assert name in str(caught.value)
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(tmp_path)


def test_the_message_says_which_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("rounds = 0")
    with pytest.raises(ConfigError, match=r"mine\.toml:\n  rounds = 0: must be at least 1"):
        load_config(path)


def test_problems_are_quoted_in_short(tmp_path: Path) -> None:
    """A message names what is wrong; it does not repeat a file of megabytes."""
    path = tmp_path / "long.toml"
    for text in (f"{'a' * 100_000} = 1", f"{'.'.join('a' * 2000)} = 1", "\n".join(f"k{n} = 1" for n in range(5000))):
        path.write_text(text)
        with pytest.raises(ConfigError) as error:
            load_config(path)
        assert len(str(error.value)) < 20_000
    for change in ("x" * 100_000, f"{'x' * 100_000}=1", f"local.lr={'[' * 100_000}"):
        with pytest.raises(ConfigError) as error:
            load_config(None, [change])
        assert len(str(error.value)) < 2000
