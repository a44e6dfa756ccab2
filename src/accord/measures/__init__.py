"""What is measured in a run: one file per measure, found by itself.

A `Measure` says how it is switched on, what it writes into the records, and which columns tables show of it. A
`Metric` is the measure made of a function of predictions and labels.
"""

from accord.measures.column import Column
from accord.measures.evaluator import Evaluator
from accord.measures.measure import MEASURES, Measure, Record, switch
from accord.measures.metric import Function, Metric, as_measure, metric
from accord.measures.scene import Moment, Scene

__all__ = [
    "MEASURES",
    "Column",
    "Evaluator",
    "Function",
    "Measure",
    "Metric",
    "Moment",
    "Record",
    "Scene",
    "as_measure",
    "metric",
    "switch",
]
