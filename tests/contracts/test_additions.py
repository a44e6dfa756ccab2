"""What an addition costs: one file. Each of these is put into a copy of the package and then used by its name alone.

CONTRIBUTING has the recipes. Nothing else of the package is changed, which is what is shown here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import accord

SOURCE = Path(accord.__file__).parent
ROOT = SOURCE.parent.parent

METHOD = '''
"""FedShrink: clients pay for long weights.

    client k:  min_w  CE(w) + strength |w|^2
"""

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


@fl.method("client", part=("strength",))
def fedshrink(setup: fl.Setup, *, strength: Annotated[float, fl.AtLeast(0), "price"] = 0.01) -> fl.Method:
    """Average models with short weights."""
    return fl.averaging(setup, Shrinking(strength))
'''
METRIC = '''
"""How sure a model is."""

from accord.measures.metric import metric


@metric("sureness", percent=True, better=None, doc="mean probability of the class it names")
def sureness(logits, labels):
    """Right or wrong."""
    return float(logits.softmax(1).max(1).values.mean())
'''
EXECUTOR = '''
"""From the last client to the first."""

from dataclasses import replace

from accord.executors.registry import EXECUTORS, NEVER
from accord.executors.sequential import Sequential


@EXECUTORS.add("backwards")
class Backwards(Sequential):
    """One client after the other, the last one first."""

    @classmethod
    def pays(cls, device, clients):
        return NEVER

    def run(self, request):
        return super().run(replace(request, works=request.works[::-1]))
'''
DATASET = '''
"""Stripes."""

import numpy as np

from accord.data.federated import Dataset
from accord.data.files.collection import Places
from accord.data.public.registry import DATASETS, Normalise, image_pools


@DATASETS.add("stripes")
def stripes(places: Places, *, normalise: Normalise = True) -> Dataset:
    """Forty images of stripes, across or down."""
    across = np.tile(np.array([[0], [255]], np.uint8), (4, 8))
    part = np.stack([[across if row % 2 else across.T] for row in range(40)]), np.arange(40) % 2
    return image_pools("stripes", part, part, ("down", "across"), ((0.5,), (0.5,)), normalise)
'''
PARTITION = '''
"""In turn."""

import numpy as np

from accord.data.dealing import by_owner
from accord.data.federated import Dataset, Groups
from accord.data.partitions.registry import partition


@partition("in_turn")
def in_turn(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
    """Sample i to client i mod K."""
    return by_owner(np.arange(len(dataset.train)) % clients, clients)
'''
# kind (as `accord list` knows it): name, the one file, its text
ADDITIONS = {
    "algorithms": ("fedshrink", "algorithms/fedshrink.py", METHOD),
    "measures": ("sureness", "measures/sureness.py", METRIC),
    "executors": ("backwards", "executors/backwards.py", EXECUTOR),
    "datasets": ("stripes", "data/public/stripes.py", DATASET),
    "partitions": ("in_turn", "data/partitions/in_turn.py", PARTITION),
}
# Run in the copy: everything by name, as the command line and as Python have it.
TRIAL = """
import json, sys
from pathlib import Path

import torch
from typer.testing import CliRunner

import accord
from accord.cli.app import app

root, out = Path(sys.argv[1]), Path(sys.argv[2])
names = json.loads(sys.argv[3])
small = ["data.name=stripes", "partition.name=in_turn", "partition.clients=4", "rounds=2", "local.batch_size=4",
         "model.name=mlp", "model.hidden=[4]", "evaluate.sureness=true", "device=cpu", f"out={out}"]


def said(*words):
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def ran(executor, strength):
    sets = [*small, "algorithm.name=fedshrink", f"algorithm.strength={strength}", f"executor={executor}"]
    return accord.run(accord.load_config(sets=sets))


backwards, ordinary, plain = ran("backwards", 0.5), ran("sequential", 0.5), ran("sequential", 0.0)
x, _ = accord.load_dataset("stripes").test.take(torch.arange(40).numpy())
with torch.no_grad():
    sure = float(backwards.model(x).softmax(1).max(1).values.mean())
compared = said("compare", "--algorithms", "fedavg,fedshrink", "--seeds", "0", "--executor", "backwards", "-q",
                *[word for text in small for word in ("--set", text)]).strip().splitlines()[-1]
sys.argv = ["method_table.py"]
sys.path.insert(0, str(root / "scripts"))
import method_table

print(json.dumps({
    "home": str(Path(accord.__file__).parent),
    "listed": {kind: [entry["name"] for entry in json.loads(said("list", kind, "--json"))] for kind in names},
    "explained": {kind: said("explain", name) for kind, name in names.items()},
    "records": [(run.folder / "metrics.jsonl").read_text() for run in (backwards, ordinary, plain)],
    "length": [sum(float(p.square().sum()) for p in run.model.parameters()) for run in (backwards, plain)],
    "summary": backwards.summary,
    "sure": sure,
    "described": said("describe", *[word for text in small for word in ("--set", text)]),
    "table": (Path(compared) / "table.md").read_text(),
    "methods": method_table.table(with_imports=False),
}))
"""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("additions")
    shutil.copytree(SOURCE, folder / "accord", ignore=shutil.ignore_patterns("__pycache__"))
    for _, file, text in ADDITIONS.values():
        assert not (folder / "accord" / file).exists()
        (folder / "accord" / file).write_text(text.lstrip())
    names = json.dumps({kind: name for kind, (name, _, _) in ADDITIONS.items()})
    (folder / "trial.py").write_text(TRIAL)
    done = subprocess.run(
        [sys.executable, str(folder / "trial.py"), str(ROOT), str(folder / "runs"), names],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen["home"] == str(folder / "accord")
    return seen


@pytest.mark.parametrize("kind", ADDITIONS)
def test_what_was_added_is_listed_and_explained(trial: dict[str, Any], kind: str) -> None:
    name, _, text = ADDITIONS[kind]
    assert name in trial["listed"][kind]
    first = text.split('"""')[1].splitlines()[0] if kind == "algorithms" else text.split('"""')[3].splitlines()[0]
    card = "mean probability of the class it names" if kind == "measures" else first
    assert card in trial["explained"][kind]


def test_a_method_runs_takes_its_setting_and_joins_the_tables(trial: dict[str, Any]) -> None:
    assert "algorithm.strength = 0.01: price (a number, at least 0)" in trial["explained"]["algorithms"]
    assert "What one client sends and receives" in trial["explained"]["algorithms"]
    short, plain = trial["length"]
    assert short < 0.9 * plain, "weights that are paid for are shorter"
    names = [row.split("|")[1].strip() for row in trial["methods"]]
    assert names.index("`fedprox`") < names.index("`fedshrink`") < names.index("`groupdro`")


def test_a_metric_is_a_record_a_summary_and_a_column(trial: dict[str, Any]) -> None:
    assert trial["summary"]["sureness"] == pytest.approx(trial["sure"], rel=1e-5)
    assert json.loads(trial["records"][0].splitlines()[-1])["sureness"] == trial["summary"]["sureness"]
    heading, _, *rows = trial["table"].splitlines()[:4]
    assert "sureness %" in heading
    assert [row.split("|")[1].strip() for row in rows] == ["fedavg", "fedshrink"]


def test_an_executor_gives_the_bits_of_the_reference(trial: dict[str, Any]) -> None:
    backwards, ordinary, plain = trial["records"]
    assert backwards == ordinary != plain


def test_a_data_set_and_a_partition_are_run_on(trial: dict[str, Any]) -> None:
    assert trial["summary"]["dataset"] == "stripes"
    # forty samples whose classes alternate, dealt in turn to four clients: ten each, of one class each
    assert "4 clients, 0 of them unseen; 40 training samples: smallest client 10" in trial["described"]
    assert "effective classes per client: mean 1.00 of 2" in trial["described"]
