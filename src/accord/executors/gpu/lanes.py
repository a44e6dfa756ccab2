"""Clients trained side by side: each has a lane of fixed buffers, and one recorded graph steps all lanes at once.

A client that is done is taken out of its lane at once; the lane may go on computing, nobody looks at it any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, cast

from accord.core.task import LocalTraining, Task
from accord.core.tensors import Trees
from accord.core.types import Carry, Result
from accord.executors.gpu.buffers import copies, leaves
from accord.executors.gpu.compiler import StackedStep, to_be_stacked
from accord.executors.gpu.graphs import CaptureError, Recorder, Recording
from accord.executors.gpu.lane import Client, Lane, nothing
from accord.executors.gpu.samples import Samples
from accord.executors.gpu.stack import Stack, split
from accord.executors.gpu.tables import Tables

FEW = 4  # a stack has one size, so few clients of many step without it


class Lanes:
    """Lanes for one task and one set of shapes, with what was recorded for them."""

    def __init__(self, task: Task, width: int, recorder: Recorder, *, stacked: bool = True) -> None:
        self.task, self.width, self.recorder = task, width, recorder
        self.stacked = stacked and to_be_stacked(task)
        self.lanes: list[Lane] = []
        self.tables = Tables(0, width, recorder.device)
        self.clients: list[Client] = []  # who is in which lane, longest first
        self.begins_alone = True  # no client's `begin` has looked at its data: it can be recorded too
        self._seated = 0  # the first lanes, whose clients still have to begin
        self._steps: dict[int, Recording] = {}  # by number of lanes
        self._begins: dict[int, Recording] = {}
        self._closes: dict[tuple[int, int], Recording] = {}  # by number of lanes and of examples
        self._closed_before: set[tuple[int, int]] = set()  # each client by itself
        self._closes_apart = isinstance(task, LocalTraining) and task.closes_apart
        self._rehearsed: set[bool] = set()  # whether a stacked step, whether another was done once
        self._stack: Stack | None = None
        self._compiled: StackedStep | None = None
        self._most = 0
        self._failures = recorder.failures

    def forget(self) -> None:
        """Drop what was recorded: an address changed, or a recording failed."""
        self._steps.clear()
        self._begins.clear()
        self._closes.clear()

    def _forget_if_void(self) -> None:
        if self._failures != self.recorder.failures:
            self._failures = self.recorder.failures
            self.forget()

    @property
    def ready(self) -> bool:
        """Whether the next client need not begin by itself: its lane has been used, and data was never looked at."""
        return self.begins_alone and len(self.clients) < len(self.lanes)

    def load(self, client: Client, carry: Carry, most: int) -> None:
        """Put a client that has begun into the next free lane."""
        if len(self.clients) == len(self.lanes):
            self.lanes.append(Lane(self.task, self.recorder.device))
        lane = self._take_in(client, most)
        before = lane.moved
        lane.carry.load(carry, most)
        if lane.moved != before:
            self.forget()
        data: Any = client.job.data
        self.begins_alone = self.begins_alone and not data.touched

    def seat(self, client: Client, most: int) -> None:
        """Put a client into the next free lane; it begins with the others, in one recording."""
        self._take_in(client, most)
        self._seated = len(self.clients)

    def _take_in(self, client: Client, most: int) -> Lane:
        self._most = most
        lane = self.lanes[len(self.clients)]
        before = lane.moved
        lane.seat(client.job, most)
        if lane.moved != before:
            self.forget()
        self.clients.append(client)
        return lane

    def run(self, shared: Trees, data: Samples, room: int) -> Iterator[tuple[Client, Result]]:
        """All steps of the clients that were loaded, longest first; each result as soon as it is there.

        `room` is how many clients later blocks are likely to have.
        """
        clients, self.clients = self.clients, []
        self._forget_if_void()
        self._lay_together(data, room)
        if len(self.lanes) > self.tables.lanes:
            self.tables = Tables(len(self.lanes), self.width, self.recorder.device)
            self.forget()
        if clients[0].batches and self.tables.fill(clients, [data.rows(p.work.client) for p in clients], data.y):
            self.forget()
        if self._seated:
            self._begin(shared, data, clients[: self._seated])
            self._seated = 0
        done, closed = 0, None
        for lane in reversed(range(len(clients))):
            client = clients[lane]
            self._advance(shared, data, lane + 1, len(clients), len(client.batches) - done)
            done = len(client.batches)
            if closed is None and done == len(clients[0].batches):  # all others are done too
                closed = self._close(shared, data, clients[: lane + 1])
            yield client, self._take_out(lane, client, bool(closed))

    def _lay_together(self, data: Samples, room: int) -> None:
        """Stack the lanes, or stack them again if there are more of them or one has moved.

        A stack of another size is compiled anew, so spare lanes make it as large as it will soon be.
        """
        if not self.stacked or len(self.lanes) < 2:
            return
        if 2 * len(self.lanes) > room:
            self.lanes += [self.lanes[0].twin() for _ in range(room - len(self.lanes))]
        if self._stack is not None and self._stack.holds(self.lanes):
            return
        self._compiled = self._compiled or StackedStep(cast(LocalTraining, self.task), nothing(data.num_classes))
        self._stack = Stack(self._compiled, self.lanes, self._most, self.recorder)
        self._rehearsed.discard(True)  # other shapes are compiled anew
        self.forget()

    def _begin(self, shared: Trees, data: Samples, clients: Sequence[Client]) -> None:
        count, none = len(clients), nothing(data.num_classes)
        try:
            if count not in self._begins:
                lanes = self.lanes[:count]
                work = partial(self.recorder.side_by_side, [partial(lane.begin, shared, none) for lane in lanes])
                self._begins[count] = self.recorder.record(work, self._beside())
            self._begins[count].replay()
        except CaptureError:  # it looks at a value: every client begins by itself, now and from now on
            self.begins_alone = False
            self._forget_if_void()
            for lane, client in zip(self.lanes, clients, strict=False):
                lane.carry.load(self.task.begin(client.job))

    def _advance(self, shared: Trees, data: Samples, active: int, loaded: int, steps: int) -> None:
        size = self._size(active, loaded, steps)
        if steps and self._in_stack(size) not in self._rehearsed:
            self._step(shared, data, size)
            self._rehearsed.add(self._in_stack(size))
            steps -= 1
        if steps and size not in self._steps:
            self._steps[size] = self.recorder.record(partial(self._step, shared, data, size), self._beside())
        for _ in range(steps):
            self._steps[size].replay()

    def _close(self, shared: Trees, data: Samples, clients: Sequence[Client]) -> bool:
        """What follows the last step of clients of one size, in one recording; whether it was done."""
        sizes = {client.examples for client in clients}
        if not self._closes_apart or len(sizes) > 1:
            return False
        key = count, examples = len(clients), sizes.pop()
        if key not in self._closed_before:  # each does so when it is taken out: a recording is for what comes again
            self._closed_before.add(key)
            return False
        if key not in self._closes:
            none = nothing(data.num_classes)
            works = [partial(lane.close, shared, none, examples) for lane in self.lanes[:count]]
            try:
                recording = self.recorder.record(partial(self.recorder.side_by_side, works), self._beside())
            except CaptureError:  # it looks at a value, or at data
                self._closes_apart = False
                return False
            self._closes[key] = recording
        self._closes[key].replay()
        return True

    def _beside(self) -> Recording | None:
        """One whose memory another can share: they never run at the same time."""
        return next((one for made in (self._steps, self._begins, self._closes) for one in made.values()), None)

    def _size(self, active: int, loaded: int, steps: int) -> int:
        """How many lanes to step: those still active, and more if that saves making another recording."""
        if self._in_stack(len(self.lanes)) and active * FEW > len(self.lanes):
            return len(self.lanes)
        known = [size for size in self._steps if active <= size <= loaded]
        size = min(known, default=loaded)
        while size >= 2 * active and steps > 16:
            size = (size + 1) // 2
        return size

    def _take_out(self, lane: int, client: Client, closed: bool) -> Result:
        """The client's result, free of the lane's buffers."""
        finish = cast(LocalTraining, self.task).answer if closed else self.task.finish
        result = finish(client.job, self.lanes[lane].carry.like(client.examples))
        fresh = iter(copies([value for _, value in leaves(result._asdict())]))
        reply, memory = (
            {tree: {name: next(fresh) for name in inner} for tree, inner in trees.items()}
            for trees in (result.reply, result.memory)
        )
        return Result(reply, memory, {name: next(fresh) for name in result.metrics})

    def _in_stack(self, size: int) -> bool:
        return self._stack is not None and size == len(self.lanes)

    def _step(self, shared: Trees, data: Samples, size: int) -> None:
        batch = self.tables.batches(data.x, size)
        none = nothing(data.num_classes)
        if self._stack is not None and self._in_stack(size):
            self._stack.step(shared, none, batch)
            return
        pairs = zip(self.lanes[:size], split(batch), strict=True)
        self.recorder.side_by_side([partial(lane.step, shared, none, mine) for lane, mine in pairs])
