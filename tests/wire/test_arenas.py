"""Trees laid into a buffer and seen there again; places worked out by hand."""

from __future__ import annotations

import torch

from accord.wire.codec import place, room, views


def trees() -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {"w": torch.arange(20, dtype=torch.float32).view(4, 5), "a": torch.tensor(7, dtype=torch.int64)},
        "extra": {"none": torch.zeros(0, 3), "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)},
        "empty": {},
    }


def test_places_begin_at_multiples_of_64_in_the_order_of_names() -> None:
    # half takes 4 bytes, none takes none, a takes 8, w takes 80: 64 + 0 + 64 + 128
    assert room(trees()) == 256
    assert room({}) == 0
    buffer = torch.full((256,), 255, dtype=torch.uint8)
    assert place(trees(), buffer) == {
        "empty": [],
        "extra": [("half", torch.bfloat16, (2,), 0), ("none", torch.get_default_dtype(), (0, 3), 64)],
        "model": [("a", torch.int64, (), 64), ("w", torch.float32, (4, 5), 128)],
    }
    assert buffer[4:64].unique().tolist() == [255]  # nothing beyond what was laid
    assert buffer[64:72].tolist() == [7, 0, 0, 0, 0, 0, 0, 0]
    assert buffer[208:].unique().tolist() == [255]


def test_what_was_laid_is_seen_without_copying() -> None:
    buffer = torch.zeros(256, dtype=torch.uint8)
    seen = views(place(trees(), buffer), buffer)
    assert seen.keys() == trees().keys()
    for name, tree in trees().items():
        assert seen[name].keys() == tree.keys()
        for leaf, tensor in tree.items():
            assert seen[name][leaf].dtype == tensor.dtype
            assert torch.equal(seen[name][leaf], tensor)
    buffer[64] = 9
    assert int(seen["model"]["a"]) == 9
