"""The executor that deals clients out to Ray's actors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import torch

from accord.client import Answer, Request, Site
from accord.core.task import Task
from accord.core.types import Block, Share
from accord.errors import RunError
from accord.executors import bundle
from accord.executors.allocator import keep_freed_memory
from accord.executors.processes import cores
from accord.executors.ray import session
from accord.executors.ray.crew import AHEAD, Crew
from accord.executors.ray.dealing import Deal, Pile
from accord.executors.ray.parcel import packed, taken_out
from accord.executors.ray.partial import block_means, is_whole, with_shares
from accord.executors.ray.trainer import Delivery
from accord.executors.registry import EXECUTORS, NEVER, Choice, Done, nobody
from accord.executors.sequential import one_thread
from accord.wire.codec import room

PATIENCE = 300.0  # seconds without an actor before the run ends


@EXECUTORS.add("ray")
class OnRay(Choice):
    """Actors of Ray on this machine or a cluster (RAY_ADDRESS), one per GPU or core or as many as `workers` says."""

    compiles = True

    def __init__(
        self,
        site: Site,
        tasks: Mapping[str, Task],
        workers: int = 0,
        done: Done = nobody,
    ) -> None:
        self.site, self.tasks, self.done = site, tasks, done
        self.workers = workers
        self.crew: Crew | None = None
        self._warned: set[str] = set()

    @classmethod
    def obstacle(cls) -> str:
        """Ray is an extra."""
        return "executor = 'ray' needs Ray: pip install 'accord-fl[ray]'" if session.missing() else ""

    @classmethod
    def pays(cls, device: torch.device, clients: int) -> int:
        """For those who ask for it: on one machine others start sooner."""
        return NEVER

    @classmethod
    def make(cls, site: Site, tasks: Mapping[str, Task], *, workers: int, done: Done) -> OnRay:
        """`workers` actors; 0: one per GPU, or per core of the cluster."""
        return cls(site, tasks, workers, done)

    @one_thread()  # the cores are the actors'
    def run(self, request: Request) -> list[Answer]:
        """Deal clients out until all have answered."""
        import ray

        crew = self._manned(request)
        shared, header = ray.put(packed(request.shared)), replace(request, shared={}, works=())
        sizes, sums = self.site.data.sizes, request.sums
        blocks = sums.blocks(request.works) if sums is not None else []
        if blocks:
            deal = Deal(Pile.of_blocks(blocks, sizes))
        else:
            deal = Deal(Pile(request.works, sizes, len(crew.members), self.site.device.type == "cuda"))
        while len(deal.answers) < len(request.works):
            while deal.pile and (member := crew.free(len(deal.pile))) is not None:
                works = deal.pile.next()
                parcels = [(bundle.header_of(work), packed(bundle.given(work))) for work in works]
                # A client that is tried by itself sends all it has: its block's means are then made here.
                asked = header if any(works is block for block in blocks) else replace(header, sums=None)
                deal.note(member, member.actor.run.remote(asked, shared, parcels), works)
            waited_for = crew.waited_for()
            arrived, others = ray.wait(list(waited_for), timeout=PATIENCE)
            if others:
                arrived += ray.wait(others, num_returns=len(others), timeout=0)[0]
            if not arrived and not deal.dealt:
                raise RunError(self._no_room())
            for reference in arrived:
                member = waited_for[reference]
                if member not in crew.members:
                    continue  # it was replaced a moment ago, when another of its pieces was found lost
                try:
                    found = ray.get(reference)
                except ray.exceptions.RayError as error:
                    if isinstance(error, ray.exceptions.RayTaskError) or getattr(error, "actor_init_failed", False):
                        raise RunError(f"an actor of Ray cannot do its work: {error}") from error
                    crew.replace(member)
                    deal.lost(member, str(error))
                else:
                    if reference == member.ready:
                        crew.greet(member, found)
                        continue
                    deal.settled(member, reference, self._answers(request, found))
                self.done(len(deal.answers), len(request.works))
        for block in blocks:
            answers = [deal.answers[work.client] for work in block]
            if sums is not None and any(map(is_whole, answers)):
                shared_out = with_shares(answers, block_means(answers, sums, sizes))
                deal.answers |= {answer.client: answer for answer in shared_out}
        return list(deal.answers.values())

    def close(self) -> None:
        """Leave the actors to the next one in this session; with its last user they end, and Ray if it is our own."""
        if self.crew is not None:
            crew, self.crew = self.crew, None
            if crew.at_rest:
                session.park(self._kind(), crew)
            else:
                crew.close()
            session.leave()

    def _manned(self, request: Request) -> Crew:
        """The actors, started when they are first needed."""
        if self.crew is not None:
            return self.crew
        keep_freed_memory()
        data = self.site.data
        samples = sum(pool.x.nbytes + pool.y.nbytes for pool in (data.train_pool, data.test_pool))
        message = room(request.shared) + max((room(bundle.given(work)) for work in request.works), default=0)
        asked = self.workers or cores()
        # The data, and twice what is on its way to and from every actor; what does not fit goes to the disk.
        session.join(asked, 2 * samples + 4 * AHEAD * (asked + 1) * message)
        try:
            has = session.resources()
            count = self.workers or min(int(has.get(self._kind(), 0)), len(data.sizes))
            if not has.get(self._kind(), 0):
                raise RunError(self._no_room())
            self.crew = session.taken(self._kind()) or Crew(self._needs())
            self.crew.settle(count, self.site, self.tasks)
        except BaseException:
            session.leave()
            raise
        return self.crew

    def _kind(self) -> str:
        return "GPU" if self.site.device.type == "cuda" else "CPU"

    def _needs(self) -> dict[str, float]:
        """Of one actor: its device. Nobody counts the cores of a Ray of our own: a second run may want some too."""
        if self._kind() == "GPU":
            return {"num_gpus": 1, "num_cpus": 0}
        return {"num_cpus": 0 if session.is_ours_alone() else 1}

    def _no_room(self) -> str:
        has = {name: f"{session.resources().get(name, 0):g}" for name in ("CPU", "GPU")}
        return (
            f"no actor could be started: each needs a {self._kind()} of the Ray cluster, which has {has['CPU']} CPU "
            f"and {has['GPU']} GPU in all (`ray status` shows who uses them). Start more machines, or set "
            f"{'device to cpu' if self._kind() == 'GPU' else 'another executor'}"
        )

    def _answers(self, request: Request, found: Delivery) -> list[Answer]:
        """The answers with tensors of their own; what an actor warned of is said here, once."""
        for text in found.warned:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, RuntimeWarning, stacklevel=3)
        device = self.site.device
        answers = [
            replace(answer, result=bundle.result_of(taken_out(parcel, device))) if parcel is not None else answer
            for answer, parcel in found.outcomes
        ]
        if found.means is None or request.sums is None:
            return answers
        weights, means = request.sums.trees, taken_out(found.means, device)
        return with_shares(answers, {tree: Share(Block(found.clients, weights[tree], means[tree])) for tree in means})
