"""Tables and pictures of finished runs, and drawings of who holds what."""

from __future__ import annotations

from accord.report.heat_maps import heat_map_png, heat_map_text
from accord.report.plots import curves
from accord.report.runs import read_metrics, read_summary
from accord.report.tables import Estimate, Row, aggregate, as_json, markdown, run_lines
from accord.report.terminal import rich_table

__all__ = [
    "Estimate",
    "Row",
    "aggregate",
    "as_json",
    "curves",
    "heat_map_png",
    "heat_map_text",
    "markdown",
    "read_metrics",
    "read_summary",
    "rich_table",
    "run_lines",
]
