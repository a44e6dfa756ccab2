"""Results as data frames and as figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accord
from accord.data.description import Description
from accord.errors import ConfigError, DataError
from accord.figures import empty_figure, figure_of, judged_value, whole_numbers
from accord.frames import frame_of
from support.study import SETS, hospitals, network
from support.wards import run


def test_a_frame_has_a_row_per_round() -> None:
    pd = pytest.importorskip("pandas")
    records = [{"round": 1, "loss": None, "cohort": [1]}, {"round": 2, "loss": 0.5, "clients": {"worst": 0.25, "n": 2}}]
    frame = frame_of(records)
    assert frame.index.tolist() == [1, 2]
    assert frame.index.name == "round"
    assert frame.columns.tolist() == ["loss", "clients/worst", "clients/n"]
    assert pd.isna(frame.loc[1, "loss"])
    assert frame.loc[2].tolist() == [0.5, 0.25, 2.0]
    assert frame_of([]).empty


@pytest.mark.parametrize("package", ["pandas", "matplotlib.figure"])
def test_without_the_package_it_says_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    extra = "tables" if package == "pandas" else "plot"
    with pytest.raises(ConfigError, match=rf"pip install 'accord-fl\[{extra}\]'"):
        frame_of([{"round": 1}]) if package == "pandas" else figure_of({"a": [[{"round": 1, "loss": 1}]]}, "loss")


def test_an_outcome_as_frame_and_figure(tmp_path: Path) -> None:
    outcome = run(tmp_path, "algorithm.name=ditto")
    frame = outcome.frame()
    assert frame["accuracy"].tolist() == [record["accuracy"] for record in outcome.metrics]
    assert frame["personal/mean"].tolist() == [record["personal"]["mean"] for record in outcome.metrics]
    files = set(outcome.folder.iterdir())
    for value, wanted in (("", "personal/mean"), ("clients/worst", "clients/worst")):
        line = outcome.plot(value).axes[0].lines[0]
        assert line.get_xdata().tolist() == [1, 2]
        assert line.get_ydata().tolist() == frame[wanted].tolist()
    assert set(outcome.folder.iterdir()) == files, "not saved"
    with pytest.raises(DataError, match=r"no run has a value 'acuracy' to draw. Did you mean 'accuracy'\?"):
        outcome.plot("acuracy")


def test_a_comparison_as_frame_and_figure(tmp_path: Path) -> None:
    sets = [*SETS, "rounds=2", f"out={tmp_path}"]
    result = accord.compare(["fedavg", "ditto"], seeds=(0, 1), sets=sets, data=hospitals(), model=network())
    frame = result.frame()
    assert frame.index.names == ["algorithm", "seed", "round"]
    assert len(frame) == 2 * 2 * 2
    assert frame.loc[("ditto", 1, 2), "accuracy"] == result.metrics["ditto", 1][1]["accuracy"]
    runs = result.frame("runs")
    assert runs.loc[("ditto", 0), "personal_accuracy/mean"] == result.summaries["ditto", 0]["personal_accuracy"]["mean"]
    axes = result.plot().axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fedavg", "ditto"]
    means = frame.groupby(["algorithm", "round"])["accuracy"].mean()
    assert axes.lines[1].get_ydata().tolist() == pytest.approx(means["ditto"].tolist())


@pytest.mark.parametrize(
    ("judged", "records", "wanted"),
    [
        (["accuracy"], {"accuracy": 0.5, "personal": {"mean": 0.5}}, "accuracy"),
        (["personal_accuracy"], {"accuracy": 0.5, "personal": {"mean": 0.5}}, "personal/mean"),
        (["personal_accuracy", "accuracy"], {"accuracy": 0.5, "personal": {"mean": 0.5}}, "accuracy"),
        (["personal_accuracy"], {"accuracy": 0.5}, "accuracy"),
        (["accuracy"], {"personal": {"mean": 0.5}}, "personal/mean"),
        (["rmse"], {"rmse": 2.0}, "rmse"),
    ],
)
def test_pictures_show_what_runs_are_judged_by(judged: list[str], records: Any, wanted: str) -> None:
    assert judged_value({"a": [[{"round": 1, **records}]]}, [{"judged_by": one} for one in judged]) == wanted


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 40, 1000])
def test_rounds_are_whole_numbers(rounds: int) -> None:
    figure = figure_of({"a": [[{"round": r, "accuracy": r / rounds} for r in range(1, rounds + 1)]]}, "accuracy")
    assert whole(figure.axes[0].xaxis)


def whole(axis: Any) -> bool:
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
    return bool(ticks) and all(float(tick).is_integer() for tick in ticks)


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (20, 10), (7, 150)])
def test_a_heat_map_is_laid_out_as_in_the_terminal(shape: tuple[int, int], tmp_path: Path, monkeypatch: Any) -> None:
    from accord.report import heat_maps

    drawn: list[Any] = []
    monkeypatch.setattr(heat_maps, "write_png", lambda figure, path: drawn.append(figure))
    counts = np.arange(shape[0] * shape[1]).reshape(shape)
    heat_maps.heat_map_png(Description("toy", "train", counts), tmp_path / "map.png")
    axes = drawn[0].axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("class", "client"), "a line per client, a column per class"
    assert np.array_equal(axes.images[0].get_array(), counts)
    assert axes.yaxis.get_inverted(), "the first client on top"
    assert whole(axes.xaxis)
    assert whole(axes.yaxis)


def test_whole_numbers_of_a_short_axis() -> None:
    axes = empty_figure(2, 2).add_subplot()
    axes.plot([1], [1])
    whole_numbers(axes.xaxis)
    assert whole(axes.xaxis)
