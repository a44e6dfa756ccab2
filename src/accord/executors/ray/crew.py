"""The actors of an executor: started side by side, in service once they are ready, replaced when they are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accord.client import Site
from accord.core.task import Task
from accord.errors import RunError
from accord.executors.ray.trainer import Numerics, Surroundings, Trainer

AHEAD = 2  # pieces of work an actor may have at a time, so that it does not wait for its next


@dataclass(eq=False)
class Member:
    """An actor as the executor knows it."""

    actor: Any
    ready: Any = None  # Ray's reference to its surroundings
    in_service: bool = False
    pieces: list[Any] = field(default_factory=list)  # references to the answers it owes, in its order


class Crew:
    """So many actors, whatever becomes of single ones."""

    def __init__(self, resources: Mapping[str, float]) -> None:
        import ray

        # Over as many machines as there are. Ray would restart a lost one by itself, but lets all calls fail meanwhile.
        kept = {"scheduling_strategy": "SPREAD", "max_restarts": 0, "max_task_retries": 0}
        remote: Any = ray.remote
        self._kind: Any = remote(**kept, **resources)(Trainer)
        self._versions = Surroundings.here().versions
        self._home: Sequence[Any] = ()
        self.members: list[Member] = []

    def settle(self, count: int, site: Site, tasks: Mapping[str, Task]) -> None:
        """So many actors, and all get these clients, through the object store."""
        import ray

        for superfluous in self.members[count:]:
            _end(superfluous)
        self.members = self.members[:count]
        self.members += [Member(self._kind.remote()) for _ in range(count - len(self.members))]
        self._home = ray.put(site), ray.put(dict(tasks)), Numerics.here()
        for member in self.members:
            self._settle(member)

    def _settle(self, member: Member) -> None:
        member.in_service, member.ready = False, member.actor.settle.remote(*self._home)

    @property
    def at_rest(self) -> bool:
        """Whether nobody owes an answer."""
        return not any(member.pieces for member in self.members)

    def waited_for(self) -> dict[Any, Member]:
        """Whoever owes an answer, by Ray's reference to it."""
        starting = {member.ready: member for member in self.members if not member.in_service}
        return starting | {piece: member for member in self.members for piece in member.pieces}

    def free(self, waiting: int) -> Member | None:
        """Whoever should have the next of so many pieces: the one with the least to do; nobody when all have enough.

        While there are many, an actor has its next piece before it ends the last one. The last pieces go to those that
        have nothing to do.
        """
        enough = AHEAD if waiting > len(self.members) else 1
        able = [member for member in self.members if member.in_service and len(member.pieces) < enough]
        return min(able, key=lambda member: len(member.pieces), default=None)

    def greet(self, member: Member, found: Surroundings) -> None:
        """It can work: take it into service, unless it would compute with something else than we do."""
        for name, version in self._versions.items():
            if found.versions[name] != version:
                raise RunError(
                    f"{found.host} has {name} {found.versions[name]}, and this machine {version}: install the same "
                    "version on all machines of the Ray cluster"
                )
        member.in_service = True

    def replace(self, member: Member) -> None:
        """A new actor in its place, wherever there is room for one."""
        _end(member)
        new = Member(self._kind.remote())
        self.members[self.members.index(member)] = new
        self._settle(new)

    def close(self) -> None:
        """End all."""
        for member in self.members:
            _end(member)
        self.members = []


def _end(member: Member) -> None:
    """Its process, if it still has one."""
    import ray

    ray.kill(member.actor)
