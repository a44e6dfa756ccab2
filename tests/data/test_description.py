"""Statistics of a division by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from accord.data.description import Description, describe
from accord.data.division import federate
from accord.data.federated import Dataset, FederatedData, Groups, Pool
from accord.data.splits import nothing


@pytest.fixture
def data() -> FederatedData:
    y = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    pool = Pool(torch.zeros(8, 1), y)
    test = Pool(torch.zeros(2, 1), torch.tensor([2, 0]))
    train = Groups.of([[0, 1, 2, 3], [4, 5, 6, 7], []])
    return FederatedData("toy", pool, test, 3, train, nothing(3), Groups.of([[1], [0], []]))


class TestStatistics:
    def test_by_hand(self, data):
        described = describe(data)
        assert described.counts.tolist() == [[2, 2, 0], [0, 0, 4], [0, 0, 0]]
        assert described.sizes.tolist() == [4, 4, 0]
        # together (1/4, 1/4, 1/2): client 0 is 1/4 + 1/4 + 1/2 away, client 1 too
        assert described.distance[:2].tolist() == [1.0, 1.0]
        assert np.isnan(described.distance[2])
        assert described.effective_classes[:2] == pytest.approx([2.0, 1.0])
        assert described.summary() == pytest.approx(
            {
                "clients": 3,
                "samples": 8,
                "smallest": 0,
                "median": 4.0,
                "largest": 4,
                "mean_distance": 1.0,
                "mean_effective_classes": 1.5,
            }
        )

    def test_other_splits_and_pools(self, data):
        assert describe(data, "test").counts.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
        empty = describe(data, "validation")
        assert empty.sizes.tolist() == [0, 0, 0]
        assert np.isnan(empty.mean_distance)

    def test_one_sample_is_enough_to_be_described(self):
        described = Description("toy", "train", np.array([[1, 0], [0, 0], [1, 3], [0, 1]]), ("a", "b", "c", "d"))
        np.testing.assert_array_equal(described.shares, [[1, 0], [np.nan] * 2, [0.25, 0.75], [0, 1]])
        # together (1/3, 2/3)
        np.testing.assert_allclose(described.distance, [4 / 3, np.nan, 1 / 6, 2 / 3])
        assert described.mean_distance == pytest.approx((4 / 3 + 1 / 6 + 2 / 3) / 3)
        assert described.summary()["smallest"] == 0
        assert described.summary()["median"] == 1.0
        assert (described.name_of(2), Description("x", "train", np.zeros((2, 2), np.int64)).name_of(1)) == ("c", "1")
        nobody = Description("toy", "train", np.zeros((0, 2), np.int64)).summary()
        assert (nobody["clients"], nobody["smallest"], nobody["median"], nobody["largest"]) == (0, 0, 0.0, 0)

    def test_a_split_is_counted_in_its_own_pool(self, data):
        held = FederatedData(
            *("toy", data.train_pool, data.test_pool, 3, data.train, Groups.of([[7], [0], []])),
            *(Groups.of([[4], [1], []]), "train"),
        )
        assert describe(held, "test").counts.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
        assert describe(held, "validation").counts.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0]]
        amounts = describe(replace(data, problem="regression", num_classes=1))
        assert amounts.counts.tolist() == [[4], [4], [0]]

    def test_a_single_sample_of_all_is_as_the_whole(self):
        assert Description("toy", "train", np.array([[1, 0], [0, 0]])).mean_distance == 0.0

    def test_effective_classes_of_an_uneven_client(self):
        # entropy of (1/2, 1/4, 1/4) is 1.5 ln 2
        described = Description("toy", "train", np.array([[2, 1, 1]]))
        assert described.effective_classes[0] == pytest.approx(2**1.5)
        assert described.mean_distance == 0.0

    def test_of_a_partition(self):
        y = torch.arange(600) % 6
        pool = Pool(torch.zeros(600, 1), y)
        dataset = Dataset("toy", pool, pool, tuple("abcdef"))
        split = federate(dataset, clients=6, partition="label_split")
        # one of six classes: 5/6 too much of it and 1/6 too little of the five others
        assert describe(split).mean_distance == pytest.approx(10 / 6)
