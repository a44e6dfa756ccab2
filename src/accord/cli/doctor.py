"""`accord doctor`: what is installed, what is missing and what for, and whether a small run works here."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated

import typer

from accord.cli.guard import complain
from accord.cli.width import wrapped

# extra: the packages by which it is there, and what it is for
EXTRAS = {
    "cli": (("typer", "rich"), "the command line"),
    "plot": (("matplotlib",), "curves and heat maps as pictures"),
    "images": (("pillow",), "folders of images"),
    "tables": (("pandas", "pyarrow"), "data from CSV and Parquet files, results as data frames"),
    "metrics": (("scikit-learn",), "metrics such as AUROC"),
    "tune": (("optuna",), "searches of more than five trials"),
    "onnx": (("onnx", "onnxscript", "onnxruntime"), "models as ONNX files"),
    "notebook": (("ipywidgets",), "bars in notebooks"),
    "huggingface": (("datasets",), "data sets of the Hugging Face hub"),
    "flower": (("flwr",), "real federations on Flower"),
    "flower-datasets": (("flwr-datasets",), "data sets of Flower"),
    "ray": (("ray",), "clients and studies across machines"),
    "privacy": (("dp-accounting",), "how much a run with noise gives away"),
    "docs": (("mkdocs", "mkdocs-material", "mkdocstrings"), "the documentation site"),
    "tensorboard": (("tensorboard",), "--log tensorboard"),
    "mlflow": (("mlflow",), "--log mlflow"),
    "wandb": (("wandb",), "--log wandb"),
}
SELF_TEST = ("rounds=3", "data.limit=1000", "partition.clients=5", "clients.fraction=1.0", "device=auto")
CHANCE = 0.1  # of ten digits


def doctor(
    test: Annotated[bool, typer.Option("--test/--no-test", help="Also train for a few seconds.")] = True,
) -> None:
    """Say what is installed, what is missing and what for, and try a small run; exit code 1 if that fails."""
    from accord.cli.app import version

    version()
    for title, lines in (
        ("extras", extras()),
        ("devices", devices()),
        ("data", data()),
        ("plugins", plugins()),
    ):
        typer.echo(f"\n{title}")
        for line in lines:
            typer.echo(wrapped(f"  {line}", "    "))
    if test:
        typer.echo("\nself-test")
        problem = self_test()
        if problem:
            complain(problem, "  failed: ")
            raise typer.Exit(1)
        typer.echo("  fine")


def extras() -> Iterator[str]:
    """Each with its version, or how to get it."""
    for extra, (packages, purpose) in EXTRAS.items():
        known = {package: _version(package) for package in packages}
        if all(known.values()):
            there = ", ".join(f"{package} {number}" for package, number in known.items())
            yield f"{extra:<12} {there}: {purpose}"
        else:
            yield f"{extra:<12} missing (pip install 'accord-fl[{extra}]'): {purpose}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def devices() -> Iterator[str]:
    """Cores, GPUs, and the executors that run here."""
    import torch

    from accord.executors.processes import cores
    from accord.executors.registry import EXECUTORS

    yield f"{cores()} cores"
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        yield f"GPU {number}: {facts.name}, {facts.total_memory / 2**30:.0f} GiB"
    if not torch.cuda.is_available():
        yield "no GPU that torch can use"
    for name, executor in EXECUTORS.items():
        where = " or ".join(executor.devices)
        yield f"executor {name}: {executor.obstacle() or f'ready, on {where}'}"


def data() -> Iterator[str]:
    """Where files are looked for, and which data sets lie there."""
    from accord.data import public
    from accord.data.files.collection import Collection, Places, find
    from accord.errors import DataError

    places = Places.usual(None, download=False, progress=None)
    yield f"looked for in {', '.join(map(str, places.roots))} (set ACCORD_DATA, or --data-dir)"
    yield "mnist5k: with the package"
    modules = [importlib.import_module(f"{public.__name__}.{m.name}") for m in pkgutil.iter_modules(public.__path__)]
    collections = [value for m in modules for value in vars(m).values() if isinstance(value, Collection)]
    for collection in {collection.name: collection for collection in collections}.values():
        try:
            location = find(collection, places)
        except DataError:
            yield f"{collection.name}: not here, fetched when it is first used"
        else:
            yield f"{collection.name}: {location.archive or next(iter(location.paths.values())).parent}"


def plugins() -> Iterator[str]:
    """What other packages add; those that cannot be used warn by themselves."""
    from accord.config import catalog

    found = False
    for kind in catalog.WHERE:
        registry = catalog.registry(kind)
        for name in registry:
            source = registry.source(name)
            if source is not None:
                found = True
                yield f"{kind} {name}: {source.words}"
    if not found:
        yield "none"


def self_test() -> str:
    """What is wrong with a small run, or nothing."""
    from accord.config import load_config
    from accord.engine.run import resume, run
    from accord.errors import AccordError

    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="accord-doctor-") as folder:
        try:
            outcome = run(load_config(None, [*SELF_TEST, f"out={folder}"]))
            again = resume(outcome.folder)
        except AccordError as error:
            return str(error)
        if outcome.metrics != again.metrics:
            return "what was written is not what is read"
    accuracy = outcome.summary["accuracy"]
    typer.echo(f"  {time.perf_counter() - begin:.1f} s, accuracy {accuracy:.2f} after {len(outcome.metrics)} rounds")
    return "" if accuracy > CHANCE else f"it learned nothing: accuracy {accuracy:.2f} is no better than chance"
