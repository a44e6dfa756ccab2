"""Every experiment that comes with the package is whole: rows, numbers, configurations."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from accord.colours import looks
from accord.errors import ConfigError
from accord.papers import shelf
from accord.papers.figures import KINDS
from accord.papers.printed import Printed, printed

# Section D of the specification: every table and figure with numbers or curves to compare.
IDS = """
ufo-t1 ufo-t2 ufo-t3 ufo-t4 ufo-t5 ufo-t6 ufo-f3 ufo-f4 rep-t1 rep-f2 rep-f3 br-t1 br-t2 br-t3 br-t4 br-t5 br-t6 br-t7
br-f2 br-f3 br-f5 br-f6a br-f6b br-f6c br-f6d br-f7 mmd-f4a mmd-f4b mmd-f4c mmd-f4d fus-t1 fus-t2 fus-f5a fus-f5b
fus-f5c fus-f5d fus-f6 rane-t1 rane-t2 rane-f3 rane-f4 rane-f5 rane-f6 rane-f7 rane-f8
"""
# Of our own.
QUESTIONS = """
br-division br-question br-rate br-small br-small-rate br-t1-code br-t1-kept br-t1-mild cross fus-rate fus-t2-local
mmd-rate own-search rane-batch rane-budget rane-cap rane-rate ufo-performance ufo-qffl ufo-rate ufo-t6-reduced
"""


def test_every_id_of_the_specification_is_there() -> None:
    assert set(IDS.split()) <= set(shelf.names())
    assert set(shelf.names()) - set(IDS.split()) == set(QUESTIONS.split())


@pytest.mark.parametrize("id", shelf.names())
def test_every_row_is_a_configuration(id: str) -> None:
    one = shelf.experiment(id)
    for place in one.places:
        for row in one.rows:
            if one.holds(row, place):
                full = one.config(row, place, 3, "full")
                short = one.config(row, place, 3, "short")
                assert full.seed == 3
                assert short.rounds <= full.rounds
    for row in one.rows:
        assert one.config(row, one.places[0], 0, "smoke").data.name == "mnist5k"


@pytest.mark.parametrize("id", shelf.names())
def test_numbers_are_finite_and_names_fit_into_files(id: str) -> None:
    one = shelf.experiment(id)
    for row in one.rows:
        assert re.fullmatch(r"[\w.-]+", row.name)
        for number in row.printed.values():
            assert number.value is None or math.isfinite(number.value)
    for place in one.places:
        assert re.fullmatch(r"[\w.-]+", place.name)
    assert len({place.name for place in one.places}) == len(one.places)
    assert set(one.figures) <= set(KINDS)


@pytest.mark.parametrize("id", shelf.names())
def test_rows_of_a_table_look_different(id: str) -> None:
    names = [row.name for row in shelf.experiment(id).rows]
    assert len(set(looks(names).values())) == len(names)


def test_a_method_has_its_look_in_every_picture() -> None:
    assert looks(["fedavg", "fedufo"])["fedufo"] == looks(["qffl", "fedufo", "own"])["fedufo"]


# Three numbers of each paper, copied from it and not from the files under test.
@pytest.mark.parametrize(
    ("id", "row", "column", "text"),
    [
        ("ufo-t1", "fedufo", "cifar10", "67.45±0.81"),
        ("ufo-t2", "fedavg", "cifar10-std", "9.23"),
        ("ufo-t5", "cgl-dynamic", "std", "3.65"),
        ("ufo-t6", "fedufo", "cub-std", "1.36e-1"),
        ("rep-t1", "uad", "mnist", "0.9176"),
        ("br-t1", "fedbr", "cifar10-rounds", "496 (1.5X)"),
        ("br-t1", "local", "cifar100", "1.31"),
        ("br-t3", "fedcm-fedbr", "cifar10", "65.32 (+2.69)"),
        ("br-t4", "component2", "mnist", "86.25"),
        ("br-t7", "fedcm", "cifar100-params", "44.8"),
        ("mmd-f4a", "fedmmd", "rounds", "260"),
        ("fus-t1", "multi", "d", "82.95"),
        ("fus-t2", "conv", "95", "92"),
        ("rane-t1", "fedrane", "cifar10-alpha0.1", "0.5056"),
        ("rane-t2", "ditto", "fashion-alpha5", "0.9179"),
    ],
)
def test_numbers_are_the_papers(id: str, row: str, column: str, text: str) -> None:
    assert shelf.experiment(id).row(row).printed[column].text == text


def test_fairness_is_read_both_ways_and_the_reasons_hold() -> None:
    tables = [shelf.experiment(id) for id in ("ufo-t2", "ufo-t4")]
    every = [row.printed for one in tables for row in one.rows]
    rows = [numbers for numbers in every if numbers["mnist-w"].value is not None]  # not those that are ours
    for numbers in rows:  # the same printed number beside both
        for key in (f"{place}-{kind}" for place in ("mnist", "cifar10") for kind in ("b", "w", "std")):
            assert numbers[key.replace("-", "-steady-")] == numbers[key]
    assert all(row.printed["steady-std"] == row.printed["std"] for row in shelf.experiment("ufo-t5").rows)

    def whole(text: str, samples: int) -> bool:
        return f"{100 * round(float(text) * samples / 100) / samples:.2f}" == text

    # CIFAR-10: means of ten whole percents. MNIST: the worst are one client's 97 images, ten times.
    texts = {key: {numbers[key].text for numbers in rows} for key in ("cifar10-b", "cifar10-w", "mnist-w", "mnist-b")}
    assert all(text.endswith("0") for text in texts["cifar10-b"] | texts["cifar10-w"])
    assert [sum(whole(text, n) for text in texts["mnist-w"]) for n in (97, 970)] == [1, 9]
    assert len(texts["mnist-w"]) == 12
    assert not any(whole("99.52", n) for n in range(80, 115))
    # Not the ten classes: n values with a range R deviate by R / sqrt(2 n) or more.
    fedufo = tables[0].row("fedufo").printed
    best, worst, std = (fedufo[f"cifar10-{kind}"].value or 0.0 for kind in ("b", "w", "std"))
    assert std < (best - worst) / math.sqrt(20) == pytest.approx(4.472, abs=1e-3)


def test_readings_of_a_like_setting_are_replaced_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reading(what: str, choice: str) -> str:
        return f'[[reading]]\nwhat = "{what}"\nchoice = "{choice}"\nwhy = "so"\n'

    def write(name: str, text: str) -> None:
        (tmp_path / "settings" / f"{name}.toml").write_text(text)

    (tmp_path / "settings").mkdir()
    monkeypatch.setattr(shelf, "HERE", tmp_path)
    three = reading("network", "large") + reading("mAP", "of all") + reading("seed", "0")
    write("a", f'title = "A"\nshort = 1\n{three}')
    write("b", 'like = "a"\ntitle = "B"\nwithout = ["mAP"]\n[config]\nrounds = 3\n' + reading("network", "small"))
    write("c", 'like = "b"\n' + reading("mAP", "of one"))
    write("d", 'like = "b"\nwithout = ["mAP"]\n')
    found = {name: [(one.what, one.choice) for one in shelf.setting.__wrapped__(name).readings] for name in "bc"}
    assert found["b"] == [("network", "small"), ("seed", "0")]
    assert found["c"] == [("network", "small"), ("seed", "0"), ("mAP", "of one")]
    with pytest.raises(ConfigError, match=r"d\.toml: without = \['mAP'\] is no reading"):
        shelf.setting.__wrapped__("d")


def test_birds_have_no_readings_of_re_identification() -> None:
    for name in ("ufo-cub", "ufo-cub50"):
        said = {one.what: one.choice for one in shelf.setting(name).readings}
        assert not any("re-identification" in what or "identities" in choice for what, choice in said.items())
    assert "ResNet-18" in said["network and first weights"]


def test_printed_numbers_are_read() -> None:
    assert printed("58.51 ± 0.89") == Printed("58.51 ± 0.89", 58.51, 0.89)
    assert printed("64.66 (+5.67)").value == 64.66
    assert printed("1.75e-3").value == 0.00175
    assert printed("-").value is None
    with pytest.raises(ConfigError, match="no printed number"):
        printed("about 60")


def test_an_unknown_experiment_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'ufo-t1'"):
        shelf.experiment("ufo-t11")


def test_the_text_of_an_experiment_holds_no_result_that_is_not_computed() -> None:
    for one in shelf.experiments():
        outside = re.sub(r"\{[^{}]+\}", "", one.text)
        assert not re.findall(r"\d\d\.\d", outside), one.id


def test_what_is_read_as_accuracy_is_a_value_of_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shelf.experiment("br-t1").row("local").accuracy == "local on global"
    assert shelf.experiment("br-t1").row("fedavg").accuracy == ""
    read = {column.key: column.accuracy for column in shelf.experiment("br-t1").columns}
    assert read["cifar10"] == read["cifar10-rounds"] == "client mean", "of the setting"
    assert read["cifar10-all"] == "accuracy", "of the column"
    assert {column.accuracy for column in shelf.experiment("br-t1-mild").columns} == {"accuracy"}
    right = (shelf.HERE / "experiments" / "br-t1.toml").read_text()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "settings").symlink_to(shelf.HERE / "settings")
    monkeypatch.setattr(shelf, "HERE", tmp_path)
    (tmp_path / "experiments" / "br-t0.toml").write_text(right.replace('"local on global"', '"local on globe"'))
    with pytest.raises(ConfigError, match=r"row 'local': accuracy = 'local on globe'.*Did you mean 'local on global'"):
        shelf.experiment("br-t0")
    wrong = right.replace('accuracy = "accuracy"', 'accuracy = "acuracy"')
    (tmp_path / "experiments" / "br-t9.toml").write_text(wrong)
    with pytest.raises(ConfigError, match=r"column 'mnist-all': accuracy = 'acuracy' is unknown.*'accuracy'"):
        shelf.experiment("br-t9")
