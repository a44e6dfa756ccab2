"""list, explain, describe, version."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord._version import __version__
from accord.algorithms.fedmeta import HandOver
from accord.cli.catalogue import KINDS
from accord.config import RunConfig, catalog, from_dict, to_toml
from accord.config.cards import SECTIONS
from accord.settings import is_section, settings_of


def chosen(kind: str, name: str) -> dict[str, Any]:
    """A configuration that chooses it."""
    if kind in SECTIONS:
        return {{"dataset": "data", "protection": "privacy"}.get(kind, kind): {"name": name}}
    if kind == "measure":
        setting = catalog.registry(kind)[name].setting
        return {} if setting is None else {"evaluate": {setting.name: setting.default}}
    for key, setting in settings_of(RunConfig).items():
        if setting.named is not None and setting.named.kind == kind:
            return {key: name}
        for inner, below in settings_of(setting.type).items() if is_section(setting.type) else ():
            if below.named is not None and below.named.kind == kind:
                return {key: {inner: name}}
    raise AssertionError(f"no setting chooses a {kind}")


@pytest.mark.parametrize("kind", list(KINDS))
def test_everything_that_is_registered_can_be_listed_and_configured(
    accord: Callable[..., Any], kind: str, tmp_path: Path
) -> None:
    from accord.config import load_config

    table = accord("list", kind)
    assert table.exit_code == 0, table.output
    entries = json.loads(accord("list", kind, "--json").stdout)
    assert [e["name"] for e in entries] == list(catalog.registry(KINDS[kind]))
    for found in entries:
        assert found["summary"], found["name"]
        assert all(s["doc"] and s["allowed"] for s in found["settings"]), found["name"]
        assert found["name"] in table.stdout
        given = chosen(KINDS[kind], found["name"])
        if not any(s["required"] for s in found["settings"]):
            path = tmp_path / "it.toml"
            path.write_text(to_toml(from_dict(given)))
            assert load_config(path) == from_dict(given)


def test_list_of_all_kinds(accord: Callable[..., Any]) -> None:
    assert list(json.loads(accord("list", "--json").stdout)) == list(KINDS)
    assert "fedprox" in accord("list").stdout


def test_a_listed_setting(accord: Callable[..., Any]) -> None:
    entries = {e["name"]: e for e in json.loads(accord("list", "algorithms", "--json").stdout)}
    (mu,) = (s for s in entries["fedprox"]["settings"] if s["name"] == "mu")
    assert mu == {
        "name": "mu",
        "default": 0.01,
        "required": False,
        "allowed": "a number, at least 0",
        "doc": mu["doc"],
        "search": {"low": 0.001, "high": 1.0, "log": True, "choices": []},
    }


def test_explain_prints_the_card_and_the_settings(accord: Callable[..., Any]) -> None:
    result = accord("explain", "fedprox")
    assert result.exit_code == 0
    card = importlib.import_module("accord.algorithms.fedprox").__doc__
    assert str(card).strip() in result.stdout
    assert "algorithm.mu = 0.01: " in result.stdout
    assert "(a number, at least 0)" in result.stdout
    assert "partition.alpha = 0.5" in accord("explain", "dirichlet").stdout
    assert "It has no settings of its own." in accord("explain", "sequential").stdout


def test_explain_says_what_leaves_a_client_and_whether_sums_would_do(accord: Callable[..., Any]) -> None:
    small = ("--set", "data.limit=200", "--set", "partition.clients=4", "--set", "rounds=2")
    said = accord("explain", "fedmeta", *small).stdout
    assert re.search(r"once +│ contribute │ up +│ meta +│ sample", said)
    assert "No secure aggregation: the server trains on the samples each client gave." in said
    assert "Secure aggregation would do" in accord("explain", "fedavg", *small).stdout


def test_explain_says_so_where_a_tree_is_not_declared(
    accord: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HandOver, "discloses", lambda self: {})
    said = accord("explain", "fedmeta", "--set", "data.limit=200", "--set", "partition.clients=4").stdout
    assert "sample (not declared)" in said


def test_describe_shows_who_holds_what(accord: Callable[..., Any]) -> None:
    arguments = ("describe", "--set", "partition.name=iid", "--set", "partition.clients=4", "--png", "p.png")
    result = accord(*arguments)
    assert result.exit_code == 0, result.output
    assert "mnist5k, partition iid" in result.stdout
    # 4,000 training samples dealt evenly to 4 clients
    assert "4 clients, 0 of them unseen; 4000 training samples" in result.stdout
    assert "smallest client 1000, median 1000, largest 1000" in result.stdout
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_version(accord: Callable[..., Any]) -> None:
    result = accord("version")
    assert result.stdout.splitlines()[0] == f"accord {__version__}"
    assert "torch " in result.stdout
