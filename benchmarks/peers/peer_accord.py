"""Accord through its public call, `accord.run`, with the executor it chooses itself."""

from __future__ import annotations

import contextlib
import tempfile

import numpy as np
import torch
from work import SETTINGS, Turns, arguments, network, rounds, samples

import accord
from accord.data.federated import FederatedData, Groups, Pool
from accord.models import adapt
from accord.observe import Observer


class TurnsTakenError(Exception):
    """All turns were taken; what would follow is the last round's evaluation and the summary."""


class Watch(Observer):
    """Takes turns between rounds."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def round_ended(self, round: int, record: object) -> None:
        if not self.turns.round_ended(round):
            raise TurnsTakenError


def main() -> None:
    args = arguments()
    setting = SETTINGS[args.setting]
    turns = Turns(args, "numpy")
    pools = [Pool(*(torch.from_numpy(a) for a in samples(setting, test))) for test in (False, True)]
    held = np.split(np.arange(setting.clients * setting.samples), setting.clients)
    none = Groups.of([[]] * setting.clients)
    data = FederatedData("noise", pools[0], pools[1], 10, Groups.of(held), none, none)
    with tempfile.TemporaryDirectory() as out, contextlib.suppress(TurnsTakenError):
        config = accord.load_config(
            sets=[
                f"rounds={rounds(args) + 1}",
                f"device={args.device}",
                f"out={out}",
                f"workers={args.cores}",
                f"partition.clients={setting.clients}",
                f"clients.count={setting.cohort}",
                f"local.batch_size={setting.batch}",
                f"local.lr={setting.lr}",
                f"evaluate.every={setting.evaluate_every or rounds(args) + 1}",
                "evaluate.clients=false",
                "checkpoint.every=0",
            ]
        )
        module = network(args.setting, args.dropout)
        head = list(module._modules)[-1]  # the last layer
        accord.run(config, data=data, model=adapt(module, head), observers=[Watch(turns)])


if __name__ == "__main__":
    main()
