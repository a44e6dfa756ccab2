"""Whether a method's answers can pass the filters of a run: asked once, before the start, of the method as it is set.

Nothing here is what privacy rests on. Under `central` the server's rule sees nothing but the noisy mean; under `local`
nothing leaves without noise; under `sample` every step is noised. These checks refuse a method that would no longer
be itself under a filter, or that sends more than the filter covers, by its name and with the reason.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from accord.client import Site
from accord.core.algorithm import Algorithm, Sampler
from accord.core.persample import PerSample
from accord.core.streaming import InOrder
from accord.core.sums import reasons_for_each
from accord.core.task import LocalTraining, Task, gradients, trained
from accord.core.tensors import Tree, Trees
from accord.core.types import Batch, ClientData, Facts, Job, Replies, Result, State, World
from accord.engine.exchange import LocalExchange
from accord.engine.store import ClientStore
from accord.errors import AccordError, ConfigError
from accord.executors.sequential import Sequential
from accord.filters import Central, Filters, Local, Sample
from accord.sampling import SAMPLERS

if TYPE_CHECKING:
    from accord.config import LocalConfig, RunConfig

ASKED, ANSWERS = 1, 5  # clients that are tried, and answers made of theirs: enough to tell a mean from what is none
MEAN = "under central privacy a noisy mean is all it has; use privacy.name = 'local', or a method that averages"
TRAIN, EVALUATE = "train", "evaluate"


class UnsuitableError(ConfigError):
    """A method that a filter does not fit."""


def check_filters(config: RunConfig, facts: Facts, algorithm: Algorithm, site: Site, filters: Filters) -> None:
    """Refuse what cannot pass the filters in force."""
    if not filters.on:
        return
    name = config.algorithm.name
    if algorithm.pools_data:
        raise UnsuitableError(
            f"algorithm {name} gathers all data in one place before training, so no answer travels that privacy or "
            "compress could work on: set privacy.name to none and compress to its defaults"
        )
    if filters.budget is None:
        return
    protection, which = filters.budget.protection, f"privacy.name = {filters.budget.name!r}"
    more = sorted(set(algorithm.tasks) - {TRAIN, EVALUATE})
    if more:
        raise UnsuitableError(
            f"algorithm {name} does not fit {which}: it asks its clients for more than their training (task "
            f"{', '.join(more)}), which the accounting does not cover"
        )
    if isinstance(protection, Central) and (reasons := reasons_for_each(algorithm)):
        raise UnsuitableError(f"algorithm {name} does not fit {which}: the server {reasons[0]}, and {MEAN}")
    if isinstance(protection, Sample):
        _check_parts(name, which, algorithm, config.local)
    seen = _Trial(facts, algorithm, site)
    if seen.refusal:
        raise UnsuitableError(f"algorithm {name} does not fit {which}: {seen.refusal}")
    if isinstance(protection, Central) and seen.streams:
        raise UnsuitableError(
            f"algorithm {name} does not fit {which}: the server takes answers as they come, and noise is added to "
            "those of a round together; use privacy.name = 'local'"
        )
    counts = isinstance(protection, Central) or filters.budget.draw.kind == "in turn"
    if counts and seen.clients != _sampler(config, facts, algorithm)(seen.state, seen.world):
        raise UnsuitableError(
            f"algorithm {name} does not fit {which}: it chooses its clients in its own way, and the accounting counts "
            "on clients.sampler; set clients.fraction = 1, or clients.sampler = 'uniform' with privacy.name = 'local'"
        )
    if isinstance(protection, Central | Local):
        _check_covered(name, which, seen.reply)
    if isinstance(protection, Central) and not seen.reads_only_means():
        raise UnsuitableError(
            f"algorithm {name} does not fit {which}: the server reads more of the answers than their mean, and {MEAN}"
        )
    if isinstance(protection, Sample):
        _check_by_sample(name, which, algorithm.tasks[TRAIN], seen, site)


def _sampler(config: RunConfig, facts: Facts, algorithm: Algorithm) -> Sampler:
    """What the accounting counts on: the method's own, if it is of the kind that is set."""
    drawn = SAMPLERS[config.clients.sampler](config.clients.asked(len(facts.members)))
    own: Sampler = getattr(algorithm, "sampler", drawn)
    return own if isinstance(own, type(drawn)) else drawn


def _check_covered(name: str, which: str, reply: Mapping[str, Tree]) -> None:
    for tree, leaves in reply.items():
        for leaf, tensor in leaves.items():
            if not tensor.is_floating_point():
                raise UnsuitableError(
                    f"algorithm {name} does not fit {which}: it sends whole numbers ({tree}/{leaf}), which cannot be "
                    "clipped and noised; with batch norm, use a network with group norm, or fedbn"
                )
    if reply.get("buffers"):
        raise UnsuitableError(
            f"algorithm {name} does not fit {which} with this network: its running statistics (buffers/"
            f"{next(iter(reply['buffers']))}) would be noised, and a variance with noise may be negative; use a "
            "network with group norm, or fedbn, whose statistics stay with the clients"
        )


def _check_parts(name: str, which: str, algorithm: Algorithm, local: LocalConfig) -> None:
    """Refuse what clips no sample by itself, as far as it can be seen without a trial."""
    task = algorithm.tasks[TRAIN]
    refused = f"algorithm {name} does not fit {which}: "
    if not isinstance(task, LocalTraining) or task.private is None or task.has_own("step", "objective", "move"):
        raise UnsuitableError(f"{refused}its clients train in a way of its own, where no sample is clipped by itself")
    plan = task.plan
    if (plan.epochs, plan.steps, plan.batch_size) != (local.epochs, local.steps, local.batch_size) or not plan.poisson:
        raise UnsuitableError(f"{refused}its clients take other steps than [local] says, which are those accounted for")
    if task.model.couples_batch or task.model.init()[1]:
        raise UnsuitableError(
            f"{refused}the network has batch norm or other running statistics, in which samples mix; use one with "
            "group norm or none"
        )
    for part in task.parts:
        own = [hook for hook in ("noise", "batch", "before", "after", "close") if part.has_own(hook)]
        if own or part.couples:
            raise UnsuitableError(
                f"{refused}its part {part.name} works on whole batches ({', '.join(own) or 'it compares samples'}), "
                "where no sample is clipped by itself"
            )


def _check_by_sample(name: str, which: str, task: Task, seen: _Trial, site: Site) -> None:
    """Refuse what reads data outside of its steps, or whose steps are no sums over samples."""
    assert isinstance(task, LocalTraining)
    reason = seen.beyond_steps(task) or seen.not_a_sum(task, site)
    if reason:
        raise UnsuitableError(f"algorithm {name} does not fit {which}: {reason}")


class _Sealed:
    """A client's data that nobody may read."""

    num_classes = 0
    has_test = False

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def __getattr__(self, name: str) -> Any:
        raise _SealBroken(name)


class _SealBroken(Exception):  # noqa: N818 - it is the answer to a question
    """Something looked into a client's data."""


class _Asked(Exception):  # noqa: N818 - it is the answer to a question
    """Something was asked of the clients."""


class _Door(InOrder):
    """An exchange that notes whether it is used as a stream of arrivals."""

    begun = False

    def __call__(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        return self.exchange(task, clients, shared, private)

    def begin(self, *given: Any, **named: Any) -> None:
        self.begun = True
        super().begin(*given, **named)


class _Trial:
    """One round of a few clients with one step each, in which nothing is filtered."""

    def __init__(self, facts: Facts, algorithm: Algorithm, site: Site) -> None:
        self.algorithm, self.facts, self.site = _one_step(algorithm), facts, site
        self.as_many_steps = bool(algorithm.tasks[TRAIN].plan.steps)  # each client takes as many as any other
        self.world = World(0, facts.members, facts.sizes, site.key)
        self.lr = algorithm.schedule.at(0)
        self.asked: list[str] = []
        self.clients: list[int] = []
        self.replies: Replies | None = None
        self.refusal = ""
        self.streams = False  # its server takes answers as they come
        try:
            self.state: State = self.algorithm.start(self.algorithm.init(self.world), self.world, self._refuse)
        except _Asked as asked:
            self.refusal = (
                f"it asks its clients for {asked} before the first round, which the accounting does not cover"
            )
            return
        door = _Door(self._ask)
        self.algorithm.round(self.state, self.world, door)
        self.streams = door.begun
        once = len(set(self.clients)) == len(self.clients) if self.streams else len(self.asked) == 1
        if set(self.asked) != {TRAIN} or not once:
            self.refusal = f"it asks its clients {len(self.asked)} times in a round, and the accounting covers one"

    @property
    def reply(self) -> Trees:
        """What one client sends."""
        assert self.replies is not None
        return self.replies.results[0].reply

    def reads_only_means(self) -> bool:
        """Whether the server's state is the same where every answer is the mean of all."""
        assert self.replies is not None
        rng, ids = np.random.default_rng(0), tuple(self.world.clients[:ANSWERS])
        known = self.replies.results
        steps = [1.0 if self.as_many_steps else 1.0 + number for number in range(len(ids))]
        unlike = [_shaken(known[number % len(known)], rng, taken) for number, taken in enumerate(steps)]
        equal = torch.ones(len(unlike), dtype=torch.int64)
        one = Replies(ids, tuple(unlike), equal, {})
        mean = {tree: {**one.results[0].reply[tree], **one.mean(tree, "uniform")} for tree in one.results[0].reply}
        other = replace(one, results=tuple(result._replace(reply=mean) for result in unlike))
        return _alike(self._folded(one), self._folded(other))

    def beyond_steps(self, task: LocalTraining) -> str:
        """Where data is read that no step shows."""
        job = self._job(_Sealed(self.facts.num_classes))
        try:
            job = job._replace(memory=task.first_memory(job))
            task.finish(job, task.begin(job))
        except _SealBroken as broken:
            return f"it reads its client's data (job.data.{broken}) outside of its steps, where nothing is clipped"
        return ""

    def not_a_sum(self, task: LocalTraining, site: Site) -> str:
        """Why the gradient of a batch is not the mean of its samples' gradients."""
        data = site.client_data(self.world.clients[0])
        rows = torch.arange(min(4, len(data.y)), device=site.device)
        job = self._job(data)
        job = job._replace(memory=task.first_memory(job))
        batch = Batch(data.x[rows], data.y[rows], torch.ones(len(rows), device=site.device), rows, {})
        alone = replace(task, plan=replace(task.plan, batch_size=len(rows)))
        with torch.random.fork_rng(devices=[site.device] if site.device.type == "cuda" else []), torch.no_grad():
            try:
                carry = task.begin(job)
                leaves = trained(carry)
                found, _ = PerSample(1e30, 0.0).gradients(alone, job, carry, leaves, batch)
                with torch.enable_grad():
                    whole = gradients(task.objective(job, carry, leaves, batch)[0], leaves)
            except AccordError:
                raise
            except Exception as error:
                return f"its gradient cannot be taken sample by sample ({str(error).splitlines()[0]})"
        dropout = any(
            isinstance(module, torch.nn.modules.dropout._DropoutNd) for module in task.model.network.modules()
        )
        return "" if dropout or _alike(found, whole) else "its loss compares the samples of a batch with one another"

    def _job(self, data: Any) -> Job:
        numbers = {"client": self.world.clients[0], "round": 0, "examples": 4, "steps": 1.0, "lr": self.lr}
        info = {name: torch.tensor(value, device=self.site.device) for name, value in numbers.items()}
        samples: ClientData = data
        return Job(self.algorithm.message(self.state), {}, {}, info, samples)

    def _folded(self, replies: Replies) -> State:
        return self.algorithm.round(self.state, self.world, lambda *_: replies)[0]

    def _refuse(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        raise _Asked(task)

    def _ask(
        self, task: str, clients: Sequence[int], shared: Trees, private: Mapping[int, Trees] | None = None
    ) -> Replies:
        self.asked.append(task)
        self.clients = sorted([*self.clients, *clients])
        few = list(clients)[:ASKED]
        executor = Sequential(self.site, self.algorithm.tasks)
        with tempfile.TemporaryDirectory(prefix="accord-trial-") as folder:
            store = ClientStore(Path(folder), self.facts.sizes, 1 << 30)
            door = LocalExchange(executor, store, self.site.key, 0, self.lr)
            self.replies = door(task, few, shared, private)
        return self.replies


def _one_step(algorithm: Algorithm) -> Algorithm:
    """The same method; its clients take one step."""
    local = getattr(algorithm, "local", None)
    if not isinstance(local, LocalTraining):
        return algorithm
    method: Any = algorithm
    made: Algorithm = replace(method, local=replace(local, plan=replace(local.plan, steps=1), private=None))
    return made


def _shaken(result: Result, rng: np.random.Generator, steps: float) -> Result:
    """Another answer: no two clients' are alike, nor are the steps they took."""
    reply = {
        name: {leaf: _moved(t, rng) if t.is_floating_point() else t for leaf, t in tree.items()}
        for name, tree in result.reply.items()
    }
    took = result.metrics.get("steps")
    metrics = result.metrics if took is None else {**result.metrics, "steps": torch.full_like(took, steps)}
    return result._replace(reply=reply, metrics=metrics)


def _moved(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return tensor + torch.from_numpy(np.asarray(0.01 * rng.standard_normal(tuple(tensor.shape)))).to(tensor)


def _alike(one: Mapping[str, Tree], other: Mapping[str, Tree]) -> bool:
    """Up to rounding."""
    return all(
        torch.allclose(t.double(), other[name][leaf].double(), rtol=1e-3, atol=1e-5)
        for name, tree in one.items()
        for leaf, t in tree.items()
    )
