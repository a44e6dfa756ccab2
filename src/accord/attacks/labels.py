"""Poisoned data: the client trains as it is told to, on labels that are wrong."""

from __future__ import annotations

from accord.attacks.attack import ATTACKS, Attack


@ATTACKS.add("label_flip")
def label_flip() -> Attack:
    """Train on class C - 1 - c in the place of class c."""
    return Attack(labels=lambda y, classes: classes - 1 - y)
