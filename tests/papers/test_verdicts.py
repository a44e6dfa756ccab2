"""What holds of a paper stands first, with its numbers from the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accord.errors import ConfigError
from accord.papers import pages, shelf, verdicts
from accord.papers.experiment import Experiment
from accord.papers.readings import UNKNOWN
from accord.papers.records import Records
from papers.conftest import Write, table, tiny


def test_every_paper_has_one_whose_numbers_are_computed() -> None:
    assert set(verdicts.texts()) == set(shelf.PAPERS)
    tables = pages.all_tables(Records.of([]))
    for paper, text in verdicts.texts().items():
        assert not re.findall(r"\d\d\.\d|0\.\d\d", re.sub(r"\{[^{}]+\}", "", text)), paper
        said = verdicts.verdict(paper, tables)
        assert UNKNOWN in said  # there are no records
        assert not set("{}") & set(said)


def test_it_stands_first_on_the_page_and_in_the_index(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("scaffold", [0.5, 0.7])
    write("fedavg", [0.4, 0.6])
    text = "It leads by\n{tiny: scaffold.last - fedavg.last}, at {tiny: scaffold.last}."
    monkeypatch.setattr(verdicts, "texts", lambda: {"fedbr": text})
    monkeypatch.setattr(pages, "all_tables", lambda records: [table(tmp_path)])
    written = pages.write_pages(tmp_path / "results", tmp_path / "docs")
    page, index = (path.read_text(encoding="utf-8") for path in written)
    assert page.split("\n\n")[1] == "**In short.** It leads by 10.00, at 60.00."
    assert f"## [{shelf.PAPERS['fedbr']}](fedbr.md)\n\nIt leads by 10.00, at 60.00.\n\n| id |" in index


def test_without_one_or_without_results_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "texts", lambda: {"fedbr": "It is at {tiny: scaffold.last}."})
    empty = [table(tmp_path)]
    assert verdicts.verdict("fedbr", empty) == f"It is at {UNKNOWN}."
    assert UNKNOWN not in pages.index(empty)
    assert verdicts.verdict("fedufo", empty) == ""
    assert "In short" not in pages.page("fedbr", empty, Records.of([]), {})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("{tinny: scaffold.last}", r"fedbr asks for \{tinny: scaffold.last\}, and there is no such experiment"),
        ("{tiny: scaffold.first}", r"tiny: its text asks for \{scaffold.first\}, which is no number of its table"),
    ],
)
def test_what_is_no_number_is_refused(asked: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one: Experiment = tiny()
    monkeypatch.setattr(verdicts, "texts", lambda: {one.paper: asked})
    with pytest.raises(ConfigError, match=said):
        verdicts.verdict(one.paper, [table(tmp_path)])
