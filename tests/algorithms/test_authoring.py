"""What an author relies on: registration, checked settings, terms of the loss, what a method says of itself."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import accord.authoring as fl
from accord.config.catalog import card
from accord.core.methods import ALGORITHMS, FAMILIES, is_personal
from accord.core.plan import Plan
from accord.executors.gpu.batched import Batched
from accord.settings import Setting, settings_of
from support.federation import TinyRun, tiny_data, tiny_model, tiny_setup

ROOT = Path(__file__).parents[2]
MODELS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}
PERSONAL = {"fedper", "fedrep", "fedbn", "fedbabu", "fedrod", "fml", "ditto", "pfedme", "apple", "fedmtl", "local"}
WITHOUT_GLOBAL_MODEL = {"fedper", "fedrep", "fedbn", "apple", "fedmtl", "local"}


@pytest.fixture
def registered() -> Iterator[None]:
    """What a test registers is forgotten: the registry is shared by all tests of this process."""
    before = set(ALGORITHMS)
    yield
    for name in set(ALGORITHMS) - before:
        ALGORITHMS._entries.pop(name)


def setup_for(name: str) -> fl.Setup:
    return tiny_setup(tiny_data(), tiny_model(MODELS.get(name, "mlp")))


def printed_by(code: str) -> str:
    """By a fresh interpreter, in which nothing was imported yet."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


# registration -------------------------------------------------------------------------------------------------


def test_the_order_is_by_family_and_name_whatever_was_imported_first() -> None:
    families = list(FAMILIES)
    places = [(families.index(ALGORITHMS.facts(name)["family"]), name) for name in ALGORITHMS]
    assert places == sorted(places)
    code = "import accord.algorithms.vhl, accord.algorithms.local, accord; print(*accord.ALGORITHMS)"
    assert printed_by(code).split() == list(ALGORITHMS)


def test_every_file_of_the_folder_registers_a_method_and_has_a_card() -> None:
    homes = {inspect.unwrap(factory).__module__ for factory in ALGORITHMS.values()}
    files = [path for path in (ROOT / "src/accord/algorithms").iterdir() if not path.name.startswith("__")]
    assert homes == {f"accord.algorithms.{path.stem}" for path in files}
    assert all(card("algorithm", factory).count("\n") > 3 for factory in ALGORITHMS.values())


def test_the_package_lists_no_methods() -> None:
    package = importlib.import_module("accord.algorithms")
    assert len(ast.parse(inspect.getsource(package)).body) == 1


def test_a_name_that_is_taken_is_refused_even_before_the_methods_were_imported() -> None:
    code = """
import accord
from accord.errors import ConfigError
def fedavg(setup): ...
try:
    accord.ALGORITHMS.add("fedavg")(fedavg)
except ConfigError as error:
    print(error)
"""
    assert "'fedavg' is registered already" in printed_by(code)


def test_own_method_takes_its_place(registered: None) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_method.py"))
    names = list(ALGORITHMS)
    assert names.index("feddyn") < names.index("fednear") < names.index("fednova")
    assert not is_personal("fednear")


# settings -----------------------------------------------------------------------------------------------------


def wrong_values(setting: Setting) -> list[Any]:
    bounds, values = setting.bounds, []
    if bounds is not None:
        values += [] if bounds.low is None else [bounds.low - 1]
        values += [] if bounds.high is None else [bounds.high + 1]
        values += [end for end in (bounds.above, bounds.below) if end is not None]
    return [*values, object()]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_bad_setting_from_python_is_refused_as_one_from_a_file(name: str) -> None:
    setup, factory = setup_for(name), ALGORITHMS[name]
    for setting in settings_of(factory).values():
        for value in wrong_values(setting):
            with pytest.raises(fl.ConfigError, match=f"algorithm {name!r}: {setting.name} = "):
                factory(setup, **{setting.name: value})
    with pytest.raises(fl.ConfigError, match=f"algorithm {name!r} has no setting 'nonsense'"):
        factory(setup, nonsense=1)


# what a method says of itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_says_whether_it_is_personal_and_has_a_global_model(name: str) -> None:
    model = tiny_model(MODELS.get(name, "mlp"))
    run = TinyRun(name, model=model)
    assert run.algorithm.personal == is_personal(name) == (name in PERSONAL)
    assert run.algorithm.has_global_model == (name not in WITHOUT_GLOBAL_MODEL)
    assert (run.algorithm.predictor(run.state) is None) == (not run.algorithm.has_global_model)
    assert run.algorithm.judges_together == (name == "fedrane")
    assert set(run.algorithm.readings(run.state)) == ({"none"} if name == "fedrane" else set())


# terms of the loss --------------------------------------------------------------------------------------------


def test_own_method_side_by_side_on_padded_batches_agrees_with_one_after_another(
    float64: None, monkeypatch: pytest.MonkeyPatch, registered: None
) -> None:
    def outside(*_: Any) -> Any:
        raise AssertionError("a client ran outside the lanes")

    monkeypatch.setattr(Batched, "_one_by_one", outside)
    factory = runpy.run_path(str(ROOT / "examples" / "own_method.py"))["fednear"]
    data, model = tiny_data(sizes=(2, 3, 13, 5), dtype=torch.float64), tiny_model()
    plan = Plan(epochs=3, batch_size=4, last_batch="pad")
    built = factory(tiny_setup(data, model, plan=plan), weight=2.0)
    plain = TinyRun(built, data=data, model=model, plan=plan).rounds(3)
    lanes = TinyRun(built, data=data, model=model, plan=plan, executor=Batched).rounds(3)
    for name, value in plain.state["model"].items():
        torch.testing.assert_close(lanes.state["model"][name], value, rtol=1e-10, atol=1e-12)
    fedavg = TinyRun("fedavg", data=data, model=model, plan=plan).rounds(3)
    assert not torch.allclose(fedavg.state["model"]["head.weight"], plain.state["model"]["head.weight"])


def test_own_methods_loss_is_the_divergence_written_with_torch(float64: None, registered: None) -> None:
    """One step with a full batch: gradient of CE + weight * KL(received || trained), which starts at 0."""
    module = runpy.run_path(str(ROOT / "examples" / "own_method.py"))
    model = tiny_model()
    params = {name: (t + 0.1).requires_grad_() for name, t in model.init()[0].items()}
    x, y = tiny_data(dtype=torch.float64).client(3)
    job: Any = fl.Job({"model": model.init()[0], "buffers": {}}, {}, {}, {}, None)  # type: ignore[arg-type]
    weight = torch.ones(len(y))
    batch = fl.Batch(x, y, weight, torch.arange(len(y)), {})
    out = model.train(params, {}, x)
    found = module["StayNear"](0.7).loss(fl.View(model, job, {}, {"model": params}, out, batch)).value
    teacher = model.reference(model.init()[0], {}, x).logits.softmax(1)
    expected = 0.7 * functional.kl_div(out.logits.log_softmax(1), teacher, reduction="batchmean")
    torch.testing.assert_close(found, expected)


@dataclass(frozen=True)
class Forgetful(fl.Part):
    """A mean that does not know of padding."""

    def loss(self, view: fl.View) -> Any:
        return view.out.logits.mean()


def test_a_mean_that_forgets_padding_is_refused() -> None:
    data, model = tiny_data(), tiny_model()
    built = fl.averaging(tiny_setup(data, model), Forgetful())
    run = TinyRun(built, data=data, model=model)
    with pytest.raises(Exception, match=r"the part Forgetful gave a bare Tensor as its loss: give view\.mean"):
        run.rounds(1)


def test_the_mean_leaves_padding_out_and_wants_one_value_per_sample() -> None:
    weight = torch.tensor([1.0, 1.0, 0.0])
    batch = fl.Batch(torch.zeros(3, 2), torch.zeros(3), weight, torch.arange(3), {})
    view = fl.View(None, None, {}, {}, None, batch)  # type: ignore[arg-type]
    values = torch.tensor([1.0, 4.0, 100.0])
    assert float(view.mean(values).value) == 2.5
    mixed = 2 * view.mean(values) - view.whole(torch.tensor(1.0)) + view.mean(values)
    assert float(mixed.value) == 6.5
    for wrong in (values.sum(), values.unsqueeze(1), values[:2]):
        with pytest.raises(ValueError, match="one value per sample"):
            view.mean(wrong)


@dataclass(frozen=True)
class OneForward(fl.Part):
    def forward(self, *args: Any) -> Any:
        return super().forward(*args)


@dataclass(frozen=True)
class OtherForward(OneForward):
    pass


def test_only_one_part_runs_the_model() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    setup.local(fl.SampleLoss(), OneForward())
    with pytest.raises(fl.ConfigError, match="OneForward and OtherForward both run the model"):
        setup.local(fl.SampleLoss(), OneForward(), OtherForward())
