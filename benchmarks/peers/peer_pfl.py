"""pfl-research (`pfl` on PyPI): its FederatedAveraging on its SimulatedBackend, as in its own CIFAR-10 benchmark.

On the CPU `--cores` ranks share a cohort, one thread each (pfl's own distributed mode, over gloo); on the GPU
one process trains the users one after another. Users' own metrics, which pfl takes before and after training, are off.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import types

import torch
from work import SETTINGS, Turns, accuracy, arguments, network, rounds, samples


def without_accountants() -> None:
    """pfl imports privacy accountants that nothing here uses: empty modules stand in where they are not installed."""

    class Empty(types.ModuleType):
        __path__ = ()

        def __getattr__(self, name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    try:
        import dp_accounting  # noqa: F401
        import multiprocess  # noqa: F401
        import prv_accountant  # noqa: F401
    except ImportError:
        for name in ("dp_accounting", "dp_accounting.pld", "dp_accounting.rdp", "prv_accountant", "multiprocess"):
            sys.modules[name] = Empty(name)


def other_ranks(count: int) -> list[subprocess.Popen[bytes]]:
    """Start ranks 1 and up, and make this process rank 0, the way torchrun does it."""
    if "RANK" in os.environ:
        return []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    common |= {"TORCHELASTIC_RUN_ID": "bench", "LOCAL_WORLD_SIZE": str(count)}
    started = []
    for rank in range(1, count):
        env = os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        started.append(subprocess.Popen([sys.executable, *sys.argv], env=env, stdout=subprocess.DEVNULL))
    os.environ.update(common | {"RANK": "0", "LOCAL_RANK": "0"})
    return started


def main() -> None:
    args = arguments()
    setting = SETTINGS[args.setting]
    torch.set_num_threads(1)
    ranks = args.cores if args.device == "cpu" else 1
    others = other_ranks(ranks) if ranks > 1 else []
    without_accountants()
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops.pytorch_ops import to_tensor
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Averaging(FederatedAveraging):
        """Without the metrics of every user."""

        def get_next_central_contexts(self, *given: object, **named: object) -> object:
            contexts, model, metrics = super().get_next_central_contexts(*given, **named)
            if contexts is not None:
                contexts = tuple(dataclasses.replace(context, do_evaluation=False) for context in contexts)
            return contexts, model, metrics

    class Watch(TrainingProcessCallback):
        """Central evaluation where the setting has one; then turns between rounds."""

        def __init__(self) -> None:
            self.turns = Turns(args, "pfl") if int(os.environ.get("RANK", "0")) == 0 else None

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            number = central_iteration + 1
            if setting.evaluate_every and number % setting.evaluate_every == 0:
                accuracy(model.pytorch_model, *test)
            if self.turns is not None:
                self.turns.round_ended(number)
            if ranks > 1:
                torch.distributed.barrier()
            return False, Metrics()

    watch = Watch()
    x, y = (to_tensor(a) for a in samples(setting))
    test = [to_tensor(a) for a in samples(setting, test=True)]
    y, test[1] = y.long(), test[1].long()
    users = {
        k: [x[k * setting.samples : (k + 1) * setting.samples], y[k * setting.samples : (k + 1) * setting.samples]]
        for k in range(setting.clients)
    }
    module = network(args.setting, args.dropout)
    module.loss = lambda x, y: torch.nn.functional.cross_entropy(module.train()(x), y)
    module.metrics = lambda x, y: {}
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    sampler = get_user_sampler("random", range(setting.clients))
    backend = SimulatedBackend(FederatedDataset.from_slices(users, sampler), None, [WeightByUser()])
    Averaging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds(args),
            evaluation_frequency=1,
            train_cohort_size=setting.cohort,
            val_cohort_size=None,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=setting.lr, local_num_epochs=1, local_batch_size=setting.batch
        ),
        callbacks=[watch],
    )
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
