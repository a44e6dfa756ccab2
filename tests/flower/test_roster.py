"""Who belongs to a run: names, not numbers; those that were there at the start, and those that were named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from accord.errors import CheckpointError, ConfigError, DataError
from accord.flower.facts import SiteFacts, outline
from accord.flower.node import SECTIONS
from accord.flower.roster import read_roster
from accord.flower.server import check_config, serve
from support.federation import tiny_data
from support.flower import FakeNode, fake_federation, header_of, newest, small_config, write_site

DATA = tiny_data((6, 9, 12))


def test_sites_are_numbered_by_name_and_keep_their_numbers(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA, ["lyon", "basel", "turin"])
    serve(grid, small_config("fedavg", 3, rounds=1), tmp_path / "run")
    roster = read_roster(tmp_path / "run")
    assert [entry.site for entry in roster.entries] == ["basel", "lyon", "turin"]
    assert roster.sizes(0).tolist() == [9, 6, 12]
    grid.nodes = {500 + k: node for k, node in enumerate(grid.nodes.values())}  # all come back under other numbers
    config = small_config("fedavg", 3, rounds=1)
    assert serve(grid, config, tmp_path / "run").summary["client_names"] == ["basel", "lyon", "turin"]


def test_what_nodes_are_told_is_their_own(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    serve(grid, small_config("scaffold", 3, rounds=1, seed=12345), tmp_path / "run")
    joins = {node: header_of(m) for node, m in grid.sent if m.metadata.message_type == "query.join"}
    assert len({join["key"] for join in joins.values()}) == 3
    for said in joins.values():
        text = json.dumps(said)
        assert "12345" not in text, "the seed never travels"
        assert set(said["settings"]) == set(SECTIONS)
        assert "sizes" not in said["facts"], "nor how many samples others have"


def test_a_site_that_was_named_takes_part_from_when_it_comes(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    late = grid.nodes.pop(102)

    def meddle(node: int, asked: Message, said: Message) -> Message:
        if asked.metadata.group_id == "2":
            grid.nodes[102] = late
        return said

    grid.meddle = meddle
    section = {"nodes": 2, "sites": ["site-0", "site-1", "site-2"], "gather": 5.0}
    outcome = serve(grid, small_config("scaffold", 2, rounds=5, federation=section), tmp_path / "run")
    cohorts = [record["cohort"] for record in outcome.metrics]
    assert cohorts[0] == [0, 1]
    assert cohorts[-1] == [0, 1, 2]
    roster = read_roster(tmp_path / "run")
    since = roster.entries[2].since
    assert cohorts == [[0, 1]] * since + [[0, 1, 2]] * (5 - since)
    assert [row["samples"] for row in outcome.sites()] == [6, 9, 12]


def test_strangers_and_forged_names_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    forger = FakeNode(write_site(tmp_path / "forger", "site-1", DATA, 1))
    stranger = FakeNode(write_site(tmp_path / "stranger", "madrid", DATA, 1))

    def meddle(node: int, asked: Message, said: Message) -> Message:
        grid.nodes |= {666: forger, 777: stranger}  # they come when the run has begun
        return said

    grid.meddle = meddle
    outcome = serve(grid, small_config("fedavg", 3), tmp_path / "run")
    assert outcome.summary["left_out"] == {}
    said = "\n".join(caplog.messages)
    assert "node 666 is not let in: it calls itself 'site-1', but is not the node that came by this name first" in said
    assert "node 777 is not let in: 'madrid' is not on the roster" in said
    told = {node for node, m in grid.sent if node in (666, 777)}
    kinds = {m.metadata.message_type for node, m in grid.sent if node in told}
    assert kinds == {"query.hello"}, "they are told nothing of the run"


def test_a_name_belongs_to_its_key_where_keys_are_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    grid = fake_federation(tmp_path / "nodes", DATA)
    (tmp_path / "keys").mkdir()
    for number, node in grid.nodes.items():
        public = ec.generate_private_key(ec.SECP384R1()).public_key()
        node.key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        said = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (tmp_path / "keys" / f"site-{number - 100}.pub").write_bytes(said)
    forger = FakeNode(write_site(tmp_path / "forger", "site-1", DATA, 1))
    forger.key = grid.nodes[102].key  # let in, as another site
    grid.nodes = {99: forger, **grid.nodes}  # and the first to say hello
    config = small_config("fedavg", 3, rounds=1, federation={"keys": str(tmp_path / "keys")})
    outcome = serve(grid, config, tmp_path / "run")
    assert outcome.metrics[-1]["cohort"] == [0, 1, 2]
    assert "node 99 is not let in: it calls itself 'site-1', and its key is not that site's" in caplog.text
    (tmp_path / "keys" / "site-2.pub").write_text("nonsense")
    with pytest.raises(ConfigError, match="holds no public key"):
        serve(grid, config, tmp_path / "second")
    with pytest.raises(ConfigError, match="no such folder"):
        serve(grid, small_config("fedavg", 3, federation={"keys": "nowhere"}), tmp_path / "third")


def test_other_data_than_the_others_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    other = tiny_data((6,), classes=5)
    grid.nodes[103] = FakeNode(write_site(tmp_path / "odd", "odd", other, 0))
    outcome = serve(grid, small_config("fedavg", 3, rounds=1), tmp_path / "run")
    assert outcome.summary["client_names"] == ["site-0", "site-1", "site-2"]
    assert any("all sites must prepare their data alike" in line for line in caplog.messages)


def test_a_damaged_roster_and_other_settings_are_not_gone_on_with(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    serve(grid, small_config("fedavg", 3, rounds=1), tmp_path / "run")
    with pytest.raises(ConfigError, match="other settings"):
        serve(grid, small_config("fedavg", 3, rounds=2), tmp_path / "run")
    (tmp_path / "run" / "federation.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not known which sites"):
        serve(grid, small_config("fedavg", 3, rounds=1), tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"transform": {"name": "rotate"}}, "transform.name"),
        ({"attack": {"name": "scaled"}}, "attack.name"),
        ({"clients": {"drop_rate": 0.5}}, "clients.drop_rate"),
        ({"local": {"class_weights": "balanced"}}, "local.class_weights"),
        ({"checkpoint": {"every": 0}}, "checkpoint.every"),
        ({"pace": {"step": 1.0}}, "pace"),
        ({"evaluate": {"split": "validation"}, "partition": {"validation": 0.2}}, "evaluate.split"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_at_the_start(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why} is not for a real federation"):
        check_config(small_config("fedavg", 2, **more))


def test_measures_that_need_the_samples_are_refused_where_they_are_asked_for(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    with pytest.raises(ConfigError, match=r"evaluate\.confusion needs all test samples in one place"):
        serve(grid, small_config("fedavg", 3, evaluate={"confusion": True}), tmp_path / "run")


def test_pooling_is_no_federation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gathers all data in one place"):
        serve(fake_federation(tmp_path / "nodes", DATA), small_config("centralized", 3), tmp_path / "run")


def test_the_table_of_sites_is_a_simulations(tmp_path: Path) -> None:
    outcome = serve(
        fake_federation(tmp_path / "nodes", DATA), small_config("ditto", 3, evaluate={"drift": True}), tmp_path / "run"
    )
    rows = outcome.sites()
    assert [row["site"] for row in rows] == ["site-0", "site-1", "site-2"]
    assert {"accuracy", "personal_accuracy", "personal_accuracy_before", "class", "class_share"} <= rows[0].keys()
    for k, row in enumerate(rows):
        y = DATA.client(k)[1]
        assert row["class_share"] == pytest.approx(float((y == int(row["class"])).float().mean()))
    x, y = DATA.test_pool.x, DATA.test_pool.y
    assert outcome.model is not None
    right = outcome.model(x).argmax(1) == y
    assert outcome.summary["accuracy"] == pytest.approx(float(right.float().mean()))
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "Trained in a federation" in card
    assert "they stay at their sites" in card
    assert newest(tmp_path / "run").round == 3


def test_facts_are_read_strictly() -> None:
    said = {
        "samples": 3,
        "test_samples": 1,
        "x": {"dtype": "float32", "shape": [4]},
        "y": {"dtype": "int64", "shape": []},
        "problem": "classification",
        "classes": ["a", "b"],
        "vocabulary": 0,
        "fields": None,
        "inputs": {"kind": "array", "shape": [4], "mean": [], "std": [], "columns": []},
        "labels": {"class": "a", "class_share": 0.5},
        "data": "own",
    }
    facts = SiteFacts.from_json(said, "it")
    assert facts.to_json() == said
    for name, wrong in (
        ("samples", -1),
        ("samples", 1 << 60),
        ("x", {"dtype": "object", "shape": [4]}),
        ("x", {"dtype": "float32", "shape": []}),
        ("problem", "nothing"),
        ("classes", []),
        ("labels", {"rows": [1, 2]}),
        ("fields", [{"name": "a b", "shape": [1], "vocabulary": 0}]),
        ("inputs", {}),
    ):
        with pytest.raises(DataError):
            SiteFacts.from_json(said | {name: wrong}, "it")
    whole = outline({"one": facts, "two": replace(facts, samples=1 << 31)})
    assert whole.sizes.tolist() == [3, 1 << 31], "and no memory is taken for what is elsewhere"
    x, y = whole.client(0)
    assert x.shape == (3, 4)
    assert set(y.tolist()) <= {0, 1}
