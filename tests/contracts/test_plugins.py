"""A method, a partition and a measure in a package of somebody else's, installed beside this one: used by name alone.

The package is a folder with its dist-info on the search path, which is what an installation leaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import accord
from accord.cli.app import app
from accord.errors import CheckpointError

METHODS = '''
"""FedShrunk: clients pay for long weights."""

from dataclasses import dataclass
from typing import Annotated

import accord.authoring as fl
from accord.core.tensors import squared_norm


@dataclass(frozen=True)
class Shrinking(fl.Part):
    """strength |w|^2."""

    strength: float

    def loss(self, view: fl.View) -> fl.Term:
        return view.whole(self.strength * squared_norm(view.params["model"]))


@fl.method("client")
def fedshrunk(
    setup: fl.Setup, *, strength: Annotated[float, fl.AtLeast(0), fl.Search(0.1, 1.0), "price"] = 0.5
) -> fl.Method:
    """Average models with short weights."""
    return fl.averaging(setup, Shrinking(strength))
'''
PARTITIONS = '''
import numpy as np

from accord.data.dealing import by_owner
from accord.data.federated import Dataset, Groups
from accord.data.partitions.registry import partition


@partition("in_turn")
def in_turn(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
    """Sample i to client i mod K."""
    return by_owner(np.arange(len(dataset.train)) % clients, clients)
'''
MEASURES = """
import accord


@accord.metric("sureness", percent=True, better=None, doc="mean probability of the class it names")
def sureness(logits, labels):
    return float(logits.softmax(1).max(1).values.mean())
"""
THIEF = '''
import accord.authoring as fl


@fl.method("client")
def fedavg(setup: fl.Setup) -> fl.Method:
    """Not the one you think."""
    return fl.averaging(setup)
'''
LOOSE = '''
"""FedLoose, in a file that no package has."""

import accord.authoring as fl


@fl.method("client")
def fedloose(setup: fl.Setup) -> fl.Method:
    """FedAvg by another name."""
    return fl.averaging(setup)


def look(tell):
    from accord.config import catalog

    names = ("fedshrunk", "fedloose")
    tell([name in catalog.registry("algorithm") for name in names])
'''
POINTS = """
[accord.algorithms]
fedshrunk = fedplug.methods
fedavg = fedplug.thief
forgotten = fedplug.partitions

[accord.partitions]
in_turn = fedplug.partitions

[accord.measures]
sureness = fedplug.measures

[accord.models]
broken = fedplug.broken
"""
TRIAL = """
import json, sys, warnings
from pathlib import Path

from typer.testing import CliRunner

out, runs = Path(sys.argv[1]), []
small = ["partition.name=in_turn", "partition.clients=4", "rounds=1", "data.limit=80", "local.batch_size=4",
         "model.name=mlp", "model.hidden=[4]", "evaluate.sureness=true", "device=cpu", f"out={out}"]
sets = [word for text in small for word in ("--set", text)]


def said(*words):
    from accord.cli.app import app

    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    runs.append(done.stderr)
    assert done.exit_code == 0, done.output
    return done.stdout


if __name__ == "__main__":
    import accord

    listed = said("list", "algorithms", "--json"), said("list", "models", "--json")
    before = list(runs)
    ran = Path(said("run", "-a", "fedshrunk", *sets, "-q", "--name", "one").strip())
    compared = Path(said("compare", "--algorithms", "fedavg,fedshrunk", "fedshrunk: strength=0.9", "--seeds", "0",
                         "--tune", "2", "--jobs", "2", *sets, "-q").strip().splitlines()[-1])
    loose = said("run", "--import", sys.argv[2], "-a", "fedloose", *sets, "-q", "--name", "loose").strip()
    from accord.study.pool import Listener, side_by_side
    from loose import look

    class Ear(Listener):
        def told(self, place, value): self.value = value
        def ended(self, place, error): assert error is None, error

    ear = Ear()
    side_by_side([look], 1, ear, on_gpu=True)
    (Path(sys.argv[3]) / "METADATA").write_text("Metadata-Version: 2.1\\nName: fed-plug\\nVersion: 1.3\\n")
    with warnings.catch_warnings(record=True) as newer:
        accord.resume(ran)
    print(json.dumps({
        "newer": [str(warning.message) for warning in newer if "fedshrunk" in str(warning.message)],
        "listed": [[entry["name"] for entry in json.loads(text)] for text in listed],
        "complaints": before,
        "later": runs[2:],
        "explained": said("explain", "fedshrunk", *sets),
        "identity": json.loads((ran / "identity.json").read_text())["plugins"],
        "loose": json.loads((Path(loose) / "identity.json").read_text())["plugins"],
        "summary": json.loads((ran / "summary.json").read_text()),
        "rows": [row["algorithm"] for row in json.loads((compared / "compare.json").read_text())["rows"]],
        "chosen": json.loads((compared / "compare.json").read_text())["tuning"]["algorithms"]["fedshrunk"]["tried"],
        "elsewhere": ear.value,
    }))
"""


def install(folder: Path) -> Path:
    package, info = folder / "fedplug", folder / "fed_plug-1.2.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    for name, text in {
        "__init__": "", "methods": METHODS, "partitions": PARTITIONS, "measures": MEASURES, "thief": THIEF,
        "broken": "import a_package_nobody_has",
    }.items():  # fmt: skip
        (package / f"{name}.py").write_text(text.lstrip())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fed-plug\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    return info


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plugins")


@pytest.fixture(scope="module")
def trial(home: Path) -> dict[str, Any]:
    info = install(home / "site")
    (home / "loose.py").write_text(LOOSE.lstrip())
    (home / "trial.py").write_text(TRIAL)
    places = [str(Path(accord.__file__).parent.parent), str(home / "site")]
    done = subprocess.run(
        [sys.executable, str(home / "trial.py"), str(home / "runs"), str(home / "loose.py"), str(info)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return seen


def test_a_method_of_another_package_is_listed_explained_run_compared_and_tuned(trial: dict[str, Any]) -> None:
    assert "fedshrunk" in trial["listed"][0]
    assert "FedShrunk: clients pay for long weights." in trial["explained"]
    assert "algorithm.strength = 0.5: price (a number, at least 0)" in trial["explained"]
    assert trial["summary"]["algorithm"] == "fedshrunk"
    assert 0 < trial["summary"]["sureness"] <= 1
    assert trial["rows"] == ["fedavg", "fedshrunk", "fedshrunk: strength=0.9"]
    assert set(trial["chosen"][1]["settings"]) == {"local.lr", "algorithm.strength"}


def test_what_cannot_be_used_is_named_in_a_sentence_each(trial: dict[str, Any]) -> None:
    lines = trial["complaints"][0].splitlines()
    assert lines == [
        "warning: the plugin 'fedavg' of fed-plug 1.2 (fedplug.thief) cannot be used: ConfigError: the algorithm "
        "'fedavg' is registered already; choose another name",
        "warning: the plugin 'forgotten' of fed-plug 1.2 (fedplug.partitions) registers no algorithm of that name: its "
        "module must do so when it is imported",
    ]
    (line,) = trial["complaints"][1].splitlines()
    assert line.startswith(
        "warning: the plugin 'broken' of fed-plug 1.2 (fedplug.broken) cannot be used: ModuleNotFound"
    )
    assert "broken" not in trial["listed"][1]
    assert [text for text in trial["later"] if "plugin" in text] == [], "said once, and no obstacle"


def test_a_run_records_which_package_gave_what(trial: dict[str, Any]) -> None:
    package = {"package": "fed-plug", "version": "1.2"}
    assert trial["identity"] == {
        "algorithm fedshrunk": {"module": "fedplug.methods", **package},
        "measure sureness": {"module": "fedplug.measures", **package},
        "partition in_turn": {"module": "fedplug.partitions", **package},
    }
    assert trial["loose"]["algorithm fedloose"] == {"module": "loose", "package": "", "version": ""}


def test_processes_that_are_not_forked_find_plugins_and_imports_too(trial: dict[str, Any]) -> None:
    assert trial["elsewhere"] == [True, True]


def test_resume_says_what_to_import(trial: dict[str, Any], home: Path) -> None:
    with pytest.raises(CheckpointError, match="needs the algorithm 'fedshrunk'") as caught:
        accord.resume(home / "runs" / "one")  # nothing is installed here
    assert "install fed-plug 1.2, or import it first (--import 'fedplug.methods'" in str(caught.value)
    done = CliRunner().invoke(app, ["resume", str(home / "runs" / "loose")])
    assert done.exit_code == 1
    assert "needs the algorithm 'fedloose'" in done.stderr
    assert "import it first (--import 'loose', in Python import 'loose')" in done.stderr


def test_another_version_goes_on_with_a_warning(trial: dict[str, Any]) -> None:
    (warning,) = trial["newer"]
    assert "(package fed-plug 1.2), which is now module fedplug.methods (package fed-plug 1.3)" in warning


def test_imports_that_fail_are_an_error_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("1 / 0")
    for module, words in (
        ("nobody.knows", "No module named 'nobody'"),
        (str(tmp_path / "odd.py"), "ZeroDivisionError"),
    ):
        done = CliRunner().invoke(app, ["list", "algorithms", "--import", module])
        assert done.exit_code == 2
        assert f"--import {module}: " in done.stderr
        assert words in done.stderr
