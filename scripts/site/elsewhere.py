"""What the site shows of the repository outside of `docs/`: pages of their own, examples, notebooks, and plain files.

Links are written for the repository, where a reader on a forge follows them. On the site the same link leads to the
page the file has here; a file without one is taken along, so that nothing points out of the site's folder.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {  # a file of the repository: its place on the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/results/h200_2026-11-15.md": "benchmarks_h200.md",
    "examples/flower/README.md": "examples/flower.md",
}
SCRIPTS = {  # examples that are one file: title
    "examples/own_data.py": "Own arrays and an own network",
    "examples/own_method.py": "An own method",
    "examples/own_metric.py": "An own metric",
    "examples/stories/hospitals.py": "Story: eight hospitals, one table",
    "examples/stories/diabetes.py": "Story: a regression",
    "examples/stories/letters.py": "Story: next letters of a text",
    "examples/security/gradient_inversion.py": "Reading digits out of an update",
}
FOLDERS = {"docs": "index.md", "docs/results": "results/README.md", "benchmarks": "benchmarks.md"}
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")
FILE_NAME = re.compile(r"`?[\w./]+(\.md|/results)`?")  # as the text of a link: on the site pages go by their titles
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", flags=re.MULTILINE | re.DOTALL)


def notebooks() -> list[Path]:
    """All of them, in the order of their names."""
    return sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def pages() -> Iterator[tuple[str, str, str]]:
    """Place on the site, file of the repository, Markdown."""
    for source, place in PAGES.items():
        if place != "index.md":
            yield place, source, (ROOT / source).read_text(encoding="utf-8")
    for source, title in SCRIPTS.items():
        yield script_place(source), source, script_page(source, title)
    for path in notebooks():
        source = path.relative_to(ROOT).as_posix()
        yield f"examples/{path.stem}.md", source, notebook_page(path)
    yield "examples/README.md", "examples/README.md", overview()


def script_place(source: str) -> str:
    """Of an example's page."""
    return f"examples/{Path(source).stem}_script.md"


def script_page(source: str, title: str) -> str:
    """An example with its code."""
    code = (ROOT / source).read_text(encoding="utf-8")
    return f"# {title}\n\n`{source}`, run by the tests as it stands:\n\n```python\n{code}```\n"


def notebook_page(path: Path) -> str:
    """A notebook's cells as a page; CI runs them, and what they print depends on the machine, so it is not shown."""
    book = json.loads(path.read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in book["cells"]]
    kinds = [cell["cell_type"] for cell in book["cells"]]
    shown = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in zip(kinds, cells, strict=True)]
    source = path.relative_to(ROOT).as_posix()
    note = f"*A notebook, [`{source}`]({path.name}): download it and open it in Jupyter. CI runs every cell of it.*"
    return "\n\n".join([shown[0], note, *shown[1:]]) + "\n"


def overview() -> str:
    """All examples."""
    books = [f"- [{title_of(path)}](notebooks/{path.name})" for path in notebooks()]
    scripts = [f"- [{title}]({source.removeprefix('examples/')}): `{source}`" for source, title in SCRIPTS.items()]
    return "\n".join(
        [
            *("# Examples", "", "## Notebooks", "", *books, "", "## Programs", "", *scripts),
            "- [An app for `flwr run`](flower/README.md): `examples/flower`",
            "",
        ]
    )


def title_of(notebook: Path) -> str:
    """Its first heading."""
    first = json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"]
    return "".join(first).splitlines()[0].lstrip("# ")


def place_of(target: str) -> str | None:
    """Where a file or folder of the repository is found on the site; None: nowhere, it has to be taken along."""
    target = target.rstrip("/")
    if target in PAGES:
        return PAGES[target]
    if target in SCRIPTS:
        return script_place(target)
    if target.startswith("docs/"):
        return target.removeprefix("docs/") if (ROOT / target).is_file() else FOLDERS.get(target)
    if target.endswith(".ipynb"):
        return f"examples/{Path(target).stem}.md"
    if target.startswith("examples") and not (ROOT / target).is_file():
        return "examples/README.md"
    return FOLDERS.get(target)


def title(target: str) -> str:
    """The first heading of a page of the repository; nothing: it has none."""
    path = ROOT / target
    path = path / "README.md" if path.is_dir() else path
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE) if path.is_file() else None
    return found[1] if found else ""


def relinked(markdown: str, source: str, place: str, taken: set[str]) -> str:
    """The page with links that hold on the site. `taken` gets the files that have to be taken along."""

    def instead(found: re.Match[str]) -> str:
        text, (link, mark, anchor) = found[1], found[2].partition("#")
        if not link or re.match(r"[a-z]+:", link) or (source.endswith(".ipynb") and link == Path(source).name):
            return str(found[0])
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        where = place_of(target)
        if where is None:
            if not (ROOT / target).is_file():
                return str(found[0])  # what is nowhere is left as it is, and the build says so
            taken.add(target)
            where = f"files/{target}"
        if FILE_NAME.fullmatch(text):
            text = title(target) or text
        return f"[{text}]({posixpath.relpath(where, posixpath.dirname(place) or '.')}{mark}{anchor})"

    pieces, last = [], 0
    for fence in FENCE.finditer(markdown):
        pieces += [LINK.sub(instead, markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, LINK.sub(instead, markdown[last:])])


def part_of(source: str, title: str) -> str:
    """A part of another page, from its heading to the next one, with links as that page in `docs/` would write them."""
    text = (ROOT / source).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}$.*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"{source} has no part {title!r}: the site shows it")
    return found[0].replace("](docs/", "](")
