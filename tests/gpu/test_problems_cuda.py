"""On a CUDA device: recorded and compiled steps of every problem. Run by `make test-gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import accord
from accord.executors.gpu.precision import numerics
from support.problems import problem_config, problem_data

pytestmark = [
    pytest.mark.gpu,
    # Torch's compiler warns of its own choices; falling back would show nothing.
    pytest.mark.filterwarnings("ignore", "error:task .* cannot be"),
]

CASES = [
    ("classification", "local.class_weights=balanced"),
    ("multilabel", "local.class_weights=balanced"),
    ("regression", "local.class_weights=none"),
    ("tokens", "local.class_weights=none"),
]


@pytest.mark.parametrize("form", ["compile=false", "compile=true", "precision=bf16"])
@pytest.mark.parametrize(("task", "weights"), CASES)
def test_the_numbers_of_one_client_after_another(task: str, weights: str, form: str, tmp_path: Path) -> None:
    torch.compiler.reset()
    found = {}
    for executor in ("batched", "sequential"):
        own = (form,) if executor == "batched" or form.startswith("precision") else ()
        sets = ("rounds=2", "device=cuda", f"executor={executor}", f"name={executor}", weights, *own)
        with numerics("fp32"):
            outcome = accord.run(problem_config(task, "fedavg", tmp_path, *sets), data=problem_data(task))
        assert outcome.model is not None
        found[executor] = outcome.model.state_dict()
    near = 0.1 if form.startswith("precision") else 1e-3
    for name, value in found["sequential"].items():
        assert (found["batched"][name] - value).abs().max() <= near * value.abs().max() + 1e-5, name
