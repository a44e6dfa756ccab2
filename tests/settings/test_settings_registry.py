"""Names, what they stand for, whose they are, and settings checked at every call; plugins as files on the path."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from accord.errors import ConfigError
from accord.settings import AtLeast, Misfit, Range, Registry, expected, fit, plugins, settings_of
from accord.settings.bounds import FRACTION, NOT_NEGATIVE, POSITIVE, PROPER_FRACTION, Named, Search
from accord.settings.registry import checked
from accord.settings.schema import Setting, check, is_section, value_of


def make(setup: object, *, width: Annotated[int, AtLeast(1), "how wide"] = 3, on: bool = False) -> tuple[Any, ...]:
    return setup, width, on


@pytest.fixture
def kinds() -> Registry[Callable[..., Any]]:
    found: Registry[Callable[..., Any]] = Registry("thing", order=lambda name, facts: (facts.get("place", 9), name))
    found.add("zebra")(make)
    found.add("ant", place=1)(make)
    found.add("bee")(make)
    return found


def test_entries_are_ordered_named_and_known_by_their_facts(kinds: Registry[Callable[..., Any]]) -> None:
    assert list(kinds) == ["ant", "bee", "zebra"]
    assert len(kinds) == 3
    assert "bee" in kinds
    assert "cow" not in kinds
    assert kinds.facts("ant") == {"place": 1}
    assert kinds.facts("bee") == {}
    with pytest.raises(ConfigError, match=r"unknown thing 'zebar'\. Did you mean 'zebra'\? Allowed: ant, bee, zebra\."):
        kinds["zebar"]
    with pytest.raises(ConfigError, match="unknown thing 'cow'"):
        kinds.facts("cow")
    with pytest.raises(ConfigError, match="the thing 'bee' is registered already"):
        kinds.add("bee")(make)
    unordered: Registry[Callable[..., Any]] = Registry("thing")
    for name in ("b", "a"):
        unordered.add(name)(make)
    assert list(unordered) == ["b", "a"]


def test_settings_are_checked_by_place_and_by_name(kinds: Registry[Callable[..., Any]]) -> None:
    made = kinds["bee"]
    assert made("s") == ("s", 3, False)
    assert made("s", width=4, on=True) == ("s", 4, True)
    with pytest.raises(ConfigError, match="thing 'bee': width = 0: must be at least 1"):
        made("s", width=0)
    with pytest.raises(
        ConfigError, match=r"thing 'bee' has no setting 'widht'\. Did you mean 'width'\? Allowed: width, on"
    ):
        made("s", widht=1)
    with pytest.raises(TypeError, match="takes 1 positional argument but 3 were given"):
        made("s", 4, 5)  # Python's own words

    def open_(setup: object, size: Annotated[float, AtLeast(0)] = 1.0, *, depth: int = 2) -> tuple[Any, ...]:
        return setup, size, depth

    call = checked(open_, "it")
    assert call("s", 2) == ("s", 2.0, 2)
    assert isinstance(call("s", 2)[1], float)
    assert call("s", size=2, depth=5) == ("s", 2.0, 5)
    assert call(setup="s", size=3) == ("s", 3.0, 2)
    with pytest.raises(ConfigError, match="it: size = -1: must be at least 0"):
        call("s", -1)


@dataclass(frozen=True)
class Choices:
    """Settings as one value."""

    depth: Annotated[int, AtLeast(1), "how  deep", "or not"] = 2
    options: int = 0


def with_value(setup: object, settings: Choices = Choices()) -> Choices:  # noqa: B008 - frozen
    return settings


def test_settings_as_one_value() -> None:
    assert value_of(with_value) is Choices
    assert value_of(make) is None
    call = checked(with_value, "it")
    assert call("s", depth=5) == Choices(5)
    assert call("s") == Choices(2)
    with pytest.raises(ConfigError, match="it: depth = 0"):
        call("s", depth=0)
    depth = settings_of(with_value)["depth"]
    assert depth == Setting("depth", int, 2, AtLeast(1), None, None, "how deep or not")
    assert "options" not in settings_of(Choices), "where sections keep what others declare"

    def with_more(setup: object, settings: Choices = Choices(), *, more: int = 1) -> None: ...  # noqa: B008 - frozen

    assert list(settings_of(with_more)) == ["depth", "more"]
    assert list(settings_of(Choices)) == ["depth"], "what one factory adds is not the section's"

    def by_another_name(setup: object, settings: int = 1) -> None: ...

    assert value_of(by_another_name) is None, "no dataclass, and so an argument like any other"
    assert is_section(Choices)
    assert not is_section(Choices())
    assert not is_section(int)


def test_defaults_that_are_made_anew() -> None:
    @dataclass(frozen=True)
    class Section:
        plain: int = 3
        made: tuple[int, ...] = field(default_factory=lambda: (1, 2))
        needed: str = field(kw_only=True)

    found = settings_of(Section)
    assert [found[name].default for name in ("plain", "made", "needed")] == [3, (1, 2), MISSING]


def test_what_a_setting_is() -> None:
    def factory(
        setup: object,
        plain: int = 1,
        near: Annotated[int, Named("model", also=("none",))] = 2,
        *,
        needed: float,
        tuned: Annotated[float, POSITIVE, Search(0.1, 1.0, log=True), "weight"] = 0.5,
    ) -> None:
        """An argument by place is a setting only where it is annotated as one."""

    found = settings_of(functools.partial(factory))
    assert list(found) == ["near", "needed", "tuned"]
    assert found["near"].named == Named("model", ("none",))
    assert found["needed"].default is MISSING
    assert (found["tuned"].default, found["tuned"].search, found["tuned"].doc) == (
        0.5,
        Search(0.1, 1.0, True),
        "weight",
    )
    assert found["tuned"].allowed == "a number, above 0"
    assert found["near"].allowed == "a whole number"
    assert check("it", found, {"tuned": 2}) == {"tuned": 2.0}
    numbers = check("it", found, {"tuned": np.float32(0.5), "near": np.int64(7), "needed": np.int8(3)})
    assert numbers == {"tuned": 0.5, "near": 7, "needed": 3.0}
    assert [type(value) for value in numbers.values()] == [float, int, float], "NumPy's are numbers too"
    with pytest.raises(ConfigError, match=r"it has no setting 'x'\. It has no settings\."):
        check("it", {}, {"x": 1})


def test_intervals_in_words_and_numbers() -> None:
    assert (Search().log, Search().choices, Named("a").also) == (False, (), ())
    for interval, words, inside, outside in (
        (POSITIVE, "above 0", (1e-9, 2), (0, -1)),
        (NOT_NEGATIVE, "at least 0", (0, 5), (-1e-9,)),
        (FRACTION, "at least 0 and at most 1", (0, 1), (-1e-9, 1.1)),
        (PROPER_FRACTION, "at least 0 and below 1", (0, 0.99), (1, -0.1)),
        (Range(above=1, high=3), "above 1 and at most 3", (1.1, 3), (1, 3.1)),
        (Range(low=2.0, below=1e-3), "at least 2 and below 0.001", (), (2.0, 1e-4)),
    ):
        assert str(interval) == words
        assert all(value in interval for value in inside)
        assert not any(value in interval for value in outside)


def test_types_in_words() -> None:
    for kind, words in (
        (bool, "true or false"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a string"),
        (Literal["a"], '"a"'),
        (Literal["a", 2], "one of a, 2"),
        (tuple[int, int], "a list of 2 whole numbers"),
        (tuple[bool, ...], "a list of true or false"),
        (list[str], "a list of strings"),
        (list[float | None], 'a list of numbers or "none"'),
        (list[Annotated[int, "doc"]], "a list of whole numbers"),
        (int | str, "a whole number or a string"),
    ):
        assert expected(kind) == words
    assert expected(int, plural=True) == "whole numbers"


def test_bounds_inside_of_a_list_and_around_it() -> None:
    inner = tuple[Annotated[int, AtLeast(5)], int]
    assert fit(inner, [5, 1], AtLeast(1)) == (5, 1)
    for wrong in ([4, 1], [5, 0]):
        with pytest.raises(Misfit):
            fit(inner, wrong, AtLeast(1))
    assert fit(Annotated[int, "documented"], 1, AtLeast(1)) == 1
    assert fit(int | None, None, AtLeast(1)) is None
    assert fit(int | None, "none", AtLeast(1)) is None
    assert fit(Literal["auto"] | float, "auto", AtLeast(1)) == "auto"
    for kind in (Annotated[int, "documented"], int | None, Literal["auto"] | float, list[int | None]):
        with pytest.raises(Misfit):
            fit(kind, [0] if kind == list[int | None] else 0, AtLeast(1))
    assert fit(float, -(2**63)) == -(2.0**63)
    with pytest.raises(Misfit, match="64 bits"):
        fit(float, 2**63)


def package(place: Path, name: str, points: dict[str, str], version: str = "1.5") -> None:
    """An installed package that brings entries, as files."""
    info = place / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    listed = "\n".join(f"{entry} = {value}" for entry, value in points.items())
    (info / "entry_points.txt").write_text(
        f"[accord.widgets]\n{listed}\n\n[accord.others]\nelse = nowhere_at_all\n"
        "\n[accord.widgets_of_others]\nmore = nowhere_at_all\n"
    )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "IMPORTED", [])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


WIDGETS: Registry[Callable[..., Any]]
GOOD = """
from test_widgets import WIDGETS

@WIDGETS.add("good")
def good(setup):
    return "good"
"""


@pytest.fixture
def widgets(site: Path) -> Registry[Callable[..., Any]]:
    """A registry plugins can import by the module it is in."""
    (site / "test_widgets.py").write_text(
        "from accord.settings import Registry\nWIDGETS = Registry('widget', home='own_widgets')\n"
    )
    home = site / "own_widgets"
    home.mkdir()
    (home / "__init__.py").write_text("")
    for name in ("two", "one"):
        (home / f"{name}.py").write_text(
            f"from test_widgets import WIDGETS\n\n@WIDGETS.add('{name}')\ndef {name}(setup):\n    return '{name}'\n"
        )
    importlib.invalidate_caches()
    found: Registry[Callable[..., Any]] = importlib.import_module("test_widgets").WIDGETS
    return found


def test_a_registry_imports_its_home_and_its_plugins_once(site: Path, widgets: Registry[Callable[..., Any]]) -> None:
    (site / "good_widget.py").write_text(GOOD)
    package(site, "good-widgets", {"good": "good_widget"})
    assert "own_widgets.one" not in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(widgets) == ["one", "two", "good"]
    assert widgets["good"](None) == "good"
    assert widgets.source("good") == plugins.Source("good_widget", "good-widgets", "1.5")
    assert widgets.source("good").words == "module good_widget (package good-widgets 1.5)"  # type: ignore[union-attr]
    assert plugins.Source("m").words == "module m"
    del sys.modules["good_widget"]
    assert len(widgets) == 3, "plugins are looked for once: a second time they would be registered twice"


def test_a_registry_that_is_asked_for_a_name_first_knows_its_home_and_its_plugins(
    site: Path, widgets: Registry[Callable[..., Any]]
) -> None:
    (site / "good_widget.py").write_text(GOOD)
    package(site, "good-widgets", {"good": "good_widget"})
    assert [name in widgets for name in ("good", "one", "none")] == [True, True, False]


def test_one_from_elsewhere_does_not_take_a_name_of_the_home(widgets: Registry[Callable[..., Any]]) -> None:
    with pytest.raises(ConfigError, match="the widget 'one' is registered already"):
        widgets.add("one")(make)


def test_plugins_that_cannot_be_used_are_named_in_a_warning_each(
    site: Path, widgets: Registry[Callable[..., Any]]
) -> None:
    (site / "broken_widget.py").write_text("raise RuntimeError('first line\\nsecond line')\n")
    (site / "silent_widget.py").write_text("raise RuntimeError()\n")
    (site / "idle_widget.py").write_text("")
    (site / "leaving_widget.py").write_text("raise SystemExit('good bye')\n")
    package(
        site,
        "odd",
        {"broken": "broken_widget", "silent": "silent_widget", "leaving": "leaving_widget", "idle": "idle_widget"},
    )
    with pytest.warns(plugins.PluginWarning) as caught:
        assert list(widgets) == ["one", "two"]
    assert [str(warning.message) for warning in caught] == [
        "the plugin 'broken' of odd 1.5 (broken_widget) cannot be used: RuntimeError: first line",
        "the plugin 'idle' of odd 1.5 (idle_widget) registers no widget of that name: its module must do so when it is "
        "imported",
        "the plugin 'leaving' of odd 1.5 (leaving_widget) cannot be used: SystemExit: good bye",
        "the plugin 'silent' of odd 1.5 (silent_widget) cannot be used: RuntimeError: no reason given",
    ]


def test_a_plugin_that_is_being_imported_may_still_come_to_it(
    site: Path, widgets: Registry[Callable[..., Any]]
) -> None:
    """It looks into the registry first, and is no plugin that registers nothing."""
    (site / "good_widget.py").write_text("from test_widgets import WIDGETS\nlen(WIDGETS)\n" + GOOD)
    package(site, "good-widgets", {"good": "good_widget"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module("good_widget")
    assert list(widgets) == ["one", "two", "good"]


def test_plugins_are_looked_for_once_also_while_they_are_imported(
    site: Path, widgets: Registry[Callable[..., Any]]
) -> None:
    (site / "good_widget.py").write_text("from test_widgets import WIDGETS\nlen(WIDGETS)\n" + GOOD)
    (site / "idle_widget.py").write_text("")
    package(site, "good-widgets", {"good": "good_widget", "idle": "idle_widget"})
    with pytest.warns(plugins.PluginWarning) as caught:
        assert list(widgets) == ["one", "two", "good"]
    assert len(caught) == 1


@pytest.mark.parametrize("first", ["in", "len", "list", "name", "facts", "source"])
def test_a_registry_is_whole_whatever_it_is_asked_first(first: str, widgets: Registry[Callable[..., Any]]) -> None:
    asked: dict[str, Callable[[], Any]] = {
        "in": lambda: "two" in widgets,
        "len": lambda: len(widgets) == 2,
        "list": lambda: list(widgets) == ["one", "two"],
        "name": lambda: widgets["two"](None) == "two",
        "facts": lambda: widgets.facts("two") == {},
        "source": lambda: widgets.source("two") == plugins.Source("own_widgets.two"),
    }
    assert asked[first]()


def test_a_module_that_hides_how_it_was_found_is_named_too(site: Path, widgets: Registry[Callable[..., Any]]) -> None:
    (site / "bare_widget.py").write_text("__spec__ = None\n")
    package(site, "bare", {"bare": "bare_widget"})
    with pytest.warns(plugins.PluginWarning, match="registers no widget of that name"):
        assert list(widgets) == ["one", "two"]


def test_of_a_package_that_is_there_twice_the_first_on_the_path_counts(
    site: Path, widgets: Registry[Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "good_widget.py").write_text(GOOD)
    package(site, "twice", {"good": "good_widget"})
    package(site / "later", "Twice", {"good": "no_such_module"}, version="9")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site / "later")])
    assert list(widgets) == ["one", "two", "good"]
    assert widgets.source("good").version == "1.5"  # type: ignore[union-attr]


def test_an_entry_is_of_the_package_whose_point_leads_to_its_module(site: Path) -> None:
    for name, version in (("alpha", "0.9"), ("middle", "2.0"), ("omega", "3.1")):
        (site / f"{name}_house").mkdir()
        (site / f"{name}_house" / "__init__.py").write_text("")
        (site / f"{name}_house" / "room.py").write_text("def made(setup): ...\n")
        package(site, name, {name: f"{name}_house"}, version)
    importlib.invalidate_caches()
    for name, version in (("alpha", "0.9"), ("middle", "2.0"), ("omega", "3.1")):
        made = importlib.import_module(f"{name}_house.room").made
        assert plugins.source_of(made) == plugins.Source(f"{name}_house.room", name, version)


def test_whose_an_entry_is(site: Path) -> None:
    (site / "lonely.py").write_text("def made(setup): ...\n")
    assert plugins.source_of(fit) is None
    (site / "accordion.py").write_text("def made(setup): ...\n")
    namesake = plugins.source_of(importlib.import_module("accordion").made)
    assert namesake == plugins.Source("accordion"), "one whose name begins like ours is not ours"
    lonely = importlib.import_module("lonely").made
    assert plugins.source_of(lonely) == plugins.Source("lonely")
    assert plugins.source_of(functools.partial(functools.partial(lonely), 1)) == plugins.Source("lonely")
    measure: Any = SimpleNamespace(function=lonely)
    assert plugins.source_of(measure) == plugins.Source("lonely"), "a measure is where its function is"

    def wrapper(setup: object) -> None: ...

    wrapper.__wrapped__ = lonely  # type: ignore[attr-defined]
    assert plugins.source_of(wrapper) == plugins.Source("lonely")
    found = plugins.source_of(pytest.fixture)
    assert found is not None
    assert (found.package, found.version) == ("pytest", pytest.__version__)


def test_modules_imported_by_name_and_by_file(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "here_module.py").write_text("")
    (site / "sub").mkdir()
    (site / "sub" / "filed.py").write_text("")
    (site / "sub" / "wrong.py").write_text("raise ValueError('no')")
    (site / "sub" / "refused.py").write_text("from accord.errors import ConfigError\nraise ConfigError('as it is')")
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(site)])
    plugins.import_modules(["here_module", "sub/filed.py", "here_module"])
    assert plugins.IMPORTED == ["here_module", "filed"]
    assert sys.path[-2:] == [str(site), str(site / "sub")]
    plugins.import_modules(["sub/filed.py"])
    assert sys.path.count(str(site / "sub")) == 1
    with pytest.raises(ConfigError, match=r"--import sub/wrong\.py: ValueError: no\. Name a module"):
        plugins.import_modules(["sub/wrong.py"])
    with pytest.raises(ConfigError, match=r"^as it is$"):
        plugins.import_modules(["sub/refused.py"])
    assert plugins.IMPORTED == ["here_module", "filed"]
