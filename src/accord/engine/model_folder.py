"""`model/` in a run's folder: the model, and the clients' own, ready to be used without what trained them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from accord.core.algorithm import Method
from accord.core.fields import Fields
from accord.core.given import fixed_buffers, fixed_parameters
from accord.core.tensors import Tree
from accord.core.whole import around, as_given, bare, fill, named_values, own_prefix
from accord.engine.card import Subject, card
from accord.engine.federation import Federation
from accord.engine.files import sync_folder, write_atomic
from accord.engine.logs import versions
from accord.engine.personal import OwnModels
from accord.errors import RunError
from accord.measures.sites import Sites
from accord.settings import plain
from accord.wire.files import refuse_links
from accord.wire.model import (
    CARD,
    CLIENTS,
    FOLDER,
    FORMAT,
    RECORD,
    SHARED,
    WEIGHTS,
    Encoded,
    encode_values,
    read_record,
    read_values,
)
from accord.wire.writing import as_text

TEMPORARY = f".{FOLDER}.tmp"  # the folder before its rename
LONGEST = 60  # letters of a client's name in a file's


def write_model(
    folder: Path,
    federation: Federation,
    module: nn.Module | None,
    own: OwnModels,
    summary: Mapping[str, Any],
    sites: Sites | None,
) -> None:
    """All of it appears at once, by one rename. Where nothing can be kept, the card says so."""
    names = {client: federation.data.name_of(client) for client in sorted(own.found)}
    network = _trained_network(federation)
    subject = Subject(federation, network, module, names, own.why_not)
    final, temporary = folder / FOLDER, folder / TEMPORARY
    refuse_links(final, temporary)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        record = _record(subject)
        for name, content in _files(subject, own, record):
            write_atomic(temporary / name, content)
        write_atomic(temporary / RECORD, as_text(record, indent=1) + "\n")
        write_atomic(temporary / CARD, card(subject, summary, sites))
        if names:
            sync_folder(temporary / CLIENTS)
        sync_folder(temporary)
        if final.exists():
            shutil.rmtree(final)  # of a process that was killed before the run was over
        temporary.rename(final)
        sync_folder(folder)
    except OSError as error:
        raise RunError(f"cannot write the model {final}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_model(folder: Path, federation: Federation) -> nn.Module | None:
    """The module of a run that is over, from its folder; DataError if it is not there, or not as it was written."""
    record = read_record(folder / FOLDER)
    if record["weights"] is None:
        return None
    algorithm = federation.algorithm
    module = algorithm.export(algorithm.init(federation.world(0)))
    if module is not None:
        path = folder / FOLDER / WEIGHTS
        fill(module, read_values(path, record["weights"]), str(path))
    return module


def _trained_network(federation: Federation) -> nn.Module:
    """With the layers the method put into it."""
    algorithm = federation.algorithm
    return as_given(algorithm.model.network if isinstance(algorithm, Method) else federation.model.network)


def _files(subject: Subject, own: OwnModels, record: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Every file of values; its checksum goes into the record."""
    shared: Tree = {}
    if subject.model is not None:
        shared = named_values(subject.model)
        yield WEIGHTS, _noted(record, "weights", encode_values(shared))
    elif shared := _untrained(subject.network):
        yield SHARED, _noted(record, "shared", encode_values(shared))
    files = file_names(subject.clients)
    for client, name in subject.clients.items():
        assert own.task is not None
        values = named_values(own.task.model.module(own.found[client]["model"], own.found[client]["buffers"]))
        personal = {n: t for n, t in values.items() if n not in shared or not torch.equal(t, shared[n])}
        entry: dict[str, Any] = {"number": client, "file": files[client]}
        record["clients"][name] = entry
        yield f"{CLIENTS}/{files[client]}", _noted(entry, "sha256", encode_values(personal))


def _noted(record: dict[str, Any], key: str, encoded: Encoded) -> bytes:
    record[key] = encoded.sha256
    return encoded.data


def _untrained(network: nn.Module) -> Tree:
    """What its owner froze, and layers that stay as they were: all models have it in common."""
    fixed, prefix = fixed_parameters(network) | fixed_buffers(network), own_prefix(network)
    names = {name.removeprefix(prefix) for name in fixed}
    return {name: value for name, value in named_values(network).items() if name in names}


def _record(subject: Subject) -> dict[str, Any]:
    federation, network = subject.federation, subject.network
    data, real = federation.data, [t for t in named_values(network).values() if t.is_floating_point()]
    return {
        "format": FORMAT,
        "network": described(federation, network),
        "around": around(subject.model or network),
        "dtype": str(real[0].dtype).removeprefix("torch."),
        "inputs": data.inputs.to_json(),
        "facts": {"vocabulary": data.vocabulary, "fields": _inputs(data.fields)},
        "problem": data.problem,
        "outputs": data.num_classes,
        "classes": list(data.classes),
        "method": federation.config.algorithm.name,
        "data": data.name,
        "versions": versions(),
        "weights": None,
        "shared": None,
        "clients": {},
    }


def _inputs(fields: Fields | None) -> list[dict[str, Any]] | None:
    """The several inputs of a sample, where it is that."""
    if fields is None:
        return None
    return [{"name": one.name, "shape": list(one.shape), "vocabulary": one.vocabulary} for one in fields.fields]


def described(federation: Federation, network: nn.Module) -> dict[str, Any]:
    """What it takes to make the same network again: its name and settings, or its owner's help."""
    config, network = federation.config.model, bare(network)
    if not federation.own_network:
        return {
            "kind": "named",
            "name": config.name,
            "settings": {key: plain(value) for key, value in config.options.items()},
            "input_shape": list(federation.data.sample_shape),
        }
    prefix = own_prefix(network)
    own = network.get_submodule(prefix.removesuffix("."))
    names = {role: getattr(network, f"{role}_name", None) for role in ("head", "maps")}
    return {
        "kind": "own",
        "class": type(own).__name__,
        **{role: name.removeprefix(prefix) if isinstance(name, str) else None for role, name in names.items()},
        "adapted": bool(prefix),
        "layers": [f"{name}: {type(m).__name__}({m.extra_repr()})" for name, m in own.named_modules() if name],
    }


def file_names(clients: Mapping[int, str]) -> dict[int, str]:
    """A file's name for each client: its own name where a file can be called so and no other is, else with its number.

    >>> file_names({0: "Lyon", 1: "St. Gallen/2", 2: "lyon", 3: "../x"})
    {0: 'Lyon-0.safetensors', 1: 'St._Gallen_2-1.safetensors', 2: 'lyon-2.safetensors', 3: 'x-3.safetensors'}
    """
    safe = {client: re.sub(r"[^\w+=,@.-]+", "_", name).lstrip("_+=,@.-")[:LONGEST] for client, name in clients.items()}
    taken: dict[str, int] = {}
    for name in safe.values():
        taken[name.casefold()] = taken.get(name.casefold(), 0) + 1
    made = {
        client: stem if stem == clients[client] and taken[stem.casefold()] == 1 else f"{stem or 'client'}-{client}"
        for client, stem in safe.items()
    }
    distinct = len({name.casefold() for name in made.values()}) == len(made)
    return {client: f"{name if distinct else client}.safetensors" for client, name in made.items()}
