"""Differential privacy by name: what is protected, from whom, and the settings of each.

Neighbours: the same federation with one client's (`central`, `local`) or one sample's (`sample`) part taken out, or,
for `local`, exchanged for any other. All noise is Gaussian, `noise` times the clipping norm wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accord.settings import NOT_NEGATIVE, POSITIVE, Range, Registry

Clip = Annotated[float, POSITIVE, "largest norm of what one protected part may add"]
Noise = Annotated[float, NOT_NEGATIVE, "noise multiplier: the noise's deviation divided by clip; 0: found from epsilon"]
Epsilon = Annotated[float, NOT_NEGATIVE, "the budget of the whole run, from which noise is found; 0: noise is given"]
Delta = Annotated[float, Range(above=0, below=1), "chance that epsilon does not hold; far below 1 / clients"]


@dataclass(frozen=True)
class Protection:
    """One way to add noise. `unit`: what may be anybody's without the results showing it."""

    unit: ClassVar[str] = ""
    clip: Clip = 1.0
    noise: Noise = 0.0
    epsilon: Epsilon = 0.0
    delta: Delta = 1e-5


PROTECTIONS: Registry[type] = Registry("protection", home="accord.filters")


@PROTECTIONS.add("none")
@dataclass(frozen=True)
class Unprotected:
    """No noise: nothing is promised."""


@PROTECTIONS.add("central")
@dataclass(frozen=True)
class Central(Protection):
    """Whoever sees the models cannot tell whether a client took part: the server clips, sums, adds noise once.

    The server is trusted with every client's clipped answer; whoever sees only what it makes of them is not.
    """

    unit: ClassVar[str] = "client"


@PROTECTIONS.add("local")
@dataclass(frozen=True)
class Local(Protection):
    """Nobody, the server included, learns a client's data from its answers: each client adds the noise itself.

    The price is noise in every answer, which only very many clients average out.
    """

    unit: ClassVar[str] = "client"


@PROTECTIONS.add("sample")
@dataclass(frozen=True)
class Sample(Protection):
    """Nobody, the server included, can tell whether one sample was in a client's data: DP-SGD in every local step.

    Clipping is of single samples' gradients, batches are drawn sample by sample (Poisson), and noise is added to every
    step's sum. What a client's samples have in common is not hidden.
    """

    unit: ClassVar[str] = "sample"
