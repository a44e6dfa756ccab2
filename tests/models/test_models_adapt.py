"""A user's own module as a network."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from accord.errors import ConfigError
from accord.models import MODELS, adapt


class Mine(nn.Module):
    """A small network of the kind users bring."""

    def __init__(self, calls: int = 1, pool: bool = True) -> None:
        super().__init__()
        self.calls, self.pool = calls, pool
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.drop = nn.Dropout(0.5)
        self.classifier = nn.Linear(4, 3)
        self.spare = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        h = h.mean((2, 3)) if self.pool else h.permute(0, 2, 3, 1)
        out = self.drop(h).sum() * 0
        for _ in range(self.calls):
            out = out + self.classifier(h)
        return out


EXAMPLE = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def test_features_are_the_heads_input():
    module = Mine().eval()
    network = adapt(module, head="classifier", maps="conv", example=EXAMPLE)
    with torch.no_grad():
        logits, features = network.logits_and_features(EXAMPLE)
        assert torch.equal(features, module.conv(EXAMPLE).mean((2, 3)))
        assert torch.equal(logits, module(EXAMPLE))
        assert torch.equal(network(EXAMPLE), logits)
        assert torch.equal(network.features(EXAMPLE), features)
        assert torch.equal(network.feature_maps(EXAMPLE), module.conv(EXAMPLE))
    assert network.num_features == 4
    assert network.map_shape == (4, 4, 4)
    assert network.head_name == "module.classifier"
    assert network.get_submodule(network.head_name) is module.classifier
    assert "module.classifier.weight" in dict(network.named_parameters())


def test_fusing_the_maps():
    network = adapt(Mine().eval(), head="classifier", maps="conv")
    with torch.no_grad():
        logits, features = network.logits_and_features(EXAMPLE, fuse=lambda maps: 2 * maps)
        assert torch.allclose(features, 2 * network.features(EXAMPLE))
        assert torch.allclose(logits, network.get_submodule(network.head_name)(features))


def test_no_hook_is_left_behind():
    module = Mine()
    network = adapt(module, head="classifier", maps="conv", example=EXAMPLE)
    network.logits_and_features(EXAMPLE, fuse=lambda maps: maps)
    with pytest.raises(RuntimeError):
        network.logits_and_features(torch.zeros(2, 7))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


def test_the_dry_run_leaves_modes_buffers_and_randomness_alone():
    module = Mine().train()
    module.drop.eval()
    buffers = copy.deepcopy(dict(module.named_buffers()))
    state = torch.get_rng_state()
    adapt(module, head="classifier", maps="conv", example=EXAMPLE)
    assert module.training
    assert module.conv.training
    assert not module.drop.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(buffers[name], b) for name, b in module.named_buffers())


def test_gradients_and_functional_call():
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh(), nn.Linear(4, 3))
    network = adapt(module, head="3", example=EXAMPLE)
    params = {name: torch.stack([p.detach(), p.detach() * 2]) for name, p in network.named_parameters()}

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor) -> Tensor:
            logits, features = self.network.logits_and_features(x)
            return logits.square().sum() + features.sum()

    both = Both()

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(both, {f"network.{n}": t for n, t in p.items()}, (x,))

    together = vmap(grad(loss), in_dims=(0, None))(params, EXAMPLE)
    alone = grad(loss)({n: t[1] for n, t in params.items()}, EXAMPLE)
    assert all(torch.allclose(together[n][1], alone[n], atol=1e-5) for n in alone)


def test_a_head_that_does_not_tell_its_width():
    module = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(36, 5), nn.Linear(5, 3)))
    network = adapt(module, head="1")
    with pytest.raises(ConfigError, match=r"'1' does not tell.*example"):
        _ = network.num_features
    assert adapt(module, head="1", example=EXAMPLE).num_features == 36


@pytest.mark.parametrize("role", ["head", "maps"])
def test_no_such_submodule(role):
    names = {"head": "classifier", "maps": "conv"} | {role: "clasifier" if role == "head" else "cnv"}
    near = "classifier" if role == "head" else "conv"
    with pytest.raises(ConfigError, match=rf"Mine has no submodule .* as its {role}\. Did you mean '{near}'\?"):
        adapt(Mine(), **names)


def test_the_module_itself_is_no_head():
    with pytest.raises(ConfigError, match=r"no submodule ''"):
        adapt(Mine(), head="")
    with pytest.raises(ConfigError, match=r"Submodules: none"):
        adapt(nn.Linear(2, 2), head="weight")


@pytest.mark.parametrize(
    ("module", "head", "message"),
    [
        (Mine(), "spare", r"'spare' must be called exactly once.*called 0 times"),
        (Mine(calls=2), "classifier", r"'classifier' must be called exactly once.*called 2 times"),
        (Mine(), "conv", r"'conv' was given a tensor of shape \(5, 1, 6, 6\)"),
        (
            Mine(pool=False),
            "classifier",
            r"return one tensor of logits \[samples, classes\], got shape \(5, 4, 4, 3\)",
        ),
        (
            nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (1, 180)), nn.Linear(180, 3)),
            "2",
            r"example holds 5 samples",
        ),
    ],
)
def test_mistakes_are_found_by_the_dry_run(module, head, message):
    with pytest.raises(ConfigError, match=message):
        adapt(module, head=head, example=EXAMPLE)


class TwoInputs(nn.Module):
    """Its head takes two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Bilinear(36, 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.flatten(1), x.flatten(1))


def test_a_head_with_two_inputs():
    with pytest.raises(ConfigError, match=r"with one tensor, got Tensor, Tensor"):
        adapt(TwoInputs(), head="mix", example=EXAMPLE)


class ByKeyword(nn.Module):
    """Calls its head by keyword and returns a tuple if asked to."""

    def __init__(self, wrap: bool = False) -> None:
        super().__init__()
        self.wrap = wrap
        self.fc = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> object:
        out = self.fc(input=x.flatten(1))
        return (out,) if self.wrap else out


def test_keywords_and_tuples():
    assert torch.equal(adapt(ByKeyword(), head="fc", example=EXAMPLE).features(EXAMPLE), EXAMPLE.flatten(1))
    with pytest.raises(ConfigError, match=r"one tensor of logits \[samples, classes\], got a tuple"):
        adapt(ByKeyword(wrap=True), head="fc", example=EXAMPLE)


def test_maps_that_are_not_known_or_no_maps():
    network = adapt(Mine(), head="classifier")
    for use in (network.feature_maps, lambda x: network.logits_and_features(x, fuse=lambda maps: maps)):
        with pytest.raises(ConfigError, match=r"adapt\(\.\.\., maps=\.\.\.\)"):
            use(EXAMPLE)
    with pytest.raises(ConfigError, match=r"\[samples, channels, height, width\], got \(5, 3\)"):
        adapt(Mine(), head="classifier", maps="classifier", example=EXAMPLE)
    with pytest.raises(ConfigError, match=r"'spare' must be computed exactly once.*0 times"):
        adapt(Mine(), head="classifier", maps="spare", example=EXAMPLE)


def test_copies_are_independent():
    network = adapt(Mine().eval(), head="classifier", example=EXAMPLE)
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.get_parameter("module.classifier.weight").zero_()
        assert not torch.equal(network(EXAMPLE), other(EXAMPLE))
        assert torch.equal(network.features(EXAMPLE), other.features(EXAMPLE))


def test_a_registered_network_can_be_adapted_too():
    network = MODELS["2nn"]((1, 6, 6), 3)
    adapted = adapt(network, head="head", example=EXAMPLE)
    assert torch.equal(adapted.features(EXAMPLE), network.features(EXAMPLE))


class Several(nn.Module):
    """Takes its inputs by name, as keywords of any name, or as one dictionary."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.forward = forward.__get__(self)


def by_their_names(self, a, b=None):
    return self.fc(a + (0 if b is None else b))


def by_any_name(self, **given):
    return self.fc(sum(given.values()))


def all_in_one(self, given):
    return self.fc(sum(given.values()))


@pytest.mark.parametrize("forward", [by_their_names, by_any_name, all_in_one])
def test_several_inputs_come_as_the_module_wants_them(forward):
    one, two = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 20.0]])
    module = Several(forward)
    network = adapt(module, head="fc", example={"a": one, "b": two})
    assert network.num_features == 2
    assert network.features({"a": one, "b": two}).tolist() == [[11.0, 22.0]]
    assert network.features({"a": one}).tolist() == [[1.0, 2.0]]
    assert torch.equal(network({"a": one, "b": two}), module.fc(one + two))
    with pytest.raises(ConfigError, match=r"logits have shape \(1, 3\), but the example holds 2 samples"):
        adapt(Several(lambda self, a: self.fc(a[:1])), head="fc", example={"a": torch.ones(2, 2)})


@pytest.mark.parametrize(("pooled", "refused"), [(False, False), (True, True)])
def test_a_head_that_answers_for_every_position(pooled, refused):
    """[B, L, D] features belong to [B, L, C] logits, and to no others."""

    def forward(self, x):
        each = self.fc(x)
        return each.mean(1) if pooled else each

    module, x = Several(forward), torch.rand(4, 5, 2)
    if refused:
        with pytest.raises(ConfigError, match=r"was given a tensor of shape \(4, 5, 2\)"):
            adapt(module, head="fc", example=x)
        return
    network = adapt(module, head="fc", example=x)
    assert network.num_features == 2
    assert torch.equal(network.features(x), x)
    assert network.map_shape is None


def test_maps_are_fused_only_where_they_are_maps():
    network = adapt(Mine().eval(), head="classifier", maps="classifier")
    with pytest.raises(ConfigError, match=r"got \(5, 3\)"):
        network.logits_and_features(EXAMPLE, fuse=lambda maps: 1 / 0)


def test_a_module_in_evaluation_mode_is_so_as_a_whole():
    assert adapt(Mine().train(), head="classifier").training
    assert not adapt(Mine().eval(), head="classifier").training
    assert adapt(Mine(), head="classifier").maps_name is None
    assert adapt(Mine(), head="classifier", maps="conv").maps_name == "module.conv"
