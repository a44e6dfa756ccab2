"""An engine that trains nothing, but makes the folders, files and calls of the real one; `engine` is a fixture."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from accord.config import RunConfig, load_config, to_toml
from accord.errors import CheckpointError
from accord.observe import Observer

ACCURACY = {"fedavg": 0.80, "fedprox": 0.90}  # in the last round with seed 0; every seed adds 0.01


@dataclass
class FakeEngine:
    """`stop_at` raises `error` in that round of runs whose name matches, once or always.

    `accuracy` says what a run comes to, instead of the table above.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    accuracy: Callable[[RunConfig], float] | None = None
    stop_at: int = 0
    error: BaseException | None = None
    only: str = ""
    always: bool = False

    def run(self, config: RunConfig, *, data: Any = None, model: Any = None, observers: Sequence[Observer] = ()) -> Any:
        self.calls.append(("run", f"{config.algorithm.name}-{config.seed}"))
        folder = Path(config.out) / (config.name or f"{config.algorithm.name}-s{config.seed}")
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(to_toml(config))
        return self._rounds(config, folder, 0, observers)

    def resume(self, folder: Path, *, data: Any = None, model: Any = None, observers: Sequence[Observer] = ()) -> Any:
        if not (folder / "config.toml").is_file():
            raise CheckpointError(f"{folder} holds no run")
        config = load_config(folder / "config.toml")
        self.calls.append(("resume", f"{config.algorithm.name}-{config.seed}"))
        return self._rounds(config, folder, self.stop_at, observers)

    def _rounds(self, config: RunConfig, folder: Path, first: int, observers: Sequence[Observer]) -> Any:
        self.folders.append(folder)
        final = ACCURACY.get(config.algorithm.name, 0.5) + 0.01 * config.seed
        if self.accuracy is not None:
            final = self.accuracy(config)
        metrics = [
            {
                "round": r,
                "loss": 1 / r,
                "accuracy": final * r / config.rounds,
                "bytes_up": 10,
                "bytes_down": 20,
            }
            for r in range(1, config.rounds + 1)
        ]
        for observer in observers:
            observer.started(config, folder, config.rounds, first)
        log = folder / "metrics.jsonl"
        log.write_text("".join(json.dumps(m) + "\n" for m in metrics[:first]))
        for record in metrics[first:]:
            for observer in observers:
                observer.phase(record["round"], "train")
                observer.client_done(record["round"], "train", 1, 1)
            if record["round"] == self.stop_at and self.error and self.only in folder.name:
                error = self.error
                if not self.always:
                    self.error = None
                raise error
            with log.open("a") as file:
                file.write(json.dumps(record) + "\n")
            for observer in observers:
                observer.round_ended(record["round"], record)
        summary = {
            "algorithm": config.algorithm.name,
            "seed": config.seed,
            "rounds": config.rounds,
            "accuracy": final,
            "best_accuracy": final,
            "top5_accuracy": final - 0.1,
            "client_accuracy": {"best": 1.0, "worst": 0.25, "mean": 0.5, "std": 0.125},
            "rounds_to": {"0.8": 7, "0.9": None},
            "bytes_up": 1_000_000,
            "bytes_down": 2_000_000,
            "seconds": 12.5,
        }
        if config.evaluate.options["personal"] is True:
            summary["personal_accuracy"] = {"best": 1.0, "worst": 0.0, "mean": 1 - final, "std": 0.1}
        (folder / "summary.json").write_text(json.dumps(summary))
        for observer in observers:
            observer.ended(summary)
        return types.SimpleNamespace(model=None, metrics=metrics, summary=summary, folder=folder)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """In place of `accord.engine.run`."""
    fake, module = FakeEngine(), types.ModuleType("accord.engine.run")
    module.run, module.resume = fake.run, fake.resume  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "accord.engine.run", module)
    return fake
