"""Forward passes of the model in training on more than the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.core.model import Model, Out
from accord.core.tensors import Tree


def two_batches(model: Model, params: Tree, buffers: Tree, first: Tensor, second: Tensor) -> tuple[Out, Out]:
    """The outputs of both in one pass; one after the other where a layer couples the samples of a batch."""
    if model.couples_batch:
        return model.train(params, buffers, first), model.train(params, buffers, second)
    out = model.train(params, buffers, torch.cat([first, second]))
    count = len(first)
    return Out(out.logits[:count], out.features[:count]), Out(out.logits[count:], out.features[count:])
