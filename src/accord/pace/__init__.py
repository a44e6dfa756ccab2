"""How long clients take and when they are there, in a clock that is simulated: `[pace]` of a configuration."""

from accord.pace.clock import Clock
from accord.pace.pace import Pace
from accord.pace.presence import PRESENCES, Presence
from accord.pace.spreads import DISTRIBUTIONS

__all__ = ["DISTRIBUTIONS", "PRESENCES", "Clock", "Pace", "Presence"]
