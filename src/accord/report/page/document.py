"""One file with everything in it: no request leaves it, and it asks for none."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from accord.engine.files import write_atomic
from accord.report.page.contents import contents

# What a page may do is said in the page itself: scripts and styles that stand in it, pictures it makes, and no more.
# Served by `accord watch`, it may also ask the server it came from.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def write_report(places: Iterable[Path | str], target: Path) -> Path:
    """The page of all finished runs in or below `places`."""
    write_atomic(target, document(contents(places)))
    return target


def document(values: Mapping[str, Any], script: str = "") -> str:
    """The page as text; `script` fills it from the values, where that is not the report's own."""
    policy = f"{POLICY}; connect-src {chr(39)}self{chr(39)}" if values.get("live") else POLICY
    return (
        asset("page.html")
        .replace("{{policy}}", policy)
        .replace("{{title}}", html.escape(str(values["title"])))
        .replace("{{style}}", asset("page.css"))
        .replace("{{charts}}", asset("echarts.min.js"))
        .replace("{{script}}", asset("drawing.js") + (script or asset("page.js")))
        .replace("{{values}}", embedded(values))
    )


def embedded(values: Mapping[str, Any]) -> str:
    """JSON that can stand in a page: nothing in it ends the element around it."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def asset(name: str) -> str:
    """A file that comes with the package."""
    return files("accord.report.page").joinpath("assets").joinpath(name).read_text(encoding="utf-8")
