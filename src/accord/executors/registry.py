"""Executors by name: what each says of itself before it is made, and which one a run gets.

A new executor is one file in this package, found by itself: `@EXECUTORS.add("name")` above a class that is a `Choice`.
The first line of the class's documentation is what `accord list executors` prints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch

from accord.client import Answer, Executor, Request, Site
from accord.core.task import Task
from accord.errors import ConfigError
from accord.settings import Registry

AUTO = "auto"
NEVER, AT_LEAST, GLADLY = 0, 1, 2  # how `auto` may be told to take an executor

Done = Callable[[int, int], None]  # told how many clients of how many have answered


def nobody(done: int, total: int) -> None:
    """Told and does nothing."""


class Choice(ABC):
    """An executor that can be chosen."""

    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")  # where it runs
    compiles: ClassVar[bool] = False  # whether it can do with `compile = true`

    @classmethod
    def obstacle(cls) -> str:
        """Why this machine cannot run it, in a full sentence; or nothing."""
        return ""

    @classmethod
    @abstractmethod
    def pays(cls, device: torch.device, clients: int) -> int:
        """How gladly `auto` takes it for so many clients on one of its devices: the highest wins, NEVER is out."""

    @classmethod
    @abstractmethod
    def make(cls, site: Site, tasks: Mapping[str, Task], *, workers: int, done: Done) -> Executor:
        """Ready to run; `workers` is the setting of that name."""

    @abstractmethod
    def run(self, request: Request) -> list[Answer]:
        """All answers."""

    @abstractmethod
    def close(self) -> None:
        """Give back processes and memory."""


EXECUTORS: Registry[type[Choice]] = Registry("executor", home="accord.executors")


def misfit(name: str, device: str) -> str:
    """Why an executor does not run on a kind of device, whatever the machine; or nothing."""
    devices = (device,) if name == AUTO else EXECUTORS[name].devices
    if device in devices:
        return ""
    allowed = " or ".join(f"'{kind}'" for kind in devices)
    return f"executor = '{name}' does not run on device = '{device}': use device = {allowed}, or executor = '{AUTO}'"


def choose(name: str, device: torch.device, clients: int) -> type[Choice]:
    """The executor of that name, refused where it cannot be used; `auto`: the one that pays most here."""
    if name != AUTO:
        if reason := misfit(name, device.type) or EXECUTORS[name].obstacle():
            raise ConfigError(reason)
        return EXECUTORS[name]
    here = [entry for entry in EXECUTORS.values() if device.type in entry.devices and not entry.obstacle()]
    return max(here, key=lambda entry: entry.pays(device, clients))


def check_compiles(name: str) -> None:
    """Refuse `compile = true` of an executor that has no use for it."""
    if name == AUTO or EXECUTORS[name].compiles:
        return
    able = " or ".join(f"'{other}'" for other in (AUTO, *(n for n, entry in EXECUTORS.items() if entry.compiles)))
    raise ConfigError(
        f"compile = true is for clients side by side, and executor = '{name}' has none: "
        f"use executor = {able}, or set compile to false"
    )


def make_executor(
    name: str, site: Site, tasks: Mapping[str, Task], *, clients: int, workers: int = 0, done: Done = nobody
) -> Executor:
    """The executor of that name for `clients` clients at this site."""
    return choose(name, site.device, clients).make(site, tasks, workers=workers, done=done)
