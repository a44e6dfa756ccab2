"""Pages and figures come from records alone, and those in the repository are up to date."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from accord.papers import pages, shelf, turns
from accord.papers.figures import draw
from accord.papers.records import Records
from accord.papers.verdicts import verdict
from papers.conftest import Write, table

ROOT = Path(__file__).parent.parent.parent
RESULTS, DOCS = ROOT / "results", ROOT / "docs" / "results"


def without_figures(text: str) -> str:
    return re.sub(r"!\[.*\]\(figures/.*\)\n*", "", text)


def test_the_pages_are_those_the_records_give() -> None:
    records = Records.of([RESULTS])
    tables = pages.all_tables(records)
    assert (DOCS / "README.md").read_text(encoding="utf-8") == pages.index(tables), "run `make results`"
    for paper in shelf.PAPERS:
        known = [one for one in tables if one.experiment.paper == paper]
        path = DOCS / f"{paper}.md"
        assert path.is_file() == any(map(pages.enough, known))
        if path.is_file():
            fresh = pages.page(paper, known, records, {}, verdict(paper, tables))
            assert without_figures(path.read_text(encoding="utf-8")) == without_figures(fresh), "run `make results`"


def test_every_record_belongs_to_a_table() -> None:
    records = Records.of([RESULTS])
    assert not records.unreadable
    used = {one.path for made in pages.all_tables(records) for one in made.records}
    for known in records.by_question.values():  # of equal ones a table holds the furthest
        assert used & {one.path for one in known}, f"no table asks for {known[0].path}"


def test_a_device_is_shared_by_those_at_work(tmp_path: Path) -> None:
    events = [(0, "a", True), (10, "b", True), (30, "a", False), (40, "b", False), (90, "a", True), (95, "a", False)]
    lines = [json.dumps({"at": at, "run": run, "began": began}) for at, run, began in events]
    (tmp_path / turns.FILE).write_text("\n".join(lines) + "\n")
    assert turns.shares(tmp_path) == {"a": 10 + 10 + 5, "b": 10 + 10}
    assert turns.shares(tmp_path / "nowhere") == {}


def test_figures_are_there_and_small() -> None:
    for page in DOCS.glob("*.md"):
        for name in re.findall(r"\((figures/.*?\.svg)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / name).stat().st_size < 200_000
            assert (DOCS / name).with_suffix(".png").is_file()


def test_a_page_says_what_was_run_with_what(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.1, 0.1, 0.5, 0.5], versions={"accord": "0.1.0"})
    first = write("scaffold", [0.1, 0.1, 0.6, 0.6])
    again = write("scaffold", [0.1, 0.2, 0.6, 0.6], name="repeat")
    write("fedavg", [0.1, 0.1, 0.5], name="later")  # draws other batches: named, not compared
    made = table(tmp_path)
    text = pages.page("fedbr", [made], Records.of([tmp_path / "results"]), {})
    assert "| FEDAVG | 1 | 40 | 60.00±1.00 | 50.00 (−10.00) † |" in text
    assert "| SCAFFOLD | 1 | 40 | 70.00 | 60.00 (−10.00) |" in text
    assert "| 0.1.0 | a GPU |  | 1 | 40 | 8 | - |" in text
    assert "| tiny/scaffold | 0 | auto, fp32 | 10 to 40 | 2.5 | 10.0 | - | - |" in text  # 0, 10, 0 and 0 points apart
    assert "| tiny/fedavg | 0 | auto, fp32 | 10 to 30 | - | - | - | - |" in text
    for path, worst, std in ((first, 0.2, 0.04), (again, 0.3, 0.01)):
        fields = json.loads(path.read_text())
        fields["evaluations"][-1]["clients"] = {"worst": worst, "std": std}
        path.write_text(json.dumps(fields))
    text = pages.page("fedbr", [made], Records.of([tmp_path / "results"]), {})
    assert "| tiny/scaffold | 0 | auto, fp32 | 10 to 40 | 2.5 | 10.0 | 10.0 | 3.0 |" in text
    assert "Numbers with † are of version 0.1" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "!"))) <= 120


def test_a_page_names_every_run_that_diverged_and_how_it_was_carried_out(tmp_path: Path, write: Write) -> None:
    write("fedavg", [0.5, 0.5, 0.5, 0.5])
    write("scaffold", [0.1, 0.2, 0.6], broke_off="training diverged in round 37 on client 5: mean loss nan")
    one = write(
        "scaffold", [0.1, 0.2], name="alone", broke_off="training diverged in round 21 on client 5: mean loss nan"
    )
    fields = json.loads(one.read_text())
    own = {"executor": "sequential", "precision": "tf32"}
    one.write_text(json.dumps({**fields, "place": "digits", "config": {**fields["config"], **own}}))
    write("scaffold", [], name="early", broke_off="training diverged in round 2: the clients' answers were finite")
    write("fedprox", [0.5, 0.5], broke_off="killed")
    text = pages.page("fedbr", [table(tmp_path)], Records.of([tmp_path / "results"]), {})
    part = text.partition("## Runs that broke off")[2].partition("##")[0]
    assert [line for line in part.splitlines() if line.startswith("| tiny")] == [
        "| tiny/scaffold in digits | 0 | sequential, tf32 | 21 | 5 |",
        "| tiny/scaffold | 0 | auto, fp32 | 2 | none: the server's step |",
        "| tiny/scaffold | 0 | auto, fp32 | 37 | 5 |",
    ]
    assert "| tiny/scaffold in digits | 0 | sequential, tf32 / auto, fp32 | 10 to 20 | 0.0 | 0.0 |" in text


@pytest.mark.parametrize("kind", ["rounds", "seconds", "bytes", "loss", "clients"])
def test_figures_are_drawn_where_records_have_what_they_show(tmp_path: Path, write: Write, kind: str) -> None:
    pytest.importorskip("matplotlib")
    write("scaffold", [], broke_off="training diverged in round 1 on client 0")
    assert draw(table(tmp_path), kind, tmp_path) is None
    spread = {"worst": 0.1, "best": 0.9, "deciles": [0.1 * n for n in range(1, 10)]}
    evaluations = [
        {"round": r, "accuracy": 0.1 * r, "loss": 1.0 / r, "seconds": 2.0 * r, "bytes": 10**9 * r, "clients": spread}
        for r in (1, 2, 3)
    ]
    for seed in (0, 1):
        write("fedavg", [0.0], seed=seed, evaluations=evaluations, gpu_seconds=6.0)
    made = draw(table(tmp_path), kind, tmp_path)
    assert made is not None
    assert (tmp_path / f"tiny-{kind}.png").stat().st_size > 5000
    first = (tmp_path / f"tiny-{kind}.svg").read_bytes()
    draw(table(tmp_path), kind, tmp_path)
    assert (tmp_path / f"tiny-{kind}.svg").read_bytes() == first
