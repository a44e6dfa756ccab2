"""One file for other programs: it takes raw numbers, any number of samples, and answers as the model does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import accord
from accord.cli.app import app
from accord.deploy.exported import Graph, _compared
from accord.errors import ConfigError, DataError
from support.frozen import Tower, tower
from support.leaving import CLASSES, TEST, finished


@pytest.mark.parametrize(("answer", "off", "same"), [(1e3, 0.5, True), (1e3, 2.0, False), (0.01, 5e-4, True)])
def test_how_far_an_exported_graph_may_be_off(answer: float, off: float, same: bool) -> None:
    """A thousandth of the largest answer, or of one where all answers are smaller."""
    model: Any = SimpleNamespace(inputs=SimpleNamespace(kind="tokens", shape=(3,)), dtype=torch.float32)
    asked: list[torch.Tensor] = []

    def graph(x: torch.Tensor) -> torch.Tensor:
        asked.append(x)
        return torch.tensor([answer, -answer / 2], dtype=torch.float64)

    def other(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([answer, -answer / 2 - off], dtype=torch.float64)

    if same:
        assert _compared(graph, model, other) == pytest.approx(off)  # type: ignore[arg-type]
    else:
        with pytest.raises(DataError, match="differs from the model by 2"):
            _compared(graph, model, other)  # type: ignore[arg-type]
    assert all(x.dtype == torch.int64 and set(x.flatten().tolist()) <= {0, 1} for x in asked), "tokens are whole"


def test_onnx_takes_pixels_and_answers_as_the_model(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = finished(tmp_path, "algorithm.name=ditto").folder
    path, level = tmp_path / "pets.onnx", logging.getLogger("torch.onnx").level
    shown = CliRunner().invoke(app, ["export", str(folder), "--onnx", str(path), "--client", "Lyon"])
    assert shown.exit_code == 0, shown.stderr
    assert "uint8, pixels from 0 to 255; largest difference to the model: " in shown.stdout
    assert logging.getLogger("torch.onnx").level == level
    session = runtime.InferenceSession(path.read_bytes())
    model = accord.load(folder, "Lyon")
    for count in (1, 7):
        (outputs,) = session.run(None, {"x": TEST[0][:count]})
        np.testing.assert_allclose(outputs, model(TEST[0][:count]).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["accord.classes"]) == list(CLASSES)


def test_torch_export_of_fused_networks(tmp_path: Path) -> None:
    """An own network, whose maps are found by hooks, with what FedFusion puts around it."""
    folder = finished(tmp_path, "algorithm.name=fedfusion", model=tower()).folder
    (made,) = accord.export(folder, torch_export=tmp_path / "pets.pt2", network=Tower())
    assert made.difference < 1e-5
    program = torch.export.load(made.path).module()
    model = accord.load(folder, network=Tower())
    torch.testing.assert_close(program(torch.from_numpy(TEST[0][:3])), model(TEST[0][:3]), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_one_graph(tmp_path: Path) -> None:
    folder = finished(tmp_path, "algorithm.name=fedrane").folder
    with pytest.raises(ConfigError, match="depends on the samples that are shown with it"):
        accord.export(folder, torch_export=tmp_path / "x.pt2")
    with pytest.raises(ConfigError, match="name a file to write"):
        accord.export(folder)
    assert CliRunner().invoke(app, ["export", str(folder)]).exit_code == 2
    assert not (tmp_path / "x.pt2").exists()


def test_a_network_that_cannot_be_traced_is_said(tmp_path: Path) -> None:
    class Moody(Tower):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            return out if float(out.sum().detach()) > 0 else out + 0

    folder = finished(tmp_path, model=accord.adapt(Moody(), head="head")).folder
    with pytest.raises(ConfigError, match=r"torch\.export cannot trace this network"):
        accord.export(folder, torch_export=tmp_path / "x.pt2", network=Moody())


def test_the_graph_is_all_of_the_arithmetic(tmp_path: Path) -> None:
    model = accord.load(finished(tmp_path).folder)
    torch.testing.assert_close(Graph(model)(torch.from_numpy(TEST[0])), model(TEST[0]))
