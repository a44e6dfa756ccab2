"""Local training: frozen and personal parameters, clipping, dropout by address, part rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from accord.aggregate import EMA, Mean
from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedprox import Proximal
from accord.core.algorithm import Method, put
from accord.core.optim import Adam
from accord.core.task import LocalTraining, Part, check_parts
from accord.errors import ConfigError
from accord.parts.averaging import averaging
from accord.parts.losses import SampleLoss
from support.federation import TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup


def trained(method: Method, **options: object) -> TinyRun:
    return TinyRun(method, **options).rounds(2)


def test_frozen_parameters_do_not_move_and_the_rest_does() -> None:
    data, model = tiny_data(), tiny_model()
    setup = tiny_setup(data, model)
    frozen = frozenset(model.head_names)
    method = setup.method(setup.local(SampleLoss(), frozen=frozen), {"model": Mean(), "buffers": Mean()})
    before = model.init()[0]
    after = trained(method, model=model).state["model"]
    for name in after:
        assert torch.allclose(after[name], before[name]) == (name in frozen)


def test_personal_parameters_stay_home() -> None:
    data, model = tiny_data(), tiny_model()
    setup = tiny_setup(data, model)
    names = frozenset(model.head_names)
    local, rules = setup.local(SampleLoss(), personal=names), {"model": Mean(), "buffers": Mean()}
    with pytest.raises(ConfigError, match="has_global_model=False"):
        setup.method(local, rules)
    method = setup.method(local, rules, has_global_model=False)
    run = trained(method, model=model)
    assert run.replies is not None
    assert all(names.isdisjoint(result.reply["model"]) for result in run.replies.results)
    assert set((run.store.get(0) or {})["personal"]) == names
    assert all(torch.equal(run.state["model"][n], model.init()[0][n]) for n in names)
    assert run.algorithm.predictor(run.state) is None


def test_clipped_steps_are_short(float64: None) -> None:
    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = replace(tiny_setup(data, model), clip=1e-3)
    run = TinyRun(fedavg(setup), data=data, model=model).rounds(1)
    moved = sum(((run.state["model"][n] - p) ** 2).sum() for n, p in model.init()[0].items()).sqrt()
    assert 0 < moved <= 8 * 0.1 * 1e-3  # at most 8 steps of lr * clip


def test_dropout_is_drawn_by_address() -> None:
    model = tiny_model("report_cnn", shape=(1, 28, 28))
    data = tiny_data(shape=(1, 28, 28))
    runs = []
    for noise in (1, 2):  # whatever was drawn before must not matter
        torch.manual_seed(noise)
        runs.append(TinyRun("fedavg", data=data, model=model).rounds(1))
    assert equal_trees(runs[0].state, runs[1].state)


def test_a_part_twice_and_no_loss_are_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        LocalTraining(tiny_model(), (SampleLoss(), SampleLoss()))
    with pytest.raises(ConfigError, match="loss"):
        check_parts([Part()])
    assert check_parts([Proximal(0.1)])


def test_a_part_can_train_its_own_tree_and_the_server_blends_it(float64: None) -> None:
    """A scale on the logits, trained jointly, averaged with an EMA: the FedFusion pattern."""

    @dataclass(frozen=True)
    class Scale(Part):
        def state(self, model, world):  # type: ignore[no-untyped-def]
            return {"scale": {"s": torch.ones(1)}}

        def send(self, state):  # type: ignore[no-untyped-def]
            return {"scale": state["scale"]}

        def trainable(self, job):  # type: ignore[no-untyped-def]
            return {"scale": job.shared["scale"]}

        def loss(self, view):  # type: ignore[no-untyped-def]
            return view.whole((view.params["scale"]["s"] - 3).pow(2).sum())

        def finish(self, model, job, carry):  # type: ignore[no-untyped-def]
            return {"scale": carry["train"]["scale"]}, {}

    data, model = tiny_data(dtype=torch.float64), tiny_model()
    setup = tiny_setup(data, model)
    rules = {"model": Mean(), "buffers": Mean(), "scale": EMA(0.75, Mean("uniform"))}
    method = setup.method(setup.local(SampleLoss(), Scale()), rules)
    run = TinyRun(method, data=data, model=model).rounds(1)
    # s <- s - 0.1 * 2 (s - 3), as often as the client has steps: 3 - 2 * 0.8^steps
    ends = [3 - 2 * 0.8 ** len(run.batches(k, round=0)) for k in range(4)]
    assert run.state["scale"]["s"].item() == pytest.approx(0.25 * sum(ends) / 4 + 0.75)
    plain = TinyRun(averaging(setup), data=data, model=model).rounds(1)
    assert torch.allclose(plain.state["model"]["head.bias"], run.state["model"]["head.bias"])


def test_put_sorts_names() -> None:
    assert list(put({"b": {}}, a={})) == ["a", "b"]


def test_a_task_that_hands_over_answers_with_the_model_it_is_judged_by_after_training() -> None:
    @dataclass(frozen=True)
    class Own(Part):
        def judged_before(self, model, job, carry):  # type: ignore[no-untyped-def]
            return {name: t + 7 for name, t in job.shared["model"].items()}, {}

        def judged(self, model, job, carry):  # type: ignore[no-untyped-def]
            return {name: t + 1 for name, t in job.shared["model"].items()}, {}

    data, model = tiny_data(), tiny_model()
    setup = tiny_setup(data, model)
    local = setup.local(SampleLoss(), Own())
    method = setup.method(replace(local, hands_over=True), {"model": Mean(), "buffers": Mean()})
    run = TinyRun(method, data=data, model=model)
    begun = run.state["model"]
    run.rounds(1)
    assert run.replies is not None
    for result in run.replies.results:
        assert set(result.reply) == {"model", "buffers"}
        assert result.memory == {}
        assert all(torch.equal(t, begun[name] + 1) for name, t in result.reply["model"].items())


def test_what_more_a_task_has_to_do_than_usual() -> None:
    @dataclass(frozen=True)
    class Turning(Part):
        def grad(self, job, carry, grads):  # type: ignore[no-untyped-def]
            return grads

    model = tiny_model()
    plain, turning = LocalTraining(model, (SampleLoss(),)), LocalTraining(model, (SampleLoss(), Turning()))
    assert not plain.has_own("move", "grad", "after")
    assert plain.has_own("loss"), "the loss of a part"
    assert turning.has_own("grad")
    assert not turning.has_own("after")
    after, close = (type(hook, (Part,), {hook: lambda *_: None})() for hook in ("after", "close"))
    averaging_too, closing = (LocalTraining(model, (SampleLoss(), part)) for part in (after, close))
    assert not averaging_too.moves_in_stack
    assert (plain.closes_apart, closing.closes_apart, closing.moves_in_stack) == (False, True, True)
    other = type("Other", (LocalTraining,), {"finish": lambda *_: None, "move": lambda *_: None})
    own = other(model, (SampleLoss(), close))
    assert (own.closes_apart, own.moves_in_stack, own.has_own("move"), own.has_own("step")) == (
        *(False, False, True, False),
    )
    assert plain.moves_in_stack
    assert not turning.moves_in_stack
    assert not replace(plain, clip=1.0).moves_in_stack
    assert not replace(turning, clip=1.0).moves_in_stack
    assert not replace(plain, optimizer=Adam()).moves_in_stack
    assert not Part().couples
