"""What leaves a client: of every tree a task sends, what kind of thing it is.

The kinds are ordered by how much of the data is handed over as it is. What a determined reader can compute from an
update is another matter (docs/security.md). Declared where a tree is made: a part names the trees its `finish` sends, a
task those it answers with; the model and its buffers are known. A tree that nobody declared counts as the gravest, and
so does all that a task sends which says nothing about itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.core.algorithm import Algorithm
    from accord.core.task import Task


class Disclosure(IntEnum):
    """From harmless to grave."""

    SCORE = 1  # how well a model does: sums or means of losses and of right answers over all samples
    UPDATE = 2  # trained on the data: weights, gradients, control variates
    STATISTIC = 3  # a summary of all samples: class counts, running means and variances, moments of features
    MEAN = 4  # means of a few samples each
    SAMPLE = 5  # samples themselves

    @property
    def word(self) -> str:
        """As it is written for people."""
        return self.name.lower()


GRAVEST = max(Disclosure)
ANYTHING = "*"  # stands for the trees of a task that does not say what it sends
Declared = Mapping[str, Disclosure]  # by tree


def disclosures(algorithm: Algorithm) -> Mapping[str, Declared]:
    """What each task of the method may send, tree by tree: what the owner of data is asked to agree to.

    Where the method gathers all data before the run, that is all that leaves a client, and the gravest.
    """
    if algorithm.pools_data:
        return {"pooling": {"samples": Disclosure.SAMPLE}}
    return {name: declared(task) for name, task in algorithm.tasks.items()}


def declared(task: Task) -> Declared:
    """What the task says that it sends."""
    says = getattr(task, "discloses", None)
    return {ANYTHING: GRAVEST} if says is None else dict(says())


def kind_of(declared: Declared, tree: str) -> Disclosure:
    """The kind of a tree that is about to leave."""
    return declared.get(tree, GRAVEST)
