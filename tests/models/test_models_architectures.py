"""Every model: parameter counts (published or summed by hand), shapes, gradients, precision, determinism."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from accord.models import MODELS, Network, count_parameters

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def conv(inputs: int, outputs: int, size: int) -> int:
    return inputs * outputs * size * size + outputs


def full(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


CNN_64_64 = conv(3, 64, 5) + conv(64, 64, 5)

# name, input shape, classes, settings, parameters, features, maps
CASES = [
    ("linear", (30,), 2, {}, full(30, 2), 30, (30,)),
    ("mlp", (30,), 2, {"hidden": (8, 5)}, full(30, 8) + full(8, 5) + full(5, 2), 5, (30,)),
    ("2nn", GREY, 10, {}, 199_210, 200, (784,)),
    ("mcmahan_cnn", GREY, 10, {}, 1_663_370, 512, (64, 7, 7)),
    # 3 channels and 8 x 8 instead of 7 x 7 maps
    (
        *("mcmahan_cnn", COLOUR, 10, {}),
        conv(3, 32, 5) + conv(32, 64, 5) + full(64 * 8 * 8, 512) + full(512, 10),
        *(512, (64, 8, 8)),
    ),
    (
        *("cifar_cnn", COLOUR, 10, {}),
        CNN_64_64 + full(64 * 8 * 8, 384) + full(384, 192) + full(192, 10),
        *(192, (64, 8, 8)),
    ),
    # 32 -> 15 -> 7: pooling 3 / 2 without padding
    (
        *("fedufo_cnn", COLOUR, 10, {}),
        CNN_64_64 + full(64 * 7 * 7, 384) + full(384, 64) + full(64, 10),
        *(64, (64, 7, 7)),
    ),
    ("report_cnn", GREY, 10, {}, 21_840, 50, (20, 4, 4)),
    ("fedbr_cnn", GREY, 10, {}, 370_560 + full(128, 10), 128, (128, 14, 14)),
    ("vgg11", COLOUR, 10, {}, 9_220_480 + full(512, 10), 512, (512, 1, 1)),
    ("cct7", COLOUR, 100, {}, 3_783_269, 256, (256, 16, 16)),
    (
        *("convnet", GREY, 26, {}),
        conv(1, 32, 5) + conv(32, 64, 5) + full(1024, 512) + full(512, 256) + full(256, 64) + full(64, 26),
        *(64, (64, 4, 4)),
    ),
    # 11,689,512 and 25,557,032 parameters with 1000 classes (He et al.'s networks as torchvision counts them)
    ("resnet18", COLOUR, 10, {}, 11_689_512 - full(512, 1000) + full(512, 10), 512, (512, 1, 1)),
    (
        *("resnet18", COLOUR, 10, {"stem": "cifar", "norm": "batch"}),
        11_689_512 - full(512, 1000) + full(512, 10) - 3 * 64 * (49 - 9),
        *(512, (512, 4, 4)),
    ),
    ("resnet50", COLOUR, 1000, {}, 25_557_032, 2048, (2048, 1, 1)),
]
IDS = [f"{case[0]}-{case[1]}-{'-'.join(map(str, case[3].values()))}" for case in CASES]


def build(name: str, shape: tuple[int, ...], classes: int, **settings: object) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name](shape, classes, **settings)


def inputs(shape: tuple[int, ...], count: int = 2) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))


def test_every_model_has_a_case():
    assert {case[0] for case in CASES} == set(MODELS) - {"transformer"}, "which has tests of its own"


@pytest.mark.parametrize(("name", "shape", "classes", "settings", "count", "features", "maps"), CASES, ids=IDS)
def test_counts_shapes_and_gradients(name, shape, classes, settings, count, features, maps):
    network = build(name, shape, classes, **settings)
    assert count_parameters(network) == count
    assert network.num_features == features
    assert network.map_shape == maps
    x = inputs(shape).requires_grad_()
    logits, feature = network.train().logits_and_features(x)
    assert logits.shape == (2, classes)
    assert feature.shape == (2, features)
    # Squares, so that no gradient cancels by symmetry; dropout may silence single weights, not whole tensors.
    logits.square().sum().backward()
    assert x.grad is not None
    silent = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []


@pytest.mark.parametrize(
    ("name", "shape", "classes", "settings"),
    [c[:4] for c in CASES if c[0] not in ("resnet50", "vgg11")],
    ids=[i for c, i in zip(CASES, IDS, strict=True) if c[0] not in ("resnet50", "vgg11")],
)
def test_evaluation_is_deterministic_and_works_in_double(name, shape, classes, settings):
    network = build(name, shape, classes, **settings).eval()
    x = inputs(shape)
    with torch.no_grad():
        logits, features = network.logits_and_features(x)
        assert torch.equal(network(x), logits)
        assert torch.equal(network.features(x), features)
        assert torch.equal(network.head(features), logits)
        assert network.feature_maps(x).shape[1:] == network.map_shape
        wide = network.double()(x.double())
    assert wide.dtype == torch.float64
    assert torch.allclose(wide.float(), logits, atol=1e-4)


@pytest.mark.parametrize("name", ["2nn", "fedbr_cnn", "report_cnn"])
def test_construction_depends_on_the_seed_only(name):
    first, second = build(name, GREY, 10), build(name, GREY, 10)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    state = torch.get_rng_state()
    build("cct7", COLOUR, 10)
    assert torch.equal(torch.get_rng_state(), state)


def test_names_are_readable():
    names = [name for name, _ in build("mcmahan_cnn", GREY, 10).named_parameters()]
    assert names == [
        *("maps.0.weight", "maps.0.bias", "maps.3.weight", "maps.3.bias"),
        *("neck.1.weight", "neck.1.bias", "head.weight", "head.bias"),
    ]
    names = [name for name, _ in build("resnet18", COLOUR, 10).named_parameters()]
    assert "maps.stage2.0.shortcut.0.weight" in names
    assert "maps.stage4.1.residual.conv2.weight" in names


@pytest.mark.parametrize("name", ["mcmahan_cnn", "cifar_cnn", "report_cnn", "mlp", "cct7"])
def test_names_do_not_depend_on_dropout(name):
    off, on = build(name, COLOUR, 10, dropout=0.0), build(name, COLOUR, 10, dropout=0.3)
    assert list(off.state_dict()) == list(on.state_dict())
    assert any(isinstance(module, nn.Dropout) for module in on.modules())


def test_dropout_is_the_only_randomness_of_a_forward_pass():
    quiet = build("cct7", COLOUR, 10, attention_dropout=0.0, stochastic_depth=0.0).train()
    x = inputs(COLOUR)
    state = torch.get_rng_state()
    with torch.no_grad():
        assert torch.equal(quiet(x), quiet(x))
    assert torch.equal(torch.get_rng_state(), state)
    noisy = build("cct7", COLOUR, 10).train()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        assert not torch.equal(noisy(x), noisy(x))
        for module in noisy.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        assert torch.equal(noisy(x), noisy(x))


def test_group_norm_has_no_buffers_and_batch_norm_has():
    assert dict(build("resnet18", COLOUR, 10).named_buffers()) == {}
    batch = build("resnet18", COLOUR, 10, norm="batch", stem="cifar")
    buffers = dict(batch.named_buffers())
    # 20 layers of batch norm (stem, 16 in blocks, 3 shortcuts), three buffers each
    assert len(buffers) == 60
    before = buffers["maps.norm.running_mean"].clone()
    with torch.no_grad():
        batch.train()(inputs(COLOUR))
    assert not torch.equal(batch.get_buffer("maps.norm.running_mean"), before)


def test_imagenet_sizes():
    assert build("resnet50", (3, 224, 224), 200).map_shape == (2048, 7, 7)
    assert build("vgg11", (3, 224, 224), 200).map_shape == (512, 7, 7)
    assert count_parameters(build("resnet18", (3, 224, 224), 1000)) == 11_689_512


def test_fuse_replaces_the_maps():
    network = build("convnet", GREY, 10).eval()
    x, other = inputs(GREY), inputs(GREY, 4)[2:]
    with torch.no_grad():
        theirs = network.feature_maps(other)
        logits, features = network.logits_and_features(x, fuse=lambda maps: 0.0 * maps + theirs)
        assert torch.allclose(logits, network(other), atol=1e-6)
        assert torch.allclose(features, network.features(other), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("2nn", {}), ("fedbr_cnn", {}), ("cct7", {"attention_dropout": 0.0, "stochastic_depth": 0.0})],
)
def test_clients_can_be_batched(name, settings):
    shape = (1, 8, 8)
    networks = [MODELS[name](shape, 3, **settings) for _ in range(2)]
    names = list(dict(networks[0].named_parameters()))
    stacked = {n: torch.stack([net.get_parameter(n).detach() for net in networks]) for n in names}
    x = inputs(shape, 4).reshape(2, 2, *shape)

    def loss(params: dict[str, Tensor], batch: Tensor) -> Tensor:
        return functional_call(networks[0], params, (batch,)).square().sum()

    together = vmap(grad(loss))(stacked, x)
    for client in range(2):
        alone = grad(loss)({n: stacked[n][client] for n in names}, x[client])
        for n in names:
            assert torch.allclose(together[n][client], alone[n], rtol=1e-3, atol=1e-4), n
