"""Small changes of a source file, found in its syntax tree and made in its text."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARE = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
COMPARE |= {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
SIGNS |= {ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}
ARITHMETIC = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
ARITHMETIC |= {ast.FloorDiv: ("//", "%"), ast.Mod: ("%", "//"), ast.Pow: ("**", "*")}
NAMES = {"min": "max", "argmax": "argmin", "mean": "sum", "any": "all", "amax": "amin", "floor": "ceil", "le": "lt"}
NAMES |= {"zeros": "ones", "zeros_like": "ones_like", "lt": "ge", "sorted": "list", "add": "subtract"}
NAMES |= {new: old for old, new in NAMES.items() if new not in {"list"}}
# Calls whose two arguments may stand in either order, or whose order is a matter of types.
ANY_ORDER = {"min", "max", "minimum", "maximum", "equal", "allclose", "isclose", "samestat"}
ANY_ORDER |= {"isinstance", "zip", "cast"}
WORDS = {"uniform": "examples", "train": "test", "pad": "fill", "validation": "test"}
WORDS |= {"examples": "uniform", "test": "train", "fill": "pad"}


@dataclass(frozen=True)
class Change:
    """One place of a file and what it becomes."""

    file: str  # below the root of the tree
    where: str  # the function around it
    start: int  # of characters
    end: int
    new: str
    line: int

    def apply(self, text: str) -> str:
        """The file's text with the change."""
        return text[: self.start] + self.new + text[self.end :]

    def lines(self, text: str) -> tuple[str, str]:
        """The lines it touches, before and after, without their indentation."""
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", self.end)
        before, after = text[first : self.start], text[self.end : last if last >= 0 else len(text)]
        return (before + text[self.start : self.end] + after).strip(), (before + self.new + after).strip()


class _Finder(ast.NodeVisitor):
    """All changes of one file; what only speaks (messages, documentation, annotations, checks of types) stays."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.found = file, text, list[Change]()
        self.where: list[str] = []
        self.offsets = [0]
        for line in text.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Columns of the syntax tree count bytes."""
        begin = self.offsets[line - 1]
        row = self.text[begin : self.offsets[line]]
        return begin + len(row.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def note(self, start: int, end: int, new: str, line: int) -> None:
        if self.text[start:end] != new:
            self.found.append(Change(self.file, ".".join(self.where), start, end, new, line))

    def between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """The operator between two operands; none where the text between holds it twice."""
        start, end = self.span(left)[1], self.span(right)[0]
        gap = self.text[start:end]
        if gap.count(old) == 1 and "#" not in gap:
            position = start + gap.index(old)
            self.note(position, position + len(old), new, left.lineno)

    def source(self, node: ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def inside(self, name: str, nodes: Iterable[ast.AST]) -> None:
        self.where.append(name)
        for node in nodes:
            self.visit(node)
        self.where.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """The defaults and the body; decorators and annotations stay."""
        defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        self.inside(node.name, [*defaults, *node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.inside(node.name, node.body)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A constant at the top of a module is a place of its own."""
        alone = not self.where and isinstance(node.targets[0], ast.Name)
        self.inside(self.source(node.targets[0]), [node.value]) if alone else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """The words of a Literal are a type."""
        if self.source(node.value) != "Literal":
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What a message says is not tried."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Asserts are there for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts with values in them are messages."""

    def visit_If(self, node: ast.If) -> None:
        if self.source(node.test).startswith(("TYPE_CHECKING", "sys.version_info")):
            return  # a run knows one Python
        start, end = self.span(node.test)
        if not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
            self.note(start, end, f"not ({self.text[start:end]})", node.lineno)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        start, end = self.span(node)
        body, test, other = self.source(node.body), self.source(node.test), self.source(node.orelse)
        self.note(start, end, f"{other} if {test} else {body}", node.lineno)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, kind, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self.between(left, right, SIGNS[type(kind)], COMPARE[type(kind)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(n, ast.JoinedStr) or _text(n) for n in (node.left, node.right))
        if type(node.op) in ARITHMETIC and not texts:
            self.between(node.left, node.right, *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start, end = self.span(node)
        if isinstance(node.op, (ast.Not, ast.USub)) and not isinstance(node.operand, ast.Constant):
            self.note(start, end, self.source(node.operand), node.lineno)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        start, end = self.span(node)
        if isinstance(value, bool):
            self.note(start, end, str(not value), node.lineno)
        elif isinstance(value, int):
            self.note(start, end, str(value + 1), node.lineno)
        elif isinstance(value, float) and not 0 < value < 1e-6:  # guards against 0: twice as much is as good
            self.note(start, end, repr(value * 2 if value else 1.0), node.lineno)
        elif isinstance(value, str) and value in WORDS:
            self.note(start, end, f'"{WORDS[value]}"', node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        known = name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else ""
        if known in NAMES:
            end = self.span(name)[1]
            self.note(end - len(known), end, NAMES[known], node.lineno)
        plain = [a for a in node.args if isinstance(a, (ast.Name, ast.Attribute, ast.Subscript))]
        if known not in ANY_ORDER and len(node.args) == len(plain) == 2:
            (first, _), (_, last) = self.span(node.args[0]), self.span(node.args[1])
            swapped = f"{self.source(node.args[1])}, {self.source(node.args[0])}"
            self.note(first, last, swapped, node.lineno)
        for argument in (node.func, *node.args, *(k for k in node.keywords if k.arg not in {"strict", "stacklevel"})):
            self.visit(argument)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose result nobody takes; a text alone is documentation."""
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self.note(*self.span(node), "pass", node.lineno)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.note(*self.span(node), "pass", node.lineno)
        self.generic_visit(node)


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def changes(root: Path, files: Iterable[Path]) -> Iterator[Change]:
    """Every change of every file, in the order of the files."""
    for path in sorted(files):
        text = path.read_text()
        finder = _Finder(str(path.relative_to(root)), text)
        finder.visit(ast.parse(text))
        yield from finder.found


def draw(found: Iterable[Change], count: int, seed: str, apart: bool = True) -> list[Change]:
    """`count` of them, at most one per function if they are to be apart."""
    pool = list(found)
    random.Random(seed).shuffle(pool)
    if not apart:
        return pool[:count]
    chosen: dict[tuple[str, str], Change] = {}
    for change in pool:
        if len(chosen) < count:
            chosen.setdefault((change.file, change.where), change)
    return list(chosen.values())
