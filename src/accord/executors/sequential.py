"""The reference executor: one client after the other, on one thread, on any device."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from accord.client import Answer, Request, Site, Work, run_client
from accord.core.task import Task
from accord.errors import DivergedError
from accord.executors.registry import AT_LEAST, EXECUTORS, Choice, Done, nobody


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: sums are split by thread, so equal bits need equal threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def answer(site: Site, task: Task, request: Request, work: Work) -> Answer:
    """A client that fails is dropped from the round with its reason; one that diverged ends the run."""
    try:
        return Answer(work.client, run_client(site, task, request, work))
    except DivergedError as error:
        return Answer(work.client, None, str(error), fatal=True)
    except Exception:  # whatever a client's task raises is that client's failure, reported by the exchange
        return Answer(work.client, None, traceback.format_exc())


@EXECUTORS.add("sequential")
class Sequential(Choice):
    """One client after the other in this process: the reference."""

    def __init__(
        self,
        site: Site,
        tasks: Mapping[str, Task],
        done: Done = nobody,
    ) -> None:
        self.site, self.tasks, self.done = site, tasks, done

    @classmethod
    def pays(cls, device: torch.device, clients: int) -> int:
        """Where nothing else does."""
        return AT_LEAST

    @classmethod
    def make(cls, site: Site, tasks: Mapping[str, Task], *, workers: int, done: Done) -> Sequential:
        """It has no workers."""
        return cls(site, tasks, done)

    def run(self, request: Request) -> list[Answer]:
        """In the order of the request."""
        answers = []
        with one_thread():
            for work in request.works:
                answers.append(answer(self.site, self.tasks[request.task], request, work))
                self.done(len(answers), len(request.works))
        return answers

    def close(self) -> None:
        """Nothing to give back."""
