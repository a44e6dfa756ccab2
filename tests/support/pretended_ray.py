"""Ray in this process: actors are plain objects, calls are made at once, and what is lost is lost by order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """Of Ray's own: an actor is gone."""


class RayTaskError(RayError):
    """What an actor's work raised."""


class Ref:
    """A reference to a value that is there, or to an error."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Call:
    def __init__(self, ray: PretendedRay, actor: _Actor, name: str) -> None:
        self.ray, self.actor, self.name = ray, actor, name

    def remote(self, *given: Any) -> Ref:
        self.ray.calls.append((self.actor.number, self.name))
        arguments = [one.value if isinstance(one, Ref) else one for one in given]
        error = self.ray.trouble(self.actor, self.name, arguments)
        if error is not None:
            return Ref(error)
        try:
            return Ref(getattr(self.actor.thing, self.name)(*arguments))
        except Exception as problem:
            return Ref(RayTaskError(str(problem)))


class _Actor:
    def __init__(self, ray: PretendedRay, thing: Any, number: int) -> None:
        self.ray, self.thing, self.number = ray, thing, number

    def __getattr__(self, name: str) -> _Call:
        return _Call(self.ray, self, name)


class PretendedRay:
    """As much of the module `ray` as Accord calls."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, **resources: float) -> None:
        self.resources = resources
        self.calls: list[tuple[int, str]] = []  # which actor was called for what
        self.made: list[dict[str, Any]] = []  # what each actor was made with
        self.killed: list[int] = []
        self.waits: list[tuple[int, int, float]] = []
        self.begun: list[dict[str, Any]] = []  # calls of `init`
        self.ended = 0
        self.running = False
        self.silent = False  # nothing ever arrives

    def trouble(self, actor: Any, name: str, arguments: list[Any]) -> Exception | None:
        """Why a call fails; tests put their own in its place."""
        return None

    def remote(self, **options: Any) -> Any:
        def kind(cls: type) -> Any:
            def make() -> _Actor:
                self.made.append(options)
                return _Actor(self, cls(), len(self.made) - 1)

            return SimpleNamespace(remote=make)

        return kind

    def put(self, value: Any) -> Ref:
        return Ref(value)

    def get(self, reference: Ref) -> Any:
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def wait(self, references: list[Ref], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Ref], list[Ref]]:
        self.waits.append((len(references), num_returns, timeout))
        if self.silent:
            return [], references
        return references[:num_returns], references[num_returns:]

    def kill(self, actor: _Actor) -> None:
        self.killed.append(actor.number)

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **options: Any) -> None:
        self.begun.append(options)
        self.running = True

    def shutdown(self) -> None:
        self.ended += 1
        self.running = False

    def cluster_resources(self) -> dict[str, float]:
        return self.resources
