"""Rotation against torch.rot90, a plain loop and PIL; permutation and cropping against their definitions."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from accord.data.federated import Dataset, Pool
from accord.data.transforms import TRANSFORMS, make_transform
from accord.data.transforms.cropping import CropFlip
from accord.data.transforms.permutation import Permute
from accord.data.transforms.rotation import Rotate, rotated
from accord.errors import ConfigError, DataError


def images(count=6, channels=3, height=28, width=28, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), generator=generator, dtype=torch.uint8)


def toy(x=None, mean=(), std=()) -> Dataset:
    x = images() if x is None else x
    pool = Pool(x, torch.arange(len(x)) % 2, mean, std)
    return Dataset("toy", pool, pool, ("a", "b"))


def turned_by_loops(image, angle, fill=0.0):
    """Each target pixel looks back by the inverse rotation about the centre, y pointing up."""
    height, width = image.shape
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    result = np.full((height, width), fill)
    for i in range(height):
        for j in range(width):
            x, y = j - (width - 1) / 2, (height - 1) / 2 - i
            back_x, back_y = cos * x + sin * y, -sin * x + cos * y
            row, column = round((height - 1) / 2 - back_y), round(back_x + (width - 1) / 2)
            if 0 <= row < height and 0 <= column < width:
                result[i, j] = image[row, column]
    return result


class TestRotation:
    def test_quarter_turn_by_hand(self):
        x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        assert rotated(x, 90).tolist() == [[[[2.0, 4.0], [1.0, 3.0]]]]

    @pytest.mark.parametrize("quarter", [1, 2, 3, 4, -1])
    @pytest.mark.parametrize("side", [8, 9, 28, 32])
    def test_quarter_turns_equal_rot90(self, quarter, side):
        x = images(height=side, width=side).float()
        assert torch.equal(rotated(x, 90 * quarter), torch.rot90(x, quarter, (-2, -1)))

    def test_no_turn_is_the_identity(self):
        x = images().double()
        assert rotated(x, 0) is x
        assert rotated(x, 360) is x

    @pytest.mark.parametrize(("height", "width"), [(28, 28), (9, 9), (12, 20)])
    @pytest.mark.parametrize("angle", [15, 40, 105, -15])
    def test_equal_to_a_loop(self, angle, height, width):
        x = images(2, 1, height, width).double() + 1
        ours = rotated(x, angle)
        for image, expected in zip(ours, x, strict=True):
            assert np.array_equal(image[0].numpy(), turned_by_loops(expected[0].numpy(), angle))

    @pytest.mark.parametrize("angle", [15, 30, 45, 60, 75, 90, 105, 120, 135])
    def test_same_direction_as_pil(self, angle):
        image_module = pytest.importorskip("PIL.Image")
        x = images(1, 1)
        theirs = np.asarray(image_module.fromarray(x[0, 0].numpy()).rotate(angle))
        differing = (rotated(x, angle)[0, 0].numpy() != theirs).mean()
        assert differing < 29 / 784  # at 45 and 135 degrees one diagonal lies halfway between two pixels

    def test_bytes_and_batches_are_treated_alike(self):
        x = images()
        assert torch.equal(rotated(x, 15).float(), rotated(x.float(), 15))
        assert torch.equal(rotated(x, 15)[3:4], rotated(x[3:4], 15))
        assert rotated(x[:0], 15).shape == (0, 3, 28, 28)

    def test_corners_are_what_black_becomes(self):
        data = toy(mean=(0.5, 0.4, 0.25), std=(0.25, 0.2, 0.5))
        change = make_transform("rotate", data, 10)
        x, _ = data.train.take(np.arange(6))
        ours = change.transform(3, np.arange(6), x)
        assert ours[0, :, 0, 0].tolist() == [-2.0, -2.0, -0.5]
        shown = change.environments[3].change(x)  # of the test pool, by the same 45 degrees
        assert shown[0, :, 0, 0].tolist() == [-2.0, -2.0, -0.5]
        assert torch.equal(shown, ours)
        # turning the raw bytes (corners 0) and normalising afterwards is the same
        raw = Pool(rotated(data.train.x, 45), data.train.y, data.train.mean, data.train.std)
        assert torch.allclose(ours, raw.take(np.arange(6))[0])


class TestRotateClients:
    def test_client_i_is_turned_by_15_i_degrees(self):
        change = make_transform("rotate", toy(), 25)
        x = images().float()
        for client, angle in [(0, 0), (3, 45), (9, 135), (10, 0), (23, 45)]:
            assert torch.equal(change.transform(client, np.arange(6), x), rotated(x, angle))

    def test_environments_are_the_angles(self):
        change = make_transform("rotate", toy(), 4, settings={"step": 30.0, "count": 3})
        assert [e.name for e in change.environments] == ["rotated by 0", "rotated by 30", "rotated by 60"]
        x = images().float()
        assert torch.equal(change.environments[2].change(x), rotated(x, 60))

    @pytest.mark.parametrize("per", ["client", "image"])
    def test_corners_are_filled_however_angles_are_dealt(self, per):
        """A white square turned by 45 degrees: its corners come from outside, of every channel its own."""
        turned = Rotate((45.0,), (7.0, -3.0), per)(0, np.arange(2), torch.ones(2, 2, 9, 9))
        for corner in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
            assert turned[:, :, corner[0], corner[1]].tolist() == [[7.0, -3.0]] * 2
        assert turned[:, :, 4, 4].tolist() == [[1.0, 1.0]] * 2

    def test_image_angles_depend_on_position_only(self):
        rotate = Rotate(tuple(15.0 * i for i in range(10)), per="image", seed=3)
        index = np.arange(500)
        x = torch.arange(500 * 64, dtype=torch.float32).view(500, 1, 8, 8)
        whole = rotate(2, index, x)
        some = np.array([7, 499, 3, 7])
        assert torch.equal(rotate(2, some, x[some]), whole[some])
        assert not torch.equal(rotate(1, index, x), whole)
        assert not torch.equal(Rotate(rotate.angles, per="image", seed=4)(2, index, x), whole)
        assert rotate(2, index[:0], x[:0]).shape == (0, 1, 8, 8)
        for number, angle in enumerate(rotate.angles):
            rows = np.flatnonzero(rotate.choice(2, index) == number)
            assert torch.equal(whole[rows], rotated(x[rows], angle))

    def test_image_angles_follow_the_shares(self):
        rotate = Rotate(tuple(15.0 * i for i in range(10)), per="image", concentration=1.0)
        shares = rotate.shares(5)
        seen = np.bincount(rotate.choice(5, np.arange(40_000)), minlength=10) / 40_000
        assert shares.sum() == pytest.approx(1)
        assert np.abs(seen - shares).max() < 5 * 0.5 / 200
        many = np.array([rotate.shares(k) for k in range(500)])
        assert np.abs(many.mean(axis=0) - 0.1).max() < 0.02
        sharp = np.array([Rotate(rotate.angles, per="image", concentration=0.1).shares(k) for k in range(300)])
        assert sharp.max(axis=1).mean() > many.max(axis=1).mean() + 0.2


class TestPermute:
    def test_a_fixed_permutation_per_client(self):
        permute = Permute(seed=1)
        x = images().float()
        first = permute(0, np.arange(6), x)
        order = permute.order(0, 784)
        assert sorted(order.tolist()) == list(range(784))
        for channel in range(3):
            assert torch.equal(first[:, channel].flatten(1), x[:, channel].flatten(1)[:, order])
        assert torch.equal(permute(0, np.arange(2), x[:2]), first[:2])
        assert not torch.equal(permute(1, np.arange(6), x), first)
        assert not np.array_equal(Permute(seed=2).order(0, 784), order)
        assert torch.equal(Permute(keep_first=True)(0, np.arange(6), x), x)

    def test_flat_features_and_empty_batches(self):
        x = torch.arange(20.0).view(2, 10)
        assert sorted(Permute()(3, np.arange(2), x)[0].tolist()) == list(range(10))
        assert Permute()(3, np.arange(0), x[:0]).shape == (0, 10)

    def test_features_of_a_table_may_be_permuted(self):
        change = make_transform("permute", toy(torch.arange(14.0).view(2, 7)), 3)
        x = torch.arange(7.0).view(1, 7)
        assert sorted(change.transform(1, np.arange(1), x)[0].tolist()) == list(range(7))
        series = torch.arange(10.0).view(1, 2, 5)  # two channels of five: in the same order
        first, second = Permute()(1, np.arange(1), series)[0].tolist()
        assert sorted(first) == list(range(5))
        assert second == [value + 5 for value in first]

    def test_environments_per_client_are_capped(self):
        x = images().float()
        change = make_transform("permute", toy(), 3, seed=5)
        assert [e.name for e in change.environments] == ["client 0", "client 1", "client 2"]
        assert torch.equal(change.environments[1].change(x), change.transform(1, np.arange(6), x))
        assert len(make_transform("permute", toy(), 100_000).environments) == 10
        assert len(make_transform("permute", toy(), 7, settings={"environments": 2}).environments) == 2


class TestCropFlip:
    def test_every_image_is_a_crop_of_its_padded_copy(self):
        x = images(40, 2, 6, 7).float() + 1
        ours = CropFlip(padding=2, fill=(-1.0, -2.0))(0, np.arange(40), x)
        mirrored = 0
        for image, result in zip(x, ours, strict=True):
            padded = torch.stack(
                [
                    torch.nn.functional.pad(plane, (2, 2, 2, 2), value=f)
                    for plane, f in zip(image, (-1.0, -2.0), strict=True)
                ]
            )
            crops = [padded[:, i : i + 6, j : j + 7] for i in range(5) for j in range(5)]
            plain = any(torch.equal(result, crop) for crop in crops)
            flipped = any(torch.equal(result, crop.flip(-1)) for crop in crops)
            assert plain != flipped
            mirrored += flipped
        assert 8 <= mirrored <= 32

    def test_the_smallest_image_and_black_where_nothing_is_said(self):
        """Of 1 x 1 and a padding of 1 one place in nine is the pixel, the others are black."""
        ours = CropFlip(padding=1)(0, np.arange(200), torch.full((200, 2, 1, 1), 7.0))
        assert torch.equal(ours[:, 0], ours[:, 1])
        assert set(ours.flatten().tolist()) == {0.0, 7.0}
        assert 5 <= int((ours[:, 0] == 7).sum()) <= 50  # 22 expected, standard deviation below 5

    def test_fixed_by_position_and_none_without_padding(self):
        x = images(20).float()
        crop = CropFlip(seed=2)
        assert torch.equal(crop(1, np.array([4, 9]), x[[4, 9]]), crop(1, np.arange(20), x)[[4, 9]])
        bare = CropFlip(padding=0)(1, np.arange(20), x)
        assert all(torch.equal(a, b) or torch.equal(a, b.flip(-1)) for a, b in zip(bare, x, strict=True))
        assert crop(0, np.arange(0), x[:0]).shape == (0, 3, 28, 28)
        assert [e.name for e in make_transform("crop_flip", toy(), 3).environments] == ["test"]


class TestFactories:
    def test_none(self):
        change = make_transform("none", toy(), 3)
        x = images()
        assert change.transform is None
        assert [e.name for e in change.environments] == ["test"]
        assert change.environments[0].change(x) is x

    @pytest.mark.parametrize("name", list(TRANSFORMS))
    def test_changes_can_be_copied(self, name):
        change = make_transform(name, toy(), 3)
        again = copy.deepcopy(change)
        x = images().float()
        assert torch.equal(again.environments[-1].change(x), change.environments[-1].change(x))

    @pytest.mark.parametrize(
        ("name", "settings", "message"),
        [
            ("rotat", {}, "Did you mean 'rotate'"),
            ("rotate", {"angle": 15}, "has no setting 'angle'"),
            ("rotate", {"seed": 15}, "has no setting 'seed'"),
            ("rotate", {"count": 0}, "at least 1"),
            ("rotate", {"step": float("nan")}, "finite"),
            ("rotate", {"per": "pixel"}, "one of client, image"),
            ("rotate", {"concentration": 0}, "at least"),
            ("permute", {"environments": 0}, "at least 1"),
            ("permute", {"keep_first": "yes"}, "true or false"),
            ("crop_flip", {"padding": -1}, "at least 0"),
        ],
    )
    def test_bad_settings(self, name, settings, message):
        with pytest.raises(ConfigError, match=message):
            make_transform(name, toy(), 3, settings=settings)

    def test_inputs_that_are_no_images(self):
        flat = toy(torch.zeros(4, 7))
        with pytest.raises(ConfigError, match=r"needs images .* have shape \(7,\)"):
            make_transform("rotate", flat, 3)
        with pytest.raises(ConfigError, match="single numbers"):
            make_transform("permute", toy(torch.zeros(4)), 3)
        with pytest.raises(DataError, match="cannot be normalised"):
            make_transform("rotate", toy(mean=(0.5,), std=(0.0,)), 3)
        with pytest.raises(ConfigError, match="clients must be"):
            make_transform("none", toy(), 0)
