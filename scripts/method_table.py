"""Print tables of the methods from the registry.

python scripts/method_table.py            # README: what each is, and the code lines of its file
python scripts/method_table.py --lines    # docs/methods.md: its file, and with all parts and rules it imports
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import sys
import tokenize
from types import ModuleType

from accord import algorithms
from accord.config.catalog import summary

GROUPS = {
    "The five papers": algorithms.PAPERS,
    "Global model, changes on the client": algorithms.CLIENT_SIDE,
    "Global model, mixed or shared data": algorithms.DATA_SIDE,
    "Global model, changes on the server": algorithms.SERVER_SIDE,
    "Personal models": algorithms.PERSONAL,
    "Ends of the scale, and your own mixture": algorithms.ENDS,
}


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
    for value in vars(module).values():
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        folder = str(home).rpartition(".")[0]
        if folder in ("accord.algorithms", "accord.parts", "accord.aggregate") and home not in seen:
            imported(sys.modules[str(home)], seen)
    return seen


def own_lines(module: ModuleType) -> int:
    """Code lines of one file."""
    return code_lines(inspect.getsource(module))


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", action="store_true")
    lines = parser.parse_args().lines
    second = "its file | with what it imports" if lines else "what it does | code lines of its file"
    print(f"| method | {second} |\n|---|---|---|")
    for title, factories in GROUPS.items():
        print(f"| **{title}** | | |")
        for factory in factories:
            module = inspect.getmodule(factory)
            assert module is not None
            own = own_lines(module)
            if lines:
                everything = sum(own_lines(sys.modules[name]) for name in imported(module, set()))
                print(f"| `{factory.__name__}` | {own} | {everything} |")
            else:
                print(f"| `{factory.__name__}` | {summary('algorithm', factory)} | {own} |")


if __name__ == "__main__":
    main()
