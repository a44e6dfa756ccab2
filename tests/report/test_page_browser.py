"""The report and the page that follows runs, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accord.config import load_config
from accord.engine.run import run
from accord.report.page import write_report
from accord.report.page.watching import Handler, ThreadingHTTPServer, Watched
from support.browser import Seen, browser

SETS = ("rounds=3", "data.limit=200", "partition.clients=4", "partition.alpha=0.3", "clients.fraction=1.0")
WHAT = ("evaluate.drift=true", "evaluate.personal=true", "local.lr=0.1", "checkpoint.every=0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for name in ("fedavg", "scaffold"):
        for seed in (0, 1):
            sets = [*SETS, *WHAT, f"algorithm.name={name}", f"seed={seed}", f"out={out}", f"name={name}-{seed}"]
            run(load_config(None, sets))
    return out


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def page_file(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([runs], tmp_path_factory.mktemp("page") / "report.html")


def opened(chromium: Any, address: str, width: int = 1440, scheme: str = "light") -> Seen:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    seen = Seen(context)
    seen.page.goto(address)
    until(seen, "globalThis.accord !== undefined")
    return seen


def until(seen: Seen, expression: str) -> None:
    """Asked again and again: the page's own policy forbids Playwright to wait inside it."""
    for _ in range(150):
        if seen.page.evaluate(expression):
            return
        seen.page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


def drawn(seen: Seen) -> int:
    """Scroll through the page; how many pictures were drawn, each with something on its canvas."""
    for node in seen.page.query_selector_all(".chart"):
        node.scroll_into_view_if_needed()
        seen.page.wait_for_timeout(60)
    return int(seen.page.evaluate("[...accord.charts.values()].filter(([chart]) => chart !== null).length"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_needs_nobody_and_complains_of_nothing(chromium: Any, page_file: Path, scheme: str) -> None:
    seen = opened(chromium, page_file.as_uri(), scheme=scheme)
    assert drawn(seen) == len(seen.page.query_selector_all(".chart")) >= 8
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert seen.findings() == []
    titles = [node.inner_text() for node in seen.page.query_selector_all("main h2")]
    assert titles[:5] == ["The answer", "Methods", "Over rounds, seconds and bytes", "Fairness", "Sites"]


def test_the_first_screen_answers(chromium: Any, page_file: Path) -> None:
    seen = opened(chromium, page_file.as_uri())
    text = seen.page.inner_text("#answer")
    assert "BEST METHOD" in text.upper()
    assert "WHO IS SERVED WORST" in text.upper()
    assert any(name in text for name in ("fedavg", "scaffold"))
    box = seen.page.query_selector("#answer").bounding_box()
    assert box["y"] + box["height"] < 900, "it stands on the first screen"


def test_curves_are_hovered_zoomed_and_turned(chromium: Any, page_file: Path) -> None:
    seen = opened(chromium, page_file.as_uri())
    page = seen.page
    node = page.query_selector("#rounds .chart")
    node.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    box = node.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    assert "round" in node.inner_text()
    assert "fedavg" in node.inner_text()
    zoom = "accord.charts.get(document.querySelector('#rounds .chart'))[0].getOption().dataZoom[0]"
    page.click("text=Zoom in")
    assert page.evaluate(f"[{zoom}.start, {zoom}.end]") == [25, 75]
    page.click("#rounds >> text=All")
    assert page.evaluate(f"[{zoom}.start, {zoom}.end]") == [0, 100]
    page.select_option("#rounds label:has-text('Over') select", "bytes")
    name = "accord.charts.get(document.querySelector('#rounds .chart'))[0].getOption().xAxis[0].name"
    assert page.evaluate(name) == "megabytes sent"
    assert seen.errors == []


def test_a_site_opens_by_keyboard_and_closes(chromium: Any, page_file: Path) -> None:
    seen = opened(chromium, page_file.as_uri())
    page = seen.page
    page.focus("#sites tbody button")
    page.keyboard.press("Enter")
    assert page.inner_text("dialog h2").startswith("Site ")
    page.wait_for_timeout(300)
    assert seen.findings() == []
    assert "never left out" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('client').open")
    page.fill("#sites input", "no such site")
    assert "0 sites" in page.inner_text("#sites caption")
    assert seen.errors == []


def test_the_report_fits_a_phone(chromium: Any, page_file: Path) -> None:
    seen = opened(chromium, page_file.as_uri(), width=390)
    drawn(seen)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert seen.errors == []
    assert seen.findings() == []


def test_the_page_follows_a_run(chromium: Any, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    source = runs / "fedavg-0"
    for name in ("config.toml", "identity.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    lines = (source / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text(lines[0])
    watched = Watched([tmp_path])
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"watched": watched}))
    server.daemon_threads = True
    threads = [threading.Thread(target=work, daemon=True) for work in (server.serve_forever, watched.follow)]
    for thread in threads:
        thread.start()
    try:
        seen = opened(chromium, f"http://127.0.0.1:{server.server_address[1]}/")
        assert "round 1 of 3" in seen.page.inner_text("#answer").lower()
        with open(folder / "metrics.jsonl", "a") as file:
            file.write(lines[1])
        until(seen, "accord.values.runs[0].done === 2")
        assert "round 2 of 3" in seen.page.inner_text("#answer").lower()
        (folder / "metrics.jsonl").write_text("".join(lines))
        (folder / "summary.json").write_bytes((source / "summary.json").read_bytes())
        until(seen, "accord.values.runs[0].finished")
        assert seen.errors == []
        assert all(url.startswith(("http://127.0.0.1", "data:")) for url in seen.requests)
        assert seen.findings() == []
    finally:
        watched.end()
        server.shutdown()
        server.server_close()


def test_names_that_look_like_markup_stay_text(chromium: Any, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    for path in (runs / "fedavg-0").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    odd = "</script><img src=x onerror=alert(1)>"
    sites = (folder / "sites.csv").read_text().splitlines()
    first = sites[1].split(",", 1)[1]
    quoted = '"' + odd.replace('"', '""') + '"'
    (folder / "sites.csv").write_text("\n".join([sites[0], f"{quoted},{first}", *sites[2:]]) + "\n")
    target = write_report([folder], tmp_path / "odd.html")
    seen = opened(chromium, target.as_uri())
    assert drawn(seen) > 3
    assert odd in [node.inner_text() for node in seen.page.query_selector_all("#sites tbody button")]
    assert seen.errors == []
