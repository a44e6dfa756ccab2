"""What the measures of a run look at: a federation, seen as their scene."""

from __future__ import annotations

from collections.abc import Sequence

from accord.client import Request, Site, Work, run_client
from accord.core.task import Task
from accord.core.tensors import Trees
from accord.engine.federation import Federation
from accord.engine.logs import versions
from accord.executors.sequential import one_thread
from accord.measures import Evaluator, Function, Measure, Scene, as_measure
from accord.measures.scene import Look


def evaluator_of(federation: Federation, metrics: Sequence[Measure | Function] = ()) -> Evaluator:
    """All that the configuration asks for, and `metrics`; what could not be measured is refused here."""
    return Evaluator(scene_of(federation), [as_measure(given) for given in metrics])


def scene_of(federation: Federation) -> Scene:
    """What all its measures share."""
    config, data, algorithm = federation.config, federation.data, federation.algorithm
    site = Site(data, federation.key, federation.device, with_test=True)

    def visit(client: int, task: Task, shared: Trees, round: int, look: Look) -> None:
        request = Request("train", round, algorithm.schedule.at(round), shared, ())
        with one_thread():
            run_client(site, task, request, Work(client, {}, None), epoch_end=look)

    return Scene(
        algorithm,
        federation.judged,
        federation.device,
        members=federation.facts.members,
        rounds=config.rounds,
        every=config.evaluate.every,
        batch_size=config.evaluate.batch_size,
        targets=config.targets,
        settings=config.evaluate.options,
        facts={
            "algorithm": config.algorithm.name,
            "dataset": data.name,
            "seed": config.seed,
            "rounds": config.rounds,
            "split": config.evaluate.split,
            "versions": versions(),
            **({"note": data.note} if data.note else {}),
            **({"client_names": list(data.names)} if data.names else {}),
        },
        visit=visit,
        budget=federation.filters.budget,
    )
