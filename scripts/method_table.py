"""Print the README's table of methods from the registry: what each is, and the code lines of its file.

python scripts/method_table.py
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize

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


def main() -> None:
    """One table."""
    print("| method | what it does | code lines of its file |\n|---|---|---|")
    for title, factories in GROUPS.items():
        print(f"| **{title}** | | |")
        for factory in factories:
            module = inspect.getmodule(factory)
            assert module is not None
            print(
                f"| `{factory.__name__}` | {summary('algorithm', factory)} | {code_lines(inspect.getsource(module))} |"
            )


if __name__ == "__main__":
    main()
