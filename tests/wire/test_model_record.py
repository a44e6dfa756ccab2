"""What the record of a model's folder may hold, field by field, and what a file of values must be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from accord.errors import DataError
from accord.wire import model
from accord.wire.format import Limits, Spec, check_expected, num_bytes
from accord.wire.model import FIELDS, dtype_of, encode_values, read_record, read_values
from accord.wire.records import TEXTS, Bounds, parse, shown

SHA = "0123456789abcdef" * 4
CLIENT = {"number": 0, "file": "a.safetensors", "sha256": SHA}
OBJECTS: tuple[list[Any], list[Any]] = ([{}, {"a": 1}], [[], None, "a", 1])
TEXT: tuple[list[Any], list[Any]] = (["", "two\nlines"], [1, None, ["a"]])
SUMS: tuple[list[Any], list[Any]] = ([SHA, None], [SHA[1:], SHA + "0", SHA.upper(), 1, ""])
FIT: dict[str, tuple[list[Any], list[Any]]] = {
    "format": ([1], [0, 2, "1", None]),
    "network": OBJECTS,
    "around": ([[], [{}], [{"a": 1}, {}]], [{}, [1], [{}, 1], [None, {}], "", None]),
    "dtype": (["float16", "float32", "float64", "bfloat16"], ["float8", "int32", "float3", " float32", 32]),
    "inputs": OBJECTS,
    "facts": OBJECTS,
    "problem": TEXT,
    "outputs": ([1, 2, 1000], [0, -1, 1.0, True, "1", None]),
    "classes": ([[], ["a"], ["a", "b"]], ["ab", [1], ["a", 1], [1, "a"], {}, None]),
    "method": TEXT,
    "data": TEXT,
    "versions": ([{}, {"torch": "2"}], [{"a": 1}, {"a": "b", "c": 1}, {"c": 1, "a": "b"}, [], "", None]),
    "weights": SUMS,
    "shared": SUMS,
    "clients": (
        [{}, {"north": CLIENT}, {"north": CLIENT, "south": {**CLIENT, "number": 7, "file": "é+b=1,@.-.safetensors"}}],
        [
            [],
            {"north": 1},
            {"north": []},
            {"north": {}},
            {"north": {**CLIENT, "more": 1}},
            {"north": {"number": 0, "file": "a.safetensors"}},
            {"north": {**CLIENT, "number": -1}},
            {"north": {**CLIENT, "number": "0"}},
            {"north": {**CLIENT, "file": "../a.safetensors"}},
            {"north": {**CLIENT, "file": "a/b.safetensors"}},
            {"north": {**CLIENT, "file": "a/../../b.safetensors"}},
            {"north": {**CLIENT, "file": "a\\b.safetensors"}},
            {"north": {**CLIENT, "file": "a.safetensors\n"}},
            {"north": {**CLIENT, "file": "-a.safetensors"}},
            {"north": {**CLIENT, "file": ".safetensors"}},
            {"north": {**CLIENT, "file": "a.bin"}},
            {"north": {**CLIENT, "file": 1}},
            {"north": {**CLIENT, "file": "a" * 152 + ".safetensors"}},
            {"north": {**CLIENT, "sha256": SHA[1:]}},
            {"north": CLIENT, "south": 1},
            {"south": 1, "north": CLIENT},
        ],
    ),
}


def test_every_field_of_the_record_is_here() -> None:
    assert FIT.keys() == FIELDS.keys()


@pytest.mark.parametrize("name", FIT)
def test_what_fits_a_field_and_what_does_not(name: str) -> None:
    fitting, others = FIT[name]
    assert [value for value in fitting if not FIELDS[name].fits(value)] == []
    assert [value for value in others if FIELDS[name].fits(value)] == []


def test_a_name_of_151_letters_is_the_longest() -> None:
    assert FIELDS["clients"].fits({"north": {**CLIENT, "file": "a" * 151 + ".safetensors"}})


def test_texts_are_names_with_texts() -> None:
    assert TEXTS.fits({"a": "b"})
    for other in ({"a": "b", "c": 1}, {"c": 1, "a": "b"}, ["a"], "a", None):
        assert not TEXTS.fits(other)


def record(**changes: Any) -> dict[str, Any]:
    return {name: fitting[0] for name, (fitting, _) in FIT.items()} | changes


def test_a_record_is_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(record(outputs=3)))
    assert read_record(tmp_path) == record(outputs=3)
    for written, words in (
        (record(format=2), r"format 2, this version reads format 1"),
        ({}, "format None, this version reads format 1"),
        (record(outputs=0), "outputs is 0, it must be a whole number above 0"),
        (record(more=1), "unknown field 'more'"),
    ):
        path.write_text(json.dumps(written))
        with pytest.raises(DataError, match=words):
            read_record(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read .*model\.json"):
        read_record(tmp_path)
    assert dtype_of({"dtype": "bfloat16"}) is torch.bfloat16


def test_values_are_those_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tied = torch.arange(3.0)
    encoded = encode_values({"a": tied, "b": tied, "c": torch.ones(2, 2).t()})
    assert encoded.sha256 == hashlib.sha256(encoded.data).hexdigest()
    header = json.loads(encoded.data[8 : 8 + int.from_bytes(encoded.data[:8], "little")])
    assert header["__metadata__"] == {"format": "pt"}, "as other programs of PyTorch want it"
    path = tmp_path / "v.safetensors"
    path.write_bytes(encoded.data)
    values = read_values(path, encoded.sha256)
    assert {name: value.tolist() for name, value in values.items()} == {
        **{"a": [0.0, 1.0, 2.0], "b": [0.0, 1.0, 2.0]},
        "c": [[1.0, 1.0], [1.0, 1.0]],
    }
    values["a"] += 1
    assert values["b"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(DataError, match="its checksum differs"):
        read_values(path, SHA)
    header = int.from_bytes(encoded.data[:8], "little")
    monkeypatch.setattr(model, "LIMITS", Limits(header=header))
    read_values(path, encoded.sha256)
    monkeypatch.setattr(model, "LIMITS", Limits(header=header - 1))
    with pytest.raises(DataError, match=f"a header of {header} bytes, more than the {header - 1} allowed"):
        read_values(path, encoded.sha256)
    monkeypatch.undo()
    nonsense = (4).to_bytes(8, "little") + b"none"
    path.write_bytes(nonsense)
    with pytest.raises(DataError, match="is no safetensors file"):
        read_values(path, hashlib.sha256(nonsense).hexdigest())
    with pytest.raises(DataError, match="cannot read"):
        read_values(tmp_path / "none", SHA)


def test_a_shape_must_be_one_a_tensor_can_have() -> None:
    most = 1 << 62  # bytes; strides of 2^63 are too many
    for shape, size in (((1, most), most), ((most,), most), ((0, most), 0), ((), 1), ((2, 3), 6), ((0,), 0)):
        assert num_bytes("x", Spec(torch.uint8, shape), Limits()) == size
    assert num_bytes("x", Spec(torch.float32, (2, 3)), Limits()) == 24
    for wrong in ((2 * most,), (0, 2 * most), (most, 2), (most, 0, 2)):
        with pytest.raises(DataError, match="which no tensor can have"):
            num_bytes("x", Spec(torch.uint8, wrong), Limits())
    with pytest.raises(DataError, match="which no tensor can have"):
        num_bytes("x", Spec(torch.int16, (most,)), Limits())


def test_limits_of_messages() -> None:
    assert Limits() == (1 << 36, 1 << 25, 1 << 17, 32)
    assert Limits(9, 8, 7, 6).bounds() == (8, 3, 9 * 14)  # (tensors + metadata + all) * (dimensions + what is named)


def test_the_first_difference_in_the_order_of_names() -> None:
    spec, other = Spec(torch.float32, (1,)), Spec(torch.float32, (2,))
    with pytest.raises(DataError, match="the tree 'a' is missing"):
        check_expected({"b": {}}, {"c": {}, "a": {}, "b": {}})
    with pytest.raises(DataError, match="the tree 'a' is not expected"):
        check_expected({"z": {}, "a": {}}, {})
    with pytest.raises(DataError, match="'a/x' is"):
        check_expected(
            {"b": {"x": spec}, "a": {"y": spec, "x": spec}}, {"b": {"x": other}, "a": {"y": other, "x": other}}
        )
    check_expected({"a": {"x": spec}}, {"a": {"x": spec}})


def test_words_in_messages_are_cut() -> None:
    assert len(shown("x" * 200)) == 80
    assert shown("x" * 78) == "'" + "x" * 78 + "'"
    assert len(shown("x" * 79)) == 80


def test_numbers_of_twenty_digits_are_read() -> None:
    bounds = Bounds(100, 1, 3)
    assert parse(b'{"a": 18446744073709551615}', bounds, "it") == {"a": 2**64 - 1}
    with pytest.raises(DataError, match="a number of 21 digits"):
        parse(b'{"a": 184467440737095516150}', bounds, "it")
    # a bracket and two commas are three entries
    assert parse(b'{"a":1,"b":2,"c":3}', bounds, "it") == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(DataError, match="more than 3 entries"):
        parse(b'{"a":1,"b":2,"c":3,"d":4}', bounds, "it")
    with pytest.raises(DataError, match="nested more than 1 deep"):
        parse(b'{"a":[1]}', bounds, "it")
    assert parse(b"{}" + b" " * 98, bounds, "it") == {}
    with pytest.raises(DataError, match="has 101 bytes, more than the 100 allowed"):
        parse(b"{}" + b" " * 99, bounds, "it")
