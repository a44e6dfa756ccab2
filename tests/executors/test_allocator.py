"""Keeping freed memory is a matter of speed: it must never stop a run."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from accord.executors.allocator import KEPT, LARGEST, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, keep_freed_memory


def test_both_limits_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[int, int] = {}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=limits.__setitem__))
    keep_freed_memory()
    assert limits == {M_TRIM_THRESHOLD: KEPT, M_MMAP_THRESHOLD: LARGEST}


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_glibc_accepts_them() -> None:
    mallopt = ctypes.CDLL(None).mallopt
    assert mallopt(M_TRIM_THRESHOLD, KEPT) == mallopt(M_MMAP_THRESHOLD, LARGEST) == 1


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_freed_memory()
