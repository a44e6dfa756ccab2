"""Nobody is hostile."""

from __future__ import annotations

from accord.attacks.attack import ATTACKS, Attack


@ATTACKS.add("none")
def none() -> Attack:
    """All clients are honest."""
    return Attack()
