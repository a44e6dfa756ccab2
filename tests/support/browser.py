"""A real browser without a window, for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


@contextmanager
def browser() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright; a test that wants it is skipped where it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield started
        finally:
            started.close()


class Seen:
    """A page with what it asked for, said and complained about."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self._said(message.type, message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def findings(self, grave: tuple[str, ...] = ("serious", "critical")) -> list[str]:
        """What axe has to say against it, the serious findings only."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        found = axe.run(self.page).response["violations"]
        return [f"{one['id']}: {one['help']} ({len(one['nodes'])})" for one in found if one["impact"] in grave]
