"""What happens to a client's answer between method and wire: differential privacy, and fewer bytes.

filters.py       Filters: outgoing on the client, incoming and together on the server; what everybody calls
protections.py   privacy by name: central, local, sample, and their settings
budget.py        the noise of a run and what it has spent; accounting.py says what is counted for whom
changes.py       an answer as a change of what was sent: clipping, noise
compression.py   top-k with error feedback, eight bits; gaps.py and quantisation.py are the two codes
"""

from accord.filters.budget import Budget
from accord.filters.compression import Compression
from accord.filters.filters import NO_FILTERS, Filters
from accord.filters.protections import PROTECTIONS, Central, Local, Protection, Sample

__all__ = [
    "NO_FILTERS",
    "PROTECTIONS",
    "Budget",
    "Central",
    "Compression",
    "Filters",
    "Local",
    "Protection",
    "Sample",
]
