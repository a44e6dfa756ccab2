"""FedBN: normalisation layers stay with the clients, everything else is federated.

Li, Jiang, Zhang, Kamp, Dou. "FedBN: Federated learning on non-IID features via local batch normalization".
ICLR 2021, arXiv 2102.07623.

    client k:  as FedAvg, from the server's model with its own normalisation layers
    server:    all other parameters <- sum_k a_k w_k

Sent: the model without its normalisation layers up; down the whole model, with those layers as they were made (used at
a client's first visit). Kept by the client: scale, shift and running statistics of every normalisation layer, found by
the layer's type: batch, group or layer norm. A model without any is refused: it would be FedAvg.
The server never sees trained normalisation layers and has no global model; the score is the personal accuracy.
Defaults: weights by samples. The paper is about batch norm (resnet with norm = "batch").
"""

from __future__ import annotations

import accord.authoring as fl
from accord.core.model import NORM_LAYERS


def norm_layers(model: fl.Model) -> frozenset[str]:
    """Names of all parameters and buffers of the normalisation layers, as far as they move."""
    buffers = {
        f"{prefix}.{leaf}" if prefix else leaf
        for prefix, module in model.network.named_modules()
        if isinstance(module, NORM_LAYERS)
        for leaf, _ in module.named_buffers(recurse=False)
    }
    return frozenset(model.norm_names) | (buffers & set(model.buffer_names))


@fl.method("personal")
def fedbn(setup: fl.Setup) -> fl.Method:
    """Average all layers but those that normalise."""
    names = norm_layers(setup.model)
    if not names:
        raise fl.ConfigError(
            "algorithm fedbn keeps normalisation layers at home, but this network has none with values that move; "
            "choose one that has (such as resnet18), or algorithm fedavg"
        )
    local = setup.local(fl.SampleLoss(), personal=names)
    return setup.method(local, {"model": fl.Mean(), "buffers": fl.Mean()}, has_global_model=False)
