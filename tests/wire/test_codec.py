"""Trees as bytes: what is written comes back equal, what cannot is refused, what is not expected is named."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load

from accord.errors import DataError
from accord.wire.codec import decode, encode, header_of
from accord.wire.format import DTYPES, Limits, Spec, spec_of
from support.messages import CHECKSUM, parts, raw, same_bits

LEAVES = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["conv1.weight", "a/b", "/", "//x", "é\n", '"', "\\", "\x00"]
)
TREES = st.text(min_size=1, max_size=6).filter(lambda name: "/" not in name)


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    dtype = draw(st.sampled_from(sorted(DTYPES.values(), key=str)))
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    count = torch.Size(shape).numel()
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype == torch.bool:
        return torch.tensor([byte % 2 == 1 for byte in data], dtype=torch.bool).reshape(shape)
    tensor = torch.tensor(list(data), dtype=torch.uint8).view(dtype).reshape(shape)
    return tensor.transpose(0, -1) if draw(st.booleans()) and tensor.ndim > 1 else tensor


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(TREES, st.dictionaries(LEAVES, tensors(), max_size=4), max_size=4))
def test_what_is_written_comes_back_equal(trees: dict[str, dict[str, torch.Tensor]]) -> None:
    data = encode(trees)
    back = decode(data, expected=spec_of(trees))
    assert same_bits(back, trees)
    assert list(back) == sorted(trees)
    assert all(list(back[name]) == sorted(tree) for name, tree in trees.items())
    flat = load(data)  # every other reader of safetensors finds the same
    assert flat.keys() == {f"{name}/{leaf}" for name, tree in trees.items() for leaf in tree}
    assert all(torch.equal(raw(flat[f"{n}/{leaf}"]), raw(t)) for n, tree in trees.items() for leaf, t in tree.items())


@given(st.dictionaries(st.text().filter(lambda name: name not in ("trees", "checksum")), st.text(), max_size=4))
def test_a_header_comes_back(header: dict[str, str]) -> None:
    assert header_of(encode({"a": {}}, header)) == header


def test_the_bytes_of_a_message_written_out() -> None:
    trees = {"b": {}, "a": {"t": torch.tensor([True, False]), "w": torch.tensor([[1.0, -2.0]])}}
    header, values = parts(encode(trees, {"kind": "reply"}))
    read = json.loads(header)
    checksum = read["__metadata__"].pop("checksum")
    assert len(checksum) == 8
    assert read == {
        "__metadata__": {"trees": '["a", "b"]', "kind": "reply"},
        "a/w": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
        "a/t": {"dtype": "BOOL", "shape": [2], "data_offsets": [8, 10]},
    }
    assert values == bytes.fromhex("0000803f 000000c0 01 00")
    assert len(header) % 8 == 0


def test_order_and_memory_layout_do_not_change_the_bytes() -> None:
    w, v = torch.randn(4, 3), torch.arange(3)
    plain = encode({"a": {"v": v, "w": w}, "b": {}})
    assert encode({"b": {}, "a": {"w": w.t().contiguous().t(), "v": v.expand(1, 3)[0]}}) == plain


def test_tensors_that_share_memory_and_parameters_travel() -> None:
    w = torch.nn.Parameter(torch.randn(4))
    back = decode(encode({"a": {"w": w, "part": w[1:3]}, "b": {"w": w}}))
    assert torch.equal(back["a"]["w"], w)
    assert torch.equal(back["b"]["w"], w)
    assert torch.equal(back["a"]["part"], w[1:3])
    back["a"]["w"].zero_()  # what arrives is owned
    assert torch.equal(back["b"]["w"], w)


def test_imaginary_parts_with_a_pending_sign_keep_it() -> None:
    pending = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert pending.is_neg()
    assert decode(encode({"a": {"x": pending}}))["a"]["x"].tolist() == [-2.0, 4.0]
    assert decode(encode({"a": {"x": torch._neg_view(torch.tensor([3.0]))}}))["a"]["x"].tolist() == [-3.0]


@pytest.mark.parametrize(
    ("trees", "reason"),
    [
        ({"": {}}, "empty"),
        ({"a/b": {"w": torch.ones(1)}}, "'/' separates trees from leaves"),
        ({"a": {"": torch.ones(1)}}, "empty"),
        ({1: {}}, "must be text"),
        ({"a": {2: torch.ones(1)}}, "must be text"),
        ({"\ud800": {}}, "half a character"),
        ({"a": {"\udfff": torch.ones(1)}}, "half a character"),
        ({"a": {"w": 1.0}}, "only tensors travel"),
        ({"a": {"w": torch.ones(2, 2).to_sparse()}}, "only dense tensors"),
        ({"a": {"w": torch.ones(2, device="meta")}}, "only dense tensors"),
        ({"a": {"w": torch.ones(2, dtype=torch.complex64)}}, "complex64, which cannot travel; allowed: float64"),
        ({"a": {"w": torch.ones((1,) * 33)}}, "33 dimensions, more than the 32"),
        ({"a": {"w": torch.tensor([2], dtype=torch.uint8).view(torch.bool)}}, "true and false"),
    ],
)
def test_what_cannot_travel_is_refused_when_written(trees: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        encode(trees)


def test_nested_quantised_and_stacked_tensors_are_refused_when_written() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    for tensor in (nested, quantised):
        with pytest.raises(DataError, match="travel"):
            encode({"a": {"w": tensor}})
    with pytest.raises(DataError, match="no values that could travel"):
        torch.vmap(lambda x: torch.tensor(len(encode({"a": {"w": x}}))))(torch.ones(2, 3))


def test_the_order_of_trees_leaves_and_header_changes_no_byte() -> None:
    one, two = torch.ones(2), torch.zeros(3)
    assert encode({"a": {"x": one, "y": two}, "b": {}}, {"k": "1", "l": "2"}) == encode(
        {"b": {}, "a": {"y": two, "x": one}}, {"l": "2", "k": "1"}
    )


@pytest.mark.parametrize("header", [{"trees": "x"}, {"checksum": "x"}, {"a": 1}, {1: "a"}, {"a": "\ud800"}])
def test_a_header_of_other_things_is_refused(header: Any) -> None:
    with pytest.raises(DataError, match=r"in the header|the message's own"):
        encode({}, header)


DUE = {"model": {"w": Spec(torch.float32, (2, 3)), "b": Spec(torch.float32, (2,))}, "extra": {}}


@pytest.mark.parametrize(
    ("trees", "difference"),
    [
        ({"model": {"w": torch.ones(2, 3), "b": torch.ones(2)}}, "the tree 'extra' is missing"),
        ({"model": {}, "extra": {}, "more": {}}, "the tree 'more' is not expected"),
        ({"model": {"w": torch.ones(2, 3)}, "extra": {}}, "the leaf of 'model' 'b' is missing"),
        ({"model": {"w": torch.ones(2, 3), "b": torch.ones(2)}, "extra": {"x": torch.ones(1)}}, "'x' is not expected"),
        ({"model": {"w": torch.ones(3, 2), "b": torch.ones(2)}, "extra": {}}, r"'model/w' is torch.float32 \(3, 2\)"),
        ({"model": {"w": torch.ones(2, 3).double(), "b": torch.ones(2)}, "extra": {}}, "'model/w' is torch.float64"),
        # of several the first by name, in whatever order they come
        ({"model": {"w": torch.ones(3), "b": torch.ones(3)}, "extra": {}}, "'model/b' is torch.float32"),
        ({"model": {}, "extra": {"x": torch.ones(1)}}, "the leaf of 'extra' 'x' is not expected"),
        ({"model": {}, "extra": {}}, "the leaf of 'model' 'b' is missing"),
        ({"z": {}, "y": {}}, "the tree 'extra' is missing"),
    ],
)
def test_the_first_difference_from_what_is_expected_is_named(trees: Any, difference: str) -> None:
    data = encode(trees)
    assert same_bits(decode(data), trees)
    with pytest.raises(DataError, match=difference):
        decode(data, expected=DUE)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2])
def test_values_that_are_no_numbers_are_refused_by_name_where_asked(value: float, dtype: torch.dtype) -> None:
    trees = {"a": {"good": torch.ones(2), "bad": torch.tensor([1.0, value]).to(dtype), "i": torch.tensor(3)}}
    data = encode(trees)
    assert same_bits(decode(data), trees)
    with pytest.raises(DataError, match="'a/bad' holds values that are infinite"):
        decode(data, finite=True)
    assert decode(encode({"a": {"good": torch.ones(2).to(dtype)}}), finite=True)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(size=100), "more than the 100 allowed"),
        (Limits(header=64), "more than the 64 allowed"),
        (Limits(tensors=1), "2 tensors, more than the 1"),
        (Limits(dims=1), "2 dimensions, more than the 1"),
    ],
)
def test_a_receiver_sets_its_limits(limits: Limits, reason: str) -> None:
    data = encode({"a": {"w": torch.ones(2, 3), "v": torch.ones(1)}})
    with pytest.raises(DataError, match=reason):
        decode(data, limits=limits)


def test_a_header_is_read_within_the_same_limits() -> None:
    data = encode({"a": {}}, {f"name {number}": "x" for number in range(20)})
    assert len(header_of(data)) == 20
    for limits, reason in (
        (Limits(size=len(data) - 1), f"more than the {len(data) - 1} allowed"),
        (Limits(header=64), "more than the 64 allowed"),
        (Limits(tensors=0, dims=0), "more than 16 entries"),  # of two times eight
    ):
        with pytest.raises(DataError, match=reason):
            header_of(data, limits=limits)


def test_a_header_longer_than_the_message_does_not_fit() -> None:
    data = encode({})
    length = int.from_bytes(data[:8], "little")
    assert len(data) == 8 + length
    for more in (1, 8, 9):
        with pytest.raises(DataError, match=f"a header of {length + more} bytes does not fit into {len(data)}"):
            decode((length + more).to_bytes(8, "little") + data[8:])


def test_every_second_number_nothing_at_all_and_slashes_in_the_order_of_names() -> None:
    """The values of wide tensors come first in the message, and their names do not."""
    trees = {
        "a": {
            "x/y": torch.arange(6.0, dtype=torch.float64)[::2],
            "b": torch.tensor([True]),
            "none": torch.zeros(0, dtype=torch.bool),
        }
    }
    back = decode(encode(trees))
    assert list(back["a"]) == ["b", "none", "x/y"]
    assert back["a"]["x/y"].tolist() == [0.0, 2.0, 4.0]
    assert back["a"]["none"].tolist() == []
    assert back["a"]["none"].dtype == torch.bool


def test_every_byte_is_under_the_checksum() -> None:
    data = encode({"a": {"w": torch.arange(3.0)}, "b": {}})
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(DataError):
                decode(bytes(damaged))
    assert data[CHECKSUM].islower() or data[CHECKSUM].isdigit()


def test_the_limits_of_a_message() -> None:
    """64 GiB, a header of 32 MiB, 131,072 tensors of 32 dimensions; a name in the header may be nested three deep."""
    assert Limits() == (68_719_476_736, 33_554_432, 131_072, 32)
    assert Limits().bounds() == (33_554_432, 3, 131_074 * 40)
    assert Limits(1, 2, 3, 4).bounds() == (2, 3, 5 * 12)
