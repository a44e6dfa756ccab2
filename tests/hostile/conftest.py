"""One process that has imported everything, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.zygote import Zygote


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()
