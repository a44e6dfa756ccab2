"""Comparisons of methods over seeds, and the search for their settings: `accord.compare` and `accord.tune`."""
