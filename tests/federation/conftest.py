"""Federations need Flower, which needs Python 3.11."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("flwr") else ["test_*.py"]
