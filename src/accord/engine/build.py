"""From a configuration to the objects a run needs. Everything that can be refused is refused here, before any work."""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from accord.config import catalog
from accord.core.algorithm import Algorithm, Setup
from accord.core.keys import Key
from accord.core.model import Model
from accord.core.optim import OPTIMIZERS, Optimizer, Schedule
from accord.core.plan import Plan
from accord.core.task import LocalTraining
from accord.core.tensors import finite
from accord.core.types import Facts
from accord.data.division import federate, subset
from accord.data.federated import Dataset, FederatedData, Groups
from accord.data.public import load_dataset
from accord.engine.memory import allowance, free_memory
from accord.engine.problem import as_asked, check_labels, problem_of
from accord.errors import ConfigError, DataError
from accord.executors import check_compiles
from accord.executors.gpu.compiler import check_compiler
from accord.executors.kernels import layers_for
from accord.sampling import SAMPLERS

if TYPE_CHECKING:
    from accord.config import RunConfig

PUBLIC = 10_000  # samples of a public data set that are held


def load_data(config: RunConfig) -> Dataset:
    """The data set the configuration names."""
    data = config.data
    folder = Path(data.dir) if data.dir else None
    options = {"download": data.download, "normalise": data.normalise, "task": config.task, **data.options}
    return load_dataset(data.name, folder, **options)


def load_public(config: RunConfig, name: str) -> Dataset:
    """Another data set, for a method whose server holds public data; prepared as the clients' is."""
    folder = Path(config.data.dir) if config.data.dir else None
    return load_dataset(name, folder, download=config.data.download, normalise=config.data.normalise)


def build_data(config: RunConfig, dataset: Dataset | None = None) -> FederatedData:
    """Load the data set (unless one is given) and deal it to the clients."""
    part = config.partition
    return federate(
        as_asked(config.task, load_data(config) if dataset is None else dataset),
        clients=part.clients,
        partition=part.name,
        partition_settings=dict(part.options),
        transform=config.transform.name,
        transform_settings=dict(config.transform.options),
        test=part.test,
        holdout=part.holdout,
        validation=part.validation,
        unseen=part.unseen,
        limit=config.data.limit or None,
        seed=config.partition_seed,
    )


def check_data(data: FederatedData) -> None:
    """Labels of the task and finite inputs, whoever made the data."""
    for name, pool in (("train", data.train_pool), ("test", data.test_pool)):
        if not len(pool):
            raise DataError(f"the {name} data is empty")
        if not finite({name: {"x": pool.x}}):
            rows = (~torch.isfinite(pool.x.flatten(1)).all(1)).nonzero().flatten()
            raise DataError(
                f"{len(rows)} {name} samples hold NaN or infinity, the first at position {int(rows[0])}: remove them"
            )
    check_labels(data)
    if not (data.sizes > 0).any():
        raise DataError("no client has training data: use fewer clients or another partition")


def pooled(data: FederatedData) -> FederatedData:
    """The union of all training clients as one client."""
    members = [k for k in range(len(data)) if k not in data.unseen]
    union = np.sort(np.concatenate([data.train[k] for k in members]))
    if data.transform is not None:
        raise ConfigError("algorithm centralized cannot pool clients that see transformed inputs: set transform none")
    one, none = Groups.of([union]), Groups.of([[]])
    return replace(data, train=one, validation=none, test=none, unseen=frozenset(), names=())


def judged_on_validation(data: FederatedData) -> FederatedData:
    """The validation samples in place of the test data, so that no choice made from the numbers has seen a test."""
    members = [k for k in range(len(data)) if k not in data.unseen]
    held = np.sort(np.concatenate([data.validation[k] for k in members]))
    if not len(held):
        raise DataError(
            "no client has validation data: raise partition.validation, or use fewer clients, so that a client's "
            "share is at least one sample"
        )
    nothing = Groups.of([[]] * len(data))
    return replace(
        data, test_pool=subset(data.train_pool, held), test=data.validation, test_from="train", validation=nothing
    )


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = 'cuda', but torch sees no GPU here; use device = 'auto' or 'cpu'")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def fits(data: FederatedData, device: torch.device, share: float = 0.1) -> bool:
    """Whether the samples may stay on the GPU: as they are stored, and in at most this share of its free memory."""
    if device.type != "cuda" or data.transform is not None:
        return False
    held = sum(pool.x.numel() * pool.x.element_size() for pool in (data.train_pool, data.test_pool))
    return held <= share * torch.cuda.mem_get_info(device)[0]


def build_model(config: RunConfig, facts: Facts, network: nn.Module | None, device: torch.device) -> Model:
    """The named model, drawn from the run's seed; or the user's own, with the weights it came with."""
    if config.compile:
        check_compiles(config.executor)
        check_compiler(device)
    form: dict[str, Any] = {
        "bf16": config.precision == "bf16",
        "channels_last": config.channels_last,
        "compiled": config.compile,
        "layers": layers_for(device, channels_last=config.channels_last, compiled=config.compile),
        "problem": problem_of(facts),
        "fields": facts.fields,
    }
    if network is not None:
        if config.model.init != "torch":
            raise ConfigError(
                f"model.init = {config.model.init!r} is for networks chosen by name, and yours keeps the weights it "
                "came with: set model.init to torch, or call accord.models.initialise on it yourself"
            )
        return Model(network, device, **form)
    if form["problem"].one_class and facts.num_classes < 2:
        raise ConfigError(
            f"model {config.model.name!r} needs at least 2 classes to tell apart, got {facts.num_classes}"
        )
    with torch.random.fork_rng(devices=[]), allowance(config.model.name, free_memory(device)):
        torch.manual_seed(Key(config.seed).number("model"))
        factory = catalog.registry("model")[config.model.name]
        known = {"facts": facts} if "facts" in inspect.signature(factory).parameters else {}
        made = factory(facts.sample_shape, facts.num_classes, **known, **config.model.options)
        catalog.registry("initialisation")[config.model.init](made)
        getattr(made, "drawn", lambda: None)()
    return Model(made, device, **form)


def build_setup(config: RunConfig, facts: Facts, model: Model) -> Setup:
    """The settings every method of a comparison shares."""
    local = config.local
    free = local.last_batch == "auto"
    policy: Any = ("fill" if model.couples_batch else "pad") if free else local.last_batch
    return Setup(
        model=model,
        optimizer=_optimizer(config),
        plan=Plan(local.epochs, local.steps, local.batch_size, policy),
        schedule=Schedule(local.lr, local.schedule, local.decay, local.decay_every, local.min_lr, config.rounds),
        sampler=SAMPLERS[config.clients.sampler](config.clients.asked(len(facts.members))),
        num_clients=len(facts.sizes) - len(facts.unseen),
        num_classes=facts.num_classes,
        rounds=config.rounds,
        clip=local.clip,
        free_last_batch=free,
        keeps_optimizer=local.optimizer_state == "kept",
        public=partial(public_samples, config, facts),
    )


def public_samples(config: RunConfig, facts: Facts, name: str) -> Tensor:
    """The first training samples of another data set, for a method whose server holds public data."""
    other = load_public(config, name).train
    if tuple(other.x.shape[1:]) != tuple(facts.sample_shape):
        raise ConfigError(
            f"samples of the public data {name!r} have shape {tuple(other.x.shape[1:])}, the clients' "
            f"{tuple(facts.sample_shape)}: choose a data set whose samples have theirs"
        )
    return other.take(np.arange(min(len(other), PUBLIC)))[0]


def _optimizer(config: RunConfig) -> Optimizer:
    factory, local = OPTIMIZERS[config.local.optimizer], vars(config.local)
    return factory(**{name: local[name] for name in inspect.signature(factory).parameters if name in local})


def build_algorithm(config: RunConfig, setup: Setup) -> Algorithm:
    """The named method with its own settings."""
    made: Algorithm = catalog.registry("algorithm")[config.algorithm.name](setup, **config.algorithm.options)
    if setup.keeps_optimizer:
        _check_one_optimizer(config.algorithm.name, made)
    return made


def _check_one_optimizer(name: str, algorithm: Algorithm) -> None:
    """A client keeps the state of one optimizer, so one of its tasks must train the model, and by the usual way."""
    training = [task for task in algorithm.tasks.values() if isinstance(task, LocalTraining)]
    if len(training) != 1 or not training[0].keeps_optimizer:
        raise ConfigError(
            f"local.optimizer_state = 'kept' does not fit algorithm {name}, as it is set: "
            f"{'its clients train more than one model in a round' if len(training) > 1 else 'it trains in its own way'}"
            "; set optimizer_state to fresh"
        )
