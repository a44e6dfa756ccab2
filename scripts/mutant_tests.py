"""Which tests are asked about a changed file: the nearest first, by their names and by what they speak of."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mutant_reach import Reach

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/accord"
# What else speaks for a folder, after its own tests: these, then the matrix of all methods for the methods named.
FURTHER = {
    "parts": ("tests/algorithms",),
    "aggregate": ("tests/algorithms/test_robust_methods.py", "tests/algorithms/test_first_methods.py"),
    "core": (
        "tests/algorithms/test_first_methods.py",
        "tests/contracts/test_node.py",
        "tests/contracts/test_capture.py",
    ),
    "engine": ("tests/contracts/test_node.py", "tests/cli"),
    "executors": ("tests/contracts/test_capture.py",),
    "settings": ("tests/config", "tests/cli/test_cli_bad_configuration.py"),
}
QUICK = ("tests/algorithms/test_defaults.py", "tests/contracts/test_defaults_everywhere.py")
QUICK += ("tests/data/test_data_defaults.py", "tests/data/test_seeds.py")  # seconds each, and about very many files
MATRIX = "tests/contracts/test_matrix.py"
MATRIX_FOR = dict.fromkeys(("core", "executors", "parts", "engine"), "fedavg or scaffold or fedrep or fedbr")


SHORT, LONG = 3.0, 500.0  # seconds of tests in the first call, and in all of those that reach a line


@dataclass(frozen=True)
class Call:
    """What pytest is called with; of `chosen` tests, if there are any, only those."""

    arguments: tuple[str, ...]
    chosen: tuple[str, ...] = ()


def reaching(reach: Reach, file: str, text: str, line: int) -> list[Call]:
    """Tests that run a line: few at first, then files not yet known, then the others; near and quick ones first."""
    near = {place: number // 5 for number, place in enumerate(nearest(file)[0].arguments)}
    tests = reach.tests(file, text, line)
    home = f"tests/{Path(file).relative_to(SOURCE).parts[0]}/"
    tests.sort(key=lambda test: near.get(test.partition("::")[0], len(near) + (not test.startswith(home))))
    calls: list[list[str]] = [[], []]
    spent = 0.0
    for test in tests:
        if spent < LONG:
            calls[spent > SHORT].append(test)
        spent += reach.seconds[test] + 0.02
    quick = Call(tuple(place for place in QUICK if place in near))  # of defaults, which no line of a function runs
    first, others = (Call(tuple(sorted({t.partition("::")[0] for t in call})), tuple(call)) for call in calls)
    new = Call(tuple(place for place in near if (ROOT / place).is_file() and not reach.knows(place)))
    return [call for call in (quick, first, new, others) if call.arguments]


@lru_cache
def nearest(file: str) -> tuple[Call, ...]:
    """Tests by nearness."""
    path = Path(file)
    folder = path.relative_to(SOURCE).parts[0]  # a file beside the folders is its own
    whole = folder == "algorithms" and path.parent.name != folder  # a method in a folder is one method
    own = path.parent.name if whole or path.stem == "__init__" else path.stem
    sources = sorted((ROOT / path.parent).glob("*.py")) if whole else [ROOT / path]
    methods = [name for source in sources for name in _defined(source, decorated="method")]
    module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
    names = {own, module, *methods, *_defined(ROOT / path)}
    scores: dict[str, float] = {}
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        place = str(test.relative_to(ROOT))
        if place == MATRIX or place.startswith(("tests/gpu/", "tests/hostile/")):
            continue
        text = test.read_text()
        words = Counter(re.findall(r"[\w.]+", text))
        score = sum(min(words[name], 3) for name in names) + 5 * words[module]
        score += 1000 * (own.strip("_") in test.stem or any(m in test.stem for m in methods))
        score += 100 * (place.startswith(f"tests/{folder}/") and folder != "algorithms")
        if score:
            scores[place] = score
    first = [place for place in QUICK if scores.get(place)]
    places = (first + sorted(scores.keys() - first, key=lambda place: (-scores[place], place)))[:25]
    more = [place for place in FURTHER.get(folder, ()) if place not in places]
    chosen = " or ".join(methods) or MATRIX_FOR.get(folder, "")
    near = Call((*places, *more))
    return (near, Call((MATRIX, "-k", chosen))) if chosen else (near,)


def _defined(source: Path, decorated: str = "") -> list[str]:
    """Names a module defines at its top; only functions with this decorator, if one is named."""
    return [
        node.name
        for node in ast.parse(source.read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and (not decorated or any(f".{decorated}" in ast.unparse(d) for d in node.decorator_list))
    ]
