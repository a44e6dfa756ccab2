"""From a run's folder to its record: evaluations, configuration, versions, hardware, seconds and bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accord.config import load_config, to_dict
from accord.engine.files import write_atomic
from accord.engine.logs import versions
from accord.measures.spread import in_short, spread_record
from accord.report.runs import read_metrics, read_summary
from accord.wire.lines import lines

KEPT = ("round", "accuracy", "test_loss", "loss", "map", "retrieval", "drift", "training_accuracy")
SPREAD = ("best", "worst", "mean", "std")
OF_THE_END = ("personal_accuracy", "personal_accuracy_before", "unseen", "feature_map", "local_view")
STEADY = 10  # evaluations over which a client's own accuracy is averaged
_MACHINE = ("out", "name", "log", "checkpoint")  # of the configuration, and of nobody's interest


def record_of(
    folder: Path, labels: Mapping[str, Any], hardware: Mapping[str, str], diverged: str = ""
) -> dict[str, Any] | None:
    """What is worth keeping of a run, finished or not; None if it has not come to an evaluation and may still.

    `labels` say which experiment and row it was made for; `diverged`, why it will not go on.
    """
    rounds = read_metrics(folder) if (folder / "metrics.jsonl").is_file() else []
    if not diverged and not any(_evaluated(line) for line in rounds):
        return None
    config = load_config(folder / "config.toml")
    plain = {name: value for name, value in to_dict(config).items() if name not in _MACHINE}
    plain["data"] = {name: value for name, value in plain["data"].items() if name not in ("dir", "download")}
    seconds = _seconds(folder)
    finished = (folder / "summary.json").is_file()
    record: dict[str, Any] = {
        **labels,
        "algorithm": config.algorithm.name,
        "seed": config.seed,
        "config": plain,
        "rounds": config.rounds,
        "rounds_done": rounds[-1]["round"] if rounds else 0,
        "finished": finished,
        "seconds": round(sum(seconds.values()), 1),
        "versions": versions(),
        "hardware": dict(hardware),
        "evaluations": _evaluations(rounds, seconds),
        "summary": _totals(rounds) | _steady(rounds),
    }
    if diverged:
        record["broke_off"] = diverged
    if finished:
        summary = read_summary(folder)
        record["summary"] |= _rounded({name: summary[name] for name in OF_THE_END if summary.get(name)})
        if "diverged" in summary:
            record["broke_off"] = summary["diverged"]
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """As one line: it is read by programs, and small."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


def hardware(note: str = "") -> dict[str, str]:
    """The machine, and a remark such as how many runs shared it."""
    import torch

    found = {"cores": str(os.cpu_count())}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found | ({"note": note} if note else {})


def _evaluated(line: Mapping[str, Any]) -> bool:
    return "accuracy" in line or "personal" in line


def _evaluations(rounds: list[dict[str, Any]], seconds: Mapping[int, float]) -> list[dict[str, Any]]:
    """The rounds in which something was measured, with the seconds and bytes it took to get there."""
    kept: list[dict[str, Any]] = []
    last: Mapping[str, Any] = {}
    clock, sent = 0.0, 0
    for line in rounds:
        clock += seconds.get(line["round"], 0.0)
        sent += sum(line.get(name, 0) for name in ("bytes_up", "bytes_down", "start_bytes_up", "start_bytes_down"))
        if _evaluated(line):
            kept.append(_thin(line) | {"seconds": round(clock, 2), "bytes": sent})
            last = line
    for name in ("clients", "personal"):  # the whole spread of the last one, for a curve over clients
        if last.get(name):
            kept[-1][name]["deciles"] = _rounded(last[name]["deciles"])
    return kept


def _thin(line: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: line[name] for name in KEPT if name in line}
    for name in ("clients", "personal", "local_on_global"):
        if line.get(name):
            kept[name] = {key: line[name][key] for key in SPREAD if key in line[name]}
    rounded: dict[str, Any] = _rounded(kept)
    return rounded


def _totals(rounds: list[dict[str, Any]]) -> dict[str, int]:
    """Bytes of all rounds, and how often a client was asked."""
    return {
        "bytes_up": sum(line.get("bytes_up", 0) for line in rounds),
        "bytes_down": sum(line.get("bytes_down", 0) for line in rounds),
        "asked": sum(len(line.get("cohort", ())) for line in rounds),
    }


def _steady(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The spread over clients of each one's mean over the last evaluations: what swings from round to round is not in
    it. Nothing where a line does not name every client's accuracy, as with thousands of them."""
    each = [line["each_client"] for line in rounds if line.get("each_client")][-STEADY:]
    means = np.array(each, dtype=np.float64).mean(0) if each else np.empty(0)  # None is NaN: no test data
    if np.isnan(means).all():
        return {}
    return {"steady_clients": _rounded(in_short(spread_record(means))) | {"evaluations": len(each)}}


def _seconds(folder: Path) -> dict[int, float]:
    """Of every round, as far as they are known."""
    found: dict[int, float] = {}
    path = folder / "timings.jsonl"
    if path.is_file():
        with open(path, "rb") as file:
            for line in lines(file):
                if line.record is not None:
                    laps = [value for key, value in line.record.items() if key != "round"]
                    found[line.record["round"]] = sum(laps)
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return round(value, 5) if isinstance(value, float) else value
