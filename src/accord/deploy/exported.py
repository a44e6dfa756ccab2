"""A model as one file that other programs run: ONNX, or `torch.export`.

The graph takes raw pixels or arrays, as `mean`, `std` and the division by 255 are part of it. Of a table's row it takes
the numbers its columns become (`features`), since words are no part of a graph.
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from accord.core.whole import Whole
from accord.deploy.loaded import Loaded, load
from accord.errors import ConfigError, DataError, RunError

SAMPLES = (2, 5)  # that the exported graph is tried with: not one number only, so that the batch is seen to be free
FAR = 1e-3  # how far its answers may differ, of the largest answer


class Exported(NamedTuple):
    """A file that was written, and by how much its answers differ from the model's at most."""

    path: Path
    form: str  # "onnx" or "torch"
    takes: str  # in words
    difference: float


class Graph(nn.Module):
    """Numbers in, outputs out: all of a model that is arithmetic."""

    def __init__(self, model: Loaded) -> None:
        super().__init__()
        inputs = model.inputs
        self.model, self.kind, self.dtype = model, inputs.kind, model.dtype
        shape = (1, -1) + (1,) * (len(inputs.shape) - 1)
        moments = () if inputs.kind == "table" else (inputs.mean, inputs.std)
        self.moves = any(moments)
        if self.moves:
            for name, values in zip(("mean", "std"), moments, strict=True):
                self.register_buffer(name, torch.tensor(values, dtype=model.dtype).view(shape))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C] the network's outputs."""
        if self.kind == "image":
            x = x.to(self.dtype) / 255
        if self.moves:
            x = (x - self.get_buffer("mean")) / self.get_buffer("std")
        return self.model.compute(x)


def export(
    folder: Path | str,
    *,
    onnx: Path | str | None = None,
    torch_export: Path | str | None = None,
    client: str | int | None = None,
    network: nn.Module | None = None,
) -> list[Exported]:
    """Write the model a run has left as an ONNX file, as a `torch.export` file, or both; any number of samples at once.

    Every file is run before it is written, and its answers are compared with the model's.

    >>> accord.export("runs/fedavg-mnist5k-s0", onnx="digits.onnx")               # doctest: +SKIP
    """
    if onnx is None and torch_export is None:
        raise ConfigError("name a file to write: onnx=..., torch_export=..., or both")
    model = load(folder, client, network)
    if isinstance(model.network, Whole) and model.network.together:
        raise ConfigError(
            "an answer of this model depends on the samples that are shown with it, which a graph for any number of "
            "samples cannot say: use accord.load(folder).predict(raw)"
        )
    if model.fields is not None:
        raise ConfigError(
            f"a sample of this model is several inputs ({', '.join(model.fields.names)}), and an exported graph takes "
            "one: use accord.load(folder).predict(raw)"
        )
    graph = Graph(model.cpu()).eval()
    ways = ((onnx, "onnx", _onnx), (torch_export, "torch", _torch))
    return [_written(Path(path), form, way(graph, model), model) for path, form, way in ways if path is not None]


def features(model: Loaded) -> list[str]:
    """What the numbers are called that a table's row becomes, in their order; empty for other inputs."""
    return [
        f"{column.name}={value}" if value else column.name
        for column in model.inputs.columns
        for value in (column.values or ("",))
    ]


def _written(path: Path, form: str, made: tuple[bytes, float], model: Loaded) -> Exported:
    data, difference = made
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return Exported(path, form, _takes(model), difference)


def _takes(model: Loaded) -> str:
    shape = ", ".join(["batch", *map(str, model.inputs.shape)])
    what = {
        "image": "uint8, pixels from 0 to 255",
        "array": f"{str(model.dtype).removeprefix('torch.')}, as they were given for training",
        "tokens": "int64, token ids",
        "table": "the numbers a row becomes, load(folder).tensor(rows)",
    }[model.inputs.kind]
    return f"[{shape}] {what}"


def _example(model: Loaded, count: int) -> Tensor:
    generator, shape = torch.Generator().manual_seed(count), (count, *model.inputs.shape)
    if model.inputs.kind == "image":
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    if model.inputs.kind == "tokens":
        return torch.randint(0, 2, shape, generator=generator)  # of two tokens: how many there are is not known here
    return torch.randn(shape, generator=generator, dtype=torch.float32).to(model.dtype)


def _program(graph: Graph, model: Loaded) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's own, of its own making
            return torch.export.export(
                graph, (_example(model, SAMPLES[0]),), dynamic_shapes=({0: batch},), strict=False
            )
    except Exception as error:  # whatever a network does that cannot be traced
        raise ConfigError(f"torch.export cannot trace this network: {_first_line(error)}") from error


def _torch(graph: Graph, model: Loaded) -> tuple[bytes, float]:
    program, file = _program(graph, model), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, file)
        run = program.module()
        return file.getvalue(), _compared(graph, model, lambda x: run(x).detach())


def _onnx(graph: Graph, model: Loaded) -> tuple[bytes, float]:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"an ONNX file needs onnx, onnxscript and onnxruntime ({error}): pip install 'accord-fl[onnx]'"
        ) from error
    try:
        with warnings.catch_warnings(), torch.no_grad(), _quiet():
            warnings.simplefilter("ignore")
            made = torch.onnx.export(
                graph,
                (_example(model, SAMPLES[0]),),
                input_names=["x"],
                output_names=["outputs"],
                dynamic_shapes=({0: "batch"},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:
        raise ConfigError(f"torch.onnx cannot express this network: {_first_line(error)}") from error
    assert made is not None
    proto = made.model_proto
    _noted(proto, model)
    data: bytes = proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return data, _compared(graph, model, lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages nobody asked for."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _noted(proto: Any, model: Loaded) -> None:
    """What the outputs mean, for whoever reads the file."""
    said = {"problem": model.problem, "classes": list(model.classes), "features": features(model)}
    for name, value in said.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = f"accord.{name}", value if isinstance(value, str) else json.dumps(value)


def _compared(graph: Graph, model: Loaded, run: Any) -> float:
    """The largest difference between two ways to compute the same; DataError if they are not the same."""
    worst = 0.0
    for count in SAMPLES:
        x = _example(model, count)
        with torch.no_grad():
            ours, theirs = graph(x), run(x)
        difference = float((ours - theirs).abs().max())
        if not difference <= FAR * max(1.0, float(ours.abs().max())):
            raise DataError(f"the exported graph differs from the model by {difference:g}: it is not written")
        worst = max(worst, difference)
    return worst


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0][:300]
