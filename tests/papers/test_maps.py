"""Figures of more than curves, from records written by hand; and runs that must be made again for them."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accord.papers import pages, shelf
from accord.papers.figures import draw
from accord.papers.records import Records
from accord.papers.table import Table
from accord.papers.wanted import missing, wanted
from papers.conftest import Write, table, tiny


def text(values: list[int]) -> str:
    return base64.b64encode(bytes(values)).decode()


POINTS, LABELS = text([n * 20 for n in range(12)]), text([0, 1, 9])
SUMMARY: dict[str, Any] = {
    "feature_map": {"points": POINTS, "labels": text([0, 1, 9, 9, 3, 7])},
    "local_view": {
        "answers": {"0": [0.5, 0.5, 0.0], "1": [0.0, 0.25, 0.75]},
        "map": {"points": POINTS, "labels": LABELS, "client": 0, "held": [0, 1]},
    },
}
DRIFT = [{"round": r, "accuracy": 0.1, "drift": {"mean": 0.5, "clients": [0.5, -0.1, 0.5]}} for r in (1, 2, 3)]


@pytest.mark.parametrize("kind", ["tsne", "local-tsne", "outputs", "cosines"])
def test_drawn_where_records_have_what_they_show(tmp_path: Path, write: Write, kind: str) -> None:
    pytest.importorskip("matplotlib")
    write("scaffold", [0.1])
    assert draw(table(tmp_path), kind, tmp_path) is None
    write("fedavg", [0.1], summary=SUMMARY, evaluations=DRIFT)
    assert draw(table(tmp_path), kind, tmp_path) is not None
    assert (tmp_path / f"tiny-{kind}.png").stat().st_size > 5000
    first = (tmp_path / f"tiny-{kind}.svg").read_bytes()
    draw(table(tmp_path), kind, tmp_path)
    assert (tmp_path / f"tiny-{kind}.svg").read_bytes() == first


def test_rows_that_lie_on_an_axis_are_a_sweep(tmp_path: Path, write: Write) -> None:
    pytest.importorskip("matplotlib")
    one = replace(tiny(40), axis="mu", own="fedprox", figures=["sweep"])
    one = replace(one, rows=[replace(row, x={"fedprox": 0.5, "scaffold": 1.0}.get(row.name)) for row in one.rows])

    def filled() -> Table:
        return Table.of(one, Records.of([tmp_path / "results"]), (0,))

    assert draw(filled(), "sweep", tmp_path) is None
    write("fedprox", [0.5, 0.6])
    write("fedavg", [0.5, 0.6])
    assert not pages.enough(filled()), "one point is no sweep"
    write("scaffold", [0.5, 0.7])
    assert pages.enough(filled())
    assert draw(filled(), "sweep", tmp_path) is not None


def test_a_run_that_was_not_looked_at_so_is_still_to_run(tmp_path: Path, write: Write) -> None:
    plain = tiny(40)
    place = plain.places[0]
    changed = replace(place, change={"evaluate": {"feature_map": 10}})
    asking = replace(plain, columns=[replace(column, place=changed) for column in plain.columns])
    path = write("fedavg", [0.1, 0.2, 0.3, 0.4])

    def left(one: Any) -> list[str]:
        runs = wanted(one, (0,), "full", ["fedavg"])
        return [run.row.name for run in missing(runs, Records.of([tmp_path / "results"]))]

    assert left(plain) == []
    assert left(asking) == ["fedavg"]
    fields = json.loads(path.read_text())
    fields["config"]["evaluate"] = {"feature_map": 10}
    other = write("fedavg", [0.5, 0.5], name="looked")  # shorter, but with the map
    other.write_text(json.dumps({**json.loads(other.read_text()), "config": fields["config"]}))
    assert left(asking) == ["fedavg"]
    records = Records.of([tmp_path / "results"])
    (run,) = wanted(asking, (0,), "full", ["fedavg"])
    found = records.find(run.config)
    assert found is not None
    assert found.path == other
    path.write_text(json.dumps(fields))
    assert left(asking) == []


def test_the_experiments_ask_for_what_their_figures_show() -> None:
    asked = {"tsne": "feature_map", "local-tsne": "local_view", "outputs": "local_view", "cosines": "drift"}
    asked |= {"training": "training", "newcomers": "unseen_epochs"}
    for one in shelf.experiments():
        for kind in set(one.figures) & set(asked):
            for row in one.rows:
                config = one.config(row, one.places[0], 0, "full")
                assert config.evaluate.options[asked[kind]], f"{one.id}, {row.name}: evaluate.{asked[kind]}"
