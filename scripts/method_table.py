"""The tables of methods in the documentation, written from the registry between their markers.

    python scripts/method_table.py            write docs/methods.md and docs/method_costs.md
    python scripts/method_table.py --check    only say whether they are as the code is

methods.md: what each method is, what leaves a client (evaluation aside), whether sums of it are enough for the server,
and the code lines of its file. method_costs.md: its file, or folder, and with all parts, rules and methods it imports.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
import tokenize
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from accord.config import load_config
from accord.config.catalog import summary
from accord.core.algorithm import Algorithm
from accord.core.disclosure import disclosures
from accord.core.methods import ALGORITHMS, FAMILIES
from accord.core.sums import reasons_for_each
from accord.core.types import Facts
from accord.engine.build import build_algorithm, build_model, build_setup

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("accord.algorithms.", "accord.parts.", "accord.aggregate.")
NETWORKS = {"fedfusion": "mcmahan_cnn", "fedbn": "resnet18"}  # of methods that do not take the default one
MARKS = ("<!-- methods: made by `make tables` -->", "<!-- methods end -->")


def code_lines(source: str) -> int:
    """Lines that hold code: no blanks, comments or docstrings."""
    docs = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs |= set(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def imported(module: ModuleType, seen: set[str]) -> set[str]:
    """The module and all it imports, directly or not, from the folders that hold methods, parts and rules."""
    seen.add(module.__name__)
    for value in [*vars(module).values(), *_of_authoring(module)]:
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if str(home).startswith(ROOMS) and home not in seen:
            imported(sys.modules[str(home)], seen)
    return seen


def _of_authoring(module: ModuleType) -> list[object]:
    """What it takes from the authors' namespace, `fl.Mean`."""
    namespace = vars(module).get("fl")
    used = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Attribute)]
    return [getattr(namespace, n.attr) for n in used if isinstance(n.value, ast.Name) and n.value.id == "fl"]


def own_modules(module: ModuleType) -> list[str]:
    """The module; of a folder, all of its modules."""
    return [name for name in sorted(sys.modules) if name == module.__name__ or name.startswith(f"{module.__name__}.")]


def lines_of(names: set[str] | list[str]) -> int:
    """Code lines of some modules."""
    return sum(code_lines(inspect.getsource(sys.modules[name])) for name in names)


def both(name: str) -> tuple[int, int]:
    """Code lines of a method's own file or folder, and with what it imports."""
    module = inspect.getmodule(inspect.unwrap(ALGORITHMS[name]))
    assert module is not None
    own = own_modules(module)
    return lines_of(own), lines_of(imported(module, set()) | set(own))


def built(name: str) -> Algorithm:
    """The method with its default settings, for a network it takes."""
    config = load_config(sets=[f"algorithm.name={name}", f"model.name={NETWORKS.get(name, '2nn')}"])
    facts = Facts((1, 28, 28), 10, np.full(20, 200))
    return build_algorithm(config, build_setup(config, facts, build_model(config, facts, None, torch.device("cpu"))))


def leaving(algorithm: Algorithm) -> str:
    """The kinds of what its clients send, the gravest first."""
    kinds = {kind for task, sent in disclosures(algorithm).items() if task != "evaluate" for kind in sent.values()}
    return ", ".join(kind.word for kind in sorted(kinds, reverse=True)) or "nothing"


def sums(algorithm: Algorithm) -> str:
    """Whether they are enough for the server, or what it does."""
    needed = reasons_for_each(algorithm)
    return f"no: {', and '.join(needed)}" if needed else "yes"


def table(*, with_imports: bool) -> list[str]:
    """One table, line by line."""
    columns = ["its file", "with what it imports"]
    if not with_imports:
        columns = ["what it does", "what leaves a client", "are sums of it enough?", "code lines of its file"]
    rows = [f"| {' | '.join(['method', *columns])} |", f"|{'---|' * (len(columns) + 1)}"]
    for family, title in FAMILIES.items():
        rows.append(f"| **{title}** |{' |' * len(columns)}")
        for name in [name for name in ALGORITHMS if ALGORITHMS.facts(name)["family"] == family]:
            own, whole = both(name)
            cells = [str(own), str(whole)]
            if not with_imports:
                algorithm = built(name)
                cells = [summary("algorithm", ALGORITHMS[name]), leaving(algorithm), sums(algorithm), str(own)]
            rows.append(f"| `{name}` | {' | '.join(cells)} |")
    return rows


def compared(line: str) -> str:
    """A line that sets a method beside other libraries (`| FedAvg | 5 / 68 | ...`), with our figures of today."""
    found = re.match(r"\| (\w+) \| \d+ / \d+ \|", line)
    if found is None or found[1].lower() not in ALGORITHMS:
        return line
    return f"| {found[1]} | {' / '.join(map(str, both(found[1].lower())))} |{line[found.end() :]}"


def filled(page: str, rows: list[str]) -> str:
    """The page with the table between its markers, and our figures in other tables."""
    page = "\n".join(compared(line) for line in page.split("\n"))
    before, _, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise SystemExit(f"the page has no place for the table: write {MARKS[0]} and {MARKS[1]} where it belongs")
    return "\n".join([f"{before}{MARKS[0]}", *rows, f"{end}{after}"])


def main() -> None:
    """Write both, or look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a table is stale")
    check = parser.parse_args().check
    stale = []
    for name, with_imports in (("docs/methods.md", False), ("docs/method_costs.md", True)):
        page = (ROOT / name).read_text()
        new = filled(page, table(with_imports=with_imports))
        if new != page:
            stale.append(name)
            if not check:
                (ROOT / name).write_text(new)
    if stale:
        print(f"{'stale: run `make tables`' if check else 'written'}: {', '.join(stale)}")
    sys.exit(1 if stale and check else 0)


if __name__ == "__main__":
    main()
