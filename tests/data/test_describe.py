"""Statistics by hand, and both heat maps."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from accord.data.describe import Description, describe, heat_map_png, heat_map_text
from accord.data.federate import federate
from accord.data.federated import Dataset, FederatedData, Groups, Pool
from accord.data.splits import nothing
from accord.errors import ConfigError


@pytest.fixture
def data() -> FederatedData:
    y = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    pool = Pool(torch.zeros(8, 1), y)
    test = Pool(torch.zeros(2, 1), torch.tensor([2, 0]))
    train = Groups.of([[0, 1, 2, 3], [4, 5, 6, 7], []])
    return FederatedData("toy", pool, test, 3, train, nothing(3), Groups.of([[1], [0], []]))


class TestStatistics:
    def test_by_hand(self, data):
        found = describe(data)
        assert found.counts.tolist() == [[2, 2, 0], [0, 0, 4], [0, 0, 0]]
        assert found.sizes.tolist() == [4, 4, 0]
        # together (1/4, 1/4, 1/2): client 0 is 1/4 + 1/4 + 1/2 away, client 1 too
        assert found.distance[:2].tolist() == [1.0, 1.0]
        assert np.isnan(found.distance[2])
        assert found.effective_classes[:2] == pytest.approx([2.0, 1.0])
        assert found.summary() == pytest.approx(
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

    def test_effective_classes_of_an_uneven_client(self):
        # entropy of (1/2, 1/4, 1/4) is 1.5 ln 2
        found = Description("toy", "train", np.array([[2, 1, 1]]))
        assert found.effective_classes[0] == pytest.approx(2**1.5)
        assert found.mean_distance == 0.0

    def test_of_a_partition(self):
        y = torch.arange(600) % 6
        pool = Pool(torch.zeros(600, 1), y)
        dataset = Dataset("toy", pool, pool, tuple("abcdef"))
        split = federate(dataset, clients=6, partition="label_split")
        # one of six classes: 5/6 too much of it and 1/6 too little of the five others
        assert describe(split).mean_distance == pytest.approx(10 / 6)


class TestHeatMapText:
    def test_by_hand(self):
        text = heat_map_text(Description("toy", "train", np.array([[8, 1, 0], [4, 5, 7]])))
        assert text.split("\n") == [
            "client  0  1  2 samples",
            "     0 ██ ░░          9",
            "     1 ▒▒ ▓▓ ██      16",
            "█ = 8 samples",
        ]

    def test_what_is_cut_is_said(self):
        found = Description("toy", "train", np.ones((100_000, 12), dtype=np.int64))
        lines = heat_map_text(found, max_clients=3, max_classes=10).split("\n")
        assert len(lines) == 1 + 3 + 1 + 2
        assert lines[-2:] == ["99997 more clients not shown", "2 more classes not shown"]

    def test_no_samples(self):
        assert "█ = 0 samples" in heat_map_text(Description("toy", "train", np.zeros((2, 2), dtype=np.int64)))

    def test_bad_limits(self):
        with pytest.raises(ConfigError, match="at least 1 client"):
            heat_map_text(Description("toy", "train", np.ones((2, 2), dtype=np.int64)), max_clients=0)


class TestHeatMapPng:
    @pytest.mark.parametrize("shape", [(1, 1), (20, 10), (3000, 300)])
    def test_writes_a_png_and_nothing_else(self, tmp_path, shape):
        pytest.importorskip("matplotlib")
        path = heat_map_png(Description("toy", "train", np.ones(shape, dtype=np.int64)), tmp_path / "new" / "map.png")
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert [p.name for p in path.parent.iterdir()] == ["map.png"]

    def test_without_matplotlib(self, monkeypatch, tmp_path):
        for name in [name for name in sys.modules if name.startswith("matplotlib")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ConfigError, match=r"pip install 'accord-fl\[plot\]'"):
            heat_map_png(Description("toy", "train", np.ones((2, 2), dtype=np.int64)), tmp_path / "map.png")
