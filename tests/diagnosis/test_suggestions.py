"""Rules: what they rest on stands on our pages, what they name exists, and they hold where they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.config import load_config
from accord.core.methods import ALGORITHMS
from accord.diagnosis.finding import Finding, Severity
from accord.diagnosis.suggestion import ENOUGH, rules, suggested

ROOT = Path(__file__).parent.parent.parent
EVIDENCE = [*rules()["always_evidence"], *(one for rule in rules()["rule"] for one in rule.get("evidence", ()))]
NAMES = ("labels", "quantity", "features", "concept", "drift", "rare", "duplicates")


def findings(**graves: Severity) -> list[Finding]:
    return [Finding(name, name.title(), graves.get(name, "none"), "", {"distance": 1.5}) for name in NAMES]


@pytest.mark.parametrize("one", EVIDENCE, ids=[one["says"][:40] for one in EVIDENCE])
def test_evidence_stands_on_its_page_word_by_word(one: dict[str, str]) -> None:
    page = " ".join((ROOT / one["page"]).read_text(encoding="utf-8").split())
    assert " ".join(one["quote"].split()) in page


@pytest.mark.parametrize("rule", rules()["rule"], ids=[rule["name"] for rule in rules()["rule"]])
def test_rules_name_what_exists(rule: dict) -> None:
    assert set(rule["methods"]) <= set(ALGORITHMS)
    load_config(sets=rule["settings"])
    assert set(rule["when"]) | set(rule.get("unless", {})) <= set(NAMES)
    assert set(rule["when"].values()) <= {"mild", "strong"}


def test_nothing_found_is_fedavg() -> None:
    calm = suggested(findings())
    assert calm.enough
    assert calm.advice == ()
    assert calm.methods == ("fedavg", "fedavgm")
    assert (
        calm.verdict
        == f"{ENOUGH} Nothing was found that would trouble averaging; other methods have little to gain here."
    )
    mild = suggested(findings(labels="mild"))
    assert mild.enough
    assert "mild (labels)" in mild.verdict


def test_what_cannot_be_told_is_no_finding() -> None:
    assert suggested(findings(features="unknown", concept="unknown")).advice == ()


def test_sizes_and_copies_alone_leave_fedavg() -> None:
    found = suggested(findings(quantity="strong", duplicates="strong", rare="strong"))
    assert found.enough
    assert {one.name for one in found.advice} == {"quantity", "copies", "rare"}


def test_concept_shift_wants_models_of_ones_own() -> None:
    found = suggested(findings(concept="mild", labels="strong"))
    assert not found.enough
    names = [one.name for one in found.advice]
    assert "concept" in names
    assert "labels-own" not in names, "the reason is another"
    assert found.methods[0] == "fedavg"
    assert {"ditto", "local"} <= set(found.methods)


def test_numbers_stand_in_the_reasons() -> None:
    (strong, *_) = suggested(findings(labels="strong")).advice
    assert strong.because == "label distance 1.50, by chance 0.00"


def test_a_method_that_cannot_be_had_is_left_out_with_the_reason() -> None:
    found = suggested(findings(labels="strong"), lambda method: "it needs classes" if method == "fedufo" else "")
    assert "fedufo" not in found.methods
    assert found.advice[0].refused == {"fedufo": "it needs classes"}
