"""What MkDocs is told beyond `mkdocs.yml`: pages that are made, links between the repository and the site, the font.

Run by `make docs`. Nothing of it is written into the repository.
"""

from __future__ import annotations

import re
from typing import Any

import elsewhere
import equations
import methods
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

WHICH = "<!-- which method: on the site, that part of the README -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The menu: methods by family in the place of `METHODS`, results and examples in theirs."""
    config.nav = _filled(config.nav)
    return config


def _filled(entries: Any) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if value == "METHODS":
            kept += methods.nav()
        elif value == "RESULTS":
            kept += [{title: f"results/{paper}.md"} for paper, title in methods.result_pages().items()]
        elif value == "EXAMPLES":
            kept += [{elsewhere.title_of(path): f"examples/{path.stem}.md"} for path in elsewhere.notebooks()]
            kept += [{name: elsewhere.script_place(path)} for path, name in elsewhere.SCRIPTS.items()]
        elif isinstance(value, list):
            kept.append({title: _filled(value)})
        else:
            kept.append(entry)
    return kept


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages that are made, the files that pages link to, and the font of the equations."""
    taken: set[str] = set()
    for place, markdown in methods.pages():
        files.append(File.generated(config, place, content=markdown))
    for place, markdown in reference.pages():
        files.append(File.generated(config, place, content=markdown))
    for place, source, markdown in elsewhere.pages():
        files.append(File.generated(config, place, content=elsewhere.relinked(markdown, source, place, taken)))
    for path in (elsewhere.ROOT / "docs").rglob("*.md"):
        place = path.relative_to(elsewhere.ROOT / "docs").as_posix()
        elsewhere.relinked(path.read_text(encoding="utf-8"), f"docs/{place}", place, taken)
    for path in elsewhere.notebooks():
        files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    for target in sorted(taken):
        files.append(File.generated(config, f"files/{target}", abs_src_path=str(elsewhere.ROOT / target)))
    formulas = [equations.table(told["equations"]) for told in methods.cards().values()]
    files.append(File.generated(config, "assets/math.woff", content=equations.font(formulas)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that are written for the repository lead to the site's pages, names of methods to theirs."""
    place = page.file.src_uri
    if page.file.generated_by is not None:
        return markdown
    if place == "methods.md":
        markdown = markdown.replace(WHICH, elsewhere.part_of("README.md", "Which method?"))
        markdown = methods.linked(markdown)
    return elsewhere.relinked(markdown, f"docs/{place}", place, set())


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Our own pictures stand in the page itself, where they take its colours."""
    drawing = re.compile(r'<img alt="[^"]*" src="(?:\.\./)*images/(round|task|part|executors)\.svg" */?>')
    images = elsewhere.ROOT / "docs" / "images"
    return drawing.sub(lambda found: (images / f"{found[1]}.svg").read_text(encoding="utf-8"), html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Material's box for the search has no name for those who do not see it."""
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
