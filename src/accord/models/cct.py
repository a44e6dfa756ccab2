"""Compact convolutional transformer CCT-7/3x1, FedBR's model for CIFAR-100.

Hassani et al., "Escaping the Big Data Paradigm with Compact Transformers", 2021, arXiv:2104.05704.
One convolution makes tokens, seven encoder layers mix them, a learned weighting pools them. Attention is
written with plain matrix products, which every executor can differentiate and batch over clients.
Against the original: layers start from torch's default initialisation, not from a truncated normal.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from accord.core.model import Shape
from accord.models.blocks import drop_layer
from accord.models.network import Network
from accord.models.registry import MODELS
from accord.models.shapes import image_channels, map_shape
from accord.settings import PROPER_FRACTION

WIDTH = 256
DEPTH = 7
HEADS = 4
MLP_RATIO = 2


class Attention(nn.Module):
    """Multi-head self-attention over T tokens."""

    def __init__(self, attention_dropout: float, dropout: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.drop_weights = drop_layer(attention_dropout)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.drop = drop_layer(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Each token becomes a mean of all tokens' values, weighted by how well query and key agree."""
        B, T, D = x_BTD.shape
        split = self.qkv(x_BTD).reshape(B, T, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = split[0], split[1], split[2]  # [B, heads, T, D / heads]
        agreement = query @ key.transpose(-2, -1) * (D // HEADS) ** -0.5
        mixed = self.drop_weights(agreement.softmax(dim=-1)) @ value
        result: Tensor = self.drop(self.out(mixed.transpose(1, 2).reshape(B, T, D)))
        return result


class StochasticDepth(nn.Module):
    """Leaves out a residual branch for a random part of the samples; its mask comes from a dropout layer."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.drop = drop_layer(p)

    def forward(self, branch: Tensor) -> Tensor:
        """The branch, zero for some samples and scaled up for the others."""
        kept: Tensor = self.drop(branch.new_ones(len(branch), 1, 1))
        return branch * kept


class EncoderLayer(nn.Module):
    """Attention, then two linear layers. As in the original, the second norm sits on the residual stream."""

    def __init__(self, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention(attention_dropout, dropout)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            *(nn.Linear(WIDTH, MLP_RATIO * WIDTH), nn.GELU(), drop_layer(dropout)),
            *(nn.Linear(MLP_RATIO * WIDTH, WIDTH), drop_layer(dropout)),
        )
        self.depth = StochasticDepth(stochastic_depth) if stochastic_depth else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Tokens in, tokens out."""
        x = self.norm2(x + self.depth(self.attention(self.norm1(x))))
        out: Tensor = x + self.depth(self.mlp(x))
        return out


class Encoder(nn.Module):
    """Feature maps as tokens, learned positions, seven layers, sequence pooling."""

    def __init__(self, tokens: int, dropout: float, attention_dropout: float, stochastic_depth: float) -> None:
        super().__init__()
        self.positions = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens, WIDTH), std=0.2))
        self.drop = drop_layer(dropout)
        # Later layers are left out more often, the first one never.
        rates = [stochastic_depth * layer / (DEPTH - 1) for layer in range(DEPTH)]
        self.layers = nn.Sequential(*(EncoderLayer(dropout, attention_dropout, rate) for rate in rates))
        self.norm = nn.LayerNorm(WIDTH)
        self.pool = nn.Linear(WIDTH, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """[B, D, height, width] maps to [B, D] features."""
        x = self.drop(maps.flatten(2).transpose(1, 2) + self.positions)
        x = self.norm(self.layers(x))
        weights = self.pool(x).softmax(dim=1)  # [B, T, 1]
        pooled: Tensor = (weights * x).sum(dim=1)
        return pooled


@MODELS.add("cct7")
def cct7(
    input_shape: Shape,
    num_classes: int,
    dropout: Annotated[float, PROPER_FRACTION, "dropout of tokens and hidden units"] = 0.0,
    attention_dropout: Annotated[float, PROPER_FRACTION, "dropout of attention weights"] = 0.1,
    stochastic_depth: Annotated[float, PROPER_FRACTION, "how often the last layer is left out"] = 0.1,
) -> Network:
    """CCT-7/3x1: 256 features, 7 layers, 4 heads; 3,783,269 parameters for 100 classes of 32 x 32 images."""
    channels, shape = image_channels("cct7", input_shape, num_classes)
    maps = nn.Sequential(nn.Conv2d(channels, WIDTH, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
    out = map_shape("cct7", maps, shape)
    neck = Encoder(out[1] * out[2], dropout, attention_dropout, stochastic_depth)
    return Network(maps, neck, nn.Linear(WIDTH, num_classes), out)
