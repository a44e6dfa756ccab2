"""The wheel, installed without extras beside torch, numpy and safetensors alone: what works, and what says what to add.

The clean environment is a real one, with an interpreter that sees nothing of this one but the distributions the wheel
requires; those are linked instead of installed again, since torch alone takes minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
TRAINED = """
import accord.errors
outcome = accord.run(accord.load_config(sets=["rounds=1", "local.epochs=1", "data.limit=200", "partition.clients=4"]))
print("accuracy", outcome.summary["accuracy"])
print(type(accord.load(outcome.folder)).__name__)
for use in (outcome.plot, outcome.frame, lambda: accord.export(outcome.folder, onnx="model.onnx")):
    try:
        use()
    except accord.errors.AccordError as error:
        print(error)
"""


def required(name: str, found: dict[str, Path] | None = None) -> dict[str, Path]:
    """Top-level files and folders of a distribution and of all it requires, without extras."""
    found = {} if found is None else found
    for path in distribution(name).files or ():
        top = path.parts[0]
        if top not in (".", "..", "__pycache__") and not top.endswith((".pth", ".egg-link")):
            found[top] = Path(str(distribution(name).locate_file(top)))
    for text in distribution(name).requires or ():
        one = Requirement(text)
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and one.name not in found:
            found[one.name] = Path()  # seen
            required(one.name, found)
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a clean environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("clean")
    source = folder / "source"  # a build writes beside the sources, and another worker may be building too
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    wanted = [Requirement(line.partition(": ")[2]) for line in lines if line.startswith("Requires-Dist: ")]
    for one in wanted:
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            for top, path in required(one.name).items():
                if path.parts and not (packages / top).exists():
                    (packages / top).symlink_to(path)
    return folder / "env" / "bin" / "python"


def said(python: Path, code: str, folder: Path, *, fails: bool = False) -> str:
    """What the clean interpreter prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd=folder, env=environment)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_run_from_python_needs_no_extra(clean: Path, tmp_path: Path) -> None:
    printed = said(clean, TRAINED, tmp_path)
    assert re.search(r"accuracy 0\.\d+", printed)
    assert [extra for extra in ("plot", "tables", "onnx") if f"accord-fl[{extra}]" not in printed] == [], printed


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import accord.cli; accord.cli.main()", "cli"),
        ("import accord; accord.from_table('t.csv', label='y', client='site')", "tables"),
        ("import accord; accord.run(accord.load_config(sets=['evaluate.auroc=true']))", "metrics"),
        ("import accord; accord.tune(['fedprox'], trials=12)", "tune"),
    ],
)
def test_what_is_missing_says_which_extra_to_install(clean: Path, tmp_path: Path, code: str, extra: str) -> None:
    (tmp_path / "t.csv").write_text("a,y,site\n1,0,x\n2,1,x\n")
    printed = said(clean, code, tmp_path, fails=True)
    assert f"accord-fl[{extra}]" in printed, printed
    assert "accord-fl[all]" not in printed
