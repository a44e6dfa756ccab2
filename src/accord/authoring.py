"""The authors' namespace: what a method is made of, in one import.

A method is a factory `def name(setup: Setup, *, setting: Annotated[...] = default) -> Method`, registered with
`@method("client")`. Its idea is a `Part`, client and server half together; `averaging(setup, part)` is FedAvg with it.
"""

from accord.aggregate import Mean
from accord.core.algorithm import Method, Setup
from accord.core.methods import method
from accord.core.model import Model
from accord.core.task import Corner, LocalTraining, Part
from accord.core.tensors import Tree, Trees
from accord.core.types import Batch, Carry, Job, Replies, State, World
from accord.core.view import Term, View
from accord.errors import ConfigError
from accord.parts.averaging import Weight, averaging
from accord.parts.losses import SampleLoss
from accord.settings import AtLeast, Range, Search

__all__ = [
    "AtLeast",
    "Batch",
    "Carry",
    "ConfigError",
    "Corner",
    "Job",
    "LocalTraining",
    "Mean",
    "Method",
    "Model",
    "Part",
    "Range",
    "Replies",
    "SampleLoss",
    "Search",
    "Setup",
    "State",
    "Term",
    "Tree",
    "Trees",
    "View",
    "Weight",
    "World",
    "averaging",
    "method",
]
