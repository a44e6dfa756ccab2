"""Compose: methods put together from parts by name, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from accord.aggregate import FedAvgM, Mean, ServerOptimizer
from accord.aggregate.nash import Nash
from accord.algorithms.compose import compose
from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedbr import fedbr
from accord.algorithms.fedcm import fedcm
from accord.algorithms.feddecorr import Decorrelation, feddecorr
from accord.algorithms.fedntd import NotTrueDistillation, fedntd
from accord.algorithms.fedprox import fedprox
from accord.algorithms.fedrane import fedrane
from accord.algorithms.fedufo import fedufo
from accord.algorithms.fedufo.consensus import Divergence, GlobalConsensus
from accord.algorithms.mixup import mixup
from accord.algorithms.server_optimizers import fedavgm
from accord.algorithms.vhl import vhl
from accord.config import load_config
from accord.core.optim import Adam
from accord.core.plan import Plan
from accord.core.task import Part
from accord.errors import ConfigError
from accord.executors.processes import Processes
from accord.parts.composition import build_parts, check_together, listed_parts
from accord.parts.heads import FixedHead
from accord.parts.losses import SampleLoss
from support.federation import TinyRun, equal_trees, tiny_data, tiny_model, tiny_setup


def tiny(factory: Any, options: dict[str, Any] | None = None, executor: Any = None, **setup: Any) -> TinyRun:
    data, model = tiny_data(dtype=torch.get_default_dtype()), tiny_model()
    built = factory(tiny_setup(data, model, **setup), **(options or {}))
    kinds = {"executor": executor} if executor else {}
    return TinyRun(built, data=data, model=model, **kinds, **setup)


@pytest.mark.parametrize(
    ("parts", "weight", "factory", "options"),
    [
        ((), "examples", fedavg, {}),
        (("mixup",), "examples", mixup, {}),
        (("mixup: alpha=0.7",), "examples", mixup, {"alpha": 0.7}),
        (("fedcm",), "uniform", fedcm, {}),
        (("feddecorr: form=fedbr, beta=1",), "examples", feddecorr, {"beta": 1.0, "form": "fedbr"}),
        (("fedntd:tau=2,beta=.5",), "uniform", fedntd, {"beta": 0.5, "tau": 2.0, "weight": "uniform"}),
        (("fedprox: mu=0.3",), "examples", fedprox, {"mu": 0.3}),
        (("vhl: count=30, space=logits",), "examples", vhl, {"count": 30, "space": "logits"}),
    ],
)
def test_one_part_is_its_method_bit_for_bit(
    parts: tuple[str, ...], weight: str, factory: Any, options: dict[str, Any]
) -> None:
    ours = tiny(compose, {"parts": parts, "weight": weight}).rounds(3)
    assert equal_trees(ours.state, tiny(factory, options).rounds(3).state)


@pytest.mark.parametrize(
    ("settings", "factory", "options"),
    [
        ({"cgl": 3.0}, fedufo, {"terms": "cgl", "stage_one_rounds": 0, "cgl_weight": 3.0, "dynamic": False}),
        ({"pseudo": 0.5, "weight": "uniform"}, fedbr, {"lam": 0.5, "mu": 0.0, "every_round": False}),
        ({"server_momentum": 0.7}, fedavgm, {"beta": 0.7}),
        ({"bargain": True}, fedrane, {"lra": False}),
        ({"orthonormal": True}, fedrane, {"lra": False, "gne": False, "frozen_head": True}),
        ({"orthonormal": True, "bargain": True}, fedrane, {"lra": False, "frozen_head": True}),
    ],
)
def test_one_part_of_a_papers_method_is_that_method_without_the_others(
    settings: dict[str, Any], factory: Any, options: dict[str, Any]
) -> None:
    ours = tiny(compose, settings).rounds(3)
    theirs = tiny(factory, options).rounds(3)
    assert equal_trees(ours.state, theirs.state)
    base = tiny(fedavg).rounds(3).state["model"]
    body = [name for name in base if not name.startswith("head")]
    assert any(not torch.equal(ours.state["model"][name], base[name]) for name in body)


def test_momentum_moves_along_what_was_bargained() -> None:
    one, beta = {"bargain": True, "cgl": 1.0, "pseudo": 0.5}, 0.5
    plain, ours = tiny(compose, one), tiny(compose, {**one, "server_momentum": beta})
    first = {name: t.clone() for name, t in ours.state["model"].items()}
    plain.rounds(1), ours.rounds(1)
    after = {name: t.clone() for name, t in ours.state["model"].items()}
    assert all(torch.allclose(after[name], t, atol=1e-6) for name, t in plain.state["model"].items())  # no velocity yet
    plain.rounds(1), ours.rounds(1)
    for name, start in first.items():  # the second step has half of the first one in it
        expected = plain.state["model"][name] + beta * (after[name] - start)
        assert torch.allclose(ours.state["model"][name], expected, atol=1e-6)


def test_what_cannot_be_put_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="as many pseudo-samples as a batch"):
        tiny(compose, {"pseudo": 1.0}, plan=Plan(batch_size=0))
    with pytest.raises(ConfigError, match="nobody to bargain with"):
        compose(replace(tiny_setup(tiny_data(), tiny_model()), num_clients=1), bargain=True)


def test_all_parts_together_train_and_agree_across_executors() -> None:
    options = {"parts": ("mixup", "fedcm", "feddecorr", "fedntd: beta=0.1", "fedprox", "vhl: count=30")}
    one = tiny(compose, options).rounds(3)
    many = tiny(compose, options, executor=partial(Processes, workers=2))
    try:
        assert equal_trees(many.rounds(3).state, one.state)
    finally:
        many.close()
    assert not equal_trees({"m": one.state["model"]}, {"m": tiny(fedavg).rounds(3).state["model"]})


def test_the_order_of_loss_terms_only_rounds(float64: None) -> None:
    first = tiny(compose, {"parts": ("mixup", "feddecorr", "fedntd")}).rounds(2).state["model"]
    second = tiny(compose, {"parts": ("mixup", "fedntd", "feddecorr")}).rounds(2).state["model"]
    assert all(torch.allclose(first[n], second[n], rtol=1e-9, atol=1e-11) for n in first)


def test_filled_batches_only_where_a_part_compares_them() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    assert compose(setup, parts=("fedcm", "mixup")).local.plan.last_batch == "pad"
    assert compose(setup, parts=("fedcm", "feddecorr")).local.plan.last_batch == "fill"
    assert compose(setup, parts=("feddecorr: beta=0",)).local.plan.last_batch == "pad"


@dataclass(frozen=True)
class Reversed(Part):
    """A second gradient rule."""

    conflicts: ClassVar[frozenset[str]] = frozenset({"the gradient rule"})


@dataclass(frozen=True)
class Greedy(Part):
    """Replaces many things."""

    conflicts: ClassVar[frozenset[str]] = frozenset(f"thing {number}" for number in range(10, 40))


@dataclass(frozen=True)
class Greedier(Greedy):
    """Replaces the same things."""


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (("mixpu",), "unknown part 'mixpu'. Did you mean 'mixup'?"),
        (("mixup", "fedcm", "mixup: alpha=1"), "Mixup is listed twice"),
        (("mixup: beta=1",), "unknown setting 'beta'"),
        (("fedcm: alfa=1",), "Did you mean 'alpha'?"),
        (("fedcm: alpha=2",), "alpha = 2: must be above 0 and at most 1"),
        (("fedcm: alpha=nan",), "must be a finite number"),
        (("fedcm: alpha=x",), "must be a number"),
        (("fedcm: alpha",), "such as alpha=0.1"),
        (("fedcm: alpha=",), "such as alpha=0.1"),
        (("fedcm: alpha=0.1, alpha=0.2",), "given twice"),
        (("feddecorr: form=offical",), "Did you mean 'official'?"),
        (("",), "unknown part ''"),
        (("__class__",), "unknown part"),
    ],
)
def test_what_is_refused(parts: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(tiny_setup(tiny_data(), tiny_model()), parts=parts)
    assert says in str(caught.value)


def test_parts_are_a_list_of_names() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    for parts in ("mixup", (Decorrelation(),), (3,)):
        with pytest.raises(ConfigError, match=r"algorithm 'compose': parts = .*list of"):
            compose(setup, parts=parts)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="listed by name"):
            build_parts(setup, parts)  # type: ignore[arg-type]


def test_two_gradient_rules_are_refused() -> None:
    setup = tiny_setup(tiny_data(), tiny_model())
    (momentum,) = build_parts(setup, ["fedcm"])
    with pytest.raises(ConfigError, match=r"ClientMomentum and Reversed do not go together.*the gradient rule"):
        check_together((momentum, Reversed()))
    check_together((momentum, Decorrelation(), NotTrueDistillation()))


def test_a_mixture_of_two_gradient_rules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of Accord's own parts has a second one; a plugin's may."""
    setup = tiny_setup(tiny_data(), tiny_model())
    both = (*build_parts(setup, ["fedcm"]), Reversed())
    monkeypatch.setattr("accord.algorithms.compose.build_parts", lambda setup, texts: both)
    with pytest.raises(ConfigError, match=r"ClientMomentum and Reversed do not go together"):
        compose(setup)


def test_of_several_things_replaced_twice_the_first_by_name_is_said() -> None:
    with pytest.raises(ConfigError, match="Greedy and Greedier do not go together: each replaces thing 10;"):
        check_together((Greedy(), Greedier()))


def test_a_part_that_needs_another_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="sgd"):
        compose(tiny_setup(tiny_data(), tiny_model(), optimizer=Adam()), parts=("mixup", "fedcm"))
    compose(tiny_setup(tiny_data(), tiny_model(), optimizer=Adam()), parts=("mixup", "fedntd"))


def test_every_part_explains_its_settings() -> None:
    parts = listed_parts()
    assert set(parts) == {"feddecorr", "fedcm", "fedntd", "fedprox", "mixup", "vhl"}
    assert "weight" not in parts["mixup"], "how to average is the method's, not the part's"
    for settings in parts.values():
        for setting in settings.values():
            assert setting.doc
            assert setting.bounds is None or setting.default in setting.bounds


def test_parts_alone_choose_compose(tmp_path: Path) -> None:
    parts = 'algorithm.parts=["fedcm: alpha=0.2", "mixup"]'
    config = load_config(None, [parts])
    assert config.algorithm.name == "compose"
    assert config.algorithm.options["parts"] == ("fedcm: alpha=0.2", "mixup")
    assert load_config(None, ["algorithm.parts=[fedcm, mixup]"]).algorithm.options["parts"] == ("fedcm", "mixup")
    file = tmp_path / "a.toml"
    file.write_text('[algorithm]\nparts = ["mixup"]\n')
    assert load_config(file).algorithm.name == "compose"
    assert load_config(None, [parts, "algorithm.name=compose"]) == config


@pytest.mark.parametrize("sets", [["algorithm.name=fedavg"], ["algorithm.name=fedprox", "algorithm.mu=1"]])
def test_a_name_that_was_chosen_is_not_overruled(sets: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.parts belongs to the algorithm compose, not to fed"):
        load_config(None, [*sets, 'algorithm.parts=["mixup"]'])


def test_other_methods_settings_beside_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.mu: unknown key of the algorithm compose"):
        load_config(None, ["algorithm.mu=0.1", 'algorithm.parts=["mixup"]'])


def test_what_a_mixture_is_made_of() -> None:
    setup = tiny_setup(tiny_data(), tiny_model(), plan=Plan(epochs=2, batch_size=4))
    plain = compose(setup)
    assert (plain.local.parts, plain.aggregate) == ((SampleLoss(),), {"model": Mean(), "buffers": Mean()})
    consensus = compose(setup, cgl=3.0, weight="uniform")
    assert consensus.local.parts == (SampleLoss(), GlobalConsensus(3.0, Divergence(), 0))
    assert consensus.aggregate == {"model": Mean("uniform"), "buffers": Mean("uniform")}
    bargained = compose(setup, bargain=True, weight="uniform", server_momentum=0.5)
    rule = ServerOptimizer(FedAvgM(1.0, 0.5), Nash(power="uniform", cap=2.0))
    assert bargained.aggregate == {"model": rule, "buffers": Mean("uniform")}
    head = compose(setup, orthonormal=True)
    assert head.local.parts == (SampleLoss(), FixedHead())
    assert head.local.frozen == {"head.weight"}
    mixed: Any = compose(setup, pseudo=0.5)
    (part,) = mixed.local.parts[1:]
    assert (part.lam, part.mu, part.size, part.mixed) == (0.5, 0.0, 4, 0)
    assert (mixed.pseudo.size, mixed.pseudo.means, mixed.every_round) == (4, 10, False)
    assert set(mixed.extra_tasks) == {"contribute"}
    for settings, words in (
        ({"bargain": True}, "nobody to bargain with"),
        ({"pseudo": 1.0}, "batch_size"),
    ):
        alone = replace(setup, num_clients=1, plan=Plan(batch_size=0))
        with pytest.raises(ConfigError, match=words):
            compose(alone, **settings)  # type: ignore[arg-type]
    assert compose(replace(setup, num_clients=2), bargain=True)
