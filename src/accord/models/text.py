"""A small transformer for sequences of token ids: one answer per sequence, or one per position.

Attention is written with plain matrix products, which every executor can differentiate and batch over clients; torch's
recurrent layers cannot be stacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from accord.core.model import Fuse, Shape
from accord.core.types import Facts
from accord.errors import ConfigError
from accord.models.blocks import drop_layer
from accord.models.registry import MODELS
from accord.settings import PROPER_FRACTION, AtLeast

HIDDEN = 2  # width of a block's hidden layer, in widths of the model


class Block(nn.Module):
    """Attention over the positions a sequence has, then two linear layers, each added to what it was given."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, HIDDEN * width), nn.GELU(), nn.Linear(HIDDEN * width, width))
        self.drop = drop_layer(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[B, L, D] to the same; `mask` [B, L] is 0 where a sequence has ended."""
        x = x + self.drop(self.out(self._attended(self.norm1(x), mask)))
        mixed: Tensor = x + self.drop(self.mlp(self.norm2(x)))
        return mixed

    def _attended(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, length, width = x.shape
        split = self.qkv(x).reshape(count, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = split[0], split[1], split[2]  # [B, heads, L, D / heads]
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        lowest = torch.finfo(scores.dtype).min
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, lowest)
        if self.causal:
            ahead = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(ahead, lowest)
        mixed: Tensor = scores.softmax(-1) @ value
        return mixed.transpose(1, 2).reshape(count, length, width)


class TextNetwork(nn.Module):
    """`head(body(tokens))`: of the mean over a sequence's positions, or of every position."""

    takes_fields = True
    head_name = "head"
    map_shape: Shape | None = None

    def __init__(
        self,
        vocabulary: int,
        length: int,
        outputs: int,
        *,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        causal: bool,
        positions: bool,
    ) -> None:
        super().__init__()
        self.each = positions
        self.embed = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(nn.init.trunc_normal_(torch.empty(length, width), std=0.02))
        self.blocks = nn.ModuleList(Block(width, heads, dropout, causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)

    @property
    def num_features(self) -> int:
        """D, the length of a feature vector."""
        return self.head.in_features

    def forward(self, x: Any = None, *, tokens: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """[B, C] or [B, L, C] logits of token ids [B, L], or of `tokens` and `mask`."""
        given = x if x is not None else {"tokens": tokens} if mask is None else {"tokens": tokens, "mask": mask}
        return self.logits_and_features(given)[0]

    def features(self, x: Any) -> Tensor:
        """[B, D], or [B, L, D]: what the head reads."""
        return self.logits_and_features(x)[1]

    def feature_maps(self, x: Any) -> Tensor:
        """There are none."""
        raise ConfigError("model 'transformer' has no feature maps; choose a convolutional model")

    def logits_and_features(self, x: Any, fuse: Fuse | None = None) -> tuple[Tensor, Tensor]:
        """Both in one pass."""
        if fuse is not None:
            self.feature_maps(x)
        tokens, mask = (x["tokens"], x.get("mask")) if isinstance(x, Mapping) else (x, None)
        hidden = self.embed(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            hidden = block(hidden, mask)
        hidden = self.norm(hidden)
        if not self.each:
            hidden = hidden.mean(1) if mask is None else _mean(hidden, mask)
        return self.head(hidden), hidden


def _mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """[B, D] over the positions a sequence has."""
    weight = (mask != 0).to(hidden.dtype).unsqueeze(-1)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)


@MODELS.add("transformer")
def transformer(
    input_shape: Shape,
    num_classes: int,
    facts: Facts,
    *,
    width: Annotated[int, AtLeast(1), "numbers that stand for a token, a multiple of heads"] = 32,
    layers: Annotated[int, AtLeast(1), "blocks of attention"] = 2,
    heads: Annotated[int, AtLeast(1), "heads of an attention"] = 2,
    dropout: Annotated[float, PROPER_FRACTION, "dropout of what a block adds"] = 0.0,
    causal: Annotated[bool, "a position sees only those before it, as for predicting the next token"] = False,
    vocabulary: Annotated[int, AtLeast(0), "token ids there are; 0: one more than the largest in the data"] = 0,
) -> TextNetwork:
    """A small transformer for token ids: texts to classify (or a regression of them), or an answer per position."""
    length, known = _tokens(facts, input_shape)
    if width % heads:
        raise ConfigError(f"model 'transformer': width = {width} must be a multiple of heads = {heads}")
    if vocabulary and vocabulary < known:
        raise ConfigError(
            f"model 'transformer': vocabulary = {vocabulary}, but the data has token ids up to {known - 1}"
        )
    return TextNetwork(
        vocabulary or known,
        length,
        num_classes,
        width=width,
        layers=layers,
        heads=heads,
        dropout=dropout,
        causal=causal,
        positions=facts.problem == "tokens",
    )


def _tokens(facts: Facts, input_shape: Shape) -> tuple[int, int]:
    """How long sequences are, and how many token ids there are."""
    if facts.fields is not None and "tokens" in facts.fields and set(facts.fields.names) <= {"tokens", "mask"}:
        field = facts.fields["tokens"]
        if field.vocabulary and len(field.shape) == 1:
            return field.shape[0], field.vocabulary
    if facts.fields is None and facts.vocabulary and len(input_shape) == 1:
        return input_shape[0], facts.vocabulary
    raise ConfigError(
        "model 'transformer' wants token ids, [N, L] of whole numbers, or sequences (accord.from_sequences); got "
        + (f"the inputs {', '.join(facts.fields.names)}" if facts.fields else f"samples of shape {tuple(input_shape)}")
    )
