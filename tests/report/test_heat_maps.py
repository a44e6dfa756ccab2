"""Who holds what, drawn as text by hand and as a picture."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from accord.data.description import Description
from accord.errors import ConfigError
from accord.report.heat_maps import heat_map_png, heat_map_text


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
        described = Description("toy", "train", np.ones((100_000, 12), dtype=np.int64))
        lines = heat_map_text(described, max_clients=3, max_classes=10).split("\n")
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
