"""Whether sums of the clients' answers would be enough for a method's server: all that secure aggregation shows it.

A weighted sum will do where the weights are known without looking at an answer: numbers of samples or of steps, which
a client can multiply by before it masks what it sends. Rules, parts with an `update` of their own and methods with a
`round` or `start` of their own say so themselves: `needs_each` is the reason why not, or empty. Who says nothing is
taken to need each answer.
"""

from __future__ import annotations

from accord.core.algorithm import Algorithm, Method
from accord.core.task import Part


def reasons_for_each(algorithm: Algorithm) -> list[str]:
    """What the server does that takes each client's answer by itself; nothing: weighted sums are enough."""
    if algorithm.pools_data:
        return ["gathers all samples"]
    if not isinstance(algorithm, Method):
        return [_unsaid(algorithm)]
    readers: list[object] = [*algorithm.aggregate.values()]
    readers += [part for part in algorithm.local.parts if type(part).update is not Part.update]
    if any(getattr(type(algorithm), hook) is not getattr(Method, hook) for hook in ("start", "round", "fold")):
        readers.append(algorithm)
    said = [getattr(reader, "needs_each", None) for reader in readers]
    found = [_unsaid(reader) if why is None else why for reader, why in zip(readers, said, strict=True)]
    return list(dict.fromkeys(why for why in found if why))


def averaged_trees(algorithm: Algorithm) -> dict[str, str]:
    """The trees of which the server reads a weighted mean and nothing else, each with its weights; nothing where a part
    or the method itself looks at the answers, or where some tree's rule is another.
    """
    if not isinstance(algorithm, Method) or reasons_for_each(algorithm):
        return {}
    own = any(getattr(type(algorithm), hook) is not getattr(Method, hook) for hook in ("start", "round", "fold"))
    if own or any(type(part).update is not Part.update for part in algorithm.local.parts):
        return {}
    weights = {tree: str(getattr(rule, "averages", "")) for tree, rule in algorithm.aggregate.items()}
    return weights if all(weights.values()) else {}


def _unsaid(reader: object) -> str:
    return f"runs {type(reader).__name__}, which does not say that sums are enough for it"
