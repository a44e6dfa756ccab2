"""The stories of `examples/stories`, from a file to a model in use, with fewer rounds."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

STORIES = Path(__file__).resolve().parent.parent / "examples" / "stories"
NOTEBOOKS = STORIES.parent / "notebooks"


@pytest.fixture
def story(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a story; those it starts see the sources under test."""
    monkeypatch.syspath_prepend(str(STORIES))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return importlib.import_module(request.param)


@pytest.mark.parametrize("story", ["hospitals"], indirect=True)
def test_hospitals(story: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = story.main(tmp_path, rounds=8, seeds=(0,))
    assert len(said) == 10
    assert set(said) <= {"benign", "malignant"}
    printed = capsys.readouterr().out
    assert "| scaffold |" in printed
    assert "AUROC" in printed
    assert all(name in printed for name in story.HOSPITALS)
    right = int(printed.rpartition("trained on, ")[2].split()[0])
    assert right >= 8  # five of each diagnosis: a guess has five
    card = (tmp_path / "runs" / "scaffold-patients-s0" / "model" / "README.md").read_text()
    assert "Lyon" in card


@pytest.mark.parametrize("story", ["diabetes"], indirect=True)
def test_diabetes(story: ModuleType, tmp_path: Path) -> None:
    spread = story.table(tmp_path / "all.csv")["progression"].std()
    errors = story.main(tmp_path, rounds=12)
    assert set(errors) == {"fedavg", "local"}
    assert max(errors.values()) < spread, "better than saying the mean"


@pytest.mark.parametrize("story", ["letters"], indirect=True)
def test_letters(story: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "CHAPTERS", 4)
    perplexity, text = story.main(tmp_path, rounds=2)
    assert 1 < perplexity < len(story.samples()[3]) / 2, "a guess has as many as there are letters"
    assert text.startswith("The exception ")
    assert len(text) == len("The exception ") + 20


EXECUTE = """
import sys, nbformat, nbclient
book = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": sys.argv[2]}}).execute()
shown = [out for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]
print(sum("image/png" in out.get("data", {}) for out in shown), "pictures")
"""


@pytest.mark.parametrize(("name", "pictures"), [("hospitals", 2), ("fairness", 2), ("own_method", 0)])
def test_a_notebook_runs(name: str, pictures: int, tmp_path: Path) -> None:
    here = tmp_path / "notebooks"  # beside the stories, as in the repository
    here.mkdir()
    (tmp_path / "stories").symlink_to(STORIES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOKS / f"{name}.ipynb"), str(here)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{pictures} pictures" in done.stdout


def test_notebooks_are_kept_without_what_they_printed() -> None:
    books = [json.loads(path.read_text()) for path in NOTEBOOKS.glob("*.ipynb")]
    code = [cell for book in books for cell in book["cells"] if cell["cell_type"] == "code"]
    assert len(books) == 3
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None]
