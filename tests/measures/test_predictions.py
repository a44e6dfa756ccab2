"""Judging samples: one by one, and together with others in a mixed order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import accord
from accord.config import load_config
from accord.core.keys import Key
from accord.core.model import Out
from accord.data.federated import Environment, FederatedData, Groups, Pool, unchanged
from accord.measures.map import mean_average_precision
from accord.measures.predictions import Predictions, mixed

CPU = torch.device("cpu")
CLASSES, EACH = 3, 100


def sorted_pool() -> Pool:
    """Inputs that are their label and a position; sorted by class."""
    y = torch.arange(CLASSES).repeat_interleave(EACH)
    return Pool(torch.stack([y.float(), torch.arange(len(y)).float()], 1), y)


def federation(pool: Pool, clients: int = 5, **changes: Any) -> FederatedData:
    groups = Groups.of(np.array_split(np.arange(len(pool)), clients))
    empty = Groups.of([[]] * clients)
    return FederatedData("sorted", pool, pool, CLASSES, groups, empty, groups, **changes)


def gives_the_class_away(x: Tensor) -> Out:
    """Answers for everyone with the mean label of all that are shown: right for a batch of one class."""
    guess = x[:, 0].mean().round().long().expand(len(x))
    logits = torch.nn.functional.one_hot(guess, CLASSES).float()
    return Out(logits, logits)


def right_for_even(x: Tensor) -> Out:
    """Sample by sample: right where the position is even."""
    label, place = x[:, 0].long(), x[:, 1].long()
    logits = torch.nn.functional.one_hot((label + place % 2) % CLASSES, CLASSES).float()
    return Out(logits, x)


def predictions(predictor: Any, data: FederatedData, size: int, together: bool = False, *keep: str) -> Predictions:
    return Predictions(predictor, data, size, CPU, frozenset(keep), together=together)


def test_accuracy_does_not_depend_on_the_order_of_the_pool() -> None:
    pool = sorted_pool()
    order = np.random.default_rng(0).permutation(len(pool))
    shuffled = Pool(pool.x[order], pool.y[order])
    apart = predictions(gives_the_class_away, federation(pool), 50)
    assert apart.plain.score.mean() == 1.0, "graphs of one class"
    for data in (federation(pool), federation(shuffled)):
        together = predictions(gives_the_class_away, data, 50, True)
        assert abs(together.plain.score.mean() - 1 / CLASSES) < 0.05


def test_batches_are_mixed_and_answers_come_back_in_place() -> None:
    pool, seen = sorted_pool(), []

    def watched(x: Tensor) -> Out:
        seen.append(torch.bincount(x[:, 0].long(), minlength=CLASSES))
        return right_for_even(x)

    plain = predictions(right_for_even, federation(pool), 60, False, "logits", "features").plain
    together = predictions(watched, federation(pool), 60, True, "logits", "features").plain
    assert plain.score.tolist() == [1.0, 0.0] * (len(pool) // 2)
    assert plain.features.tolist() == pool.x.tolist()
    for name in ("score", "loss", "labels", "logits", "features"):
        assert getattr(plain, name).tolist() == getattr(together, name).tolist()
    assert len(seen) == 5
    assert all(int(counts.min()) >= 10 for counts in seen)  # 20 of each class on average
    assert np.array_equal(mixed(7), Key(0).at("evaluate.mixed").permutation(7)), "one order for all runs"
    assert sorted(mixed(7)) == list(range(7))


def test_the_pool_as_it_is_may_be_any_of_its_environments_or_none() -> None:
    """Positions moved by one: what was right is wrong."""
    pool, moved = sorted_pool(), Environment("moved", lambda x: x + torch.tensor([0.0, 1.0]))
    plain = Environment("plain", unchanged)
    for environments, shown in (((moved, plain), 600), ((plain, moved), 600), ((moved,), 600)):
        seen: list[int] = []

        def watched(x: Tensor, seen: list[int] = seen) -> Out:
            seen.append(len(x))
            return right_for_even(x)

        found = predictions(watched, federation(pool, environments=environments), 60)
        assert found.plain.score.tolist() == [1.0, 0.0] * 150
        assert [scores.score[0] for scores in found.environments] == [float(e is plain) for e in environments]
        assert found.plain is found.plain
        assert sum(seen) == shown, "each pass is made once"


def test_clients_samples_are_taken_from_the_pool_they_lie_in() -> None:
    """Of the training pool those at even positions are answered rightly, of the test pool all the others."""
    pool = sorted_pool()
    other = Pool(pool.x + torch.tensor([0.0, 1.0]), pool.y)
    data = replace(federation(pool, clients=2), test_pool=other)
    data = replace(data, test=Groups.of([[0, 2, 4], [1, 3]]))
    assert of_clients(right_for_even, data) == [0.0, 1.0]
    held_out = replace(data, test_from="train")
    assert of_clients(right_for_even, held_out) == [1.0, 0.0], "test samples that were training samples"
    whole = predictions(right_for_even, replace(data, train=Groups.of([range(0, 300, 2), range(1, 300, 2)])), 60)
    found = whole.clients("train")
    assert found is not None
    assert found.means.tolist() == [1.0, 0.0], "all of the pool, and still of the training pool"
    assert whole.clients("train") is found
    assert whole.clients("validation") is None
    again = whole.clients("test")
    assert again is not None
    assert again.means.tolist() == [0.0, 1.0]


def test_clients_with_transforms_are_shown_batch_by_batch() -> None:
    seen: list[int] = []

    def watched(x: Tensor) -> Out:
        seen.append(len(x))
        return right_for_even(x)

    data = replace(federation(sorted_pool()), test=Groups.of([range(5), [], range(7), [], [8]]))
    found = predictions(watched, replace(data, transform=lambda client, index, x: x), 3).clients("test")
    assert found is not None
    assert seen == [3, 2, 3, 3, 1, 1]
    assert found.means.tolist()[::2] == [3 / 5, 4 / 7, 1.0]


def test_labels_are_kept_as_they_are() -> None:
    pool = Pool(torch.zeros(2, 1), torch.tensor([0.25, 1.5]))
    data = FederatedData("real", pool, pool, 1, *[Groups.of([[0, 1]])] * 3, problem="regression")
    found = predictions(lambda x: Out(x + 1, x), data, 2).plain
    assert found.labels.tolist() == [0.25, 1.5]
    assert found.score.tolist() == [0.75**2, 0.5**2]


def of_clients(predictor: Any, data: FederatedData, together: bool = False) -> list[float]:
    found = predictions(predictor, data, 60, together).clients("test")
    assert found is not None
    return found.headlines.tolist()


def test_clients_with_transforms_are_judged_among_one_another_too() -> None:
    """A transform that marks the client's samples: client 4 holds samples 240 to 299, all of class 2."""
    pool = sorted_pool()

    def marked(client: int, index: Any, x: Tensor) -> Tensor:
        assert np.array_equal(index, x[:, 1].long().numpy())
        return torch.stack([x[:, 0], x[:, 1] + 1000 * client], 1)

    data, owners = federation(pool, transform=marked), []

    def watched(x: Tensor) -> Out:
        owners.append(len((x[:, 1] // 1000).unique()))
        return right_for_even(x)

    apart = of_clients(watched, data)
    assert owners == [1] * 5
    owners.clear()
    together = of_clients(watched, data, True)
    assert owners == [5] * 5
    assert apart == together == [0.5] * 5
    assert of_clients(right_for_even, replace(data, transform=None), True) == [0.5] * 5
    part = replace(data, transform=None, test=Groups.of([[0, 1], [4, 2], [], [5], [1, 1, 2]]))
    assert of_clients(right_for_even, part, True)[:2] == [0.5, 1.0]
    assert of_clients(right_for_even, part, True)[3:] == [0.0, 1 / 3]


def test_retrieval_keeps_features_beside_their_labels() -> None:
    data = federation(sorted_pool())

    def features(x: Tensor) -> Out:
        return Out(torch.zeros(len(x), CLASSES), torch.nn.functional.one_hot(x[:, 0].long(), CLASSES).float())

    for together in (False, True):
        scores = predictions(features, data, 64, together, "features").plain
        assert mean_average_precision(scores.features, scores.labels) == 1.0


def test_fedranes_record_has_both_readings(tmp_path: Any) -> None:
    sets = ["rounds=1", "data.limit=300", "partition.clients=3", "executor=sequential", f"out={tmp_path}"]
    records = {}
    for evaluation, other in (("batch", "none"), ("none", "batch")):
        options = ["algorithm.name=fedrane", f"algorithm.evaluation={evaluation}", f"name={evaluation}"]
        record = accord.run(load_config(None, [*sets, *options])).metrics[0]
        assert list(record["readings"]) == [other]
        records[evaluation] = record
    for name in ("accuracy", "test_loss"):
        assert records["batch"][name] == records["none"]["readings"]["batch"][name]
        assert records["none"][name] == records["batch"]["readings"]["none"][name]
