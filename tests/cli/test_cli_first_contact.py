"""The commands of somebody who has just arrived: settings, list, doctor, help and completion."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from accord.cli import doctor
from accord.cli.doctor import EXTRAS
from accord.config import RunConfig, load_config
from accord.errors import RunError


def lines(result: Any) -> list[str]:
    assert result.exit_code == 0, result.output
    found: list[str] = result.stdout.splitlines()
    return found


def test_every_setting_is_a_line(accord: Callable[..., Any]) -> None:
    found = lines(accord("settings"))
    assert "local.lr = 0.05  learning rate in the first round" in found
    assert 'algorithm.name = "fedavg"  the federated method; `accord list algorithms`' in found
    assert any(line.startswith("algorithm.mu = 0.01 [fedprox") for line in found)
    assert any(line.startswith("evaluate.drift = false") for line in found)
    assert any(line.startswith("rounds = 20") for line in found)
    known = json.loads(accord("settings", "--json").stdout)
    assert len(known) == len(found)
    for entry in known:
        assert entry["doc"], entry
        assert entry["allowed"], entry
        if not entry["names"] and entry["default"] not in (None, ""):
            load_config(sets=[f"{entry['key']}={json.dumps(entry['default'])}"])


def test_settings_are_found_by_key_name_and_meaning(accord: Callable[..., Any]) -> None:
    assert [line.split()[0] for line in lines(accord("settings", "local.*lr"))] == ["local.lr", "local.min_lr"]
    assert all("[ditto]" in line for line in lines(accord("settings", "ditto")))
    assert [line.split()[0] for line in lines(accord("settings", "nesterov"))] == ["local.nesterov"]
    assert any(line.startswith("local.clip") for line in lines(accord("settings", "norm")))
    (long,) = lines(accord("settings", "local.momentum", "--long"))
    assert long == "local.momentum = 0.0: momentum of sgd (a number, at least 0 and below 1)"
    (executor,) = lines(accord("settings", "executor", "--long"))[:1]
    assert "one of auto, sequential" in executor
    nothing = accord("settings", "xyzzy")
    assert nothing.exit_code == 2
    assert "no setting has 'xyzzy'" in nothing.stderr


def test_list_is_one_line_each_unless_it_is_long(accord: Callable[..., Any]) -> None:
    short = lines(accord("list", "partitions"))
    assert len(short) == len(json.loads(accord("list", "partitions", "--json").stdout))
    assert any(line.startswith("iid ") and "A random split" in line for line in short)
    assert "alpha = 0.5" not in "\n".join(short)
    assert "alpha = 0.5" in accord("list", "partitions", "--long").stdout
    everything = lines(accord("list"))
    assert "algorithms" in everything
    assert any(line.startswith("  fedavg ") for line in everything)


@pytest.mark.parametrize("command", ["list", "list algorithms", "settings", "settings --long", "describe", "list -l"])
def test_sixty_columns_are_enough(accord: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, lines(accord(*command.split())))) <= 60


def test_run_help_says_where_settings_are(accord: Callable[..., Any]) -> None:
    said = " ".join(accord("run", "--help").stdout.split())
    assert "`accord settings` prints every KEY" in said
    assert "--install-completion" in accord("--help").stdout


def test_the_doctor_names_extras_devices_data_and_trains(accord: Callable[..., Any]) -> None:
    result = accord("doctor")
    found = lines(result)
    text = result.stdout
    for extra, (_, purpose) in EXTRAS.items():
        (line,) = (line for line in found if line.startswith(f"  {extra} "))
        assert purpose in line
        assert "missing (pip install" in line or any(letter.isdigit() for letter in line)
    assert "executor sequential: ready" in text
    assert "mnist5k: with the package" in text
    assert found[-1] == "  fine"


def test_every_extra_of_the_package_is_known_to_the_doctor() -> None:
    tomllib = importlib.import_module("tomllib" if importlib.util.find_spec("tomllib") else "tomli")
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"all", "dev"}


def test_a_machine_that_cannot_train_gets_exit_code_one(
    accord: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "self_test", lambda: "the disk is full")
    result = accord("doctor")
    assert result.exit_code == 1
    assert "failed: the disk is full" in result.stderr
    assert accord("doctor", "--no-test").exit_code == 0

    def broken(config: RunConfig) -> None:
        raise RunError("no memory")

    monkeypatch.undo()
    monkeypatch.setattr("accord.engine.run.run", broken)
    assert doctor.self_test() == "no memory"
