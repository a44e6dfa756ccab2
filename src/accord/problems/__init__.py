"""What is learned: one class per sample, several labels, numbers, or a label per position.

An entry of `PROBLEMS` owns what labels look like, the loss of a sample, what a prediction is, the leading number of a
run and which values of it are better. It is one file of this folder and is found by itself.
"""

from accord.problems.problem import PROBLEMS, Problem, entry, headlines, leading

__all__ = ["PROBLEMS", "Problem", "entry", "headlines", "leading"]
