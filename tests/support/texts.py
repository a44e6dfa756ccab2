"""Configurations nobody should write: valid ones with values, lines and characters exchanged."""

from __future__ import annotations

import random
import re

from accord.config import load_config, to_toml
from accord.core.methods import ALGORITHMS
from support.fuzz import mutated

# Values in TOML's syntax, or nearly.
ODD = [
    "0", "-1", "1", "3", "1e308", "-1e308", "1e-320", "1e999", "inf", "-inf", "nan", "0.1", "9" * 30, "9" * 5000,
    "0x7fffffffffffffff", "0xffffffffffffffffffff", "9223372036854775808", "-9223372036854775809", "true", "false",
    '""', '"none"',
    '"x"', '"../../etc/passwd"', '"\\u0000"', '"\\ud800"', '"\\U0010FFFF"', '"💥"', '"' + "x" * 100_000 + '"', "[]",
    "[1]", "[0.5, 1.5]", '["a", "b"]', "[[1]]", "[1, 'a']", "[" * 15 + "]" * 15, "[" * 30 + "]" * 30,
    "[" * 2000 + "]" * 2000, "[" * 100_000, "{}", "{a = 1}", "{a = {b = {c = 1}}}", "1979-05-27", "07:32:00",
    "1979-05-27T07:32:00Z", "'''x'''", "_", "1_000", "0b1", "+5", ".5", "5.", "1e", "'", '"', "[1,", "{", "=", "#",
    "\t", "\\", "1\n[local]\nlr = 2", "\x00", "\x1b[31m", "\ufeff", "\u202e", "\r", "[" + "1, " * 50_000 + "1]",
    "{" + ", ".join(f"k{n} = 1" for n in range(2000)) + "}", ".".join("a" * 2000) + " = 1",
]  # fmt: skip

TEXTS = [to_toml(load_config(None, [f"algorithm.name={name}"])) for name in sorted(ALGORITHMS)]
LINE = re.compile(r"(\w+) = (.+?)  #")


def keys_of(text: str) -> list[str]:
    """All settings of a configuration, as `--set` names them."""
    section, found = "", []
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif match := LINE.match(line):
            found.append(section + match[1])
    return found


KEYS = sorted({key for text in TEXTS for key in keys_of(text)})


def odd(draw: random.Random) -> str:
    """A value, or a damaged one."""
    value = draw.choice(ODD)
    return mutated(value[:200].encode(), draw).decode(errors="replace") if draw.random() < 0.2 else value


def odd_text(draw: random.Random) -> bytes:
    """A configuration with a few of its values, lines or bytes exchanged."""
    lines = draw.choice(TEXTS).splitlines()
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        place = draw.randrange(len(lines))
        kind = draw.randrange(8)
        match = LINE.match(lines[place])
        if kind <= 3 and match:
            lines[place] = f"{match[1]} = {odd(draw)}"
        elif kind == 4:
            lines.insert(place, draw.choice([lines[draw.randrange(len(lines))], odd(draw)]))
        elif kind == 5:
            del lines[place]
        elif kind == 6:
            lines[place] = draw.choice([f"[{odd(draw)}]", f"[[{match[1] if match else 'x'}]]", f"{odd(draw)} = 1"])
        else:
            other = draw.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
    data = "\n".join(lines).encode(errors="surrogatepass")
    return mutated(data, draw) if draw.random() < 0.2 else data


def odd_sets(draw: random.Random) -> list[str]:
    """Changes as on the command line."""
    sets = []
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        key = draw.choice(KEYS)
        if draw.random() < 0.1:
            key = draw.choice([odd(draw), key.upper(), key + ".more", key.split(".")[0], "." + key, key + "x"])
        sets.append(f"{key}={odd(draw)}")
    if draw.random() < 0.5:
        sets.append(f"algorithm.name={draw.choice(sorted(ALGORITHMS))}")
    return sets
