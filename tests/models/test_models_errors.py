"""Shapes and settings that do not fit are refused when the network is built, with a message that helps."""

from __future__ import annotations

import typing

import numpy as np
import pytest
import torch

from accord.errors import ConfigError
from accord.models import MODELS, count_parameters

FLAT = ("linear", "mlp", "2nn")
TOKENS = ("transformer",)  # takes no pictures: tests/models/test_models_text.py
IMAGES = sorted(set(MODELS) - set(FLAT) - set(TOKENS))
# Smallest side, followed by hand through kernels and pooling: e.g. convnet 16 -> 12 -> 6 -> 2 -> 1.
SMALLEST = {"mcmahan_cnn": 4, "fedufo_cnn": 7, "report_cnn": 16, "convnet": 16, "vgg11": 32}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("shape", [(784,), (28, 28), (2, 3, 28, 28), ()])
def test_images_need_three_dimensions(name, shape):
    with pytest.raises(ConfigError, match=r"channels, height, width") as error:
        MODELS[name](shape, 10)
    assert name in str(error.value)
    assert str(tuple(shape)) in str(error.value)


def test_grey_images_without_a_channel_get_a_hint():
    with pytest.raises(ConfigError, match=r"add a channel dimension"):
        MODELS["mcmahan_cnn"]((28, 28), 10)


@pytest.mark.parametrize(("name", "side"), SMALLEST.items())
def test_images_too_small_are_refused_with_the_smallest_size(name, side):
    assert count_parameters(MODELS[name]((1, side, side), 2)) > 0
    for shape in ((1, side - 1, side), (1, side, side - 1), (1, 1, 1)):
        with pytest.raises(ConfigError, match=rf"{name}.* at least {side} x {side} pixels, got input shape"):
            MODELS[name](shape, 2)


@pytest.mark.parametrize("name", sorted(set(IMAGES) - set(SMALLEST) - {"resnet50"}))
def test_padded_networks_take_the_smallest_image(name):
    with torch.no_grad():
        assert MODELS[name]((1, 1, 1), 2).eval()(torch.zeros(1, 1, 1, 1)).shape == (1, 2)


@pytest.mark.parametrize("name", [*FLAT, *IMAGES])
@pytest.mark.parametrize("shape", [(3, 0, 32), (3, -1, 32), (0,)])
def test_empty_samples_are_refused(name, shape):
    with pytest.raises(ConfigError, match=name):
        MODELS[name](shape, 10)


@pytest.mark.parametrize("name", [*FLAT, *IMAGES])
@pytest.mark.parametrize("classes", [0, -3, 2.5, "ten", None])
def test_class_counts_are_checked(name, classes):
    with pytest.raises(ConfigError, match=r"classes"):
        MODELS[name]((3, 32, 32), classes)


@pytest.mark.parametrize("shape", [("3", 32, 32), (3.0, 32, 32), (None,)])
def test_sides_must_be_whole_numbers(shape):
    with pytest.raises(ConfigError, match=r"whole numbers"):
        MODELS["2nn"](shape, 10)


def test_lists_and_numpy_numbers_are_fine():
    assert MODELS["2nn"](list(np.array([1, 28, 28])), np.int64(10))(torch.zeros(2, 1, 28, 28)).shape == (
        2,
        10,
    )
    assert MODELS["mcmahan_cnn"]([1, 28, 28], 10).map_shape == (64, 7, 7)


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("shape", [(12,), (3, 4), (1, 3, 2, 2)])
def test_flat_networks_take_any_shape(name, shape):
    network = MODELS[name](shape, 3)
    assert network.map_shape == (12,)
    assert network(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("resnet18", {"norm": "grup"}, r'norm = "grup": must be one of .*Did you mean \'group\'\?'),
        ("resnet18", {"stem": "mnist"}, r'stem = "mnist": must be one of imagenet, cifar'),
        ("resnet18", {"groups": 5}, r"divide 64.*got 5"),
        ("resnet50", {"groups": 0}, r"groups = 0: must be at least 1"),
        ("mcmahan_cnn", {"dropout": 1.0}, r"dropout = 1\.0: must be at least 0 and below 1"),
        ("report_cnn", {"dropout": -0.1}, r"dropout = -0\.1: must be at least 0"),
        ("cifar_cnn", {"dropout": float("nan")}, r"dropout = nan: must be a finite number"),
        ("cifar_cnn", {"dropout": "half"}, r'dropout = "half": must be a number'),
        ("cct7", {"stochastic_depth": 1.0}, r"stochastic_depth = 1\.0: must be"),
        ("cct7", {"stochastic_depth": -0.1}, r"stochastic_depth = -0\.1: must be"),
        ("cct7", {"attention_dropout": True}, r"attention_dropout = true: must be a number"),
        ("mlp", {"hidden": ()}, r"'linear'"),
        ("mlp", {"hidden": 64}, r"hidden = 64: must be a list of whole numbers"),
        ("mlp", {"hidden": (64, 0)}, r"item 2, 0, must be at least 1"),
        ("2nn", {"hidden": 2.5}, r"hidden = 2\.5: must be a whole number"),
    ],
)
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        MODELS[name]((3, 32, 32), 10, **settings)


def test_unknown_model():
    with pytest.raises(ConfigError, match=r"unknown model 'resnet19'\. Did you mean 'resnet18'"):
        MODELS["resnet19"]


def test_settings_carry_a_type_and_a_sentence():
    for name, factory in MODELS.items():
        hints = typing.get_type_hints(factory, include_extras=True)
        settings = set(hints) - {"input_shape", "num_classes", "facts", "return"}
        for setting in settings:
            notes = hints[setting].__metadata__
            assert any(isinstance(note, str) and note for note in notes), (name, setting)
        assert factory.__doc__
