"""Work recorded once and replayed: CUDA graphs, and clients side by side on streams of their own inside one.

Launching a kernel from Python takes longer than most kernels of a small network run. A recorded graph launches all
of them at once, and work on forked streams overlaps. On a CPU there is nothing to record: the work is simply done
again, so that everything around it can be tested without a GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

Work = Callable[[], None]


class CaptureError(Exception):
    """A step does something a graph cannot record."""


class Recording:
    """Work that can be done again."""

    def __init__(self, replay: Work, graph: Any = None) -> None:
        self.replay, self.graph = replay, graph


class Recorder:
    """Records on one device."""

    def __init__(self, device: torch.device, streams: int = 32) -> None:
        self.device = device
        self.cuda = device.type == "cuda"
        make: Any = torch.cuda.Stream
        self._streams = [make(device) for _ in range(streams)] if self.cuda else []
        self.failures = 0  # what was recorded before the last of them must not be replayed

    def side_by_side(self, works: Sequence[Work]) -> None:
        """Do all of `works`, each stream taking its turn; they must not depend on one another."""
        if not self.cuda or len(works) == 1:
            for work in works:
                work()
            return
        main = torch.cuda.current_stream(self.device)
        used = self._streams[: len(works)]
        for stream in used:
            stream.wait_stream(main)
        for number, work in enumerate(works):
            with torch.cuda.stream(used[number % len(used)]):
                work()
        for stream in used:
            main.wait_stream(stream)

    def record(self, work: Work, beside: Recording | None = None) -> Recording:
        """Record `work` without doing it; it must have been done once before, for what is set up lazily.

        It shares the memory of `beside`, so the two may not run at the same time.
        """
        if not self.cuda:
            return Recording(work)
        graph = torch.cuda.CUDAGraph()
        pool = beside.graph.pool() if beside is not None else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an aborted recording warns that it is empty
                with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                    work()
        except Exception as error:
            self._start_over()
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            raise CaptureError(str(error).strip().splitlines()[0] if str(error).strip() else repr(error)) from error
        return Recording(graph.replay, graph)

    def _start_over(self) -> None:
        """After an aborted recording.

        It leaves torch's generator recording for ever, and dropout would refuse to draw. A new state with the same seed
        draws; earlier recordings know the old one alone, which no seed reaches any more.
        """
        self.failures += 1
        with suppress(Exception):  # the broken recording may report itself once more
            torch.cuda.synchronize(self.device)
        number = torch.cuda.current_device() if self.device.index is None else self.device.index
        generator: Any = torch.cuda.default_generators[number]
        generator.graphsafe_set_state(generator.clone_state())
