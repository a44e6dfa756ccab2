"""Hostile clients, simulated: what they do to their labels, or to what they send.

An attack is a factory below `@ATTACKS.add("name")`, in a file of this folder, and is found by itself. Its keyword
arguments are its settings, its first line of documentation is what `accord list attacks` says. Who attacks is said by
`attack.share` or `attack.clients`; everybody else is honest, and so is what models are judged on.
"""

from accord.attacks.attack import ATTACKS, Attack
from accord.attacks.hostile import Attacked, Hostile
from accord.settings import import_all

__all__ = ["ATTACKS", "Attack", "Attacked", "Hostile"]

import_all(__name__)
