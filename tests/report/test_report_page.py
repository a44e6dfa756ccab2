"""What a page holds, by hand: thinned rounds, sums that are none of the thinning's, answers, and what it refuses."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.config import load_config
from accord.engine.run import run
from accord.errors import DataError
from accord.measures.calibration import reliability
from accord.report.braille import bounds, grid
from accord.report.live import view
from accord.report.page import contents, document, write_report
from accord.report.page.details import drift, failures
from accord.report.page.document import embedded
from accord.report.page.history import History, chosen, read_history
from accord.report.page.watching import Handler, ThreadingHTTPServer, Watched

TINY = ("rounds=2", "data.limit=200", "partition.clients=4", "clients.fraction=1.0", "checkpoint.every=0")


def made(out: Path, name: str = "fedavg", *more: str) -> Path:
    return run(load_config(None, [*TINY, f"algorithm.name={name}", f"out={out}", f"name={name}", *more])).folder


def log(folder: Path, lines: list[dict[str, Any]], seconds: list[dict[str, Any]] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in seconds or []))
    return folder


def rounds(count: int) -> list[dict[str, Any]]:
    return [
        {"round": n, "cohort": [0, 1], "bytes_up": 10, "bytes_down": n, "accuracy": n / 100, "each_client": [0.5, None]}
        for n in range(1, count + 1)
    ]


def test_thinned_rounds_keep_first_and_last_and_all_bytes(tmp_path: Path) -> None:
    history = read_history(log(tmp_path, rounds(100)), points=5, whole=2)
    assert history.numbers == [1, 26, 51, 75, 100]
    assert list(history.sent) == [sum(10 + n for n in range(1, last + 1)) for last in history.numbers]
    assert history.values()["accuracy"] == [0.01, 0.26, 0.51, 0.75, 1.0]
    assert ["each_client" in record for record in history.records] == [True, False, False, False, True]
    assert history.rounds == 100


def test_what_was_sent_before_the_first_round_counts(tmp_path: Path) -> None:
    lines = rounds(1)
    lines[0] |= {"start_bytes_up": 1000, "start_bytes_down": 100}
    assert list(read_history(log(tmp_path, lines), 10, 10).sent) == [1111]


def test_seconds_are_summed_by_phase_and_up_to_each_round(tmp_path: Path) -> None:
    times = [{"round": n, "train": 2.0, "evaluate": 0.5} for n in (1, 2, 3)]
    history = read_history(log(tmp_path, rounds(3), times), 3, 0)
    assert list(history.seconds) == [2.5, 5.0, 7.5]
    assert history.phases == {"train": 6.0, "evaluate": 1.5}


def test_a_line_about_to_be_written_is_no_round_yet_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    folder = log(tmp_path, rounds(3))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"round": 4, "bytes')
    assert read_history(folder, 10, 10).rounds == 3
    (folder / "metrics.jsonl").write_text('{"round": 1}\nnonsense\n')
    with pytest.raises(DataError, match="line 2 is damaged"):
        read_history(folder, 10, 10)


def test_texts_that_look_like_lists_of_clients_are_left_alone(tmp_path: Path) -> None:
    why = 'broke at "clients": [1, 2], "each_client": [3]'
    lines = [{**line, "missing": {"1": why}} for line in rounds(4)]
    history = read_history(log(tmp_path, lines), 4, 0)
    assert [record["missing"]["1"] for record in history.records] == [why] * 4


@pytest.mark.parametrize(("count", "points"), [(0, 5), (1, 5), (5, 5), (6, 5), (1000, 2), (7, 1)])
def test_chosen_rounds_hold_both_ends(count: int, points: int) -> None:
    found = chosen(count, points)
    assert found <= set(range(count))
    assert {0, count - 1} <= found or not count
    assert len(found) <= max(points, 2) or points < 2


def test_drift_is_told_client_by_client() -> None:
    record = {"round": 3, "cohort": [1, 4], "drift": {"clients": [0.25, -0.5]}}
    found = drift(History([record], [0], [0.0], {}, 3), 100)
    assert found == {"rounds": [3], "cells": [[1, 0, 0.25], [4, 0, -0.5]]}
    assert drift(History([{"round": 3, "drift": {"mean": 0.1}}], [0], [0.0], {}, 3), 100) is None


def test_failures_of_a_run_that_goes_on() -> None:
    records = [{"round": n, "missing": {"2": "KeyError"}} for n in (1, 2)]
    going = History(records, [0, 0], [0.0, 0.0], {}, 2)
    assert failures({}, going) == [{"site": "2", "times": 2, "why": "KeyError"}]
    over = {"left_out": {"north": {"times": 3, "why": "late"}}}
    assert failures(over, going) == [{"site": "north", "times": 3, "why": "late"}]


def test_reliability_by_hand() -> None:
    logits = torch.log(torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.55, 0.45]], dtype=torch.float64))
    found = reliability(logits, torch.tensor([0, 1, 1, 1]))
    told = {b: (n, r, c) for b, (n, r, c) in enumerate(zip(*found.values(), strict=True)) if n}
    # 0.9 lies in (13/15, 14/15], 0.6 = 9/15 in (8/15, 9/15] up to rounding, 0.55 there too
    assert told[13] == (2, 1, 1.8)
    assert sum(n for n, _, _ in told.values()) == 4
    assert sum(r for _, r, _ in told.values()) == 2
    assert sum(c for _, _, c in told.values()) == pytest.approx(0.9 + 0.9 + 0.6 + 0.55)


def test_a_page_answers_names_sites_and_holds_what_was_measured(tmp_path: Path) -> None:
    made(tmp_path, "fedavg", "evaluate.drift=true")
    made(tmp_path, "fedprox", "evaluate.drift=true")
    values = contents([tmp_path])
    assert values["answer"]["best"] in ("fedavg", "fedprox")
    assert values["answer"]["number"].endswith("accuracy %")
    assert "site" in values["answer"]["worst"].lower()
    first, second = values["runs"]
    assert (first["label"], second["label"]) == ("fedavg", "fedprox")
    assert first["division"] == second["division"]
    division = values["divisions"][first["division"]]
    assert [sum(row) for row in division["counts"]] == division["samples"]
    assert len(first["sites"]["accuracy"]) == len(division["site"]) == 4
    assert len(first["clients"]["values"][-1]) == 4
    assert sum(map(sum, first["confusion"]["counts"])) == sum(first["calibration"]["count"])
    assert first["drift"]["rounds"] == [1, 2]
    assert first["command"].startswith("accord run ")
    text = document(values)
    assert len(text.encode()) < 3_000_000
    assert "http://" not in text.split("<script>")[0]


def test_personal_methods_and_numbers_instead_of_classes_have_pages_too(tmp_path: Path) -> None:
    made(tmp_path / "one", "fedper")
    values = contents([tmp_path / "one"])
    assert values["judged"]["personal"]
    assert "personal_accuracy" in values["runs"][0]["sites"]
    bare = made(tmp_path / "two", "fedavg", "evaluate.clients=false")
    values = contents([bare])
    assert values["runs"][0]["sites"] == {}
    assert values["answer"]["worst"] == ""
    assert document(values)


def test_two_runs_of_one_name_and_folders_without_runs_are_refused(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "b")
    with pytest.raises(DataError, match="name only one"):
        contents([tmp_path])
    with pytest.raises(DataError, match="there is no such folder"):
        contents([tmp_path / "c"])
    (tmp_path / "d").mkdir()
    with pytest.raises(DataError, match="no finished run"):
        write_report([tmp_path / "d"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_nothing_in_the_values_ends_the_script_around_them() -> None:
    text = embedded({"live": False, "name": "</script><!--\u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text)["name"] == "</script><!--\u2028"


def test_the_server_has_a_page_and_its_events_for_this_machine_and_nothing_else(tmp_path: Path) -> None:
    made(tmp_path)
    watched = Watched([tmp_path])
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"watched": watched}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert b"Accord" in answer.read()
        for path in ("/config.toml", "/../fedavg/config.toml", "/events/x"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}")
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/", headers={"Host": "elsewhere.example"})
        assert connection.getresponse().status == 403
        connection.close()
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("POST", "/")
        assert connection.getresponse().status == 501
        connection.close()
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/events")
        assert connection.getresponse().readline().startswith(b"data: {")
        connection.close()
    finally:
        watched.end()
        server.shutdown()
        server.server_close()


def test_curves_of_dots() -> None:
    assert bounds([("a", [(1.0, 5.0)])]) == (0.5, 1.5, 4.5, 5.5)
    assert bounds([("a", [])]) == (-0.5, 0.5, -0.5, 0.5)
    rows = grid([("flat", [(0, 1), (1, 1)]), ("low", [(0, 0), (1, 0)])], 3, 2)
    assert ["".join(c for c, _ in row) for row in rows] == ["⠉⠉⠉", "⣀⣀⣀"]
    assert [{name for _, name in row} for row in rows] == [{"flat"}, {"low"}]


def test_the_terminal_shows_how_far_runs_got(tmp_path: Path) -> None:
    from rich.console import Console

    made(tmp_path)
    console = Console(width=60, file=None, record=True, quiet=False, force_terminal=False)
    with console.capture() as shown:
        console.print(view(contents([tmp_path], live=True), 60))
    assert "2 of 2" in shown.get()
    assert all(len(line) <= 60 for line in shown.get().splitlines())
