"""Clients asked together: each gets the answers for its own samples, and a question is asked once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from accord.core import cohort
from accord.core.cohort import Cohort, cohort_of, in_pieces, together
from accord.core.types import ClientData


def client(first: int, size: int) -> ClientData:
    """Samples are the whole numbers from the first on."""
    x = torch.arange(first, first + size, dtype=torch.float64)[:, None]
    return ClientData(x, torch.zeros(size, dtype=torch.long), x[:0], torch.zeros(0, dtype=torch.long), 2)


class Noted:
    """Squares, and a row of two; what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[float]] = []

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.asked.append(x[:, 0].tolist())
        return x[:, 0] ** 2, torch.cat([x, -x], 1)


SIZES = (2, 3, 0, 1)


def clients() -> list[ClientData]:
    return [client(10 * number, size) for number, size in enumerate(SIZES)]


def check(who: ClientData, said: tuple[Tensor, ...]) -> None:
    squares, rows = said
    assert squares.tolist() == [value**2 for value in who.x[:, 0].tolist()]
    assert rows.tolist() == [[value, -value] for value in who.x[:, 0].tolist()]


def test_everybody_gets_its_own_answers_of_one_question() -> None:
    everybody, question = clients(), Noted()
    together = Cohort(everybody)
    for who in reversed(everybody):
        check(who, together.answers(who, "squares", question))
    assert question.asked == [[0, 1, 10, 11, 12, 30]]


def test_other_names_are_other_questions() -> None:
    everybody, question = clients(), Noted()
    together = Cohort(everybody)
    for name in ("this", ("that", 1), ("that", 2)):
        check(everybody[1], together.answers(everybody[1], name, question))
    assert len(question.asked) == 3


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (6, [[0, 1, 10, 11, 12, 30]]),
        (5, [[0, 1, 10, 11, 12], [30]]),
        (4, [[0, 1], [10, 11, 12, 30]]),
        (2, [[0, 1], [10, 11], [12], [30]]),
    ],
)
def test_no_more_samples_at_once_than_set(
    most: int, expected: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cohort, "MOST", most)
    everybody, question = clients(), Noted()
    together = Cohort(everybody)
    for who in everybody:
        check(who, together.answers(who, "squares", question))
    assert question.asked == expected


def test_few_clients_ask_about_few_samples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that did not fit into memory is halved, and what it asks for at once with it."""
    monkeypatch.setattr(cohort, "EACH", 2)
    for count, expected in ((1, [[0, 1], [2, 3], [4]]), (2, [[0, 1, 2, 3], [4], [0, 1, 2, 3], [4]])):
        everybody, question = [client(0, 5) for _ in range(count)], Noted()
        check(everybody[0], Cohort(everybody).answers(everybody[0], "squares", question))
        assert question.asked == expected


def test_who_asks_again_is_answered_alone() -> None:
    """An answer is handed out once, so that nobody's is kept twice."""
    everybody, question = clients(), Noted()
    together = Cohort(everybody)
    for _ in range(2):
        check(everybody[0], together.answers(everybody[0], "squares", question))
    assert question.asked[1:] == [[0, 1]]


def test_in_pieces() -> None:
    question = Noted()
    for size in (1, 3, 5, 9):
        check(client(3, 5), in_pieces(question, client(3, 5).x, size))
    check(client(3, 0), in_pieces(question, client(3, 0).x, 4))


def test_who_is_asked_together_with_whom() -> None:
    first, second, other = client(0, 1), client(0, 1), client(0, 1)
    assert cohort_of(first) is None
    with together([first, second]):
        assert cohort_of(first) is cohort_of(second) is not None
        assert cohort_of(other) is None
        with together([]):
            assert cohort_of(first) is None
        assert cohort_of(first) is not None
    assert cohort_of(first) is None
