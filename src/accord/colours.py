"""One colour and line for each method, the same in every picture.

Okabe and Ito's colours are told apart by nearly all eyes; yellow is left out, as it vanishes on white. There are more
methods than colours, so lines differ too: solid for what is often shown together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

COLOURS = {
    "blue": "#0072B2",
    "red": "#D55E00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
}
LINES = ("-", "--", ":", "-.")


class Look(NamedTuple):
    """How a method is drawn."""

    colour: str  # as #RRGGBB
    line: str


# Methods by name, and rows of the papers' tables that are variants of one.
_KNOWN = """
black -    fedavg cls torchvision-flat-none
black --   centralized ditto torchvision-flat-fresh
black :    local fedavgm torchvision-flat-kept
black -.   fedyogi
blue -     fedufo all-dynamic scaffold vhl vhl2000 torch-flat-none
blue --    all mixup fedper vhl20000 torch-flat-fresh
blue :     torch-flat-kept
blue -.    feddecorr
sky -      feduad uad fedbabu single mixture0 lambda1 own-cgl frozen
sky --     fedprox mixture1 own
sky :      fedmix apple naivemix
sky -.     fedadam fedrep feddecorr-fedbr
red -      fedbr fedrod fedavg-fedbr fedbr-none
red --     fedbr-mixup fedmtl qffl no-projector fedbr-fresh
red :      balanced uad-cgl-dynamic fedbr-kept
red -.     fedbr-once once rsm krum
green -    fedmmd feddyn fedmeta component1 lambda2 torchvision-prior-none
green --   dann cgr component1-min consensus spherefed torchvision-prior-fresh
green :    fedcm-fedbr fedbn torchvision-prior-kept
green -.   fedcm uad-cgr fednova
pink -     conv fedfusion pfedme lambda3 torch-prior-none
pink --    moon fml cgl conv-drawn torch-prior-fresh
pink :     cgl-dynamic torch-prior-kept
pink -.    uad-cgl median
orange -   fedrane multi fedl2 component2 lambda5
orange --  fedrane-no-lra groupdro fedreptile no-max-step
orange :   fedrane-frozen trimmed_mean fedntd-fedbr
orange -.  fedrane-no-gne fedntd norm_clip server_rprop
"""
KNOWN: dict[str, Look] = {
    name: Look(COLOURS[colour], line)
    for colour, line, *names in (text.split() for text in _KNOWN.strip().splitlines())
    for name in names
}


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Of methods that are drawn together: each its own look.

    A method whose look is taken, and a variant of a method (`fedavg-0.1`, `fedprox: mu=1`), keeps the colour as long as
    there is a line left for it; all others have a look that nobody else has.
    """
    found: dict[str, Look] = {}
    for name in names:
        look = KNOWN.get(name)
        if look is not None and look not in found.values():
            found[name] = look
    for name in names:
        kin = _kin(name)
        if name not in found and kin is not None:
            own = (Look(kin.colour, line) for line in LINES)
            left = next((look for look in own if look not in found.values()), None)
            if left is not None:
                found[name] = left
    free = _free(frozenset(found.values()))
    return {name: found[name] if name in found else next(free) for name in names}


def _kin(name: str) -> Look | None:
    """The look of the method a name begins with."""
    ends = [match.start() for match in re.finditer(r"\W", name)]
    known = (name[:end] for end in (len(name), *reversed(ends)) if name[:end] in KNOWN)
    return KNOWN.get(next(known, ""))


def _free(taken: frozenset[Look]) -> Iterator[Look]:
    """Looks nobody has, solid lines first; from the start again when there are none left."""
    every = [Look(colour, line) for line, colour in product(LINES, COLOURS.values())]
    while True:
        yield from (look for look in every if look not in taken) if len(taken) < len(every) else every
