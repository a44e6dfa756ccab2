"""What runs in an actor's process: the data, the tasks, and an executor of one device."""

from __future__ import annotations

import os
import platform
import socket
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from accord._version import __version__
from accord.client import Answer, Executor, Request, Site, Work
from accord.core.task import Task
from accord.executors import bundle
from accord.executors.allocator import keep_freed_memory
from accord.executors.gpu.batched import Batched
from accord.executors.ray.parcel import Parcel, on, packed, unpacked
from accord.executors.ray.partial import block_means, without
from accord.executors.sequential import Sequential

Outcome = tuple[Answer, Parcel | None]  # the answer without its tensors, and those


@dataclass(frozen=True)
class Delivery:
    """What comes back of a piece of work."""

    outcomes: list[Outcome]
    warned: list[str]
    clients: tuple[int, ...] = ()  # whose means follow
    means: Parcel | None = None


@dataclass(frozen=True)
class Numerics:
    """What torch computes with, beside the device: set by whoever started the run, wherever its clients are."""

    dtype: torch.dtype
    tf32: bool
    deterministic: bool

    @classmethod
    def here(cls) -> Numerics:
        """As they are in this process."""
        backends = torch.backends
        return cls(torch.get_default_dtype(), backends.cudnn.allow_tf32, backends.cudnn.deterministic)

    def set(self) -> None:
        """From now on in this process."""
        torch.set_default_dtype(self.dtype)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.tf32
        torch.backends.cudnn.deterministic = self.deterministic


@dataclass(frozen=True)
class Surroundings:
    """Where an actor is, and what it computes with there."""

    host: str
    process: int
    versions: Mapping[str, str]

    @classmethod
    def here(cls) -> Surroundings:
        """Of this process."""
        versions = {"accord": __version__, "torch": torch.__version__, "Python": platform.python_version()}
        return cls(socket.gethostname(), os.getpid(), versions)


class Trainer:
    """An actor: runs the clients of whichever federation it was last given, and keeps nothing of them."""

    def __init__(self) -> None:
        keep_freed_memory()
        self.executor: Executor | None = None
        self.device, self.sizes = torch.device("cpu"), np.zeros(0, np.int64)

    def settle(self, site: Site, tasks: Mapping[str, Task], numerics: Numerics) -> Surroundings:
        """From now on these clients; answered as soon as it can work."""
        if self.executor is not None:
            self.executor.close()
        numerics.set()
        self.device, self.sizes = site.device, site.data.sizes
        self.executor = Batched(site, tasks) if site.device.type == "cuda" else Sequential(site, tasks)
        return Surroundings.here()

    def run(self, header: Request, shared: Parcel, works: Sequence[tuple[Work, Parcel]]) -> Delivery:
        """A few clients of a request, a block of them where their means will do; and what there was to warn of."""
        assert self.executor is not None  # it settled first
        request = replace(
            header,
            shared=on(unpacked(shared), self.device),
            works=[bundle.work_of(work, on(unpacked(parcel), self.device)) for work, parcel in works],
        )
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", RuntimeWarning)
            answers = self.executor.run(request)
        said = [str(warning.message) for warning in raised if issubclass(warning.category, RuntimeWarning)]
        shares = block_means(answers, header.sums, self.sizes) if header.sums is not None else {}
        if not shares:
            return Delivery([_apart(answer) for answer in answers], said)
        (clients,) = {share.block.clients for share in shares.values()}
        means = packed({tree: share.block.mean for tree, share in shares.items()})
        return Delivery([_apart(answer) for answer in without(answers, shares)], said, clients, means)


def _apart(answer: Answer) -> Outcome:
    if answer.result is None:
        return answer, None
    return replace(answer, result=None), packed(bundle.found(answer.result))
