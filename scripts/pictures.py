"""The pictures of docs/concepts.md, and the logo: `python scripts/pictures.py` writes docs/images/*.svg.

480 wide, so that they can be read on a phone. On the site they stand in the page itself and take its colours, light or
dark; elsewhere (an <img>) the colours after the commas are used, those of the reader's scheme.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
STYLE = """<style>
.ac { --ac-ink: var(--md-default-fg-color, light-dark(#1b1f24, #e9ecef)); color-scheme: light dark;
  font: 14px system-ui, "Segoe UI", Roboto, sans-serif; }
.ac text { fill: var(--ac-ink); } .ac .q { fill-opacity: .8; font-size: 13px; }
.ac .b { font-weight: 600; } .ac .m { font-family: ui-monospace, monospace; font-size: 13px; }
.ac .box { fill: var(--ac-ink); fill-opacity: .04; stroke: var(--ac-ink); stroke-opacity: .35; }
.ac .line { stroke: var(--ac-ink); stroke-width: 1.6; fill: none; }
.ac .tip { fill: var(--ac-ink); }
.ac .on { fill: #0072B2; fill-opacity: .16; stroke: #3a93cc; }
.ac .hot { fill: #D55E00; fill-opacity: .16; stroke: #d9772c; }
.ac .go { fill: #009E73; fill-opacity: .16; stroke: #2aa583; }
</style>"""
HEAD = '<svg xmlns="http://www.w3.org/2000/svg" class="ac" viewBox="0 0 480 {height}" role="img" aria-label="{title}">'
MARKER = (
    '<defs><marker id="{id}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>'
)


class Picture:
    """Boxes, words and arrows, put one after another."""

    def __init__(self, name: str, height: int, title: str) -> None:
        self.name = name
        head = HEAD.format(height=height, title=title)
        self.lines = [head, f"<title>{title}</title>", STYLE, MARKER.format(id=f"ac-{name}")]

    def box(self, x: float, y: float, wide: float, high: float, kind: str = "box") -> Picture:
        """A rounded box."""
        self.lines.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{wide}" height="{high}" rx="8"/>')
        return self

    def say(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> Picture:
        """Words."""
        self.lines.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
        return self

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> Picture:
        """A straight arrow."""
        path = f'<path class="line" d="M{x} {y} L{to_x} {to_y}" marker-end="url(#ac-{self.name})"/>'
        self.lines.append(path)
        return self

    def bars(self, x: float, y: float, heights: tuple[int, ...]) -> Picture:
        """How many samples of each class."""
        for place, (high, kind) in enumerate(zip(heights, ("on", "hot", "go"), strict=True)):
            self.lines.append(
                f'<rect class="{kind}" x="{x + 15 * place}" y="{y - high}" width="11" height="{high}" rx="1.5"/>'
            )
        return self

    def __str__(self) -> str:
        return "\n".join([*self.lines, "</svg>", ""])


def one_round() -> Picture:
    """Down once, up once."""
    made = Picture("round", 420, "One round: the model goes down, clients train, replies come up and are folded")
    made.box(90, 12, 300, 78, "on").say(240, 37, "Server", "b").say(240, 58, "state: model and what the method keeps")
    made.say(240, 78, "4  folds the replies, in the order of ids", "q")
    for place, (name, heights) in enumerate((("Aix", (44, 8, 4)), ("Lyon", (6, 40, 12)), ("Pau", (14, 16, 34)))):
        x = 16 + 156 * place
        middle = x + 68
        made.box(x, 212, 136, 150).say(middle, 234, name, "b").bars(middle - 20, 296, heights)
        made.say(middle, 318, "2  trains", "q").say(middle, 337, "on its own data", "q")
        made.say(middle, 355, "memory stays", "q")
        made.arrow(middle - 12, 94, middle - 12, 206) if place == 1 else made.arrow(
            240 + (middle - 240) * 0.72 - 8, 94, middle - 8, 206
        )
        made.arrow(middle + 12, 206, middle + 12, 96) if place == 1 else made.arrow(
            middle + 14, 206, 240 + (middle - 240) * 0.72 + 14, 96
        )
    made.say(18, 140, "1  shared", "b", "start").say(18, 158, "goes down", "q", "start")
    made.say(462, 140, "3  reply", "b", "end").say(462, 158, "comes up", "q", "end")
    made.say(240, 392, "5  the new state is judged, for everyone and for each client;", "q")
    made.say(240, 411, "then it is saved, and the next round begins", "q")
    return made


def a_task() -> Picture:
    """begin, step, finish."""
    made = Picture("task", 400, "A task: begin, many steps, finish; what it is given and what it gives back")
    made.box(16, 14, 448, 92).say(240, 36, "Job: all that a client is given", "b")
    for place, (word, what) in enumerate(
        (
            ("shared", "from the server"),
            ("private", "for it alone"),
            ("memory", "of its last visit"),
            ("data", "its own"),
        )
    ):
        made.say(72 + 112 * place, 66, word, "m").say(72 + 112 * place, 88, what, "q")
    made.arrow(240, 108, 240, 132)
    made.box(130, 136, 220, 34, "on").say(240, 158, "begin").arrow(240, 172, 240, 190)
    made.box(130, 194, 220, 34, "on").say(240, 216, "step, for every batch").arrow(240, 230, 240, 248)
    made.box(130, 252, 220, 34, "on").say(240, 274, "finish").arrow(240, 288, 240, 308)
    made.lines.append('<path class="line" d="M352 220 C398 220 398 202 356 203" marker-end="url(#ac-task)"/>')
    made.box(16, 312, 448, 76).say(240, 334, "Result", "b")
    for place, (word, what) in enumerate(
        (("reply", "travels to the server"), ("memory", "stays with the client"), ("metrics", "sums, for the log"))
    ):
        made.say(92 + 148 * place, 356, word, "m").say(92 + 148 * place, 376, what, "q")
    return made


def a_part() -> Picture:
    """Both halves of one idea."""
    made = Picture("part", 384, "A part: both halves of one idea; a method is a list of parts")
    made.box(16, 14, 448, 228, "go").say(240, 38, "Part: ControlVariates (SCAFFOLD)", "b")
    made.box(32, 54, 204, 174).say(134, 76, "server half", "b")
    made.box(244, 54, 204, 174).say(346, 76, "client half", "b")
    for place, (word, what) in enumerate((("state", "c = 0"), ("send", "c goes down"), ("update", "c moves"))):
        made.say(46, 106 + 46 * place, word, "m", "start").say(46, 124 + 46 * place, what, "q", "start")
    for place, (word, what) in enumerate(
        (("memory", "c_k = 0 at the first visit"), ("grad", "g - c_k + c"), ("finish", "change of c_k goes up"))
    ):
        made.say(258, 106 + 46 * place, word, "m", "start").say(258, 124 + 46 * place, what, "q", "start")
    made.say(240, 276, "A method is a list of parts and a rule per tree:", "q")
    for place, (word, kind) in enumerate((("SampleLoss", "box"), ("ControlVariates", "go"), ("Mean", "on"))):
        made.box(16 + 152 * place, 290, 144, 36, kind).say(88 + 152 * place, 313, word, "m")
    made.say(88, 350, "what is learned", "q").say(240, 350, "the idea", "q").say(392, 350, "the rule", "q")
    made.say(240, 374, "fedavg is the first and the last alone", "q")
    return made


def executors() -> Picture:
    """The same exchange, carried out by others."""
    made = Picture("executors", 420, "The executors: one exchange, carried out in four ways and between real sites")
    made.box(90, 12, 300, 52, "on").say(240, 34, "exchange(task, clients, shared)", "m")
    made.say(240, 54, "all that a method knows", "q").arrow(240, 66, 240, 90)
    rows = (
        ("sequential", "one after another: the reference", (1,)),
        ("processes", "one client per core", (1, 1)),
        ("batched", "a block side by side on a GPU", (1, 1, 1, 1, 1, 1)),
        ("ray", "actors on one or many machines", (1, 1, 1)),
        ("Flower", "real sites, each with its own data", (1, 1, 1)),
    )
    for place, (name, what, lanes) in enumerate(rows):
        y = 96 + 64 * place
        made.box(16, y, 448, 54, "hot" if name == "Flower" else "box")
        made.say(32, y + 23, name, "m b", "start").say(32, y + 43, what, "q", "start")
        for lane in range(len(lanes)):
            high = 6 if len(lanes) > 3 else 9
            gap = 42 / len(lanes)
            top = y + 6 + gap * lane + (gap - high) / 2
            wide = 128 if name != "sequential" else 38
            for step in range(3 if name == "sequential" else 1):
                made.lines.append(
                    f'<rect class="go" x="{316 + 45 * step}" y="{top:.1f}" width="{wide}" height="{high}" rx="2"/>'
                )
    return made


def logo() -> str:
    """Three arcs that meet."""
    arcs = "".join(
        f'<path d="M32 32 C{x} {y} {x} {y} {to_x} {to_y}" stroke="{colour}"/>'
        for x, y, to_x, to_y, colour in (
            (20, 20, 12, 52, "#56B4E9"),
            (44, 20, 52, 52, "#E69F00"),
            (32, 14, 32, 8, "#ffffff"),
        )
    )
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="6" fill="{c}"/>'
        for x, y, c in ((12, 52, "#56B4E9"), (52, 52, "#E69F00"), (32, 8, "#fff"), (32, 32, "#fff"))
    )
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" fill="none" stroke-width="4">'
    return f'{head}<rect width="64" height="64" rx="12" fill="#0b4a73"/>{arcs}{dots}</svg>\n'


def pictures() -> dict[str, str]:
    """All of them by file name."""
    made = {f"{one.name}.svg": str(one) for one in (one_round(), a_task(), a_part(), executors())}
    return {**made, "logo.svg": logo()}


def main() -> None:
    """Write them, or look whether they are as written here (--check)."""
    stale = [name for name, text in pictures().items() if _there(name) != text]
    if "--check" not in sys.argv:
        for name in stale:
            (FOLDER / name).write_text(pictures()[name], encoding="utf-8")
    elif stale:
        raise SystemExit(f"stale: run `python scripts/pictures.py`: {', '.join(stale)}")


def _there(name: str) -> str:
    path = FOLDER / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


if __name__ == "__main__":
    main()
