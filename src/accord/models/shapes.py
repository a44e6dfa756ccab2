"""Shapes are settled when a network is built, so that a data set that does not fit fails before any work."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

import torch
from torch import Tensor, nn

from accord.core.model import Shape
from accord.errors import ConfigError

LARGEST_SIDE = 1024  # how far the error message looks for the smallest image that fits


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; every submodule gets its own mode back afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


def output_shape(module: nn.Module, input_shape: Shape) -> Shape:
    """Shape of one sample's output: one black sample is passed through, in evaluation mode, so nothing is drawn.

    (The meta device would save that pass, but its first use imports a symbolic algebra system for 1.5 seconds.)
    """
    with evaluating(module):
        out: Tensor = module(torch.zeros(1, *input_shape))
    return tuple(out.shape[1:])


def map_shape(model: str, maps: nn.Module, input_shape: Shape) -> Shape:
    """Shape of one sample's feature maps, or an error that names the smallest image the model takes."""
    try:
        return output_shape(maps, input_shape)
    except RuntimeError as error:
        least = next((side for side in range(1, LARGEST_SIDE) if _fits(maps, input_shape[0], side)), None)
        if least is None:
            raise
        raise ConfigError(
            f"model {model!r} wants images of at least {least} x {least} pixels, got input shape "
            f"{input_shape}; resize or pad the images, or choose a model with fewer pooling layers"
        ) from error


def _fits(maps: nn.Module, channels: int, side: int) -> bool:
    try:
        output_shape(maps, (channels, side, side))
    except RuntimeError:
        return False
    return True


def image_channels(model: str, input_shape: Sequence[int], num_classes: int) -> tuple[int, Shape]:
    """Channels of an image shape, and the shape itself, both checked."""
    shape = _checked(model, input_shape, num_classes, "images of shape (channels, height, width)")
    if len(shape) != 3:
        hint = "; add a channel dimension, e.g. x[:, None]" if len(shape) == 2 else ""
        raise ConfigError(
            f"model {model!r} wants images of shape (channels, height, width), got input shape {shape}{hint}"
            ". For vectors and tables choose 'mlp' or 'linear'."
        )
    return shape[0], shape


def flat_length(model: str, input_shape: Sequence[int], num_classes: int) -> int:
    """Numbers in one sample, whatever its shape."""
    return prod(_checked(model, input_shape, num_classes, "samples of at least one number each"))


def _checked(model: str, input_shape: Sequence[int], num_classes: int, wanted: str) -> Shape:
    try:
        shape = tuple(operator.index(side) for side in input_shape)
        classes = operator.index(num_classes)
    except TypeError as error:
        raise ConfigError(
            f"model {model!r}: input shape and number of classes must be whole numbers, "
            f"got {input_shape!r} and {num_classes!r}"
        ) from error
    if not shape or min(shape) < 1:
        raise ConfigError(f"model {model!r} wants {wanted}, got input shape {shape}")
    if classes < 1:
        raise ConfigError(f"model {model!r} needs at least 1 output (classes, or numbers asked for), got {classes}")
    return shape
