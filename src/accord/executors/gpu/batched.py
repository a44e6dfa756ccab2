"""A whole cohort at once on one GPU: blocks of clients in lanes side by side, longest first.

The numbers are those of `sequential` up to rounding: every client draws the same batches and the same noise, and its
kernels are its own. Dropout alone differs, its masks come from one generator for all lanes of a block.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from accord.client import Answer, Request, Site, Work, as_tensor, check_finite, seed_torch
from accord.core.cohort import together
from accord.core.task import LocalTraining, Task, stream
from accord.core.tensors import Trees
from accord.core.types import Job, Result
from accord.errors import DivergedError
from accord.executors.gpu.buffers import Buffers, MisfitError, leaves, spec
from accord.executors.gpu.compiler import StackError, apart, to_be_stacked
from accord.executors.gpu.graphs import CaptureError, Recorder
from accord.executors.gpu.lane import Client
from accord.executors.gpu.lanes import Lanes
from accord.executors.gpu.samples import Samples
from accord.executors.kernels import rows_at_once
from accord.executors.registry import EXECUTORS, GLADLY, Choice, Done, nobody
from accord.executors.sequential import answer, one_thread

MOST_LANES = 128
SHARE = 0.4  # of the free memory for data, and again for lanes


@EXECUTORS.add("batched")
class Batched(Choice):
    """Blocks of clients side by side on one GPU; what cannot be recorded runs one after another instead."""

    devices = ("cuda",)
    compiles = True

    def __init__(
        self,
        site: Site,
        tasks: Mapping[str, Task],
        done: Done = nobody,
        *,
        lanes: int = 0,
    ) -> None:
        self.site, self.tasks, self.done = site, tasks, done
        self.recorder = Recorder(site.device)
        self.data = Samples(site, int(SHARE * self._free()))
        self.most = int(site.data.sizes.max())
        self.limit: dict[str, int] = {}  # lanes of a task that fit into memory
        self.asked = lanes or MOST_LANES
        self._shared: dict[str, Buffers] = {}
        self._lanes: dict[str, dict[Any, Lanes]] = {}
        self._known: dict[str, dict[Any, Lanes]] = {}  # where the last client with such a job went
        self._unfit: set[str] = set()  # tasks that cannot be recorded
        self._apart: set[str] = set()  # tasks whose clients cannot be stacked
        for name, task in tasks.items():
            if to_be_stacked(task) and (reason := apart(task)):
                self._unstack(name, reason)

    @classmethod
    def pays(cls, device: torch.device, clients: int) -> int:
        """Wherever there is a GPU."""
        return GLADLY

    @classmethod
    def make(cls, site: Site, tasks: Mapping[str, Task], *, workers: int, done: Done) -> Batched:
        """`workers` are no concern of a GPU's."""
        return cls(site, tasks, done)

    def run(self, request: Request) -> list[Answer]:
        """Blocks of as many clients as fit, those with the most steps first."""
        task = self.tasks[request.task]
        answers: list[Answer] = []

        def note(new: Iterable[Answer]) -> None:
            answers.extend(new)
            self.done(len(answers), len(request.works))

        with one_thread(), torch.no_grad():
            if request.task in self._unfit or not (task.plan.epochs or task.plan.steps):
                note(self._one_by_one(request, request.works))
                return answers
            shared = self._share(request)
            waiting = self._clients(request, task)
            while waiting and request.task not in self._unfit:
                block = waiting[: self._block_size(request.task, len(waiting))]
                try:
                    done = self._block(request, task, shared, block)
                except torch.cuda.OutOfMemoryError:
                    self._halve(request.task, len(block))
                    continue
                except StackError as error:
                    self._unstack(request.task, str(error))
                    continue
                except (CaptureError, MisfitError) as error:
                    if self._stacks(request.task):
                        self._unstack(request.task, str(error))  # perhaps it can be recorded lane by lane
                        continue
                    self._give_up(request.task, str(error))
                    break
                except Exception as error:
                    # Perhaps one client's failure; one after another it is that client's alone.
                    self._drop_lanes(request.task)
                    done = self._one_by_one(request, [client.work for client in block])
                    if all(answer.result is not None for answer in done):
                        self._give_up(request.task, repr(error))
                note(done)
                waiting = waiting[len(block) :]
            if waiting:
                note(self._one_by_one(request, [client.work for client in waiting]))
        return answers

    def close(self) -> None:
        self._lanes.clear()
        self._known.clear()
        self._shared.clear()

    def _one_by_one(self, request: Request, works: Iterable[Work]) -> list[Answer]:
        return [answer(self.site, self.tasks[request.task], request, work) for work in works]

    def _block(self, request: Request, task: Task, shared: Trees, block: list[Client]) -> list[Answer]:
        cuda = self.recorder.cuda
        stacked = self._stacks(request.task)
        with torch.random.fork_rng(devices=[self.site.device] if cuda else []), rows_at_once(stacked):
            first = min(client.id for client in block)
            seed_torch(self.site.draws(first, stream(request.task, task), request.round).torch_seed(), self.site.device)
            if self.data.bring([client.id for client in block], self.asked):
                self._drop_lanes(request.task)
            measured = cuda and request.task not in self.limit
            before = _allocated(self.site.device, reset=True) if measured else 0
            with together([client.job.data for client in block] if stacked else []):
                used = {id(lanes): lanes for lanes in [self._seat(request.task, task, client) for client in block]}
            room = self._block_size(request.task, len(request.works))
            pairs = [pair for lanes in used.values() for pair in lanes.run(shared, self.data, room)]
            if measured:
                taken = max(_allocated(self.site.device) - before, 1)
                self.limit[request.task] = max(1, min(self.asked, int(SHARE * self._free() / taken)))
        return self._checked(pairs, request.round)

    def _block_size(self, task: str, waiting: int) -> int:
        if self.recorder.cuda and task not in self.limit:
            return 1  # the first client of a task shows how much memory one takes
        size = min(self.limit.get(task, self.asked), waiting)
        return -(-waiting // -(-waiting // size))  # the same number of blocks, nearly equal

    def _share(self, request: Request) -> Trees:
        """The message at fixed addresses; a message of other shapes voids what was recorded."""
        here = self._shared.get(request.task)
        shape = [(path, t.shape, t.dtype) for path, t in leaves(request.shared)]
        if here is None or [(path, t.shape, t.dtype) for path, t in leaves(here.value)] != shape:
            self._drop_lanes(request.task)
            here = self._shared[request.task] = Buffers(self.site.device)
        here.load(request.shared)
        shared: Trees = here.value
        return shared

    def _clients(self, request: Request, task: Task) -> list[Client]:
        """Every client's job, batches and noise; those with the most steps first."""
        device, sizes, count = self.site.device, self.site.data.sizes, len(request.works)
        name = stream(request.task, task)
        random = [self.site.draws(work.client, name, request.round) for work in request.works]
        examples = np.array([sizes[work.client] for work in request.works])
        batches = [task.plan.schedule(draws.order(), int(n)) for draws, n in zip(random, examples, strict=True)]
        numbers = {
            "client": np.array([work.client for work in request.works]),
            "round": np.full(count, request.round),
            "examples": examples,
            "steps": np.array([float(len(steps)) for steps in batches]),
            "lr": np.full(count, request.lr),
        }
        info = {name: as_tensor(values, device) for name, values in numbers.items()}
        clients = []
        noisy = not isinstance(task, LocalTraining) or task.has_own("noise")  # making a generator takes a while
        for number, (work, batch_rows) in enumerate(zip(request.works, batches, strict=True)):
            drawn = {}
            if noisy:
                widest = max((len(rows) for rows in batch_rows), default=0)
                drawn = task.noise(random[number].noise(), len(batch_rows), widest)
            job = Job(
                request.shared,
                _on(work.private, device),
                _on(work.memory or {}, device),
                {name: values[number] for name, values in info.items()},
                self.data.client(work.client),
            )
            if work.memory is None:
                job = job._replace(memory=task.first_memory(job))
            clients.append(Client(work, job, int(examples[number]), batch_rows, drawn))
        return sorted(clients, key=lambda client: (-len(client.batches), client.id))

    def _seat(self, name: str, task: Task, client: Client) -> Lanes:
        """Put a client into lanes made for clients like it."""
        job, examples = client.job, client.examples
        draws = tuple((draw, values.dtype, values.ndim) for draw, values in client.draws.items())
        given = spec({"private": job.private, "memory": job.memory}, examples)
        # A client that is judged on test samples reads them when it begins, and others must not begin for it.
        alike = (self._width(task, client), draws, given, job.data.has_test)
        known = self._known.setdefault(name, {})
        if alike in known and known[alike].ready:
            known[alike].seat(client, self.most)
            return known[alike]
        carry = task.begin(job)
        all_lanes = self._lanes.setdefault(name, {})
        key = (*alike, spec(carry, examples))
        if key not in all_lanes:
            all_lanes[key] = Lanes(task, alike[0], self.recorder, stacked=name not in self._apart)
        known[alike] = all_lanes[key]
        all_lanes[key].load(client, carry, self.most)
        return all_lanes[key]

    def _width(self, task: Task, client: Client) -> int:
        """Samples in a step's batch, short ones padded where the method can bear it."""
        widths = {len(rows) for rows in client.batches}
        couples = bool(getattr(getattr(task, "model", None), "couples_batch", False))
        if task.plan.poisson:  # as wide as its widest batch, in few different widths
            size = task.plan.batch_size or self.most
            return min(-(-max(widths, default=1) // size) * size or size, max(self.most, 1))
        if task.plan.last_batch == "pad" and not couples and task.plan.batch_size:
            return min(task.plan.batch_size, self.most)
        if len(widths) > 1:
            raise MisfitError(
                "the last batch is shorter, and batch norm cannot be shown padding (use last_batch = 'fill')"
            )
        return max(widths, default=1)

    def _checked(self, pairs: list[tuple[Client, Result]], round: int) -> list[Answer]:
        """One look at all results, since every look waits for the device."""
        answers = []
        values = [
            [v for _, v in leaves(result._asdict()) if v.is_floating_point() and v.numel()] for _, result in pairs
        ]
        fine = _all_finite(values)
        for (client, result), good in zip(pairs, fine, strict=True):
            try:
                if not good:
                    check_finite(result, round, client.id)
                answers.append(Answer(client.id, result))
            except DivergedError as error:
                answers.append(Answer(client.id, None, str(error), fatal=True))
        return answers

    def _halve(self, task: str, size: int) -> None:
        """After running out of memory."""
        self._drop_lanes(task)
        self.limit[task] = max(size // 2, 1)
        if size == 1:
            self._give_up(task, "one client's recording alone does not fit into memory")

    def _stacks(self, task: str) -> bool:
        return to_be_stacked(self.tasks[task]) and task not in self._apart

    def _unstack(self, task: str, reason: str) -> None:
        self._apart.add(task)
        self._step_down(task, f"compiled for all clients at once, they run side by side instead: {reason}")

    def _give_up(self, task: str, reason: str) -> None:
        self._unfit.add(task)
        self._step_down(task, f"recorded as a CUDA graph and runs client by client: {reason}")

    def _step_down(self, task: str, what: str) -> None:
        """Say once that a task runs in a slower way."""
        self._drop_lanes(task)
        warnings.warn(f"task {task!r} cannot be {what}", RuntimeWarning, stacklevel=3)

    def _drop_lanes(self, task: str) -> None:
        self._lanes.pop(task, None)
        self._known.pop(task, None)
        if self.recorder.cuda:
            torch.cuda.empty_cache()

    def _free(self) -> int:
        if self.recorder.cuda:
            reserved = torch.cuda.memory_reserved(self.site.device) - torch.cuda.memory_allocated(self.site.device)
            return torch.cuda.mem_get_info(self.site.device)[0] + reserved
        return 1 << 40


def _on(trees: Trees, device: torch.device) -> Trees:
    return {name: {leaf: t.to(device) for leaf, t in tree.items()} for name, tree in trees.items()}


def _allocated(device: torch.device, reset: bool = False) -> int:
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


def _all_finite(values: list[list[torch.Tensor]]) -> list[bool]:
    """Whether every value of each list is a number; one kernel and one transfer for each precision."""
    fine = [True] * len(values)
    for dtype in {tensor.dtype for tensors in values for tensor in tensors}:
        mine = [(owner, tensor) for owner, tensors in enumerate(values) for tensor in tensors if tensor.dtype == dtype]
        largest = torch.stack(torch._foreach_norm([tensor for _, tensor in mine], float("inf")))
        for (owner, _), good in zip(mine, torch.isfinite(largest).tolist(), strict=True):
            fine[owner] = fine[owner] and good
    return fine
