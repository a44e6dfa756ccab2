"""Where a node's messages are worked off: by one process that stays, a fork of this one, which has imported everything.

Stands where Flower's SuperExec has its executor, which starts a program for every message. A worker that dies is
replaced, and what it had in hand is given to the next one. It says after every message whether it stays.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass

from flwr.clientapp import ClientApp
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult

from accord.federation.worker import DONE, Errand, worked

log = logging.getLogger("accord.federation")


@dataclass
class Worker:
    """One as the SuperExec sees it."""

    pid: int
    orders: int  # where it is told what to do; when this is closed, it ends
    words: int  # where it says that it is done
    errand: Errand | None = None  # what it has in hand
    stays: bool = True

    def give(self, errand: Errand) -> bool:
        """Whether it could be told."""
        try:
            os.write(self.orders, json.dumps(errand.as_json()).encode() + b"\n")
        except BrokenPipeError:
            return False
        self.errand = errand
        return True

    def listen(self) -> None:
        """Hear what it has said since."""
        with suppress(BlockingIOError):
            for word in os.read(self.words, 1024):
                self.errand, self.stays = None, word == DONE

    def over(self) -> bool:
        """Whether it has ended; its remains are taken away."""
        if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            return False
        self.listen()
        self.close()
        os.close(self.words)
        return True

    def close(self) -> None:
        """Let it go: it ends at once."""
        if self.orders >= 0:
            os.close(self.orders)
            self.orders = -1


class Workshop:
    """An executor of Flower's."""

    def __init__(self, app: ClientApp) -> None:
        self.app = app
        self.workers: list[Worker] = []  # the last one is given the next message; others have something to finish

    def get_eligible_capacity(
        self,
        supported_task_types: set[TaskType],
        *,
        insecure: bool = False,
        root_certificates_path: str | None = None,
    ) -> tuple[set[TaskType], set[str]]:
        """There is room for everything; what we do not do is refused by name."""
        return supported_task_types, set()

    def wait_for_capacity(
        self,
        task_type: TaskType | None = None,
        *,
        fab_hash: str | None = None,
        insecure: bool = False,
        root_certificates_path: str | None = None,
    ) -> None:
        """Nobody is waited for."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Have one message worked off; anything but a client app's is refused."""
        if spec.task_type != TaskType.CLIENT_APP:
            return LaunchResult.failed(f"{spec.task_type} is refused: this node runs no code that is sent to it")
        self.reconcile()
        errand = Errand(spec.runtime_api_address, spec.token, spec.insecure, spec.root_certificates_path)
        # One that is at work is not waited for: the SuperNode has given it up, or it is about to be done.
        worker = self.workers[-1] if self.workers else None
        if worker is None or worker.errand or not worker.stays or not worker.give(errand):
            self._hire(errand)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Between two looks for messages: hear the workers, and see who has ended."""
        for worker in list(self.workers):
            worker.listen()
            if not worker.over():
                continue
            self.workers.remove(worker)
            if worker.errand is not None and worker.errand.attempts < 2:
                log.warning("the process at work on a message has ended; another one takes its place")
                self._hire(worker.errand.again())
        for worker in self.workers[:-1]:
            if worker.errand is None:
                worker.close()

    def close(self) -> None:
        """The SuperExec ends, and so do they."""
        for worker in self.workers:
            worker.close()

    def _hire(self, errand: Errand) -> None:
        """A new worker, with this message as its first."""
        orders, our_orders = os.pipe()
        our_words, words = os.pipe()
        pid = os.fork()
        if not pid:
            for worker in self.workers:  # or they would not notice when the SuperExec is gone
                worker.close()
            os.close(our_orders)
            os.close(our_words)
            worked(orders, words, self.app)  # never returns
        os.close(orders)
        os.close(words)
        os.set_blocking(our_words, False)
        worker = Worker(pid, our_orders, our_words)
        self.workers.append(worker)
        worker.give(errand)
