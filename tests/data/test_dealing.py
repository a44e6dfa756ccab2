"""The arithmetic under the partitions: proportions, dealing, mending, Dirichlet draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.data.dealing import deal, dirichlet_draw, in_proportion, top_up


def rng(seed=0):
    return np.random.default_rng(seed)


class TestHelpers:
    def test_in_proportion_by_hand(self):
        assert in_proportion(np.array([0.5, 0.3, 0.2]), 10).tolist() == [5, 3, 2]
        assert in_proportion(np.array([1, 1, 1]), 10).tolist() == [3, 3, 4]
        assert in_proportion(np.array([0.0, 0.7, 0.0]), 3).tolist() == [0, 3, 0]
        assert in_proportion(np.array([2, 1]), 0).tolist() == [0, 0]

    @given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20), st.integers(0, 10_000))
    @settings(deadline=None, max_examples=50)
    def test_in_proportion_sums_and_stays_near(self, weights, total):
        parts = in_proportion(np.array(weights), total)
        assert parts.sum() == total
        assert (parts >= 0).all()
        assert np.abs(parts - np.array(weights) / sum(weights) * total).max() < 1 + 1e-6

    def test_top_up_by_hand(self):
        owner = np.repeat([0, 1, 2, -1], [10, 6, 1, 2])
        mended = top_up(owner, 4, 3, rng())
        # 5 are wanted; giving down to 5 would free 5 + 1, so the first gives one less: 6, 5, 3, 3
        assert np.bincount(mended[mended >= 0]).tolist() == [6, 5, 3, 3]
        assert (mended[owner == -1] == -1).all()
        assert (mended[owner == 2] == 2).all()
        assert owner.tolist() == np.repeat([0, 1, 2, -1], [10, 6, 1, 2]).tolist()

    def test_deal_by_hand(self):
        labels = np.array([0, 1, 0, 1, 1])
        owner = deal(labels, np.array([[1, 0], [1, 2]]), rng())
        assert sorted(owner[labels == 0].tolist()) == [0, 1]
        assert sorted(owner[labels == 1].tolist()) == [-1, 1, 1]

    @pytest.mark.parametrize("concentration", [[0.01] * 10, [0.5, 1.0, 2.0], [0.1, 5.0]])
    def test_dirichlet_moments(self, concentration):
        a = np.array(concentration)
        generator, repeats = rng(4), 20_000
        draws = np.array([dirichlet_draw(a, generator) for _ in range(repeats)])
        mean = a / a.sum()
        variance = mean * (1 - mean) / (a.sum() + 1)
        assert np.allclose(draws.sum(axis=1), 1)
        assert (np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / repeats)).all()
        assert np.allclose(draws.var(axis=0), variance, rtol=0.06)

    def test_dirichlet_of_tiny_concentrations_is_one_class(self):
        draws = np.array([dirichlet_draw(np.full(5, 1e-12), rng(i)) for i in range(200)])
        assert np.isfinite(draws).all()
        assert np.allclose(draws.max(axis=1), 1)
        assert len(set(draws.argmax(axis=1).tolist())) == 5
