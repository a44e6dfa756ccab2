"""What is asked for: an experiment, or some of its rows in some of its federations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accord.errors import ConfigError
from accord.papers import shelf
from accord.papers.experiment import Experiment, Scale
from accord.papers.wanted import Wanted, wanted


@dataclass(frozen=True)
class Asked:
    """A part of an experiment; no rows or no places: all of them."""

    experiment: Experiment
    rows: Sequence[str] = ()
    places: Sequence[str] = ()

    @classmethod
    def read(cls, text: str) -> Asked:
        """`ID`, `ID:ROW,ROW`, `ID@PLACE,PLACE` or `ID:ROW,ROW@PLACE,PLACE`."""
        before, at, places = text.partition("@")
        id, colon, rows = before.partition(":")
        named = [[name.strip() for name in names.split(",") if name.strip()] for names in (rows, places)]
        if (colon and not named[0]) or (at and not named[1]):
            raise ConfigError(
                f"experiment {text!r}: name at least one row behind ':' and one place behind '@', separated by commas, "
                "as in cross:own,fedavg@mmd"
            )
        return cls(shelf.experiment(id.strip()), *named)

    def runs(self, seeds: Sequence[int], scale: Scale, sets: Sequence[str]) -> list[Wanted]:
        """What it comes to, the most informative ones first."""
        return wanted(self.experiment, seeds, scale, self.rows, sets, self.places)


def asked(texts: Sequence[str], rows: Sequence[str] = (), places: Sequence[str] = ()) -> list[Asked]:
    """What a command line names; `rows` and `places` are options that go with one experiment named alone."""
    found = [Asked.read(text) for text in texts]
    if not rows and not places:
        return found
    if len(found) != 1 or found[0].rows or found[0].places:
        raise ConfigError(
            "--rows and --places go with one experiment, named by its id alone; rows and places of several are written "
            "behind each, as in cross:own,fedavg@mmd"
        )
    return [Asked(found[0].experiment, rows, places)]
