"""What a node's owner decides holds, whatever the server asks for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.errors import ConfigError, RunError
from accord.flower.apps import service_of
from accord.flower.node import NodeService
from accord.flower.owner import read_owner
from accord.flower.protocol import HELLO, JOIN, PROTOCOL, TASK
from accord.flower.roster import read_roster
from accord.flower.server import federate_nodes, invitation, serve
from accord.flower.unchanged import stamp
from accord.wire.codec import decode, encode
from support.federation import tiny_data
from support.flower import enclosed, fake_federation, header_of, small_config, write_site

DATA = tiny_data((6, 9))


def test_a_method_that_hands_samples_over_needs_the_owners_word(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r'no site takes part.*(\n.*)*allow = \["fedmeta.contribute"\]'):
        serve(fake_federation(tmp_path / "nodes", DATA), small_config("fedmeta", 2), tmp_path / "run")
    grid = fake_federation(tmp_path / "agreed", DATA, more='allow = ["fedmeta.contribute"]')
    outcome = serve(grid, small_config("fedmeta", 2, algorithm={"share": 0.4}), tmp_path / "second")
    assert outcome.summary["left_out"] == {}


def test_one_owner_who_does_not_agree_is_left_out_and_the_others_go_on(tmp_path: Path) -> None:
    data = tiny_data((6, 9, 12))
    grid = fake_federation(tmp_path / "nodes", data)
    file = tmp_path / "nodes" / "site-1" / "node.toml"
    file.write_text('refuse = ["update"]\n' + file.read_text())
    outcome = serve(grid, small_config("fedavg", 3), tmp_path / "run")
    assert outcome.summary["left_out"]["site-1"]["times"] == 3
    assert "has not agreed" in outcome.summary["left_out"]["site-1"]["why"]
    assert outcome.metrics[-1]["cohort"] == [0, 2]


def test_labels_are_not_told_where_statistics_are_refused(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA, more='refuse = ["statistic"]')
    outcome = serve(grid, small_config("fedavg", 2, rounds=1), tmp_path / "run")
    assert [row["class"] for row in outcome.sites()] == ["", ""]
    assert "class_share" not in outcome.sites()[0]


def replies(grid: Any) -> list[tuple[Any, Any]]:
    """What a node was sent and what it answered, for every training."""
    found = []
    answer = grid.nodes[100].answer

    def noting(message: Any) -> Any:
        said = answer(message)
        if message.metadata.message_type == "train.task" and header_of(message)["task"] == "train":
            down, up = (decode(enclosed(m, n)) for m, n in ((message, "shared"), (said, "reply")))
            found.append((down["model"], up["model"]))
        return said

    grid.nodes[100].answer = noting
    return found


def moved(pair: tuple[Any, Any]) -> float:
    down, up = pair
    return float(torch.sqrt(sum(((up[n] - down[n]) ** 2).sum() for n in down)))


def test_updates_are_clipped_before_they_leave(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA, more="clip = 0.01")
    found = replies(grid)
    serve(grid, small_config("fedavg", 2), tmp_path / "run")
    assert [moved(pair) for pair in found] == pytest.approx([0.01] * 3, rel=1e-3)


def test_noise_is_added_and_the_same_when_asked_again(tmp_path: Path) -> None:
    path = write_site(tmp_path, "site-0", DATA, 0, "clip = 0.01\nnoise = 1.0")
    write_site(tmp_path, "site-1", DATA, 1)
    grid = fake_federation(tmp_path / "nodes", DATA, more="clip = 0.01\nnoise = 1.0")
    found = replies(grid)
    serve(grid, small_config("fedavg", 2), tmp_path / "run")
    count = sum(t.numel() for t in found[0][0].values())
    for pair in found:
        assert moved(pair) == pytest.approx(count**0.5, rel=0.2), "a standard deviation of 1 in every number"
    assert path.exists()
    task = next(m for node, m in grid.sent if node == 100 and m.metadata.message_type == "train.task")
    first, second = (enclosed(grid.nodes[100].answer(task), "reply") for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('site = "a/b"', "site = 'a/b': it must be a name"),
        ("[data]", "site is missing"),
        ('site = "a"\nallows = []\n[data]', "unknown key 'allows'. Did you mean 'allow'?"),
        ('site = "a"\nclip = -1\n[data]', "clip = -1.0"),
        ('site = "a"\nnoise = 1\n[data]', "noise without clip"),
        ('site = "a"\nallow = "x"\n[data]', "allow = 'x' is no list"),
        ('site = "a"\nlargest_message_mb = 0\n[data]', "largest_message_mb"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(lines: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(lines if "[data]" in lines else lines + "\n[data]")
    with pytest.raises(ConfigError) as error:
        read_owner(tmp_path / "node.toml")
    assert why in str(error.value)


@pytest.fixture
def joined(tmp_path: Path) -> tuple[NodeService, dict[str, Any], dict[str, Any], bytes]:
    """A node, the invitation's header it was sent, a task's, and the initial model."""
    grid = fake_federation(tmp_path / "nodes", DATA)
    config = small_config("fedavg", 2, rounds=1)
    serve(grid, config, tmp_path / "run")
    roster = read_roster(tmp_path / "run")
    federation = federate_nodes(config, roster)
    told = invitation(federation, federation.data, False)  # type: ignore[arg-type]
    letter = told.letter(roster.run, 0, federation.key)
    task = next(header_of(m) for node, m in grid.sent if node == 100 and m.metadata.message_type == "train.task")
    service = NodeService(read_owner(tmp_path / "nodes" / "site-0" / "node.toml"))
    return service, dict(letter.header), task, letter.enclosures["initial"]


def test_a_server_sets_nothing_but_the_method(joined: Any) -> None:
    service, asked, _, initial = joined
    for name, value in (
        ("data", {"name": "table", "path": "/etc/passwd", "label": "x"}),
        ("device", "cuda"),
        ("out", "/tmp"),
    ):
        header = asked | {"settings": {**asked["settings"], name: value}}
        said = service.answer(JOIN, json.dumps(header), {"initial": initial}).header
        assert said["status"] == "refused"
        assert f"the server sets {name}, which it may not" in said["why"]
    header = asked | {"settings": {**asked["settings"], "algorithm": {"name": "os.system"}}}
    assert "unknown algorithm" in service.answer(JOIN, json.dumps(header), {"initial": initial}).header["why"]


@pytest.mark.parametrize(
    "change", [{"shape": [2, 8, 8]}, {"classes": ["0"]}, {"problem": "regression"}, {"clients": 0}]
)
def test_facts_that_do_not_fit_the_site_are_refused(change: dict[str, Any], joined: Any) -> None:
    service, asked, _, initial = joined
    header = asked | {"facts": {**asked["facts"], **change}}
    assert service.answer(JOIN, json.dumps(header), {"initial": initial}).header["status"] == "refused"


def trees(initial: bytes) -> Any:
    return decode(initial)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"task": "contribute"}, "fedavg has no task 'contribute'"),
        ({"client": 1}, "another configuration or client"),
        ({"hash": "0" * 64}, "another configuration or client"),
        ({"base": [[7, 0], "0" * 64]}, "version 7.0 is not here"),
    ],
)
def test_a_task_that_does_not_fit_is_answered_with_the_reason(change: dict[str, Any], why: str, joined: Any) -> None:
    service, _, task, initial = joined
    said = service.answer(TASK, json.dumps(task | change), {"shared": initial}).header
    assert said["status"] in ("failed", "lost")
    assert why in said["why"]


def test_a_message_of_another_form_is_not_used(joined: Any) -> None:
    service, _, task, initial = joined
    good = service.answer(TASK, json.dumps(task), {"shared": initial})
    assert good.header["status"] == "done"
    values = trees(initial)
    name = next(iter(values["model"]))
    for wrong in (
        {**values, "model": {**values["model"], name: torch.zeros(7)}},
        {**values, "model": {**values["model"], "more": torch.zeros(3)}},
        {**values, "more": {"x": torch.zeros(3)}},
        {**values, "model": {**values["model"], name: values["model"][name] * float("nan")}},
    ):
        said = service.answer(TASK, json.dumps(task), {"shared": encode(wrong)}).header
        assert said["status"] == "failed", wrong


def test_an_unknown_run_and_another_protocol_are_said(joined: Any) -> None:
    service, _, task, initial = joined
    said = service.answer(TASK, json.dumps(task | {"run": "f" * 32}), {"shared": initial}).header
    assert said["status"] == "unknown"
    from accord.errors import DataError

    with pytest.raises(DataError, match="speaks version 2"):
        service.answer(HELLO, json.dumps({"protocol": PROTOCOL + 1, "run": "0" * 32}), {})
    with pytest.raises(DataError, match="run is"):
        service.answer(HELLO, json.dumps({"protocol": PROTOCOL, "run": "../../etc"}), {})


def test_a_process_that_stays_hears_of_a_changed_mind_and_of_changed_data(tmp_path: Path) -> None:
    """What it keeps between two messages is what a new process would read."""
    file = write_site(tmp_path, "lyon", DATA, 0)
    first = service_of(str(file))
    assert service_of(str(file)) is first
    assert first.facts.samples == 6
    file.write_text('refuse = ["statistic"]\n' + file.read_text())
    second = service_of(str(file))
    assert "statistic" in second.owner.refuse
    write_site(tmp_path / "other", "lyon", DATA, 1)
    os.replace(tmp_path / "other" / "lyon" / "data.npz", file.parent / "data.npz")
    assert service_of(str(file)).facts.samples == 9


def test_images_in_a_folder_are_looked_at_one_by_one(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(b"x")
    before = stamp([tmp_path / "images", tmp_path / "none"])
    assert [Path(entry[0]).name for entry in before] == ["1.png", "2.png", "none"]
    assert before[2][1:] == (0, 0, 0)
    assert stamp([tmp_path / "images", tmp_path / "none"]) == before
    (tmp_path / "images" / "b" / "2.png").write_bytes(b"xy")
    assert stamp([tmp_path / "images", tmp_path / "none"]) != before


def test_networks_of_few_runs_are_kept_in_memory(tmp_path: Path) -> None:
    grid = fake_federation(tmp_path / "nodes", DATA)
    for number in range(3):
        serve(grid, small_config("fedavg", 2, rounds=1), tmp_path / f"run-{number}")
    service = service_of(str(tmp_path / "nodes" / "site-0" / "node.toml"))
    runs = [read_roster(tmp_path / f"run-{number}").run for number in range(3)]
    assert list(service._members) == runs[1:]
    assert service._known(runs[0]) is not None, "it is built again from the disk"
    assert list(service._members) == [runs[2], runs[0]]
