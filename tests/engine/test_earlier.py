"""Seconds of rounds that an earlier process has left: which lines stay, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.engine.earlier import keep_timings, kept_metrics
from accord.errors import CheckpointError, RunError

LINES = [
    '{"round": 1, "train": 0.5}',
    '{"round": 1, "train": 0.6}',  # a second time
    '{"round": 2, "train": "long"}',  # no number
    '{"round": 2, "train": ',  # cut short, and yet a whole line
    '{"train": 3.0}',
    '{"round": 3, "train": 1}',
    '{"round": 3, "train": 2}',  # the last one a second time
    '{"round": 4, "train": 2}',  # of a round that is done again
]


def test_lines_of_rounds_in_turn_stay(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    path.write_text("\n".join([*LINES, '{"round": 5, "tr']))
    problems = keep_timings(path, 3)
    assert [problem.partition(" is damaged (")[0] for problem in problems] == [f"line {n}" for n in (2, 3, 4, 5, 7)]
    assert problems[0] == "line 2 is damaged (it is none of a round in turn)"
    assert "JSON" in problems[2]
    assert path.read_text() == f"{LINES[0]}\n{LINES[5]}\n"
    assert keep_timings(path, 3) == []
    assert keep_timings(path, 2) == []
    assert path.read_text() == f"{LINES[0]}\n"
    assert keep_timings(path, 0) == []
    assert path.read_text() == ""


def test_a_file_in_order_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    assert keep_timings(path, 3) == []
    assert not path.exists()
    path.write_text(f"{LINES[0]}\n{LINES[5]}\n")
    before = path.stat().st_ino
    assert keep_timings(path, 3) == []
    assert path.stat().st_ino == before, "it is not written again"
    path.unlink()
    path.mkdir()
    with pytest.raises(RunError, match=r"timings\.jsonl"):
        keep_timings(path, 3)


def test_metrics_are_kept_up_to_a_round_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [f'{{"round": {n}, "loss": {n}.5}}\n' for n in (1, 2, 3)]
    path.write_text("".join(lines) + '{"round": 4')
    kept = kept_metrics(path, 2)
    assert kept.bytes == len(lines[0]) + len(lines[1])
    assert kept_metrics(path, 2, kept.sum.hexdigest()).bytes == kept.bytes
    assert kept_metrics(path, 0).bytes == 0
    assert kept_metrics(tmp_path / "none", 0).bytes == 0
    for rounds, words in (
        (4, r"line 4 is damaged \(it is cut short\); there is no line of round 4\."),
        (5, "there is no line of rounds 4 to 5"),
    ):
        with pytest.raises(CheckpointError, match=words):
            kept_metrics(path, rounds)
    with pytest.raises(CheckpointError, match="a value in lines 1 to 2 was changed"):
        kept_metrics(path, 2, "0" * 64)
    with pytest.raises(CheckpointError, match="there is no such file"):
        kept_metrics(tmp_path / "none", 1)
    for text, words in (
        ("".join([lines[1], lines[0]]), "its rounds are not in order"),
        ("".join([lines[0], lines[0], lines[1]]), "round 1 stands there 2 times"),
        ('{"loss": 1}\n' + "".join(lines), r"line 1 is damaged \(it names no round\)"),
        ('{"round": 0}\n' + "".join(lines), "its first line is not that of round 1"),
    ):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=words):
            kept_metrics(path, 2)
        assert path.read_text() == text, "nothing was changed"
