"""A large federation on small means: 100,000 clients x 10 samples of 32 features, 100 clients a round.

    python benchmarks/bench_clients.py [--clients N]

Prints the seconds from start to the end of the first round, the seconds of a later round, and the largest memory the
process and its workers had.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time

BEGIN = time.perf_counter()

import numpy as np  # noqa: E402 - the clock starts before the imports

import accord  # noqa: E402
from accord.observe import Observer  # noqa: E402


class Stopwatch(Observer):
    """When each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def round_ended(self, round: int, record: dict[str, object]) -> None:
        self.ends.append(time.perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    clients = parser.parse_args().clients
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 10 * clients)
    x = rng.standard_normal((10 * clients, 32), dtype=np.float32) + y[:, None].astype(np.float32)
    few = rng.integers(0, len(y), 2000)
    dataset = accord.from_arrays(x, y, clients=np.repeat(np.arange(clients), 10), test=(x[few], y[few]))
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as out:
        config = accord.load_config(
            sets=[
                "partition.name=natural",
                f"partition.clients={clients}",
                "clients.count=100",
                "model.name=mlp",
                "rounds=5",
                "evaluate.clients=false",
                f"out={out}",
            ]
        )
        accord.run(config, data=dataset, observers=[watch])
    own, workers = (
        resource.getrusage(who).ru_maxrss / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print("| clients | to first round | later round | memory, server | memory, a worker |\n|---|---|---|---|---|")
    print(
        f"| {clients:,} | {watch.ends[0] - BEGIN:.1f} s | {np.median(np.diff(watch.ends)):.2f} s | "
        f"{own:.2f} GiB | {workers:.2f} GiB |"
    )


if __name__ == "__main__":
    main()
