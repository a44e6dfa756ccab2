"""The page of a diagnosis in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.diagnosis.finding import Finding
from accord.diagnosis.page import write_page
from accord.diagnosis.suggestion import suggested
from support.browser import Seen, browser
from support.small import federation


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    odd = "</script><img src=x onerror=alert(1)>"
    data = federation([[0] * 40 + [1] * 4, [0, 1] * 20, [1] * 30], names=(odd, "b", "c"))
    return accord.diagnose(data=data).page(tmp_path_factory.mktemp("page") / "diagnosis.html")


def opened(chromium: Any, address: str, width: int = 1440, scheme: str = "light") -> Seen:
    seen = Seen(chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
    seen.page.goto(address)
    for node in seen.page.query_selector_all(".chart"):
        node.scroll_into_view_if_needed()
        seen.page.wait_for_timeout(60)
    return seen


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_every_finding_has_a_sentence_and_a_picture(chromium: Any, page_file: Path, width: int, scheme: str) -> None:
    seen = opened(chromium, page_file.as_uri(), width, scheme)
    page = seen.page
    titles = [node.inner_text() for node in page.query_selector_all("main h2")]
    assert titles[:2] == ["The answer", "What to do"]
    assert titles[2:] == [
        "Label skew",
        "Quantity skew",
        "Feature shift",
        "Concept shift",
        "Client drift and conflicting updates",
        "Rare classes",
        "Duplicates",
    ]
    for name in ("labels", "quantity", "drift", "rare", "duplicates"):
        assert page.query_selector(f"#{name} .chart canvas") is not None, name
        assert len(page.inner_text(f"#{name} p:nth-of-type(2)")) > 20
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert seen.findings() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_numbers_open_by_keyboard_and_the_theme_turns(chromium: Any, page_file: Path) -> None:
    page = opened(chromium, page_file.as_uri()).page
    page.focus("#labels summary")
    page.keyboard.press("Enter")
    assert "distance by chance" in page.inner_text("#labels table")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_values_that_are_none_are_written_as_such(chromium: Any, tmp_path: Path) -> None:
    finding = Finding("labels", "Label skew", "unknown", "Nothing.", {"distance": float("nan")})
    suggestion = suggested([finding]).as_record()
    record = {"accord": "0", "data": "d", "clients": 1, "samples": 1, "seed": 0, "note": "", "command": ""}
    record |= {"findings": [finding.as_record()], "suggestion": suggestion}
    seen = opened(chromium, write_page(record, [{}], tmp_path / "p.html").as_uri())
    assert seen.errors == []
    assert "cannot be told" in seen.page.inner_text("#labels")
