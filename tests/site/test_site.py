"""The documentation site as it is built: nothing broken, nothing asked of others, a whole page for every method."""

from __future__ import annotations

import fcntl
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from accord.core.methods import ALGORITHMS
from support.browser import Seen, browser
from support.pages import ROOT

pytest.importorskip("mkdocs")
SCRIPTS = ROOT / "scripts"
ASKED_FOR = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, strictly, for all processes that test side by side; any warning fails it."""
    shared = (
        tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else tmp_path_factory.mktemp("s")
    )
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site.built").exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
                "NO_MKDOCS_2_WARNING": "1",
                "OMP_NUM_THREADS": "1",
            }
            built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert built.returncode == 0, built.stdout + built.stderr
            (shared / "site.built").touch()
    assert (folder / "index.html").is_file()
    return folder


class Page(HTMLParser):
    """What a page can be pointed at, points to, and asks for by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.ids, self.links, self.wanted = path, {""}, [], []
        self.math = self.images_without_words = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.ids.add(said.get("id", ""))
        self.ids.add(said.get("name", "") if tag == "a" else "")
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        if tag == "link" and said.get("rel") in ("stylesheet", "preconnect", "preload", "icon"):
            self.wanted.append(said["href"])
        if tag in ASKED_FOR and said.get(ASKED_FOR[tag]):
            self.wanted.append(said[ASKED_FOR[tag]])
        self.math += tag == "math"
        self.images_without_words += tag == "img" and not said.get("alt") and "logo" not in said.get("src", "")


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_links_and_anchors_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.is_file() or (known is not None and unquote(parts.fragment) not in known.ids | {"__tabbed"}):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


def test_nothing_is_asked_of_other_hosts(site: Path, pages: dict[Path, Page]) -> None:
    asked = [
        f"{path.name}: {one}" for path, page in pages.items() for one in page.wanted if re.match(r"(https?:)?//", one)
    ]
    styles = [
        path for path in site.rglob("*.css") if re.search(r"(@import|url\()\s*[\"']?(https?:)?//", path.read_text())
    ]
    assert not asked
    assert not styles


def test_pictures_say_what_they_show(pages: dict[Path, Page]) -> None:
    assert not [path.name for path, page in pages.items() if page.images_without_words]


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_method_has_a_whole_page(site: Path, pages: dict[Path, Page], name: str) -> None:
    path = site / "methods" / f"{name}.html"
    text = path.read_text(encoding="utf-8")
    wanted = ("equations", "when-to-use-it", "what-leaves-a-client", "our-results", "settings")
    assert pages[path].ids >= set(wanted)
    assert pages[path].math >= 1, "its equations are rendered"
    assert f"accord run --algorithm {name}" in re.sub(r"<[^>]+>", "", text)
    assert "&lt;math" not in text


def test_the_search_knows_pages_settings_and_functions(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {entry["title"] for entry in index["docs"]}
    assert titles >= {"scaffold", "Your own data", "Choosing a division", "All settings"}
    assert any("partition.alpha" in entry["text"] for entry in index["docs"])
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert script.startswith("var __index = {"), "so that a page opened from a disk can read it"


def test_every_setting_is_listed(site: Path) -> None:
    from accord.cli.settings import keys

    text = (site / "settings.html").read_text(encoding="utf-8")
    named = [key.key for key in keys() if not key.key.startswith("algorithm.") or key.key == "algorithm.name"]
    assert not [key for key in named if f"<code>{key}</code>" not in text]


def test_what_is_written_beside_the_cards_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the five papers and the usual baselines at least; of no method half."""
    monkeypatch.syspath_prepend(str(SCRIPTS / "site"))
    methods, equations = (runpy.run_path(str(SCRIPTS / "site" / f"{name}.py")) for name in ("methods", "equations"))
    told = methods["cards"]()
    assert set(told) <= set(ALGORITHMS), "a card that no method has"
    papers = {name for name in ALGORITHMS if ALGORITHMS.facts(name)["family"] == "papers"}
    assert set(told) >= papers | {"fedavg", "fedprox", "scaffold", "moon", "feddyn", "fednova", "fedavgm", "ditto"}
    for name, card in told.items():
        assert len(card["when"]) > 20, name
        assert card["equations"], name
        assert all(who.strip() == who and "<math" in equations["mathml"](tex) for who, tex in card["equations"])
        assert card["equations"][0][0], f"{name}: whose step the first one is"


def test_what_cannot_be_rendered_is_refused() -> None:
    mathml = runpy.run_path(str(SCRIPTS / "site" / "equations.py"))["mathml"]
    with pytest.raises(ValueError, match="unknowable"):
        mathml(r"\unknowable{x}")
    assert "<mfrac>" in mathml(r"\frac{a}{b}")


def test_the_menu_bears_pages_that_are_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS / "site"))
    hooks = runpy.run_path(str(SCRIPTS / "site" / "hooks.py"))
    hooks["MAY_BE_MISSING"].add("nowhere.md")
    filled = hooks["_filled"]([{"Looking": [{"Nowhere": "nowhere.md"}, {"Reports": "report.md"}]}])
    assert filled == [{"Looking": [{"Reports": "report.md"}]}]


def test_pictures_are_as_their_script_draws_them() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "pictures.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


def opened(chromium: Any, address: str, width: int, scheme: str) -> Seen:
    seen = Seen(chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
    seen.page.goto(address)
    seen.page.wait_for_timeout(500)
    return seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", ["index.html", "methods/fedufo.html", "concepts.html"])
def test_a_page_opened_from_a_disk_needs_nobody(chromium: Any, site: Path, name: str, width: int, scheme: str) -> None:
    seen = opened(chromium, (site / name).as_uri(), width, scheme)
    assert seen.errors == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out to the side"
    assert seen.page.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth > 0)")
    if width == 1440:
        assert seen.findings() == []
    if name.startswith("methods/"):
        assert seen.page.evaluate("document.fonts.check(\"16px 'Accord math'\")")
        assert seen.page.query_selector("math").bounding_box()["height"] > 10


def test_the_search_works_without_a_server(chromium: Any, site: Path) -> None:
    seen = opened(chromium, (site / "index.html").as_uri(), 1440, "light")
    seen.page.click(".md-search__input")
    seen.page.keyboard.type("control variates")
    found = ".md-search-result__item a"
    for _ in range(100):
        if any("scaffold" in (node.get_attribute("href") or "") for node in seen.page.query_selector_all(found)):
            break
        seen.page.wait_for_timeout(100)
    else:
        raise AssertionError(seen.page.inner_text(".md-search-result"))
    seen.page.click(f"{found}[href*='methods/scaffold']")
    seen.page.wait_for_load_state()
    assert "scaffold" in seen.page.title()
    assert seen.errors == []
    assert not [url for url in seen.requests if url.startswith("http")]
