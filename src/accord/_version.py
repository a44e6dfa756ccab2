"""The version, alone in its file so that building the package needs no torch."""

__version__ = "0.7.0"
