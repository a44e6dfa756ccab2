"""What runs in an actor's process: the data, the tasks, and an executor of one device."""

from __future__ import annotations

import os
import platform
import socket
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from accord._version import __version__
from accord.client import Answer, Executor, Request, Site, Work
from accord.core.task import Task
from accord.executors import bundle
from accord.executors.allocator import keep_freed_memory
from accord.executors.gpu.batched import Batched
from accord.executors.ray.parcel import Parcel, on, packed, unpacked
from accord.executors.sequential import Sequential

Outcome = tuple[Answer, Parcel | None]  # the answer without its tensors, and those


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
        self.device = torch.device("cpu")

    def settle(self, site: Site, tasks: Mapping[str, Task], numerics: Numerics) -> Surroundings:
        """From now on these clients; answered as soon as it can work."""
        if self.executor is not None:
            self.executor.close()
        numerics.set()
        self.device = site.device
        self.executor = Batched(site, tasks) if site.device.type == "cuda" else Sequential(site, tasks)
        return Surroundings.here()

    def run(
        self, header: Request, shared: Parcel, works: Sequence[tuple[Work, Parcel]]
    ) -> tuple[list[Outcome], list[str]]:
        """A few clients of a request; and what there was to warn of."""
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
        return [_apart(answer) for answer in answers], said


def _apart(answer: Answer) -> Outcome:
    if answer.result is None:
        return answer, None
    return replace(answer, result=None), packed(bundle.found(answer.result))
