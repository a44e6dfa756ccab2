"""What clients' models make of everyone's samples after a last training: their answers, and where they put them."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.core.task import LocalTraining
from accord.errors import ConfigError
from accord.measures.feature_map import check_classes, spread_rows
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Final, Scene
from accord.measures.tsne import packed, tsne
from accord.settings import NOT_NEGATIVE, Setting


@entry
class LocalView(Measure):
    """How often every client's model answers each class on the test pool, and the first client's features beside the
    global model's in one t-SNE.

    At the end every client trains once more from the final state; nothing of it is kept.
    """

    name = "local_view"
    setting = Setting(
        "local_view",
        int,
        0,
        bounds=NOT_NEGATIVE,
        doc="answers of the clients' models on the test set, and a t-SNE of so many test samples by the first of them",
    )

    def check(self, scene: Scene) -> None:
        """Clients must send the whole of a model they trained, and there must be a global one beside it."""
        check_classes(scene, self.name)
        task = scene.algorithm.tasks.get("train")
        if not isinstance(task, LocalTraining) or task.personal or not scene.algorithm.has_global_model:
            raise ConfigError("evaluate.local_view needs a method with a global model whose clients send all of theirs")

    def end(self, scene: Scene, final: Final) -> Record:
        """Shares of answers by client; coordinates of the samples by the global model, then by the first client's."""
        replies = final.ask("train", scene.members, scene.algorithm.message(final.state))
        whole = scene.judged(final.state, frozenset({"features"}))
        assert whole is not None
        scores = whole.plain
        rows = spread_rows(len(scores.labels), scene.settings["local_view"])
        found = [scores.features[rows]]
        answers: dict[str, list[float]] = {}
        for client, result in zip(replies.ids, replies.results, strict=True):
            own = scene.predictions(
                scene.algorithm.local_predictor(final.state, result), frozenset({"logits", "features"})
            ).plain
            answers[str(client)] = shares(own.logits)
            if len(found) == 1:
                found.append(own.features[rows])
        first = replies.ids[0]
        points = tsne(torch.cat(found).flatten(1).float().to(scene.device))
        held = sorted(set(scene.data.train_pool.y[torch.as_tensor(scene.data.train[first])].tolist()))
        picture = {"points": packed(points), "labels": packed(scores.labels[rows]), "client": first, "held": held}
        return {"local_view": {"answers": answers, "map": picture}}


def shares(logits: Tensor) -> list[float]:
    """[C] how often each class is the answer."""
    counts = torch.bincount(logits.argmax(1), minlength=logits.shape[1])
    return [round(float(share), 5) for share in counts / counts.sum()]
