"""The module as a pure function: buffers, groups by type, nothing written where nothing may be."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from accord.core.fields import Field, Fields
from accord.core.model import Model
from accord.core.tensors import clone
from accord.core.types import weighted_sum
from accord.errors import ConfigError
from accord.models import adapt
from accord.problems import PROBLEMS
from support.federation import tiny_model


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.bn_lookalike = nn.Linear(3, 3)  # its name says norm, its type does not
        self.norm = nn.BatchNorm1d(3)
        self.fc = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(self.bn_lookalike(self.body(x))))


def test_groups_go_by_type() -> None:
    model = Model(adapt(Small(), head="fc"))
    assert model.norm_names == ("module.norm.bias", "module.norm.weight")
    assert model.head_names == ("module.fc.bias", "module.fc.weight")
    assert model.couples_batch


def test_train_updates_only_given_buffers_and_reference_none() -> None:
    model = Model(adapt(Small(), head="fc"))
    params, buffers = model.init()
    own, x = clone(buffers), torch.randn(8, 4)
    model.reference(params, own, x)
    assert all(torch.equal(own[n], buffers[n]) for n in own)
    model.train(params, own, x)
    assert not torch.equal(own["module.norm.running_mean"], buffers["module.norm.running_mean"])
    assert torch.equal(model.init()[1]["module.norm.running_mean"], buffers["module.norm.running_mean"])


def test_out_is_the_module_itself() -> None:
    module = Small().eval()
    model = Model(adapt(module, head="fc"))
    params, buffers = model.init()
    x = torch.randn(5, 4)
    out = model.reference(params, buffers, x)
    assert torch.allclose(out.logits, module(x))
    assert torch.allclose(model.head(params, out.features), out.logits)
    assert torch.allclose(model.module(params, buffers)(x), module(x))
    handed = Model(adapt(Small().train(), head="fc")).module(params, buffers)
    assert not any(part.training for part in handed.modules()), "it is for use, not for training"
    assert torch.allclose(handed(x), module(x))
    moved = {name: t + 2 for name, t in buffers.items()}
    assert model.module(params, moved).get_buffer("module.norm.running_mean").tolist() == [2.0, 2.0, 2.0]


def test_a_node_starts_from_the_values_it_was_sent() -> None:
    module = Small()
    module.body.bias.requires_grad_(False).fill_(7.0)  # its owner's: it is not sent, and stays
    model = Model(adapt(module, head="fc"), bf16=True)
    sent = [{name: torch.full_like(t, 3) for name, t in tree.items()} for tree in model.init()]
    before = model.init()
    other = model.starting_from(*sent)
    for found, wanted in ((other.init(), sent), (model.init(), before)):
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert other.frozen_names == ("module.body.bias",)
    assert other.network.get_parameter("module.body.bias").tolist() == [7.0, 7.0, 7.0]
    assert other.bf16


def test_another_network_is_computed_with_in_the_same_way() -> None:
    """Precision, layout, layers, the problem and the samples' fields are the model's, whatever its network."""
    changed: list[nn.Module] = []

    def layers(network: nn.Module) -> nn.Module:
        changed.append(network)
        return network

    fields = Fields((Field("a", (4,)),))
    amounts = PROBLEMS["regression"]
    form: dict[str, Any] = {"bf16": True, "channels_last": True, "compiled": True, "layers": layers}
    model = Model(adapt(Small(), head="fc"), **form, problem=amounts, fields=fields)
    changed.clear()
    other = model.computing(adapt(Small(), head="fc"))
    assert (other.bf16, other.channels_last, other.compiled) == (True, True, True)
    assert (other.layers, other.problem, other.fields) == (layers, amounts, fields)
    assert len(changed) == 2, "both copies that compute have them"
    assert other.network is not model.network


def test_the_network_that_was_given_stays_its_owners() -> None:
    given = adapt(Small(), head="fc")
    model = Model(given)
    with torch.no_grad():
        given.get_parameter("module.fc.bias").fill_(5.0)
    assert not bool((model.init()[0]["module.fc.bias"] == 5).any())
    assert given.get_parameter("module.fc.bias").requires_grad
    first, second = model.init()[0], model.init()[0]
    first["module.fc.bias"].fill_(9.0)
    assert not bool((second["module.fc.bias"] == 9).any()), "everybody is given values of its own"


def test_maps_are_those_of_evaluation_and_write_nothing() -> None:
    model = tiny_model("resnet18", norm="batch")
    params, buffers = model.init()
    before = clone(buffers)
    x = torch.randn(4, 1, 8, 8)
    whole, parts = model.maps(params, buffers, x), [model.maps(params, buffers, one[None]) for one in x]
    assert torch.allclose(whole, torch.cat(parts), atol=1e-5), "no sample depends on the others"
    assert all(torch.equal(buffers[name], before[name]) for name in before)
    seen: list[torch.Tensor] = []

    def fuse(own: torch.Tensor) -> torch.Tensor:
        seen.append(own)
        return 0 * own

    still, other = torch.zeros(4, 1, 8, 8), model.train(params, clone(buffers), x, fuse).logits
    assert len(seen) == 1
    assert torch.allclose(other, model.train(params, clone(buffers), still, fuse).logits), "both were made nothing of"


def test_a_buffer_under_two_names_is_one() -> None:
    first, second = nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3, affine=False)
    second.running_mean = first.running_mean
    model = Model(adapt(nn.Sequential(nn.Linear(4, 3), first, second, nn.Linear(3, 2)), head="3"))
    params, buffers = model.init()
    (shared,) = [name for name in buffers if name.endswith("running_mean")]
    x = torch.randn(2, 4)
    plain, moved = clone(buffers), {**clone(buffers), shared: torch.full((3,), 2.0)}
    inner = torch.nn.functional.linear(x, params["module.0.weight"], params["module.0.bias"])
    scale = (1 + 1e-5) ** -0.5  # variances are 1 as yet
    for values, mean in ((plain, 0.0), (moved, 2.0)):
        normal = ((inner - mean) * scale - mean) * scale
        wanted = torch.nn.functional.linear(normal, params["module.3.weight"], params["module.3.bias"])
        assert torch.allclose(model.reference(params, values, x).logits, wanted, atol=1e-5)


def test_a_module_without_a_named_head_is_refused() -> None:
    with pytest.raises(ConfigError, match="adapt"):
        Model(nn.Linear(2, 2))


def test_integer_buffers_are_never_averaged() -> None:
    trees = [
        {"n": torch.tensor(3), "w": torch.tensor([1.0])},
        {"n": torch.tensor(7), "w": torch.tensor([3.0])},
    ]
    total = weighted_sum(iter(trees), torch.tensor([0.25, 0.75]))
    assert total["n"].item() == 7
    assert total["w"].item() == pytest.approx(2.5)


def test_feature_maps_are_what_fuse_sees() -> None:
    model = tiny_model("mcmahan_cnn")
    params, buffers = model.init()
    x = torch.randn(2, 1, 8, 8)
    maps = model.maps(params, buffers, x)
    doubled = model.reference(params, buffers, x, fuse=lambda own: own + maps)
    assert maps.shape == (2, 64, 2, 2)
    assert not torch.equal(doubled.logits, model.reference(params, buffers, x).logits)


def test_a_tensor_under_two_names_is_one_parameter() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 3))
    module[2].weight = module[0].weight
    x = torch.randn(5, 4)
    model = Model(adapt(module, head="3", example=x))
    params, buffers = model.init()
    assert len(params) == 5
    changed = {name: value + 1 for name, value in params.items()}
    expected = model.module(changed, buffers)
    torch.testing.assert_close(model.train(changed, buffers, x).logits, expected(x))


class Answering(nn.Module):
    """Says what it is given to say, whatever it is shown."""

    head_name, map_shape, num_features = "head", None, 2

    def __init__(self, logits: torch.Tensor, features: torch.Tensor) -> None:
        super().__init__()
        self.head, self.said = nn.Linear(2, 2), (logits, features)

    def logits_and_features(self, x: torch.Tensor, fuse: object = None) -> tuple[torch.Tensor, torch.Tensor]:
        return self.said


def test_features_of_positions_become_their_mean_where_every_position_is_answered() -> None:
    features = torch.tensor([[[1.0, 2.0], [3.0, 6.0]]])  # one sample, two positions
    for shape, wanted in (((1, 2, 2), [[2.0, 4.0]]), ((1, 2), features.tolist())):
        model = Model(Answering(torch.zeros(shape), features))
        assert model.reference(*model.init(), torch.zeros(1, 3)).features.tolist() == wanted
    flat = Model(Answering(torch.zeros(1, 2, 2), torch.ones(1, 2)))
    assert flat.reference(*flat.init(), torch.zeros(1, 3)).features.tolist() == [[1.0, 1.0]]


class Shown(Answering):
    """Notes what it is shown; there is something else that its owner knows it by."""

    def __init__(self, takes_fields: bool = False) -> None:
        super().__init__(torch.zeros(1, 2), torch.ones(1, 2))
        self.takes_fields, self.known = takes_fields, nn.Linear(1, 1)

    def logits_and_features(self, x: Any, fuse: object = None) -> tuple[torch.Tensor, torch.Tensor]:
        SEEN.append(x)
        return self.said

    def feature_maps(self, x: Any) -> torch.Tensor:
        SEEN.append(x)
        return self.said[0]

    def as_given(self) -> nn.Module:
        return self.known


SEEN: list[Any] = []


def test_inputs_by_name_are_for_networks_that_take_them() -> None:
    fields = Fields((Field("word", (1,), 5), Field("size", (2,))))
    row = torch.tensor([[3.0, 0.5, 0.25]])
    for takes in (False, True):
        model = Model(Shown(takes), fields=fields)
        SEEN.clear()
        for call in (model.train, model.reference, model.maps):
            call(*model.init(), row)  # type: ignore[operator]
        for seen in SEEN:
            if takes:
                assert {name: value.tolist() for name, value in seen.items()} == {"word": [[3]], "size": [[0.5, 0.25]]}
            else:
                assert torch.equal(seen, row)
        assert len(SEEN) == 3


def test_inputs_lie_as_the_network_wants_them_and_its_owner_gets_back_what_he_knows() -> None:
    for last in (False, True):
        model = Model(Shown(), channels_last=last)
        SEEN.clear()
        model.reference(*model.init(), torch.zeros(2, 3, 4, 5))
        assert SEEN[0].is_contiguous(memory_format=torch.channels_last) is last
        handed = model.module(*model.init())
        assert isinstance(handed, nn.Linear)
        assert not handed.training


def test_samples_are_coupled_by_batch_norm_that_looks_at_the_batch() -> None:
    def coupled(norm: nn.Module, *, still: bool = False) -> bool:
        network = nn.Sequential(nn.Linear(2, 3), norm, nn.Linear(3, 2))
        norm.train(not still)
        return Model(adapt(network, head="2")).couples_batch

    assert coupled(nn.BatchNorm1d(3))
    assert not coupled(nn.BatchNorm1d(3), still=True)
    assert coupled(nn.BatchNorm1d(3, track_running_stats=False), still=True), "it has nothing else to look at"
    assert not coupled(nn.LayerNorm(3))
    judged = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    assert Model(adapt(judged, head="2")).couples_batch, "a whole in evaluation mode is trained as a whole"


def test_what_its_owner_froze_is_in_no_tree() -> None:
    module = Small()
    module.norm.eval()
    module.norm.weight.requires_grad_(False)
    module.fc.bias.requires_grad_(False)
    model = Model(adapt(module, head="fc"))
    params, buffers = model.init()
    assert buffers == {}
    assert model.frozen_names == ("module.fc.bias", "module.norm.weight")
    assert model.norm_names == ("module.norm.bias",)
    assert model.head_names == ("module.fc.weight",)
    assert set(params) == {*model.head_names, *model.body_names}
    assert list(params) == sorted(params)
    assert model.head_is_frozen
    assert not Model(adapt(Small(), head="fc")).head_is_frozen
    assert not model.couples_batch
    assert model.num_features == 3
    copies = model.owned(params)
    copies["module.fc.weight"].zero_()
    assert bool(params["module.fc.weight"].any())
    params["module.fc.weight"].zero_()
    assert bool(model.init()[0]["module.fc.weight"].any())


def test_names_are_sorted() -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(2, 2), nn.BatchNorm1d(2))]
    head = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    model = Model(adapt(nn.Sequential(*layers, head), head="8", example=torch.zeros(2, 2)))
    for names, count in (
        (model.buffer_names, 12),
        (model.body_names, 16),
        (model.head_names, 8),
        (model.norm_names, 8),
    ):
        assert list(names) == sorted(names)
        assert len(names) == count
    body = nn.Sequential(*layers).requires_grad_(False)
    frozen = Model(adapt(nn.Sequential(body, nn.Linear(2, 2)), head="1", example=torch.zeros(2, 2))).frozen_names
    assert list(frozen) == sorted(frozen)
    assert len(frozen) == 16


def test_a_network_that_cannot_be_trained_is_refused() -> None:
    compiled = Answering(torch.zeros(1, 2), torch.ones(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled.head = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"the submodule 'head' is compiled by torch\.jit"):
        Model(compiled)
    with pytest.raises(ConfigError, match="has nothing to train"):
        Model(adapt(Small().requires_grad_(False), head="fc"))
    complex_one = Small()
    complex_one.register_buffer("phase", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ConfigError, match=r"'module\.phase' of the network Small is complex"):
        Model(adapt(complex_one, head="fc"))


@pytest.mark.parametrize("last", [False, True])
def test_images_and_frozen_kernels_lie_as_they_are_asked_to(last: bool) -> None:
    layers = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 2))
    layers[0].requires_grad_(False)
    model = Model(adapt(layers, head="3", example=torch.zeros(1, 2, 5, 5)), channels_last=last)
    params, buffers = model.init()
    kernel = dict(model._reference.named_parameters())["network.module.0.weight"]
    owned = model.owned(params)["module.1.weight"]
    for tensor in (kernel, owned):
        assert tensor.is_contiguous(memory_format=torch.channels_last) is last
        assert tensor.is_contiguous() is not last
    x = torch.arange(50.0).view(1, 2, 5, 5) / 50
    assert torch.allclose(model.reference(params, buffers, x).logits, layers(x), atol=1e-5)


def test_gradients_are_asked_of_the_values_put_in_alone() -> None:
    """What its owner has frozen stays in the network, and takes no gradient there either."""
    module = Small()
    module.fc.bias.requires_grad_(False)
    model = Model(adapt(module, head="fc"))
    params, buffers = model.init()
    assert not any(p.requires_grad for p in model._copied().parameters())
    with torch.enable_grad():
        x = torch.randn(5, 4)
        assert not model.train(params, buffers, x).logits.requires_grad
        asked = {name: t.clone().requires_grad_() for name, t in params.items()}
        assert model.train(asked, buffers, x).logits.requires_grad


class Gated(nn.LayerNorm):
    """A normalisation with a layer of its own inside."""

    def __init__(self) -> None:
        super().__init__(3)
        self.gate = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.gate(x)


def test_a_layer_inside_a_normalisation_is_what_it_is() -> None:
    model = Model(adapt(nn.Sequential(nn.Linear(4, 3), Gated(), nn.Linear(3, 2)), head="2"))
    assert [name.rpartition("module.")[2] for name in model.norm_names] == ["1.bias", "1.weight"]
    assert sum("gate" in name for name in model.body_names) == 2
