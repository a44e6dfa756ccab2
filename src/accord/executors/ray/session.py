"""This process's place in a Ray cluster.

Where the user has called `ray.init`, that session is used and left as it is. Where RAY_ADDRESS is set, the cluster it
names is joined, and left at the end. Otherwise Ray is started on this machine, for this process alone: it asks everyone
who calls it for a token (its default), writes into a folder of its own, and ends when nobody holds the session any
more, or with this process, however that ends: Ray binds its processes' lives to ours. Only two small agents of Ray take
a minute to notice a `kill -9`.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from accord.errors import ConfigError, RunError
from accord.executors.processes import cores
from accord.executors.ray.crew import Crew

ADDRESS = "RAY_ADDRESS"
LEAST_STORE = 256 << 20  # bytes of the object store of a Ray of our own
LONGEST_FOLDER = 40  # characters: sockets lie below it, and their paths may not exceed 107


@dataclass
class _Session:
    """What to undo when the last one leaves."""

    users: int = 0
    ours: bool = False  # whether `ray.init` was called here
    folder: Path | None = None  # of a Ray that was started here
    loudness: int = logging.NOTSET  # of Ray's messages, before
    parked: dict[str, Crew] = field(default_factory=dict)  # actors without work, by what they compute on


_SESSION = _Session()
_ONE_AT_A_TIME = threading.Lock()


def missing() -> bool:
    """Whether Ray is not installed."""
    return importlib.util.find_spec("ray") is None


@contextmanager
def joined(actors: int = 0, store: int = 0) -> Iterator[None]:
    """In a cluster for a while."""
    join(actors, store)
    try:
        yield
    finally:
        leave()


def join(actors: int = 0, store: int = 0) -> None:
    """Be in a cluster until `leave`; one of our own has room for so many actors and bytes."""
    with _ONE_AT_A_TIME:
        if not _SESSION.users:
            _enter(actors, store)
        _SESSION.users += 1


def leave() -> None:
    """The last one to leave ends what was begun here."""
    with _ONE_AT_A_TIME:
        _SESSION.users -= 1
        if _SESSION.users:
            return
        ours, folder, parked = _SESSION.ours, _SESSION.folder, list(_SESSION.parked.values())
        _SESSION.ours, _SESSION.folder, _SESSION.parked = False, None, {}
    for crew in parked:
        crew.close()
    if ours:
        import ray

        ray.shutdown()
        logging.getLogger("ray").setLevel(_SESSION.loudness)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def park(kind: str, crew: Crew) -> None:
    """Actors that are not needed now: starting them took seconds, and the next run of a study wants some."""
    if kind in _SESSION.parked:
        crew.close()
    else:
        _SESSION.parked[kind] = crew


def taken(kind: str) -> Crew | None:
    """Actors of that kind that nobody uses, if there are some."""
    return _SESSION.parked.pop(kind, None)


def is_ours_alone() -> bool:
    """Whether this Ray was started here, so that nobody else wants its cores."""
    return _SESSION.folder is not None


def resources() -> dict[str, float]:
    """What the cluster has, by Ray's names (CPU, GPU)."""
    import ray

    cluster: Any = ray.cluster_resources
    return dict(cluster())


def _enter(actors: int, store: int) -> None:
    import ray

    if ray.is_initialized():
        return
    address = os.environ.get(ADDRESS, "")
    if address.startswith("ray://"):
        raise ConfigError(
            f"{ADDRESS} = {address!r} is the address for clients outside of a Ray cluster: start the run on a machine "
            "of the cluster, with the address that `ray start` printed there, or 'auto'"
        )
    common: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if not address:
        # Sockets have short names: a folder deep below would not do.
        place = tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST_FOLDER else "/tmp"  # noqa: S108
        _SESSION.folder = Path(tempfile.mkdtemp(prefix="accord-ray-", dir=place))
        common |= {
            "num_cpus": max(actors, cores()),
            "num_gpus": torch.cuda.device_count(),
            "include_dashboard": False,
            "object_store_memory": max(store, LEAST_STORE),
            "_temp_dir": str(_SESSION.folder / "ray"),  # Ray opens it to everybody, who cannot enter the one above it
        }
    log = logging.getLogger("ray")
    _SESSION.loudness = log.level
    log.setLevel(logging.ERROR)
    with _as_before():
        if not address:
            # Ray's processes find what this one does, such as modules beside a script that is run as a test.
            os.environ["PYTHONPATH"] = os.pathsep.join(place for place in sys.path if place and not _standard(place))
            os.environ.setdefault("RAY_worker_niceness", "0")  # 15 would leave the cores to everybody else
        try:
            ray.init(address=address or "local", **common)
        except Exception as error:
            folder, _SESSION.folder = _SESSION.folder, None
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            what = f"join the Ray cluster at {ADDRESS} = {address!r}" if address else "start Ray on this machine"
            raise RunError(f"cannot {what}: {error}") from error
    _SESSION.ours = True


def _standard(place: str) -> bool:
    """Whether every process of this Python looks there anyway."""
    return any(Path(place).is_relative_to(home) for home in (sys.prefix, sys.base_prefix))


@contextmanager
def _as_before() -> Iterator[None]:
    """Environment and signals as they were, whatever `ray.init` makes of them."""
    environment, here = dict(os.environ), threading.current_thread() is threading.main_thread()
    handlers = {end: signal.getsignal(end) for end in (signal.SIGINT, signal.SIGTERM)} if here else {}
    try:
        yield
    finally:
        for end, handler in handlers.items():
            if handler is not None:
                signal.signal(end, handler)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
