"""Who runs which client where; `registry.py` says how one is chosen, and what a new one has to say of itself."""

from accord.executors.registry import AUTO, EXECUTORS, Choice, check_compiles, choose, make_executor, misfit

__all__ = ["AUTO", "EXECUTORS", "Choice", "check_compiles", "choose", "make_executor", "misfit"]
