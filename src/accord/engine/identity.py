"""What a run was made of, so that it goes on with the same data and the same network or not at all.

`identity.json` in the run's folder holds a name, counts and digests of the data, the structure of the network and what
it computes for one fixed input. Weights are not compared, they are the checkpoint's; those that its owner froze are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from accord.core.fields import Fields
from accord.core.given import duplicate, fixed_buffers, fixed_layers, fixed_parameters
from accord.core.model import Classifier, Model
from accord.data.federated import FederatedData, Groups, Pool
from accord.engine.files import write_atomic
from accord.errors import CheckpointError, DataError, RunError
from accord.wire.files import read_here
from accord.wire.records import Bounds, parse, shown

FILE = "identity.json"
PROBES = 2  # samples a network is tried with
SHOWN = 16  # of its answers that are kept
BOUNDS = Bounds(size=1 << 26, depth=4, entries=1 << 20)  # of the file
NEAR = 1e-2  # how far answers may differ: machines round differently, other functions are further off

Identity = dict[str, Any]


def identity(data: FederatedData, model: Model, settings: str) -> Identity:
    """Of a federation's data and network, and of its `settings`, of which only the hash is known here."""
    whole = data.train_pool.take(np.zeros(0, np.int64))[0].dtype == torch.int64
    return {
        "data": data_identity(data),
        "network": network_identity(model.network, data.sample_shape, whole, model.fields),
        "settings": {"hash": settings},
    }


def data_identity(data: FederatedData) -> Identity:
    """Names and counts for people to read, digests for the rest."""
    return {
        "name": data.name,
        "classes": data.num_classes,
        **({} if data.problem == "classification" else {"task": data.problem}),
        "sample": list(data.sample_shape),
        "clients": len(data),
        **({"client_names": list(data.names)} if data.names else {}),
        "unseen": sorted(int(client) for client in data.unseen),
        "train_samples": len(data.train_pool),
        "test_samples": len(data.test_pool),
        "train_values": _digest(_pool(data.train_pool)),
        "test_values": _digest(_pool(data.test_pool)),
        "division": _digest(part for groups in (data.train, data.validation, data.test) for part in _groups(groups)),
        "changed_inputs": _digest(_transformed(data)),
        **({"columns_and_classes": _digest(_meaning(data))} if data.raw is not None else {}),
    }


def network_identity(
    network: nn.Module, sample_shape: tuple[int, ...], whole: bool = False, fields: Fields | None = None
) -> Identity:
    """Its layers and parameters, and the answers of a copy with weights that depend on nothing but their names."""
    layers = [f"{name}: {type(m).__name__}({m.extra_repr()})" for name, m in network.named_modules() if name]
    values = [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in network.state_dict().items()]
    return {
        "layers": layers,
        "values": values,
        "fixed": _fixed(network),
        "answers": _answers(network, sample_shape, whole, fields),
    }


def keep(folder: Path, current: Identity) -> None:
    """Write it into a new run's folder."""
    write_atomic(folder / FILE, json.dumps(current, indent=1, sort_keys=True, allow_nan=False) + "\n")


def compare(folder: Path, current: Identity) -> None:
    """Refuse to go on with other data, another network or other settings than the run began with."""
    try:
        known = parse(read_here(folder / FILE, BOUNDS.size), BOUNDS, FILE)
    except (OSError, DataError, RunError) as error:
        raise CheckpointError(
            f"{folder / FILE} cannot be read ({error}), so it is not known what data and network this run began with: "
            "restore the file, or start a new run"
        ) from error
    differences = [*_differences("data", known, current), *_differences("network", known, current)]
    if differences:
        raise CheckpointError(
            f"{folder} began with other data or another network: {'; '.join(differences[:4])}. Give the same data and "
            "network again (accord.resume(folder, data=..., model=...)), or start a new run."
        )
    if known.get("settings") != current["settings"]:
        raise CheckpointError(
            f"{folder / 'config.toml'} has other settings than this run began with: undo the change, or start a new run"
        )


def _differences(section: str, known: Mapping[str, Any], current: Identity) -> Iterator[str]:
    before, now = known.get(section), current[section]
    if not isinstance(before, dict):
        yield f"its {section} is not recorded"
        return
    for name, value in now.items():
        was = before.get(name)
        if name == "answers":
            if not _near(was, value):
                yield "the network computes something else"
        elif was != value:
            yield _difference(section, name, was, value)


def _difference(section: str, name: str, was: object, now: object) -> str:
    if isinstance(was, list) and isinstance(now, list):
        gone = [item for item in was if item not in now][:2]
        new = [item for item in now if item not in was][:2]
        return f"{section} {name}: {shown(gone) if gone else 'nothing'} became {shown(new) if new else 'nothing'}"
    digests = isinstance(now, str) and len(now) == 64
    return (
        f"{section} {name.replace('_', ' ')} differ"
        if digests
        else f"{section} {name} was {shown(was)}, is {shown(now)}"
    )


def _near(was: object, now: list[float | None]) -> bool:
    if not isinstance(was, list) or len(was) != len(now):
        return False
    for a, b in zip(was, now, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
        elif not isinstance(a, (int, float)) or not math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR):
            return False
    return True


def _answers(
    network: nn.Module, sample_shape: tuple[int, ...], whole: bool, fields: Fields | None
) -> list[float | None]:
    """A few outputs for inputs and weights drawn from a fixed seed; None where they are no finite numbers.

    Inputs that are `whole` numbers are token ids, of which there are at least two.
    """
    generator = torch.Generator().manual_seed(0)
    probe = duplicate(network).cpu().float().eval()
    for _, tensor in sorted(probe.state_dict().items()):
        if tensor.is_floating_point():
            scale = 1 / math.sqrt(max(tensor[0].numel(), 1)) if tensor.dim() > 1 else 0.1
            drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float32)
            tensor.copy_(scale * (2 * drawn - 1) if tensor.dim() > 1 else 1 + scale * drawn)
    x = torch.rand((PROBES, *sample_shape), generator=generator, dtype=torch.float32)
    x = x.round().long() if whole else x
    given: Any = fields.unpacked(x) if fields is not None and getattr(probe, "takes_fields", False) else x
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        logits: Tensor = cast(Classifier, probe).logits_and_features(given, None)[0]
    flat = logits.flatten()[:SHOWN]
    return [round(float(v), 6) if math.isfinite(v) else None for v in flat]


def _fixed(network: nn.Module) -> list[str]:
    """What its owner froze, values included: no checkpoint holds them."""
    names = fixed_parameters(network) | fixed_buffers(network)
    tensors = [*network.named_parameters(), *network.named_buffers()]
    values = [f"{name} {_digest(_bytes(t.reshape(-1)))[:16]}" for name, t in tensors if name in names]
    return [*sorted(fixed_layers(network)), *values]


def _pool(pool: Pool) -> Iterator[bytes]:
    yield repr((str(pool.x.dtype), tuple(pool.x.shape), pool.mean, pool.std)).encode()
    for tensor in (pool.x, pool.y):
        yield from _bytes(tensor)


def _bytes(tensor: Tensor) -> Iterator[bytes]:
    """A piece at a time, so that a large pool is never copied whole."""
    for start in range(0, len(tensor) if tensor.numel() else 0, 4096):
        yield tensor.detach()[start : start + 4096].cpu().contiguous().view(torch.uint8).numpy().tobytes()


def _meaning(data: FederatedData) -> Iterator[bytes]:
    """How raw rows became samples: a table in other units may give the same samples, and mean something else."""
    yield json.dumps([data.inputs.to_json(), data.classes], sort_keys=True).encode()


def _groups(groups: Groups) -> Iterator[bytes]:
    yield np.ascontiguousarray(groups.offsets).tobytes()
    yield np.ascontiguousarray(groups.order).tobytes()


def _transformed(data: FederatedData) -> Iterator[bytes]:
    """The first sample of a few clients as they see it: another rotation or permutation is other data."""
    if data.transform is None:
        return
    for client in np.flatnonzero(data.sizes > 0)[:SHOWN]:
        index = data.train[int(client)][:1]
        x, _ = data.train_pool.take(index)
        yield from _bytes(data.transform(int(client), index, x))


def _digest(pieces: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
