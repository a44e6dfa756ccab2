"""Tables and pictures of finished runs."""

from __future__ import annotations

from accord.report.plots import curves
from accord.report.runs import read_metrics, read_summary
from accord.report.tables import Estimate, Row, aggregate, as_json, markdown, rich_table, run_lines

__all__ = [
    "Estimate",
    "Row",
    "aggregate",
    "as_json",
    "curves",
    "markdown",
    "read_metrics",
    "read_summary",
    "rich_table",
    "run_lines",
]
