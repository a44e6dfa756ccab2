"""Panels, lines and axes of figures, against values by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from accord.colours import COLOURS, LINES, Look, looks
from accord.papers import shelf
from accord.papers.drawing import apart, blank, panel_titles, rows_of_panels, spread, together
from accord.papers.experiment import Experiment, Place, Setting
from accord.papers.figures import KINDS
from accord.papers.records import Records
from accord.papers.table import Table
from papers.conftest import TINY, Write, table, tiny


@pytest.mark.parametrize("id", shelf.names())
def test_no_two_federations_share_a_panel(id: str) -> None:
    one = shelf.experiment(id)
    titles = panel_titles(one)
    assert list(titles) == [place.name for place in one.places]
    assert len(set(titles.values())) == len(one.places)


def test_federations_that_are_called_alike_are_told_apart() -> None:
    def two(other: str) -> Experiment:
        one, (first, second) = tiny(), tiny().columns
        elsewhere = Place("elsewhere", Setting("elsewhere", other, TINY, short=2))
        return replace(one, columns=[first, replace(second, place=elsewhere)])

    assert panel_titles(two("Letters")) == {"digits": "Digits", "elsewhere": "Letters"}
    assert panel_titles(two("Digits")) == {"digits": "Digits, accuracy", "elsewhere": "Digits, rounds to 50 %"}


def test_lines_of_a_panel_are_smoothed_alike_and_who_is_not_drawn_is_named(tmp_path: Path, write: Write) -> None:
    pytest.importorskip("matplotlib")
    swinging = [{"round": r, "accuracy": 0.5 + 0.1 * (-1) ** r, "bytes": r} for r in range(1, 32)]
    write("fedavg", [0.1], evaluations=swinging)
    write("fedprox", [0.1], evaluations=swinging[:3])
    write("scaffold", [0.1], evaluations=[{"round": 1, "accuracy": 0.5}])
    figure = KINDS["rounds"](table(tmp_path), "rounds")
    assert figure is not None
    long, short, _ = figure.axes[0].lines
    assert list(long.get_ydata())[2:5] == pytest.approx([48, 52, 48]), "40 and 60 in turns, means of five"
    assert list(short.get_ydata()) == pytest.approx([140 / 3] * 3), "40, 60, 40: all are neighbours"
    assert figure.axes[0].get_ylabel() == "accuracy %\nmean of 5 evaluations"
    assert figure.get_supxlabel() == ""
    sent = KINDS["bytes"](table(tmp_path), "bytes")
    assert sent is not None
    assert sent.get_supxlabel().replace("\n", " ").endswith("do not have it. Digits: SCAFFOLD.")


def test_a_long_title_is_broken_and_percents_are_named(tmp_path: Path, write: Write) -> None:
    pytest.importorskip("matplotlib")
    one = replace(tiny(40), axis="mu", own="fedprox", figures=["sweep"])
    one = replace(one, rows=[replace(row, x={"fedprox": 0.5, "scaffold": 1.0}.get(row.name)) for row in one.rows])
    one = replace(one, columns=[replace(one.columns[0], title="a title of words that take more than a panel's width")])
    write("fedprox", [0.5, 0.6])
    write("scaffold", [0.5, 0.6])
    figure = KINDS["sweep"](Table.of(one, Records.of([tmp_path / "results"]), (0,)), "sweep")
    assert figure is not None
    assert figure.axes[0].get_title() == "Digits, a title of words that take more than\na panel's width"
    assert figure.axes[0].get_ylabel() == "accuracy %"


def test_a_variant_has_its_methods_colour_while_there_are_lines_left() -> None:
    names = ["fedavg-0.1", "fedavg", "fedavg: mu=1", "fedavg-0.5", "fedavg-0.9", "fedavgmore", "odd-fedavg"]
    found = looks(names)
    assert [found[name].colour for name in names[:4]] == [COLOURS["black"]] * 4
    assert found["fedavg"].line == "-"
    assert {found[name].line for name in names[:4]} == set(LINES)
    assert [found[name] for name in names[4:]] == [Look(COLOURS[c], "-") for c in ("blue", "red", "green")]
    assert looks(["trimmed_mean-2"])["trimmed_mean-2"].colour == COLOURS["orange"], "the name to its last known end"
    assert looks(["fedrane-frozen-2"])["fedrane-frozen-2"].colour == COLOURS["orange"]
    assert looks(["feddyn", "fedmmd"]) == {
        "feddyn": Look(COLOURS["green"], "-"),
        "fedmmd": Look(COLOURS["green"], "--"),
    }


def test_the_last_percents_lie_apart() -> None:
    assert apart([100, 99, 98, 90, 0, 105]) == pytest.approx([0, *(-math.log(n) for n in (2, 3, 11, 101)), 0])
    assert together([0, -math.log(2), -math.log(101)]) == pytest.approx([100, 99, 0])
    assert together(apart([12.5, 99.7])) == pytest.approx([12.5, 99.7])


@pytest.mark.parametrize(
    ("values", "ends", "ticks"),
    [
        # 20 and 90 are ln 81 and ln 11 below 100; a twentieth of what is between is ln 1.105, and 81 * 1.105 = 89.5.
        ([20, 90], (11.50, 91.05), [20, 40, 50, 60, 70, 80, 85, 90]),
        ([0, 100], (0, 100), [0, 50, 70, 80, 90, 95, 98, 99, 100]),
        ([-5, 130], (0, 100), [0, 50, 70, 80, 90, 95, 98, 99, 100]),
    ],
)
def test_an_axis_from_low_percents_to_the_nineties_is_spread(
    values: list[float], ends: tuple[float, float], ticks: list[float]
) -> None:
    pytest.importorskip("matplotlib")
    _, (axis,) = blank(1)
    axis.plot([1, 2], values)
    assert spread(axis)
    assert axis.get_ylim() == pytest.approx(ends, abs=0.01)
    assert sorted(axis.get_yticks()) == ticks
    assert [label.get_text() for label in axis.get_yticklabels()] == [str(int(tick)) for tick in axis.get_yticks()]


@pytest.mark.parametrize("values", [[71, 99], [10, 84], [75, 80]], ids=str)
def test_other_axes_stay_even(values: list[float]) -> None:
    pytest.importorskip("matplotlib")
    _, (axis,) = blank(1)
    axis.plot([1, 2], values)
    assert not spread(axis)
    assert axis.get_yscale() == "linear"


@pytest.mark.parametrize(("panels", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3)), (7, (3, 3))])
def test_many_panels_are_several_lines(panels: int, shape: tuple[int, int]) -> None:
    pytest.importorskip("matplotlib")
    figure, axes = rows_of_panels(panels)
    assert len(axes) == len(figure.axes) == panels
    lines, across = shape
    assert tuple(figure.get_size_inches()) == pytest.approx((4.4 * across, 3.9 * lines))
