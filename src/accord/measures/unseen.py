"""Clients that never trained: how fast does the final model become theirs?"""

from __future__ import annotations

from dataclasses import replace

import torch

from accord.core.task import LocalTraining
from accord.core.types import Carry, Job, State
from accord.errors import ConfigError
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Ask, Scene
from accord.settings import NOT_NEGATIVE, Setting


@entry
class Unseen(Measure):
    """Mean accuracy (or the problem's own number) on unseen clients' test data before, and in each epoch of, tuning.

    A newcomer is sent what any client is sent and trains as the method trains, over and over its data: what is frozen
    in a round (the received model) stays the server's.
    """

    name = "unseen"
    setting = Setting(
        "unseen_epochs", int, 0, bounds=NOT_NEGATIVE, doc="epochs in which unseen clients adapt the final model"
    )

    def check(self, scene: Scene) -> None:
        """There must be newcomers, their data, and something that trains."""
        if not scene.data.unseen:
            raise ConfigError("evaluate.unseen_epochs needs clients that never train: set partition.unseen above 0")
        if scene.visit is None:
            raise ConfigError("evaluate.unseen_epochs needs the newcomers' data here: set it to 0 in a real federation")
        if not isinstance(scene.algorithm.tasks["train"], LocalTraining):
            raise ConfigError("evaluate.unseen_epochs needs a method whose clients train a model of their own")

    def end(self, scene: Scene, state: State, ask: Ask) -> Record:
        """One curve, the mean over the newcomers that have data to train and to test on."""
        task = scene.algorithm.tasks["train"]
        assert isinstance(task, LocalTraining)
        assert scene.visit is not None
        epochs = scene.settings["unseen_epochs"]
        task = replace(task, plan=replace(task.plan, epochs=epochs, steps=0))
        message = scene.algorithm.message(state)
        curves = []
        for client in sorted(scene.data.unseen):
            curve: list[float] = []

            def judge(job: Job, carry: Carry, curve: list[float] = curve) -> None:
                sums = task.finish(job, carry).metrics
                curve.append(scene.problem.reading(float(sums["personal_correct"] / sums["personal_examples"])))

            if len(scene.data.test[client]) and len(scene.data.train[client]):
                scene.visit(client, task, message, scene.rounds, judge)
                curves.append(curve)
        if not curves:
            return {"unseen": {}}
        means = torch.tensor(curves, dtype=torch.float64).mean(0)
        after = f"{scene.problem.headline}_after_epochs"
        return {"unseen": {"clients": len(curves), after: [float(v) for v in means]}}
