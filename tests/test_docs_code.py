"""The code in the documentation runs: every Python block of every page, and a newcomer's commands in their order."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomllib
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import accord
from accord.cli.app import app
from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.engine.build import build_data
from accord.measures import MEASURES
from accord.problems import PROBLEMS
from support.pages import PAGES, ROOT, blocks, fences

SMALL = ("rounds=1", "local.epochs=1", "executor=sequential", "device=cpu")
FEW = ("data.limit=300",)  # of the built-in digits, where a page brings no data
Names = dict[str, Any]
WITH_PYTHON = [page for page in PAGES if any(blocks(page.read_text(), "python"))]


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page registers is forgotten after it."""
    for registry in (ALGORITHMS, MEASURES, PROBLEMS):
        len(registry)  # all of the package's own are there before the copy
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_facts", dict(registry._facts))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round, one seed, two trials in the place of the page's."""
    run, compare, tune = accord.run, accord.compare, accord.tune

    def fewer(config: object = None, **given: Any) -> Any:
        sets = [*given.pop("sets", ()), *SMALL, *(() if "data" in given or config is not None else FEW)]
        return run(config, **{**given, "rounds": 1}, sets=sets)  # type: ignore[arg-type]

    def fewer_seeds(*names: Any, **given: Any) -> Any:
        config = given.pop("config", None) or load_config(sets=SMALL)
        trials = {"tune": 2} if given.pop("tune", None) else {}
        return compare(*names, **{**given, **trials, "seeds": (0,)}, config=config)

    monkeypatch.setattr(accord, "load_config", lambda path=None, sets=(): load_config(path, [*sets, *SMALL]))
    monkeypatch.setattr(accord, "run", fewer)
    monkeypatch.setattr(accord, "compare", fewer_seeds)
    monkeypatch.setattr(accord, "tune", lambda *names, trials, **given: tune(*names, trials=2, **given))


def patients(folder: Path, label: str = "diagnosis") -> pd.DataFrame:
    """The table that pages speak of, and rows whose outcome nobody knows."""
    rng = np.random.default_rng(0)
    ill = rng.integers(0, 2, 90)
    numbers = {"age": 40 + 20 * ill, "marker": ill + rng.normal(0, 0.1, 90)}
    if label == "outcome":
        numbers = {"age": 40 + 20 * ill, "pulse": rng.normal(70, 5, 90), "smokes": ill > 0}
    known = pd.DataFrame(numbers)
    known.tail(3).to_csv(folder / "arriving.csv", index=False)
    known = known.assign(**{label: np.where(ill, "ill", "well")}, hospital=np.repeat(["Aix", "Lyon", "Pau"], 30))
    known.to_csv(folder / "patients.csv", index=False)
    return known


def arrays() -> Names:
    """Rows of five numbers, three classes, eight hospitals."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    x = (rng.normal(size=(240, 5)) + y[:, None]).astype(np.float32)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    return {"x": x, "y": y, "hospital": pd.Series([f"site {n % 8}" for n in range(240)]), "module": module, "nn": nn}


def finished() -> Names:
    """A run and a comparison."""
    data = accord.from_arrays(arrays()["x"], arrays()["y"], clients=arrays()["hospital"])
    personal = {"evaluate.personal=true"}
    return {
        "outcome": accord.run(data=data, sets=list(personal), progress=False),
        "result": accord.compare(["fedavg"], data=data),
    }


class MyNetwork(nn.Sequential):
    """The reader's own."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))


def trained() -> Names:
    """The folders that `models.md` reads from."""
    patients(Path()).to_csv("hospitals.csv", index=False)
    data = accord.from_table("hospitals.csv", label="diagnosis", client="hospital")
    accord.run(data=data, algorithm="ditto", progress=False)
    rows = pd.read_csv("arriving.csv")
    rows.to_csv("new.csv", index=False)
    given = accord.from_arrays(rows.to_numpy(np.float32).repeat(20, 0), np.arange(60) % 2, clients=np.arange(60) % 3)
    accord.run(data=given, model=accord.adapt(MyNetwork(), head="2"), progress=False)
    return {"pandas": pd, "rows": rows, "MyNetwork": MyNetwork}


# What stands there before a page's first block, by its name.
BEFORE: dict[str, Callable[[], Names]] = {
    "README": lambda: {"_": patients(Path())},
    "CONTRIBUTING": lambda: {"metric": accord.metric, "Tensor": Tensor},
    "own_data": lambda: {"_": patients(Path(), "outcome"), **arrays()},
    "diagnose": arrays,
    "python": arrays,
    "measures": finished,
    "models": trained,
    "start": lambda: {"_": None},
}


def after(page: str, known: Names) -> None:
    """What a page promises of its values."""
    if page == "README":
        assert {row["site"] for row in known["outcome"].sites()} == {"Aix", "Lyon", "Pau"}
        assert known["model"].predict([{"age": 61, "marker": 1.0}])[0] in ("ill", "well")
    elif page == "own_data":
        assert known["outcome"].folder.name == "fedavg-own-s0"
        assert known["data"].inputs.tensor([{"age": 40, "pulse": 70, "smokes": True}]).shape == (1, 3)
    elif page == "tasks":
        assert known["outcome"].summary["judged_by"] == "abs_error"
    elif page == "python":
        assert known["outcome"].summary["accuracy"] > 0
        assert not known["result"].failed
        assert "error_rate" in MEASURES
        assert len(known["replies"]) == 4
    elif page == "own_method":
        assert known["outcome"].summary["algorithm"] == "fedsteady"
        assert "fednear" in ALGORITHMS


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        yield tmp_path


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_runs(
    page: Path, somewhere: Path, small: None, registries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a page's first block to its last, in an empty folder."""
    module = ModuleType("a_page")
    monkeypatch.setitem(sys.modules, "a_page", module)  # where dataclasses look for the class they make
    module.__dict__.update(accord=accord, **BEFORE.get(page.stem, dict)())
    for text in blocks(page.read_text(), "python"):
        exec(compile(text, str(page), "exec"), module.__dict__)
    after(page.stem, module.__dict__)


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/resuming.md"])
def test_commands_run(page: str, somewhere: Path) -> None:
    """One after the other as they stand, with a round in the place of many; on the first pages Python between them."""
    patients(somewhere)
    asked = []
    for language, text in fences((ROOT / page).read_text()):
        if language == "python" and page == "docs/start.md" and "import accord" not in text:
            exec(text, {})
        lines = text.replace("\\\n", " ").splitlines() if language == "" else []
        for line in lines:
            words = shlex.split(line, comments=True)
            if words[:1] == ["accord"] and words[1] not in ("reproduce", "doctor"):  # minutes; others' tests run them
                asked.append(words[1])
                few = words[1] in ("run", "compare")
                kept = [*SMALL, "checkpoint.every=1", *(() if "--data" in words else FEW)] if few else []
                extra = [part for text in kept for part in ("--set", text)]
                seeds = ["--seeds", "0"] if words[1] == "compare" else []
                done = CliRunner().invoke(app, [*words[1:], *extra, *seeds])
                assert done.exit_code == 0, f"{words}: {done.output}"
    assert len(asked) >= 4
    if page == "README.md":
        assert {"run", "compare", "predict", "resume", "export", "settings", "list"} <= set(asked)
        assert (somewhere / "model.onnx").is_file()
    if page == "docs/start.md":
        assert list(somewhere.glob("runs/compare-*/report.html"))


def test_configurations_are_read(tmp_path: Path, somewhere: Path) -> None:
    patients(somewhere, "outcome")
    for page in PAGES:
        for number, text in enumerate(blocks(page.read_text(), "toml")):
            tomllib.loads(text)
            if page.stem in ("own_data", "privacy"):
                path = tmp_path / f"{page.stem}{number}.toml"
                path.write_text(text)
                config = load_config(path)
                if page.stem == "own_data":
                    assert build_data(config).names == ("Aix", "Lyon", "Pau")
