"""JSON as it is written: numbers that are none are null and named, texts can be read everywhere."""

from __future__ import annotations

import json
import math

from accord.wire.writing import as_text, digest, finite_only


def test_numbers_that_are_none_are_named() -> None:
    record = {
        "round": 3,
        "loss": math.nan,
        "fine": -0.5,
        "clients": {"best": math.inf, 7: [1.0, -math.inf, (2, math.nan)]},
        "on": True,
    }
    assert finite_only(record) == {
        "round": 3,
        "loss": None,
        "fine": -0.5,
        "clients": {"best": None, "7": [1.0, None, [2, None]]},
        "on": True,
        "not_finite": ["loss", "clients.best", "clients.7.1", "clients.7.2.1"],
    }
    assert finite_only({"loss": 1.0}) == {"loss": 1.0}


def test_text_is_json_that_every_reader_takes() -> None:
    assert as_text({"b": math.inf, "a": "half \udc80 of one"}) == (
        '{"b": null, "a": "half \\\\udc80 of one", "not_finite": ["b"]}'
    )
    assert as_text({"a": [1]}, indent=1) == '{\n "a": [\n  1\n ]\n}'
    assert json.loads(as_text({"ü": "é"})) == {"ü": "é"}


def test_a_digest_does_not_know_the_order_of_names() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert (
        len({digest({"a": 1}), digest({"a": 2}), digest({"b": 1}), digest({"a": [1, 2]}), digest({"a": [2, 1]})}) == 5
    )
    # the digest of '{"a": 1}', by the command sha256sum
    assert digest({"a": 1}) == "f9d86028c6e0d64e225186f96acb69338b2c59764df79162107f5c4bb34d1310"
