"""A Flower app whose server carries out many runs, one after the other: starting one for each would take minutes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from accord.config import RunConfig, to_toml
from accord.federation.control import begin_following
from accord.federation.folder import Folder
from accord.federation.processes import last_lines
from accord.federation.supernode import write_flower_settings

APP = """
from pathlib import Path

from flwr.serverapp import ServerApp

from accord.config import load_config
from accord.flower import client_app
from accord.flower.apps import speak
from accord.flower.bounds import bound_pulls
from accord.flower.server import serve

server = ServerApp()
client = client_app()


@server.main()
def main(grid, context):
    speak()
    folder = Path(str(context.run_config["folder"]))
    for file in sorted((folder / "asked").glob("*.toml")):
        config = load_config(file)
        bound_pulls(config.federation.largest_message_mb << 20)
        serve(grid, config, folder / file.stem)
"""
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "many-runs"
version = "1.0.0"
description = "Many runs"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "accord"

[tool.flwr.app.components]
serverapp = "many_runs:server"
clientapp = "many_runs:client"

[tool.flwr.app.config]
folder = ""
"""


def begin(folder: Folder, place: Path, configs: Mapping[str, RunConfig]) -> subprocess.Popen[str]:
    """Begin runs, or go on with those that are there; whoever follows them."""
    app = place / "app"
    app.mkdir(parents=True, exist_ok=True)
    (place / "asked").mkdir(exist_ok=True)
    (app / "many_runs.py").write_text(APP)
    (app / "pyproject.toml").write_text(PROJECT)
    for name, config in configs.items():
        (place / "asked" / f"{name}.toml").write_text(to_toml(config))
    settings = write_flower_settings(place / "flower.toml", {"folder": str(place)})
    return begin_following(folder.home, app, settings, place / "server.log")


def finished(follower: subprocess.Popen[str], place: Path, seconds: float) -> None:
    """Wait for all of them."""
    with follower:
        follower.wait(seconds)
        said = follower.stdout.read() if follower.stdout else ""
    assert "finished:completed" in said, f"{said}\n{last_lines(place / 'server.log', 30)}"
