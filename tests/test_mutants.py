"""The kept list of mutants still fits the code; `make mutants` tries them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "scripts"))

from mutant_draw import changes, draw  # noqa: E402
from mutant_reach import extent  # noqa: E402
from mutant_warm import put  # noqa: E402

LISTED = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())


@pytest.mark.parametrize("entry", LISTED["mutant"], ids=lambda entry: f"{entry['file']}: {entry['new'][:40]}")
def test_a_kept_mutant_is_a_change_of_one_place(entry: dict[str, Any]) -> None:
    text = (ROOT / entry["file"]).read_text()
    assert text.count(entry["old"]) == 1
    assert entry["old"] != entry["new"]
    ast.parse(text.replace(entry["old"], entry["new"]))
    assert entry["tests"]
    assert all((ROOT / test.partition("::")[0]).exists() for test in entry["tests"])


def test_what_draws_pass_over_is_there_and_has_a_reason() -> None:
    for entry in LISTED["equivalent"]:
        assert entry["old"] in (ROOT / entry["file"]).read_text()
        assert entry["reason"]
    for place, reason in LISTED["passed_over"].items():
        assert (ROOT / place.partition(":")[0]).is_file()
        assert reason


SOURCE = '''"""Doc 1 + 1."""
SIZE = 3
def f(a, b, weight="uniform", on=True):
    """Doc 2 + 2."""
    if a < b and not on:
        raise ValueError("1 + 1" + str(a + b))
    a += 1
    print(max(a, b), f"{a + b}", stacklevel=3)
    pow(a, b)
    return a * 0.5 if on else b - 1
'''


def test_changes_of_a_file_by_hand(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SOURCE)
    found = list(changes(tmp_path, [tmp_path / "one.py"]))
    assert {change.file for change in found} == {"one.py"}
    for change in found:
        ast.parse(change.apply(SOURCE))
    after = {change.lines(SOURCE)[1] for change in found}
    assert after == {
        "SIZE = 4",
        'def f(a, b, weight="examples", on=True):',
        'def f(a, b, weight="uniform", on=False):',
        "if not (a < b and not on):",
        "if a <= b and not on:",
        "if a < b or not on:",
        "if a < b and on:",
        "pass",
        "a += 2",
        'print(min(a, b), f"{a + b}", stacklevel=3)',
        "pow(b, a)",
        "return b - 1 if on else a * 0.5",
        "return a / 0.5 if on else b - 1",
        "return a * 1.0 if on else b - 1",
        "return a * 0.5 if on else b + 1",
        "return a * 0.5 if on else b - 2",
    }
    assert len(draw(found, 9, "seed")) == 2, "one of SIZE, one of f"
    assert draw(found, 1, "seed") == draw(found, 1, "seed")
    assert len(draw(found, 9, "seed", apart=False)) == 9


FUNCTIONS = """SIZE = 3

class Kind:
    wide: int = 4

    @cached
    def area(self, of=2):
        if (
            of
        ):
            return [
                1,
                of,
            ]
        else:
            pass

def later(): return 1
"""


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (1, (1, 10**9)),  # outside of functions: whoever runs anything of the file
        (4, (1, 10**9)),
        (7, (8, 16)),  # a default: whoever runs the function
        (9, (8, 10)),
        (12, (11, 14)),
        (16, (16, 16)),
        (18, (18, 18)),
    ],
)
def test_lines_that_run_together_by_hand(line: int, lines: tuple[int, int]) -> None:
    assert extent(ast.parse(FUNCTIONS), line) == lines


LOADED = """SIZE = 3

def plain(a, by=2):
    return a + by

def made(a):
    def inner(b):
        return a * b
    return inner

class Kind:
    wide = 4

    @property
    def area(self):
        return [self.wide + n for n in (1,)]
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code knows its whole name")
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a + by", "a - by", (3, 10, [5])),
        ("a * b", "a / b", (7, 2.5, [5])),
        ("self.wide + n", "self.wide - n", (7, 10, [3])),
        ("by=2", "by=3", None),  # a default is no function's code
        ("SIZE = 3", "SIZE = 4", None),
        ("wide = 4", "wide = 5", None),
    ],
)
def test_loaded_functions_are_given_changed_code(old: str, new: str, found: tuple[Any, ...] | None) -> None:
    space: dict[str, Any] = {}
    exec(compile(LOADED, "loaded.py", "exec"), space)
    before = space["made"](5)
    functions = [space["plain"], space["made"], space["Kind"].area.fget, before]
    assert put(functions, "loaded.py", LOADED, LOADED.replace(old, new)) == (found is not None)
    if found is not None:
        assert (space["plain"](5), space["made"](5)(2), space["Kind"]().area) == found
        assert before(2) == found[1], "what is made already, too"
