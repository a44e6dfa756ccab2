"""FedUFO's settings: what is refused, which rows of the tables they give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_origin

import pytest
import torch

from accord.algorithms.fedufo import feduad, fedufo
from accord.algorithms.fedufo.alignment import Discriminator
from accord.algorithms.fedufo.settings import Settings, read
from accord.core.optim import SGD, Adam
from accord.core.plan import Plan
from accord.errors import ConfigError
from accord.sampling import Uniform
from accord.settings import Misfit, fit, settings_of
from support.federation import Given, tiny_data, tiny_model, tiny_setup
from support.fedufo_reference import Options, Reference
from support.fedufo_runs import tiny

# settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"terms": "uda"}, 'terms = "uda": must be one of'),
        ({"kl": "sideways"}, 'kl = "sideways": must be one of'),
        ({"disc_home": "cloud"}, 'disc_home = "cloud": must be one of'),
        ({"terms": "cgr", "dynamic": True}, "CGL loss only"),
        ({"terms": "all", "cgl_weight": 0.0, "dynamic": True}, "CGL loss only"),
        ({"terms": "cgl", "start": "prior"}, "needs UAD or CGR"),
        ({"disc_classes": "group"}, "disc_home to 'fresh'"),
        ({"stage_one_rounds": 3}, "below rounds"),
        ({"sampler": Uniform(1)}, "at least two"),
        ({"terms": "cgr", "sampler": Uniform(1)}, "at least two"),
        ({"data": tiny_data((9,)), "terms": "uad"}, "at least two"),
        ({"disc_reads": "maps"}, r"feature maps of shape \(channels, height, width\)"),
        ({"terms": "cgl", "performance_share": 0.1}, "set dynamic to true"),
        ({"terms": "cgl", "stage_one_rounds": 3}, "below rounds"),
        ({"terms": "cgr", "stage_one_rounds": 3}, "below rounds"),
    ],
)
def test_refusals(chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tiny(**chosen)


@pytest.mark.parametrize(
    ("given", "begins"),
    [({}, 3), ({"terms": "uad+cgl"}, 3), ({"terms": "uad"}, 0), ({"terms": "cgl"}, 0), ({"stage_one_rounds": 1}, 1)],
)
def test_the_second_stage_begins_at_half_of_the_rounds(given: dict[str, Any], begins: int) -> None:
    """Of seven rounds after three; where there is one kind of term alone there are no stages."""
    data, model = tiny_data(), tiny_model()
    setup = replace(tiny_setup(data, model), rounds=7)
    assert read(setup, Settings(**given)).stage_two == begins


def test_a_model_without_features_is_refused() -> None:
    model = tiny_model()
    model.num_features = 0
    with pytest.raises(ConfigError, match=r"accord\.models\.adapt"):
        tiny(model=model)
    tiny(model=model, terms="cgl").rounds(1)


def test_the_reports_discriminator() -> None:
    """320-200-100: the flattened maps of its network, 200 hidden units, an output for each of a hundred clients."""
    data = tiny_data((2,) * 100, shape=(1, 28, 28))
    model = tiny_model("report_cnn", shape=(1, 28, 28))
    run = tiny(feduad, model=model, data=data, disc_reads="maps", disc_hidden=200, sampler=Uniform(2))
    shapes = {name: tuple(tensor.shape) for name, tensor in run.state["discriminator"].items()}
    assert shapes == {"0.weight": (200, 320), "0.bias": (200,), "1.weight": (100, 200), "1.bias": (100,)}


def test_one_client_is_enough_for_cgl(float64: None) -> None:
    run = tiny(terms="cgl", data=tiny_data((9,), dtype=torch.float64))
    ours = Reference(run, Options(("cgl",)), dict(run.state["model"]))
    for round in range(2):
        ours.round(round, [0])
    run.rounds(2)
    for name, value in ours.w.items():
        torch.testing.assert_close(run.state["model"][name], value, rtol=1e-9, atol=1e-10)


def test_rows_and_presets() -> None:
    """Left alone: all terms with dynamic sampling; a row by its terms alone has none."""
    parts = {
        "cls": [],
        "cgr": ["Peers", "GroupConsensus"],
        "cgl": ["GlobalConsensus"],
        "uad": ["Peers", "UniformAlignment"],
        "uad+cgr": ["Peers", "UniformAlignment", "GroupConsensus"],
        "uad+cgl": ["Peers", "UniformAlignment", "GlobalConsensus"],
        "all": ["Peers", "UniformAlignment", "GroupConsensus", "GlobalConsensus", "Performance"],
    }
    for terms, names in parts.items():
        method = tiny(terms=terms).algorithm
        assert [part.name for part in method.local.parts] == ["SampleLoss", *names]  # type: ignore[attr-defined]
    for terms in ("cgl", "uad+cgl"):
        assert "performance" in tiny(terms=terms, dynamic=True, performance="fresh").algorithm.tasks


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"terms": "cls"}, ""),
        ({"terms": "cgl"}, ""),
        ({"terms": "uad"}, "sends each client's model on to its group"),
        ({"terms": "cgl", "dynamic": True, "performance": "fresh"}, "chooses clients by each one's accuracy"),
    ],
)
def test_why_sums_of_the_answers_are_not_enough(given: dict[str, Any], why: str) -> None:
    assert tiny(**given).algorithm.needs_each == why  # type: ignore[attr-defined]


@pytest.mark.parametrize("factory", [fedufo, feduad])
def test_every_setting_fits_its_own_annotation(factory: Any) -> None:
    for setting in settings_of(factory).values():
        assert fit(setting.type, setting.default, setting.bounds) == setting.default
        if get_origin(setting.type) is Literal:
            with pytest.raises(Misfit):
                fit(setting.type, "nonsense")


def test_feduads_settings_are_a_part_of_fedufos() -> None:
    ours, all_of_them = settings_of(feduad), settings_of(fedufo)
    assert len(all_of_them) == 21
    assert next(iter(all_of_them)) == "terms"
    assert "terms" not in ours
    assert all(all_of_them[name] == setting for name, setting in ours.items())


def test_any_local_optimizer_will_do(float64: None) -> None:
    """The model moves by Adam (torch's own here), the discriminator by SGD at its share of the rate."""
    run = tiny(optimizer=Adam(weight_decay=0.1), lr=1e-3, terms="uad", sampler=Given([0, 2]))
    ours = WithAdam(run, Options(("uad",), lr=1e-3), dict(run.state["model"]), dict(run.state["discriminator"]))
    ours.round(0, [0, 2])
    before = dict(run.state["discriminator"])
    run.rounds(1)
    for tree, values in (("model", ours.w), ("discriminator", ours.d)):
        for name, value in values.items():
            torch.testing.assert_close(run.state[tree][name], value, rtol=1e-7, atol=1e-9)
    assert not torch.equal(run.state["discriminator"]["0.weight"], before["0.weight"])
    tiny(optimizer=Adam(weight_decay=0.1), lr=1e-3, stage_one_rounds=1).rounds(3)


class WithAdam(Reference):
    """The reference with torch's Adam for the model; the discriminator, told by its momentum, keeps SGD."""

    def sgd(self, params: Any, grads: Any, velocity: Any, lr: float, momentum: float) -> Any:
        if momentum:
            plain = {n: g + 0.1 * params[n] for n, g in grads.items()}
            return super().sgd(params, plain, velocity, lr, momentum)
        if "adam" not in velocity:
            leaves = {n: p.clone() for n, p in params.items()}
            velocity["adam"] = leaves, torch.optim.Adam(list(leaves.values()), lr=lr, weight_decay=0.1)
        leaves, optimizer = velocity["adam"]
        for n, leaf in leaves.items():
            leaf.grad = grads[n]
        optimizer.step()
        return {n: leaf.clone() for n, leaf in leaves.items()}


def test_two_clients_and_one_round_of_the_second_stage_are_enough() -> None:
    setup = tiny_setup(tiny_data(), tiny_model(), sampler=Uniform(2), rounds=3)
    assert read(setup, Settings(stage_one_rounds=2)).stage_two == 2


def test_the_discriminator_is_made_as_it_was_asked_for() -> None:
    """Epochs of its own, whatever counts the model's steps; the weight decay is the model's."""
    plan = Plan(epochs=3, steps=2, batch_size=4)
    setup = tiny_setup(tiny_data(), tiny_model(), plan=plan, optimizer=SGD(0.5, 0.01))
    chosen = {"disc_home": "client", "disc_train": "batch", "disc_layers": 3, "disc_hidden": 5, "disc_lr": 0.2}
    method = feduad(setup, **chosen, disc_momentum=0.4, disc_epochs=6)
    (part,) = (part for part in method.local.parts if part.name == "UniformAlignment")
    asked = Discriminator("all", "client", "batch", 3, 5, 0.2, SGD(0.4, 0.01), Plan(epochs=6, steps=0, batch_size=4))
    assert part.discriminator == asked


def test_settings_of_what_is_off_forbid_nothing_and_cost_nothing() -> None:
    setup = tiny_setup(tiny_data(), tiny_model(), sampler=Uniform(2), rounds=3)
    without = read(setup, Settings(terms="cgl", disc_classes="group"))
    assert (without.uad, without.grouped) == (False, False)
    assert read(setup, Settings(terms="uad", stage_one_rounds=3)).stage_two == 3, "there is no second stage to come"
    still: Any = fedufo(setup, terms="cgl", performance="fresh")
    assert "performance" not in still.tasks
    assert still.needs_each == ""
    assert read(setup, Settings(terms="all", cgl_weight=0.0)).dynamic is False


def test_priors_are_exchanged_from_the_first_round_on_where_training_goes_on_from_them() -> None:
    setup = tiny_setup(tiny_data(), tiny_model(), rounds=5)
    for chosen, begins in (({"start": "prior"}, 0), ({}, 2), ({"terms": "uad+cgr"}, 0), ({"disc_lr": 0.0}, 2)):
        method: Any = fedufo(setup, **{"terms": "cgr", "stage_one_rounds": 2, **chosen})
        assert method.priors_from == begins
