"""What lies in a federation's folder, and what of it is refused."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from accord.config import load_config
from accord.config.load import read_toml
from accord.engine.build import build_data
from accord.errors import ConfigError, DataError, RunError
from accord.federation import superlink
from accord.federation.certificates import make_node_key
from accord.federation.expelling import expel
from accord.federation.folder import Folder, State, alone, read_state, write_state
from accord.federation.node_file import agreement, read_node
from accord.federation.processes import Process, began
from accord.federation.sites import add_site, admit, deal, make_server, tables
from accord.federation.superlink import answers, check, check_port, free_port


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Three sites with the digits that come with Accord."""
    folder = Folder(tmp_path_factory.mktemp("federation") / "made")
    make_server(folder)
    for site, data in deal(folder, build_data(load_config(sets=["partition.clients=3"])), "thus").items():
        add_site(folder, site, data, "127.0.0.1:9092")
    return folder


def test_each_site_has_its_own_samples_and_no_others(made: Folder) -> None:
    data = build_data(load_config(sets=["partition.clients=3"]))
    assert list(made.sites) == ["site-0", "site-1", "site-2"]
    for client, place in enumerate(made.sites.values()):
        x, y = data.client(client)
        test_x, test_y = data.client(client, "test")
        with np.load(place / "data.npz") as kept:
            for name, tensor in (("x", x), ("y", y), ("test_x", test_x), ("test_y", test_y)):
                np.testing.assert_array_equal(kept[name], tensor.numpy())
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert stat.S_IMODE((place / "data.npz").stat().st_mode) == 0o600
        assert (place / "ca.pem").read_bytes() == made.certificates.authority.read_bytes()
        assert (made.admitted / f"{place.name}.pub").read_bytes() == (place / "node.key.pub").read_bytes()


def test_a_nodes_file_is_read_back(made: Folder) -> None:
    node = read_node(made.sites["site-1"] / "node.toml")
    assert node.owner.site == "site-1"
    assert node.connection.server == "127.0.0.1:9092"
    assert node.connection.key == made.sites["site-1"] / "node.key"
    said = "\n".join(agreement(node))
    samples = len(build_data(load_config(sets=["partition.clients=3"])).train[1])
    assert f"site-1: {samples} training and" in said
    assert "may ask for: score, statistic, update; by name: nothing" in said


def test_what_is_there_stays(made: Folder) -> None:
    before = {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()}
    make_server(made)
    add_site(made, "site-1", {"path": "data.npz", "called": "mnist5k"}, "127.0.0.1:1")
    assert before == {path: path.read_bytes() for path in made.path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="was divided in another way: use another folder"):
        deal(made, build_data(load_config(sets=["partition.clients=2"])), "otherwise")
    with pytest.raises(ConfigError, match=r"node\.toml has other data: edit that file"):
        add_site(made, "site-1", {"path": "other.npz"}, "127.0.0.1:1")


def test_one_that_was_killed_half_way_is_completed(made: Folder, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "half")
    make_server(folder)
    make_node_key(folder.site("lyon") / "node.key")
    key = (folder.site("lyon") / "node.key").read_bytes()
    assert folder.sites == {}
    add_site(folder, "lyon", {"path": "x.npz"}, "127.0.0.1:1")
    assert list(folder.sites) == ["lyon"]
    assert (folder.site("lyon") / "node.key").read_bytes() == key


@pytest.mark.parametrize("name", ["", "..", "a/b", "-x", "x" * 65, "two words", "é\n"])
def test_names_that_are_no_files_are_refused(made: Folder, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a site"):
        add_site(made, name, {}, "127.0.0.1:1")


def test_another_key_under_a_name_that_is_taken_is_refused(made: Folder, tmp_path: Path) -> None:
    public = make_node_key(tmp_path / "node.key")
    with pytest.raises(ConfigError, match="holds another key of site-0"):
        admit(made, "site-0", public)
    admit(made, "site-0", made.sites["site-0"] / "node.key.pub")
    admit(made, "new", public)
    assert (made.admitted / "new.pub").is_file()
    (made.admitted / "new.pub").unlink()


def write_tables(folder: Path) -> dict[str, dict[str, object]]:
    rng = np.random.default_rng(0)
    said: dict[str, dict[str, object]] = {}
    for place, site in enumerate(("aix", "pau")):
        ill = rng.random(20) > 0.5
        frame = pd.DataFrame({"age": 40 + 20 * place + ill, "outcome": np.where(ill, "ill", "well")})
        frame.to_csv(folder / f"{site}.csv", index=False)
        said[site] = {"path": str(folder / f"{site}.csv"), "label": "outcome"}
    return said


def test_tables_get_one_schema(tmp_path: Path) -> None:
    folder, said = Folder(tmp_path / "f"), write_tables(tmp_path)
    make_server(folder)
    for site, data in tables(folder, said).items():
        add_site(folder, site, data, "127.0.0.1:1")
    assert read_toml(folder.site("pau") / "node.toml")["data"] == {**said["pau"], "schema": "schema.json"}
    told = [agreement(read_node(place / "node.toml")) for place in folder.sites.values()]
    assert all("16 training and 4 test samples" in lines[0] for lines in told)
    (folder.site("pau") / "schema.json").unlink()
    assert tables(folder, said)["pau"]["schema"] == "schema.json"
    assert (folder.site("pau") / "schema.json").read_bytes() == (folder.path / "schema.json").read_bytes()


def test_a_wrong_label_is_said_with_its_site(tmp_path: Path) -> None:
    folder, said = Folder(tmp_path / "f"), write_tables(tmp_path)
    make_server(folder)
    said["pau"]["label"] = "outcom"
    with pytest.raises(DataError, match=r"pau, .*pau\.csv: there is no label column 'outcom'.*Did you mean 'outcome'"):
        tables(folder, said)


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        ('server = "127.0.0.1:9092"', 'server = "127.0.0.1"', r"must be host:port, as fl\.example\.org:9092"),
        ('server = "127.0.0.1:9092"', "server = 9092", r"connection\.server must be a text"),
        ('ca = "ca.pem"', "", r"\[connection\] must have exactly server \(host:port\), ca "),
        ('ca = "ca.pem"', 'ca = "other.pem"', "cannot read the certificate"),
        ('key = "node.key"', 'key = "other.key"', "cannot read the node's key"),
        ('folder = "memory"', "foldr = 1", "unknown key 'foldr'. Did you mean 'folder'"),
        ("[data]", "[dta]", "unknown key 'dta'"),
    ],
)
def test_wrong_files_of_nodes_are_refused(made: Folder, line: str, wrong: str, message: str) -> None:
    file = made.sites["site-2"] / "node.toml"
    right = file.read_text()
    assert line in right
    try:
        file.write_text(right.replace(line, wrong))
        with pytest.raises(ConfigError, match=message):
            read_node(file)
    finally:
        file.write_text(right)


def test_the_state_survives_as_it_was(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert read_state(folder) is None
    state = State(port=1234, processes=(Process("superlink", "ab" * 16, 99999999, "then"),))
    write_state(folder, state)
    assert read_state(folder) == state
    assert not state.running("superlink")
    newer = state.with_process(Process("superlink", "cd" * 16))
    assert [process.mark for process in newer.processes] == ["cd" * 16]
    for damage in ("", "{}", json.dumps({"format": 1, "host": "x", "port": "y", "processes": []})):
        (tmp_path / "federation.json").write_text(damage)
        with pytest.raises(RunError, match="cannot be read"):
            read_state(folder)
    (tmp_path / "federation.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(ConfigError, match="another version of Accord"):
        read_state(folder)


def test_two_commands_at_once_are_one_too_many(tmp_path: Path) -> None:
    import subprocess
    import sys

    from accord.federation.surroundings import surroundings

    code = (
        "import sys; from pathlib import Path; from accord.federation.folder import Folder, alone\n"
        f"with alone(Folder(Path({str(tmp_path)!r}))): pass"
    )
    words = [sys.executable, "-c", code]
    with alone(Folder(tmp_path)):
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=surroundings(tmp_path))
    assert "another command starts or ends processes" in done.stderr
    assert subprocess.run(words, check=False, env=surroundings(tmp_path)).returncode == 0


def test_a_port_that_is_taken_is_said(made: Folder) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of .* cannot be used .*choose another with --port"):
            check_port("127.0.0.1", port)
        with pytest.raises(ConfigError, match="choose another with --port"):
            check(made, State(port=port))
        assert not answers(State(port=port), made.certificates.authority)
    check(made, State(port=free_port()))


def test_a_state_knows_how_it_is_reached() -> None:
    assert State(port=5).address == "127.0.0.1:5"
    assert State("0.0.0.0", 5).address == "127.0.0.1:5"
    assert State("192.168.1.5", 5).address == "192.168.1.5:5"
    assert State("::", 5).address == "[::1]:5"


def test_a_site_that_is_shut_out_stays_out(made: Folder, tmp_path: Path) -> None:
    """The server does not run: it will hear of it. The key is never taken again; another one is."""
    made = Folder(shutil.copytree(made.path, tmp_path / "copy"))
    name, other = list(made.sites)[:2]
    key = made.site(name) / "node.key.pub"
    assert not expel(made, name)
    assert name not in made.sites
    assert other in made.sites
    assert [path.read_bytes() for path in made.expelled.iterdir()] == [key.read_bytes()]
    assert not (made.admitted / f"{name}.pub").exists()
    with pytest.raises(ConfigError, match=f"no site '{name}' was let in .*; let in: {other}"):
        expel(made, name)
    for site in (name, "another"):
        with pytest.raises(ConfigError, match="was shut out, and stays so"):
            admit(made, site, key)
    admit(made, name, make_node_key(tmp_path / "new.key"))
    assert name in made.sites


def test_a_superlink_hears_of_keys_that_were_shut_out_meanwhile(
    made: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Folder(shutil.copytree(made.path, tmp_path / "copy"))
    asked: list[tuple[str, list[str]]] = []
    for what in ("register", "unregister"):
        monkeypatch.setattr(
            superlink, what, lambda home, keys, what=what: asked.append((what, [key.name for key in keys]))
        )
    name = next(iter(made.sites))
    expel(made, name)
    here = Process("superlink", "mark", os.getpid(), began(os.getpid()) or "")
    monkeypatch.setattr(superlink, "answers", lambda *given: True)
    superlink.await_ready(made, State(), here)
    (registered, names), (unregistered, out) = asked
    assert (registered, unregistered) == ("register", "unregister")
    assert f"{name}.pub" not in names
    assert [word.split(".")[0] for word in out] == [name]
