"""What a node agrees to send, and what is done to it before it leaves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from accord.core.algorithm import Algorithm
from accord.core.disclosure import Declared, Disclosure, disclosures, kind_of
from accord.core.keys import Key
from accord.core.tensors import Trees
from accord.core.types import Result
from accord.errors import ConfigError
from accord.flower.owner import Owner

USUAL = (Disclosure.SCORE, Disclosure.UPDATE, Disclosure.STATISTIC)  # agreed to unless refused


@dataclass(frozen=True)
class Consent:
    """The owner's: kinds of disclosure by default, single tasks by name (`fedmix.means`, `fedmeta.contribute`)."""

    kinds: frozenset[Disclosure]
    tasks: frozenset[str]
    clip: float = 0.0
    noise: float = 0.0

    @classmethod
    def of(cls, owner: Owner) -> Consent:
        """As the owner's file says."""
        known = {kind.word: kind for kind in Disclosure}
        for word in owner.refuse:
            if word not in known:
                raise ConfigError(f"refuse = {word!r}: it must be one of {', '.join(known)}")
        for word in owner.allow:
            if word.count(".") != 1:
                raise ConfigError(f"allow = {word!r}: name METHOD.TASK, such as fedmix.means")
        kinds = frozenset(kind for kind in USUAL if kind.word not in owner.refuse)
        return cls(kinds, frozenset(owner.allow), owner.clip, owner.noise)

    def objection(self, method: str, algorithm: Algorithm) -> str:
        """Why this method's tasks are not agreed to; empty: they are."""
        for task, declared in disclosures(algorithm).items():
            if said := self.objection_to(method, task, declared, declared):
                return said
        return ""

    def objection_to(self, method: str, task: str, declared: Declared, trees: Iterable[str]) -> str:
        """Why these trees of a task are not agreed to; empty: they are."""
        if f"{method}.{task}" in self.tasks:
            return ""
        for tree in trees:
            kind = kind_of(declared, tree)
            if kind not in self.kinds:
                return (
                    f"task {task} of {method} sends {tree}, which is a {kind.word} of the data, and this site's owner "
                    f'has not agreed to it: allow = ["{method}.{task}"] in the node\'s file does'
                )
        return ""

    def leaves(self, method: str, task: str, declared: Declared, result: Result, shared: Trees, draws: Key) -> Result:
        """What may leave: nothing that was not agreed to, updates clipped and covered with noise as the owner wants."""
        if said := self.objection_to(method, task, declared, [name for name, tree in result.reply.items() if tree]):
            raise ConfigError(said)
        if not self.clip:
            return result
        updates = {name: tree for name, tree in result.reply.items() if kind_of(declared, name) == Disclosure.UPDATE}
        return result._replace(reply={**result.reply, **_covered(updates, shared, self.clip, self.noise, draws)})

    def to_json(self) -> Mapping[str, object]:
        """For the server's log."""
        return {"kinds": sorted(kind.word for kind in self.kinds), "tasks": sorted(self.tasks)}


def _covered(updates: Trees, shared: Trees, clip: float, noise: float, draws: Key) -> Trees:
    """Updates no longer than `clip` together, each number with noise; an update is the change of what was received."""
    real = {
        (tree, leaf): tensor
        for tree, leaves in updates.items()
        for leaf, tensor in leaves.items()
        if tensor.is_floating_point()
    }
    starts = {place: shared.get(place[0], {}).get(place[1], torch.zeros_like(t)) for place, t in real.items()}
    changes = {place: tensor.double() - starts[place].double() for place, tensor in real.items()}
    length = float(
        torch.sqrt(sum((change.square().sum() for change in changes.values()), torch.zeros((), dtype=torch.float64)))
    )
    factor = min(1.0, clip / length) if length else 1.0
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(draws.seed)))
    covered: Trees = {tree: dict(leaves) for tree, leaves in updates.items()}
    for (tree, leaf), change in changes.items():
        drawn = torch.from_numpy(rng.standard_normal(tuple(change.shape))).to(change.device) if noise else 0.0
        moved = starts[tree, leaf].double() + factor * change + noise * drawn
        covered[tree][leaf] = moved.to(updates[tree][leaf].dtype)
    return covered


def noise_key(secret: bytes, run: str, task: str, version: tuple[int, int]) -> Key:
    """The same noise for the same message, so that asking again averages nothing away; nobody else knows it."""
    address = f"{run} {task} {version[0]}.{version[1]}".encode()
    return Key(int.from_bytes(hashlib.sha256(b"accord noise " + secret + address).digest(), "big"))
