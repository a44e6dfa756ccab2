"""What an exchange over a real federation costs beyond its training, and how many bytes travel beyond the tensors.

Nodes with TLS and keys on this machine, behind a relay that counts what passes. The training time is that of the same
rounds in a simulation with a worker per core, taken before and after. Processor seconds are counted too: they tell more
than the clock where others use the machine. `python benchmarks/bench_federation.py`
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from accord.config import RunConfig, load_config
from accord.engine.build import build_data
from accord.engine.run import run as simulate
from accord.federation import running, superlink, supernode
from accord.federation.folder import Folder, read_state
from accord.federation.node_file import read_node
from accord.federation.processes import Process, end, marked, planned, waited
from accord.federation.sites import add_site, deal, make_server
from accord.federation.up import bring_down, bring_up
from accord.observe import Observer

RESULTS = Path(__file__).resolve().parent / "results" / "bench_federation.json"
FIRST = 2  # rounds that are not counted: apps start, the first messages find nodes asleep


class Relay:
    """Passes bytes on to the SuperLink, and counts them."""

    def __init__(self, port: int) -> None:
        self.target, self.down, self.up = port, 0, 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                node, _ = self.server.accept()
            except OSError:
                return
            link = socket.create_connection(("127.0.0.1", self.target))
            for source, sink, way in ((node, link, "up"), (link, node, "down")):
                threading.Thread(target=self._pass, args=(source, sink, way), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(piece))
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.server.close()


PARTS = {  # by a word of their command
    "own_superexec": "clients",
    "own_supernode": "supernodes",
    "flwr-serverapp": "server_app",
    "federation.door": "superlink",
}


class Processors(Observer):
    """Processor seconds of all processes of the federation after each round, by what they are."""

    def __init__(self, marks: Sequence[str]) -> None:
        self.marks, self.after = marks, list[dict[str, float]]()

    def round_ended(self, round: int, record: Any) -> None:
        self.after.append(self.now())

    def now(self) -> dict[str, float]:
        spent = dict.fromkeys((*PARTS.values(), "others"), 0.0)
        for pid in marked(self.marks):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text()
                part = next((part for word, part in PARTS.items() if word in words), "others")
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks = sum(map(int, fields[11:15]))  # its own, and of those it started that have ended
                spent[part] += ticks / os.sysconf("SC_CLK_TCK")
        return spent

    def per_round(self) -> dict[str, float]:
        """Without the first rounds, and without the last one, in which all models are judged."""
        first, last = self.after[FIRST - 1], self.after[-2]
        return {part: (last[part] - first[part]) / (len(self.after) - 1 - FIRST) for part in last}


def launched(folder: Folder, relay: Relay) -> list[Process]:
    """All sites' nodes, connected by way of the relay."""
    nodes = []
    for site, place in folder.sites.items():
        file = place / "node.toml"
        there = replace(read_node(file).connection, server=f"127.0.0.1:{relay.port}")
        nodes.append(supernode.launch(file, there, superlink.free_port(), planned(site)))
    logs = [place / supernode.LOG for place in folder.sites.values()]
    assert waited(lambda: all(log.exists() and supernode.READY in log.read_text() for log in logs), 300)
    return nodes


def train_seconds(folder: Path, name: str = "train") -> list[float]:
    lines = (folder / "timings.jsonl").read_text().splitlines()
    return [float(json.loads(line)[name]) for line in lines][FIRST:]


def simulated(config: RunConfig, data: Any, place: Path, name: str) -> list[float]:
    """The same rounds with a worker per core."""
    settings = replace(config, out=str(place), name=name, executor="processes", workers=os.cpu_count() or 1)
    return train_seconds(simulate(settings, data=data).folder)


def measured(config: RunConfig, data: Any, place: Path) -> dict[str, Any]:
    """One federation, one run."""
    folder = Folder(place / "federation")
    make_server(folder)
    port = superlink.free_port()
    for site, said in deal(folder, data, "bench").items():
        add_site(folder, site, said, f"127.0.0.1:{port}")
    nodes: list[Process] = []
    try:
        bring_up(folder, print, port=port, with_nodes=False)
        state = read_state(folder)
        assert state is not None
        relay = Relay(state.port)
        nodes = launched(folder, relay)
        before = simulated(config, data, place, "before")
        down, up = relay.down, relay.up
        watch = Processors([process.mark for process in (*state.processes, *nodes)])
        running.run(folder, config, folder.runs / "bench", [watch])
        down, up = relay.down - down, relay.up - up
        after = simulated(config, data, place, "after")
    finally:
        end(nodes)
        bring_down(folder)
    there = train_seconds(folder.runs / "bench")
    records = [json.loads(line) for line in (folder.runs / "bench" / "metrics.jsonl").read_text().splitlines()]
    one = records[0]["bytes_down"] / len(
        records[0]["cohort"]
    )  # the model, sent to each when it joins, and to be judged
    tensors_down = sum(record["bytes_down"] for record in records) + 2 * one * len(data)
    tensors_up = sum(record["bytes_up"] for record in records)
    training = statistics.median(before + after)
    exchange = statistics.median(there)
    begun = time.process_time()
    simulate(replace(config, out=str(place), name="alone", executor="sequential"), data=data)
    training_cpu = (time.process_time() - begun) / config.rounds
    parts = watch.per_round()
    spent = sum(parts.values())
    return {
        "nodes": len(data),
        "cores": os.cpu_count(),
        "model_bytes": one,
        "exchange_seconds": exchange,
        "training_seconds": training,
        "over_training_seconds": exchange - training,
        "slowest_exchange_seconds": max(there),
        "exchange_processor_seconds": spent,
        **{f"of_which_{part}": seconds for part, seconds in parts.items()},
        "training_processor_seconds": training_cpu,
        "over_training_processor_seconds_per_core": (spent - training_cpu) / (os.cpu_count() or 1),
        "bytes_down_over_tensors": down / tensors_down,
        "bytes_up_over_tensors": up / tensors_up,
        "load": os.getloadavg()[0],
    }


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--model", default="mcmahan_cnn")
    parser.add_argument("--samples", type=int, default=600)
    given = parser.parse_args(words)
    sets = [
        *(f"model.name={given.model}", f"rounds={given.rounds}", f"data.limit={given.samples}", "device=cpu"),
        *(f"partition.clients={given.nodes}", "partition.name=iid", "clients.fraction=1", "local.batch_size=10"),
        *(f"evaluate.every={given.rounds}", f"federation.nodes={given.nodes}", "federation.gather=300"),
    ]
    config = load_config(sets=sets)
    with tempfile.TemporaryDirectory(prefix="accord-bench-") as place:
        found = measured(config, build_data(config), Path(place))
    for name, value in found.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
