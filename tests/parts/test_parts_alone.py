"""Parts that several methods share, each asked directly: momentum, heads, projections, phases, parts by name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from accord.aggregate import Mean
from accord.algorithms.fedntd import NotTrueDistillation
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.optim import SGD, Schedule
from accord.core.task import Part
from accord.core.types import Replies, Result, World
from accord.errors import ConfigError
from accord.models import adapt
from accord.parts.averaging import averaging
from accord.parts.composition import build_parts, check_together, listed_parts
from accord.parts.heads import (
    FixedHead,
    bodiless,
    needs_free_head,
    orthonormal_head,
    orthonormal_rows,
    personal_head,
)
from accord.parts.losses import SampleLoss
from accord.parts.mlp import init_mlp
from accord.parts.momentum import ClientMomentum
from accord.parts.phases import Gated, taking_turns
from accord.parts.projection import DrawnProjection, Projecting, with_projection
from accord.problems import PROBLEMS
from support.federation import tiny_data, tiny_model, tiny_setup

T = torch.tensor


def world(round: int = 0) -> World:
    return World(round, [0, 1], np.array([1, 3]), Key(5))


def at(round: int, **shared: Any) -> Any:
    return SimpleNamespace(info={"round": T(round)}, shared=shared)


def setup_of(**model: Any) -> Any:
    return tiny_setup(tiny_data(), tiny_model(**model))


# momentum ---------------------------------------------------------------------------------------------------------
def test_steps_along_the_mixture_from_the_second_round_on() -> None:
    """alpha g + (1 - alpha) D = 0.25 * 8 + 0.75 * 4 = 5; other trees as they come."""
    part = ClientMomentum(Schedule(0.5), SGD(), alpha=0.25)
    grads = {"model": {"w": T([8.0])}, "other": {"v": T([9.0])}}
    for round, wanted in ((0, 8.0), (1, 5.0), (2, 5.0)):
        found = part.grad(at(round, momentum={"w": T([4.0])}), {}, grads)
        assert (found["model"]["w"].tolist(), found["other"]["v"].tolist()) == ([wanted], [9.0])
    whole = replace(part, alpha=1.0)
    assert whole.mixed(at(1), grads["model"], {"w": T([4.0])}) is grads["model"]


def test_the_direction_is_a_mean_of_distances_by_rate_and_steps() -> None:
    """Rate 0.5 * 0.5 in round 1; (10 - 9) / (0.25 * 2) and (10 - 6) / (0.25 * 4): (2 + 4) / 2, samples aside."""
    part = ClientMomentum(Schedule(0.5, "exponential", decay=0.5), SGD(), alpha=0.25)

    def replies(*sent: tuple[float, int]) -> Replies:
        results = tuple(Result({"model": {"w": T([w])}}, {}, {"steps": T(float(n))}) for w, n in sent)
        return Replies(tuple(range(len(sent))), results, torch.arange(1, len(sent) + 1), {})

    state = {"model": {"w": T([10.0]), "home": T([1.0])}, "momentum": {"w": T([7.0]), "home": T([3.0])}}
    new = part.update(state, replies((9.0, 2), (6.0, 4)), world(1))
    assert new["momentum"]["w"].tolist() == pytest.approx([3.0])
    assert new["momentum"]["home"].tolist() == [3.0], "what nobody sent stays"
    assert set(new) == {"momentum"}
    # somebody without steps has not moved, and is one of the three all the same
    idle = part.update(state, replies((9.0, 2), (6.0, 4), (10.0, 0)), world(1))
    assert idle["momentum"]["w"].tolist() == pytest.approx([2.0])
    # with momentum 1/2 two steps are worth 1 + 1.5 of them: 1 / (0.25 * 2.5)
    heavy = replace(part, optimizer=SGD(0.5)).update(state, replies((9.0, 2)), world(1))
    assert heavy["momentum"]["w"].tolist() == pytest.approx([1.6])
    model = tiny_model()
    first = part.state(model, world())["momentum"]
    assert {name: t.shape for name, t in first.items()} == {name: t.shape for name, t in model.init()[0].items()}
    assert not any(bool(t.any()) for t in first.values())
    assert part.send({"momentum": first, "model": {}}) == {"momentum": first}


# heads ------------------------------------------------------------------------------------------------------------
class Linears(nn.Module):
    """x -> tanh(A x) -> the head."""

    def __init__(self, features: int = 4, head: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.fc = nn.Linear(3, features), head or nn.Linear(features, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(torch.tanh(self.body(x)))
        return out


def model_of(network: nn.Module, head: str = "fc", **more: Any) -> Model:
    return Model(adapt(network, head=head, example=torch.zeros(1, 3)), **more)


def test_an_orthonormal_head_takes_the_place_of_the_linear_one() -> None:
    network = Linears()
    model = model_of(network)
    other = orthonormal_head(model)
    assert other.head_names == ("module.fc.weight",), "no bias"
    params, buffers = other.init()
    rows = params["module.fc.weight"]
    assert torch.equal(rows, orthonormal_rows(network.fc.weight.detach()))
    x = torch.arange(6.0).view(2, 3)
    features = torch.tanh(network.body(x))
    wanted = (features / features.norm(dim=1, keepdim=True)) @ rows.T
    assert torch.allclose(other.reference(params, buffers, x).logits, wanted)
    assert model.head_names == ("module.fc.bias", "module.fc.weight"), "the given model is as it was"


def test_where_there_is_no_orthonormal_head() -> None:
    square = orthonormal_head(model_of(Linears(features=2)))
    assert square.init()[0]["module.fc.weight"].shape == (2, 2), "as many features as classes are enough"
    with pytest.raises(ConfigError, match="gives 1 features for 2 classes"):
        orthonormal_head(model_of(Linears(features=1)))
    with pytest.raises(ConfigError, match=r"the head 'module\.fc' of this model is a Sequential"):
        orthonormal_head(model_of(Linears(head=nn.Sequential(nn.Linear(4, 2), nn.ReLU()))))
    frozen = Linears()
    frozen.fc.requires_grad_(False)
    with pytest.raises(ConfigError, match="that head is frozen"):
        orthonormal_head(model_of(frozen))
    still = Linears()
    still.body.requires_grad_(False)
    with pytest.raises(ConfigError, match="no body is trained"):
        orthonormal_head(model_of(still))
    with pytest.raises(ConfigError, match="regression has no classes"):
        orthonormal_head(model_of(Linears(), problem=PROBLEMS["regression"]))


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_rows_are_dependent_by_their_directions_not_by_their_size(scale: float) -> None:
    rows = orthonormal_rows(scale * T([[3.0, 4.0, 0.0], [3.0, 4.0, -0.5]], dtype=torch.float64))
    assert torch.allclose(rows, T([[0.6, 0.8, 0.0], [0.0, 0.0, -1.0]], dtype=torch.float64))
    with pytest.raises(ConfigError, match="linearly dependent"):
        orthonormal_rows(scale * T([[0.1, 0.2, 0.3], [0.3, 0.6, 0.9]], dtype=torch.float64))


def test_rows_that_are_almost_parallel_are_told_apart_in_double_precision() -> None:
    """What (1, 1, 1 + d) has beside (1, 1, 1) points along (-1, -1, 2), however small d is."""
    rows = orthonormal_rows(T([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0001]]))
    assert rows.dtype == torch.float32
    assert torch.allclose(rows[1], T([-1.0, -1.0, 2.0]) / 6**0.5, atol=1e-6)


def test_a_fixed_head_is_not_sent() -> None:
    model = model_of(Linears())
    trained, _ = model.init()
    reply, memory = FixedHead().finish(model, at(0), {"train": {"model": trained}})
    assert memory == {}
    assert set(reply) == {"model"}
    assert set(reply["model"]) == {"module.body.weight", "module.body.bias"}
    assert reply["model"]["module.body.bias"] is trained["module.body.bias"]


def test_heads_that_stay_with_clients_must_be_free_and_leave_something_to_share() -> None:
    free = Linears()
    assert personal_head(replace(setup_of(), model=model_of(free)), "m") == {"module.fc.weight", "module.fc.bias"}
    frozen = Linears()
    frozen.fc.bias.requires_grad_(False)
    for refuse in (needs_free_head, personal_head):
        with pytest.raises(ConfigError, match=r"algorithm m trains a head for every client, but .* is frozen"):
            refuse(replace(setup_of(), model=model_of(frozen)), "m")
    still = Linears()
    still.body.requires_grad_(False)
    assert bodiless(model_of(still)) == "has a frozen body"
    alone = model_of(nn.Sequential(nn.Linear(3, 2)), head="0")
    assert bodiless(alone) == "is only a head"
    with pytest.raises(ConfigError, match="this network is only a head: nothing would be shared"):
        personal_head(replace(setup_of(), model=alone), "m")


# projections ------------------------------------------------------------------------------------------------------
def test_a_projection_is_drawn_by_address_and_stands_before_a_new_classifier() -> None:
    given = setup_of(hidden=(5,))
    names = [name for name, _ in given.model.network.named_parameters()]
    setup = with_projection(given, "m", 4)
    assert [name for name, _ in given.model.network.named_parameters()] == names, "the given network has its head"
    network = setup.model.network
    assert isinstance(network, Projecting)
    body = {name: t for name, t in setup.model.init()[0].items() if name.startswith("body.")}
    state = DrawnProjection().state(setup.model, world())
    assert set(state) == {"model"}
    layers = init_mlp(Key(5).at("projector"), (5, 5, 4))
    head = init_mlp(Key(5).at("head"), (4, 3))
    wanted = {
        **body,
        **{f"projector.0.{leaf}": layers[f"0.{leaf}"] for leaf in ("weight", "bias")},
        **{f"projector.2.{leaf}": layers[f"1.{leaf}"] for leaf in ("weight", "bias")},
        **{f"head.{leaf}": head[f"0.{leaf}"] for leaf in ("weight", "bias")},
    }
    assert state["model"].keys() == wanted.keys()
    assert all(torch.equal(state["model"][name], t) for name, t in wanted.items())
    assert body
    assert len(body) == len(setup_of(hidden=(5,)).model.body_names), "the old head is gone"
    assert setup.model.num_features == 4
    assert setup.model.init()[0]["head.weight"].shape == (3, 4)


def test_what_cannot_be_projected() -> None:
    frozen = Linears()
    frozen.fc.requires_grad_(False)
    with pytest.raises(ConfigError, match="that head is frozen"):
        with_projection(replace(setup_of(), model=model_of(frozen)), "m", 4)
    unsized = model_of(Linears())
    unsized.num_features = 0
    with pytest.raises(ConfigError, match="does not say how many features it has"):
        with_projection(replace(setup_of(), model=unsized), "m", 4)


# phases -----------------------------------------------------------------------------------------------------------
def test_turns_open_and_close_the_gates_and_clip_each_group_alone() -> None:
    """Turns 1, 0, 1 in a round of three steps; who has none never moves."""
    setup = replace(setup_of(), clip=2.0, keeps_optimizer=True)

    class Drawing(Part):
        def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
            return {"drawn": rng.random((steps, batch))}

    task = setup.local(SampleLoss(), Drawing(), personal=frozenset({"head.bias"}))
    asked: list[int] = []

    def order(steps: int) -> Any:
        asked.append(steps)
        return np.array([1, 0, 1])

    turns = {("model", "apart"): 0, ("model", "rest"): 1, ("other", "rest"): 0}
    taking = taking_turns(task, order, turns, frozenset({"head.weight"}))
    assert taking.optimizer == Gated(task.optimizer, frozenset({"head.weight"}), 2.0)
    assert taking.clip == 0.0, "not once more over both"
    kept = ("model", "parts", "plan", "personal", "frozen", "keeps_optimizer", "private", "hands_over")
    assert all(getattr(taking, name) == getattr(task, name) for name in kept)
    noise = taking.noise(np.random.default_rng(0), 3, 4)
    assert (noise["turns.now"].tolist(), asked) == ([1, 0, 1], [3])
    assert noise["drawn"].tolist() == np.random.default_rng(0).random((3, 4)).tolist()
    gates = {tree: {"gate": {"apart": T(9.0), "rest": T(9.0)}} for tree in ("model", "other")}
    carry = {"optimizer": gates, "SampleLoss": {}, "Drawing": {}}
    for now, wanted in ((0, (1.0, 0.0, 0.0, 1.0)), (1, (0.0, 1.0, 0.0, 0.0))):
        batch: Any = SimpleNamespace(noise={"turns.now": T(now)})
        assert taking.prepare(at(0), carry, batch) is batch
        found = [float(gates[tree]["gate"][group]) for tree in ("model", "other") for group in ("apart", "rest")]
        assert tuple(found) == wanted
    assert taking_turns(task, order, turns).optimizer == Gated(task.optimizer, frozenset(), 2.0)


# methods from parts -----------------------------------------------------------------------------------------------
def test_averaging_folds_model_and_buffers_by_one_weight_after_the_problems_loss() -> None:
    setup, part = setup_of(), NotTrueDistillation()
    assert averaging(setup).aggregate == {"model": Mean("examples"), "buffers": Mean("examples")}
    method = averaging(setup, part, weight="uniform", has_global_model=False)
    assert method.aggregate == {"model": Mean("uniform"), "buffers": Mean("uniform")}
    assert method.local.parts == (SampleLoss(), part)
    assert not method.has_global_model


def test_parts_by_name_with_their_settings() -> None:
    setup = setup_of()
    known = listed_parts()
    assert {"fedcm", "fedntd", "mixup", "fedprox", "feddecorr"} <= set(known)
    assert set(known["fedntd"]) == {"beta", "tau"}
    assert "fedavg" not in known
    first, second = build_parts(setup, ["fedntd: tau=2, beta=0.5,", "fedcm"])
    assert first == NotTrueDistillation(0.5, 2.0)
    assert second == ClientMomentum(setup.schedule, setup.optimizer, 0.1)
    assert build_parts(setup, []) == ()
    for texts, words in (
        ("fedcm", "parts are listed by name"),
        ([first], "parts are listed by name"),
        (["fedmc"], "unknown part 'fedmc'. Did you mean 'fedcm'"),
        (["fedntd: tau"], "'tau' must be a setting and its value"),
        (["fedntd: tau="], "'tau=' must be a setting and its value"),
        (["fedntd: tua=1"], "unknown setting 'tua'. Did you mean 'tau'"),
        (["fedntd: tau=1, tau=2"], "'tau' is given twice"),
        (["fedntd: tau=-1"], "tau = -1"),
    ):
        with pytest.raises(ConfigError) as refused:
            build_parts(setup, texts)  # type: ignore[arg-type]
        assert words in str(refused.value)


def test_parts_that_go_together() -> None:
    momentum = ClientMomentum(Schedule(0.1), SGD())
    check_together([momentum, SampleLoss(), NotTrueDistillation()])
    check_together([NotTrueDistillation(), SampleLoss(), momentum])
    with pytest.raises(ConfigError, match="the part SampleLoss is listed twice"):
        check_together([SampleLoss(), momentum, SampleLoss()])

    class Other(ClientMomentum):
        pass

    with pytest.raises(ConfigError, match="ClientMomentum and Other do not go together: each replaces the gradient"):
        check_together([momentum, Other(Schedule(0.1), SGD())])
    with pytest.raises(ConfigError, match="takes Part objects, not 'fedcm'"):
        check_together(["fedcm"])  # type: ignore[list-item]
