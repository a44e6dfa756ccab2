"""A network some of which its owner froze, and what must be true of it after any training."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from accord.models import Adapted, adapt
from support.federation import CLASSES, SHAPE, TinyRun


class Tower(nn.Module):
    """A frozen convolution, a batch norm in evaluation mode with a frozen weight, and layers that train."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2)
        self.still = nn.BatchNorm2d(4)
        self.norm = nn.BatchNorm2d(4)
        self.wide = nn.Linear(36, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.still(self.conv(x)).relu())
        return self.head(self.wide(x.flatten(1)).relu())


def tower() -> Adapted:
    """Running statistics of the layer in evaluation mode are those of no data at all."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = Tower()
        module.still.running_mean.uniform_(-1, 1)
        module.still.running_var.uniform_(0.5, 2)
    module.conv.requires_grad_(False)
    module.still.weight.requires_grad_(False)
    module.still.eval()
    return adapt(module, head="head", maps="norm", example=torch.zeros(2, *SHAPE))


FROZEN = ("conv.weight", "conv.bias", "still.weight", "still.running_mean", "still.running_var")


def values(network: nn.Module) -> dict[str, Tensor]:
    """Everything that must stay."""
    state = network.state_dict()
    return {name: state[f"module.{name}"].cpu().clone() for name in (*FROZEN, "still.num_batches_tracked")}


def check(run: TinyRun, before: Mapping[str, Tensor]) -> None:
    """Nothing of it in any tree of any message or memory, and the exported module has it as it was."""
    model = run.algorithm.tasks["train"].model  # type: ignore[attr-defined]  # some methods replace the head
    names = {f"module.{name}" for name in before}
    assert run.replies is not None
    everything = [run.state, *(r.reply for r in run.replies.results), *(r.memory for r in run.replies.results)]
    assert not names & {leaf for trees in everything for tree in trees.values() for leaf in tree}
    for kept in (model.module(run.state["model"], run.state["buffers"]), model._train.network, model.network):
        after = values(kept)
        assert all(torch.equal(before[name], after[name]) for name in before), kept
    exported = model.module(run.state["model"], run.state["buffers"])
    flags = {name: p.requires_grad for name, p in exported.named_parameters()}
    assert all(flag != (name in names) for name, flag in flags.items())
    assert not any(module.training for module in exported.modules())
