"""Curves in a terminal: dots of Braille characters, two across and four down in every cell.

>>> print("\\n".join("".join(c for c, _ in row) for row in grid([("a", [(0, 0), (1, 1)])], 4, 1)))
⣀⠤⠒⠉
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]
Named = Sequence[tuple[str, Sequence[Point]]]
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of U+2800, by row and column
BLANK = 0x2800


def bounds(curves: Named) -> tuple[float, float, float, float]:
    """The smallest box around all points, made wider where it has no width: x from, x to, y from, y to."""
    points = [point for _, curve in curves for point in curve]
    xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
    wide = 0.0 if max(xs) > min(xs) else 0.5
    high = 0.0 if max(ys) > min(ys) else 0.5
    return min(xs) - wide, max(xs) + wide, min(ys) - high, max(ys) + high


def grid(curves: Named, width: int, height: int) -> list[list[tuple[str, str]]]:
    """Rows of (character, name of the curve that is on top there, or nothing)."""
    left, right, low, high = bounds(curves)
    dots = [[0] * width for _ in range(height)]
    names = [[""] * width for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        across, down = 2 * width - 1, 4 * height - 1
        return round((x - left) / (right - left) * across), round((high - y) / (high - low) * down)

    for name, curve in curves:
        known = [place(x, y) for x, y in curve if math.isfinite(x) and math.isfinite(y)]
        for (x0, y0), (x1, y1) in zip(known, known[1:] or known, strict=False):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(steps + 1):
                x, y = round(x0 + (x1 - x0) * step / steps), round(y0 + (y1 - y0) * step / steps)
                dots[y // 4][x // 2] |= DOTS[y % 4][x % 2]
                names[y // 4][x // 2] = name
    return [[(chr(BLANK + dot), name) for dot, name in zip(*row, strict=True)] for row in zip(dots, names, strict=True)]
