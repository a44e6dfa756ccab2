"""Trees as bytes (safetensors) and as slices of a shared buffer. Nothing here can execute what it reads."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from accord.core.tensors import Tree, Trees, join
from accord.errors import DataError
from accord.wire.format import (
    CODES,
    DTYPES,
    LENGTH,
    LIMITS,
    OPENING,
    OWN,
    WIDTHS,
    ZEROS,
    Limits,
    Spec,
    Specs,
    check_expected,
    check_name,
    check_size,
    check_text,
    num_bytes,
)
from accord.wire.records import Bounds, is_whole, parse, shown

ALIGNMENT = 64  # slices start where torch's own allocations would, so kernels take the same path
Layout = dict[str, list[tuple[str, torch.dtype, tuple[int, ...], int]]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class _Slot(NamedTuple):
    """Where a tensor's values lie, counted from the first value."""

    begin: int
    end: int
    tree: str
    leaf: str
    spec: Spec


def encode(trees: Mapping[str, Tree], header: Mapping[str, str] | None = None) -> bytes:
    """A message that `decode` gives back equal; DataError for trees it cannot carry. `header` is for its readers."""
    for name, tree in trees.items():
        check_name(name, "tree")
        for leaf, tensor in tree.items():
            check_name(leaf, "leaf")
            _check_tensor(f"{name}/{leaf}", tensor)
    # Wide values first, so that all lie at multiples of their width.
    flat = sorted(join(trees).items(), key=lambda item: -item[1].element_size())
    check_size("a message", max(len(flat), len(trees)), LIMITS.tensors, "tensors or trees")
    entries: dict[str, Any] = {"__metadata__": _metadata(trees, header or {})}
    values = [_bytes_of(name, tensor) for name, tensor in flat]
    end = 0
    for (name, tensor), piece in zip(flat, values, strict=True):
        begin, end = end, end + len(piece)
        entries[name] = {"dtype": CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    check_size("a message's header", len(text), LIMITS.header, "bytes")
    check_size("a message", LENGTH + len(text) + end, LIMITS.size, "bytes")
    first = len(text).to_bytes(LENGTH, "little") + OPENING
    rest = text[len(OPENING) + len(ZEROS) :]
    return b"".join([first, _checksum([first, ZEROS, rest, *values]), rest, *values])


def decode(data: bytes, *, expected: Specs | None = None, limits: Limits = LIMITS, finite: bool = False) -> Trees:
    """The trees in a message; DataError for any bytes that are none.

    With `expected` (see `spec_of`) it must hold exactly those names, kinds of numbers and shapes; with `finite` no
    value may be infinite or NaN. Nothing is reserved that the message does not fill itself.
    """
    header, begin = _header(data, limits)
    names = _trees_named(header.pop("__metadata__"), limits)
    slots = _slots(header, len(data) - begin, limits)
    specs: dict[str, dict[str, Spec]] = {name: {} for name in names}
    for slot in slots:
        if slot.tree not in specs:
            raise _refusal(f"the tree {shown(slot.tree)} is not among those it names")
        specs[slot.tree][slot.leaf] = slot.spec
    if expected is not None:
        check_expected(specs, expected)
    trees: Trees = {name: {} for name in names}
    for slot in sorted(slots, key=lambda slot: (slot.tree, slot.leaf)):
        name = f"{slot.tree}/{slot.leaf}"
        tensor = trees[slot.tree][slot.leaf] = _tensor(name, slot, memoryview(data)[begin:])
        if finite and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{shown(name)} holds values that are infinite or no numbers")
    return trees


def header_of(data: bytes, *, limits: Limits = LIMITS) -> dict[str, str]:
    """What the caller of `encode` gave as `header`."""
    metadata = _header(data, limits)[0]["__metadata__"]
    return {name: text for name, text in metadata.items() if name not in OWN}


def _check_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise DataError(f"{shown(name)} is {type(tensor).__name__}: only tensors travel")
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        raise DataError(f"{shown(name)} is sparse, nested or without values: only dense tensors travel, see `to_dense`")
    if tensor.dtype not in CODES:
        raise DataError(
            f"{shown(name)} holds {tensor.dtype}, which cannot travel; allowed: "
            f"{', '.join(str(dtype).removeprefix('torch.') for dtype in CODES)}"
        )
    num_bytes(name, Spec(tensor.dtype, tuple(tensor.shape)), LIMITS)


def _metadata(trees: Iterable[str], header: Mapping[str, str]) -> dict[str, str]:
    for name, text in header.items():
        check_text(name, "a name in the header")
        check_text(text, "a text in the header")
        if name in OWN:
            raise DataError(f"the header's name {name!r} is the message's own: choose another")
    return {
        "checksum": ZEROS.decode(),
        "trees": json.dumps(sorted(trees)),
        **{name: header[name] for name in sorted(header)},
    }


def _bytes_of(name: str, tensor: Tensor) -> memoryview:
    """Its values, without a copy where they lie in order on this machine's side."""
    try:
        plain = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1)
        numbers = plain.view(WIDTHS[tensor.element_size()]).numpy()
    except (RuntimeError, TypeError) as error:  # tensors that only stand for values, as inside of torch.vmap
        raise DataError(f"{shown(name)} has no values that could travel: {error}") from error
    raw = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    _check_truths(name, tensor.dtype, raw)
    return raw.data


def _tensor(name: str, slot: _Slot, values: memoryview) -> Tensor:
    """A tensor of its own memory, laid out like all others."""
    tensor = torch.empty(slot.spec.shape, dtype=slot.spec.dtype)
    if tensor.numel():
        raw = np.frombuffer(values[slot.begin : slot.end], np.uint8)
        _check_truths(name, tensor.dtype, raw)
        numbers = tensor.reshape(-1).view(WIDTHS[tensor.element_size()]).numpy()
        numbers[:] = raw.view(numbers.dtype.newbyteorder("<"))
    return tensor


def _check_truths(name: str, dtype: torch.dtype, raw: Bytes) -> None:
    if dtype == torch.bool and len(raw) and int(raw.max()) > 1:
        raise DataError(f"{shown(name)} should hold true and false, and holds the byte {int(raw.max())}")


def _checksum(pieces: Iterable[bytes | memoryview]) -> bytes:
    total = 0
    for piece in pieces:
        total = zlib.crc32(piece, total)
    return f"{total:08x}".encode()


def _refusal(why: str) -> DataError:
    return DataError(f"these bytes are not a safetensors message of Accord: {why}")


def _header(data: bytes, limits: Limits) -> tuple[dict[str, Any], int]:
    """The header, with metadata that are texts, and where the values begin."""
    check_size("the message", len(data), limits.size, "bytes")
    place = LENGTH + len(OPENING)
    length = int.from_bytes(data[:LENGTH], "little")
    if data[LENGTH:place] != OPENING:
        raise _refusal("they do not begin like one")
    check_size("the message's header", length, limits.header, "bytes")
    if LENGTH + length > len(data):
        raise _refusal(f"a header of {length} bytes does not fit into {len(data)}")
    view, after = memoryview(data), place + len(ZEROS)
    if _checksum([view[:place], ZEROS, view[after:]]) != data[place:after]:
        raise _refusal("the checksum differs, so they were damaged or cut short on the way")
    header: dict[str, Any] = parse(data[LENGTH : LENGTH + length], limits.bounds(), "the message's header")
    metadata = header["__metadata__"]  # the opening says so
    if not all(isinstance(text, str) for text in metadata.values()):
        raise _refusal("its metadata are not texts")
    return header, LENGTH + length


def _trees_named(metadata: Mapping[str, str], limits: Limits) -> list[str]:
    if "trees" not in metadata:
        raise _refusal("it does not name its trees")
    bounds = Bounds(limits.header, depth=1, entries=limits.tensors)
    names: list[str] = parse(metadata["trees"].encode(), bounds, "the list of the message's trees", list)
    for name in names:
        check_name(name, "tree")
    if len(set(names)) < len(names):
        raise _refusal("it names a tree twice")
    return sorted(names)


def _slots(entries: Mapping[str, Any], length: int, limits: Limits) -> list[_Slot]:
    """All tensors, one after the other from the first value to the last."""
    check_size("the message", len(entries), limits.tensors, "tensors")
    slots = sorted((_slot(name, entry, limits) for name, entry in entries.items()), key=lambda slot: slot[:2])
    end = 0
    for slot in slots:
        if slot.begin != end:
            raise _refusal(f"the values of {shown(f'{slot.tree}/{slot.leaf}')} begin at {slot.begin}, not at {end}")
        end = slot.end
    if end != length:
        raise _refusal(f"its tensors take {end} bytes, and it holds {length}")
    return slots


def _slot(name: str, entry: Any, limits: Limits) -> _Slot:
    tree, slash, leaf = name.partition("/")
    if not (tree and slash and leaf):
        raise _refusal(f"{shown(name)} is not the name of a tensor (tree/leaf)")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _refusal(f"{shown(name)} is not described by dtype, shape and data_offsets")
    code, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise _refusal(f"{shown(name)} has the dtype {shown(code)}; allowed: {', '.join(DTYPES)}")
    for numbers, what in ((shape, "shape"), (place, "data_offsets")):
        if not isinstance(numbers, list) or not all(map(is_whole, numbers)):
            raise _refusal(f"{what} of {shown(name)} is {shown(numbers)}, not whole numbers")
    spec = Spec(DTYPES[code], tuple(shape))
    if len(place) != 2 or place[1] - place[0] != num_bytes(name, spec, limits):
        raise _refusal(f"the place {shown(place)} of {shown(name)} does not fit its shape {shown(shape)}")
    return _Slot(place[0], place[1], tree, leaf, spec)


def room(trees: Mapping[str, Tree]) -> int:
    """Bytes `place` needs."""
    return sum(
        -(-t.numel() * t.element_size() // ALIGNMENT) * ALIGNMENT for tree in trees.values() for t in tree.values()
    )


def place(trees: Mapping[str, Tree], buffer: Tensor) -> Layout:
    """Copy all tensors into `buffer` (uint8); the layout says where each one lies."""
    layout: Layout = {}
    offset = 0
    for name in sorted(trees):
        rows = layout.setdefault(name, [])
        for leaf in sorted(trees[name]):
            tensor = trees[name][leaf]
            size = tensor.numel() * tensor.element_size()
            if size:
                buffer[offset : offset + size].view(tensor.dtype).view(tensor.shape).copy_(tensor)
            rows.append((leaf, tensor.dtype, tuple(tensor.shape), offset))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
    return layout


def views(layout: Layout, buffer: Tensor) -> Trees:
    """The placed tensors, without copying."""
    trees: Trees = {}
    for name, rows in layout.items():
        tree = trees.setdefault(name, {})
        for leaf, dtype, shape, offset in rows:
            size = torch.Size(shape).numel() * dtype.itemsize
            tree[leaf] = (
                buffer[offset : offset + size].view(dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
            )
    return trees
