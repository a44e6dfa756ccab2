"""Small cases of data, each worked out by hand: what is read, what is refused, and in which words."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import accord
from accord.data import columns, inputs
from accord.data.checks import labels_of
from accord.data.description import Description
from accord.data.division import arrangement, check_enough, count_named, limited
from accord.data.federated import Dataset, Groups, Pool
from accord.data.files import contents, download, folders, identities
from accord.data.files.collection import Collection, Places, find
from accord.data.files.contents import Blob
from accord.data.files.download import Remote
from accord.data.files.idx import parse_idx
from accord.data.files.images import read_images
from accord.data.own.sites import in_order, numbered, site_ids
from accord.data.own.table_columns import kind_of
from accord.data.partitions import PARTITIONS, partition
from accord.data.partitions.dirichlet import lda_client
from accord.data.public import msmt17
from accord.data.splits import stratified
from accord.data.streams import per_image, stream
from accord.data.transforms import TRANSFORMS, cropping, rotation
from accord.data.transforms.permutation import Permute
from accord.errors import ConfigError, DataError
from accord.settings import Range, settings_of


def named(train: list[int], test: list[int] | None = None, names: tuple[str, ...] = ()) -> Dataset:
    """A data set that names clients, without their names unless they are given."""
    pools = [Pool(torch.zeros(len(ids), 1), torch.zeros(len(ids), dtype=torch.int64)) for ids in (train, test or [])]
    ids = [None if ids is None else np.array(ids) for ids in (train, test)]
    return Dataset("toy", *pools, ("a",), train_clients=ids[0], test_clients=ids[1], client_names=names)


def test_clients_the_data_names_are_counted_over_both_parts() -> None:
    assert count_named(named([0, 1, 1], [3])) == 4
    assert count_named(named([0, 4], [3])) == 5
    assert count_named(named([0, 1], [0], ("x", "y", "z"))) == 3
    assert arrangement(named([0, 2], [1])) == ("natural", 3, "natural")
    assert arrangement(named([0, 2])) == ("natural", 3, "holdout")
    assert arrangement(named([0, 2]), clients=7).clients == 7


def test_no_more_clients_than_samples_or_names() -> None:
    check_enough(named([0, 1, 5]), 6)
    with pytest.raises(ConfigError, match="7 clients cannot share 3 training samples"):
        check_enough(named([0, 1, 5]), 7)
    check_enough(named([0, 0, 0]), 3)
    with pytest.raises(ConfigError, match="4 clients cannot share 3"):
        check_enough(named([0, 0, 0]), 4)


def test_one_sample_is_a_limit() -> None:
    notes: list[str] = []
    kept = limited(named([0, 1, 1], [0]), 1, np.random.default_rng(0), notes)
    assert (len(kept.train), notes) == (1, ["1 of 3 training samples used"])
    assert len(limited(named([0, 1, 1], [0]), 3, np.random.default_rng(0), notes).train) == 3
    assert len(notes) == 1
    for wrong in (0, True, 1.0):
        with pytest.raises(ConfigError, match="limit must be a whole number of at least 1"):
            limited(named([0, 1]), wrong, np.random.default_rng(0), [])  # type: ignore[arg-type]


def test_words_and_lists_are_cut_for_a_message() -> None:
    assert columns.cut("x" * 60) == "x" * 60
    assert columns.cut("x" * 61) == "x" * 57 + "..."
    assert columns.quoted("y" * 70) == "'" + "y" * 57 + "...'"
    assert columns.quoted(12) == "12"
    assert columns.listed(range(8)) == "'0', '1', '2', '3', '4', '5', '6', '7'"
    assert columns.listed(range(10)) == "'0', '1', '2', '3', '4', '5', '6', '7' and 2 more"
    assert columns.counted({"a": 2, "b": 1}) == "'a' (2), 'b' (1)"


def test_nobody_has_no_smallest_and_no_largest() -> None:
    summary = Description("toy", "train", np.zeros((0, 2), np.int64), ()).summary()
    assert [summary[name] for name in ("clients", "samples", "smallest", "median", "largest")] == [0, 0, 0, 0.0, 0]
    some = Description("toy", "train", np.array([[3, 1], [0, 2], [0, 0]]), ()).summary()
    assert [some[name] for name in ("clients", "samples", "smallest", "median", "largest")] == [3, 6, 0, 2.0, 4]


def test_folders_that_were_searched_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file")
    places = Places((tmp_path, tmp_path / "none"), download=False)
    wanted = Collection("toy", ("a.bin",), (Remote("a.bin", ("https://example.org/a.bin",), ""),))
    with pytest.raises(DataError) as error:
        find(wanted, places)
    lines = str(error.value).splitlines()
    assert lines[0] == "toy: its files are not on this machine and downloading is switched off"
    assert f"  {tmp_path / 'toy'} (not a folder)" in lines
    assert f"  {tmp_path / 'none'} (not found, or not readable)" in lines
    assert f"  {tmp_path}" in lines


def test_a_file_too_short_and_one_too_long() -> None:
    head = [0, 0, 8, 1, 0, 0, 0, 2]
    for data, words in (([*head, 7], "cut short: 9 bytes"), ([*head, 7, 8, 9], "too long: 11 bytes")):
        with pytest.raises(DataError, match=words):
            parse_idx(Blob("labels", np.array(data, np.uint8)), 1)
    assert parse_idx(Blob("labels", np.array([*head, 7, 8], np.uint8)), 1).tolist() == [7, 8]
    assert parse_idx(Blob("labels", np.array([0, 0, 8, 1, 0, 0, 0, 0], np.uint8)), 1).tolist() == []
    with pytest.raises(DataError, match="7 bytes, but the header alone takes 8"):
        parse_idx(Blob("labels", np.array(head[:7], np.uint8)), 1)


def test_ids_in_a_table_are_refused_by_their_shape() -> None:
    for clients in (np.zeros((0, 0)), np.zeros((3, 1)), 4):
        with pytest.raises(DataError, match="give one id per sample"):
            site_ids(clients, 3)
    with pytest.raises(DataError, match=r"there are 1 samples but clients has shape \(1, 0\)"):
        site_ids(np.zeros((1, 0)), 1)


def test_kinds_of_columns() -> None:
    day = pd.Timestamp("2026-01-02")
    assert kind_of(np.array([day, None], object)) == "date"
    assert kind_of(np.array([pd.Timedelta(1, "s"), 3], object)) == "date"
    assert kind_of(np.array([True, None], object)) == "bool"
    assert kind_of(np.array([None, None], object)) == "number"
    assert kind_of(np.array([3, "4.5"], object)) in {"number", "text"}
    assert kind_of(np.array(["a", 1], object)) == "text"
    for code, kind in (("?", "bool"), ("u1", "number"), ("i8", "number"), ("f4", "number"), ("M8[s]", "date")):
        assert kind_of(np.zeros(2, code)) == kind
    assert kind_of(np.zeros(2, "m8[s]")) == "date"
    assert kind_of(np.array(["x"])) == "text"


def test_a_table_without_sites_is_split_like_one_with_them() -> None:
    data = accord.from_table(pd.DataFrame({"age": range(10), "ill": [0, 1] * 5}), "ill", test_fraction=0.2)
    assert (len(data.train), len(data.test)) == (8, 2)
    assert data.train_clients is None
    assert data.test_clients is None


def test_twenty_whole_numbers_are_classes_and_more_are_asked_about() -> None:
    def labelled(count: int, **options: Any) -> Dataset:
        rows = pd.DataFrame({"age": range(2 * count), "y": [*range(count)] * 2})
        return accord.from_table(rows, "y", test=rows, **options)

    assert labelled(20).problem == "classification"
    with pytest.raises(DataError, match="21 different whole numbers: say task='classification'"):
        labelled(21)
    assert labelled(21, task="classification").num_classes == 21
    assert labelled(21, task="regression").problem == "regression"


def test_twenty_whole_numbers_stored_as_real_ones_are_asked_about_and_more_are_amounts() -> None:
    def labelled(y: np.ndarray) -> Dataset:
        x = np.zeros((len(y), 1))
        return accord.from_arrays(x, y, test=(x, y))

    with pytest.raises(DataError, match="20 different whole numbers, stored as real ones"):
        labelled(np.arange(20.0))
    assert labelled(np.arange(21.0)).problem == "regression"
    assert labelled(np.array([0.5, 1.0])).problem == "regression"
    assert labelled(np.arange(3)).problem == "classification"


def test_several_inputs_are_packed_with_moments_of_their_own() -> None:
    x = {"image": np.array([[0], [255]], np.uint8), "word": np.array([3, 5]), "age": np.array([1.0, 3.0])}
    y = np.array([0, 1])
    data = accord.from_arrays(x, y, test=(x, y), normalise=True)
    order = [field.name for field in data.fields.fields]  # type: ignore[union-attr]
    place = {name: order.index(name) for name in order}
    # pixels are shares of 255; a token id is left alone: mean 0 and deviation 1
    assert data.train.x[:, place["image"]].tolist() == [0.0, 1.0]
    assert [data.train.mean[place[name]] for name in ("image", "word", "age")] == pytest.approx([0.5, 0.0, 2.0])
    assert [data.train.std[place[name]] for name in ("image", "word", "age")] == pytest.approx([0.5, 1.0, 1.0])
    federation = accord.federate(data, clients=1, partition="iid", test="shared")
    assert federation.vocabulary == 0, "whole rows of several inputs are no token ids"


def test_a_vocabulary_is_one_more_than_the_largest_token_of_both_parts() -> None:
    x, y = np.array([[1, 4], [0, 2]]), np.array([0, 1])
    for other, expected in ((np.array([[6, 0]]), 7), (np.array([[2, 0]]), 5)):
        data = accord.from_arrays(x, y, test=(other, y[:1]))
        assert accord.federate(data, clients=1, partition="iid", test="shared").vocabulary == expected
    real = accord.from_arrays(x / 2, y, test=(x / 2, y))
    federation = accord.federate(real, clients=1, partition="iid", test="shared")
    assert federation.vocabulary == 0
    tokens = accord.federate(data, clients=1, partition="iid", test="shared")
    assert replace(tokens, test_pool=federation.test_pool).vocabulary == 0, "one part that has none is enough"


def test_numbers_of_a_table_are_measured_by_their_own_moments() -> None:
    frame = pd.DataFrame({"small": [0.0, 0.2], "large": [10.0, 50.0], "same": [3.0, 3.0], "y": [0, 1]})
    inputs = accord.from_table(frame, label="y", test=frame).inputs
    moments = {
        column.name: (mean, std) for column, mean, std in zip(inputs.columns, inputs.mean, inputs.std, strict=True)
    }
    # of two values the deviation is half of what lies between them; what never differs is only moved
    assert moments["small"] == pytest.approx((0.1, 0.1))
    assert moments["large"] == pytest.approx((30.0, 20.0))
    assert moments["same"] == pytest.approx((3.0, 1.0))


def test_a_column_is_named_by_its_part() -> None:
    def part(y: list[Any]) -> SimpleNamespace:
        values = {"x": [[1.0], [2.0]], "y": y}
        rows = [{"x": x, "y": label} for x, label in zip(*values.values(), strict=True)]

        class Part(SimpleNamespace):
            def __len__(self) -> int:
                return 2

            def __getitem__(self, name: str) -> Any:
                return values[name]

            def __iter__(self) -> Any:
                return iter(rows)

        return Part(column_names=["x", "y"], features=None)

    with pytest.raises(DataError, match="test column 'y'"):
        accord.from_huggingface(part([0, 1]), test=part([0, None]))
    with pytest.raises(DataError, match="train column 'y'"):
        accord.from_huggingface(part([None, 1]), test=part([0, 1]))


def test_a_parquet_file_with_two_columns_of_one_name(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    twice = pa.table([[1.0, 2.0], [3.0, 4.0], ["a", "b"]], names=["age", "age", "y"])
    parquet.write_table(twice, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="columns of the same name: 'age'"):
        accord.from_table(tmp_path / "t.parquet", "y")


def test_of_several_draws_the_one_that_lacks_least_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    from accord.data.partitions import dirichlet

    # the first lacks 2 in one client, the second 1 in each of three, the third 3: by sums the first is the best
    draws = iter([[[1], [4], [4], [3]], [[2], [2], [2], [6]], [[0], [4], [4], [4]]])
    monkeypatch.setattr(dirichlet, "REDRAWS", 3)
    monkeypatch.setattr(dirichlet, "dirichlet_counts", lambda *_: np.array(next(draws)))
    seen = []
    monkeypatch.setattr(dirichlet, "top_up", lambda owner, *_: seen.append(np.bincount(owner).tolist()) or owner)
    data = Dataset("toy", *[Pool(torch.zeros(12, 1), torch.zeros(12, dtype=torch.int64))] * 2, ("a",))
    groups = PARTITIONS["dirichlet"](data, 4, np.random.default_rng(0), min_size=3)
    assert isinstance(groups, Groups)
    assert seen == [[1, 4, 4, 3]]


@pytest.mark.parametrize(
    ("x", "y"),
    [((3, 1), (2,)), ((3, 1), (3, 1)), ((2, 1), (3, 1)), ((3, 1), ())],
    ids=["few", "columns", "both", "one"],
)
def test_a_class_for_every_sample(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="the test part needs one label per sample; got inputs of shape"):
        labels_of(Pool(torch.zeros(x), torch.zeros(y, dtype=torch.int64)), 2, "test")
    assert labels_of(Pool(torch.zeros(3, 1), torch.tensor([0, 1, 1])), 2).tolist() == [0, 1, 1]


def test_several_inputs_are_packed_with_and_without_test_samples() -> None:
    x = {"age": np.arange(10.0, dtype=np.float32), "word": np.arange(10)}
    data = accord.from_arrays(x, np.arange(10) % 2, test_fraction=0.2)
    assert data.fields is not None
    assert data.fields.names == ("age", "word")
    assert sorted([*data.train.x[:, 0].tolist(), *data.test.x[:, 0].tolist()]) == list(range(10))
    assert torch.equal(data.train.x[:, 0], data.train.x[:, 1])
    given = accord.from_arrays(x, np.arange(10) % 2, test=({name: v[:3] for name, v in x.items()}, [0, 1, 0]))
    assert given.fields == data.fields
    assert given.test.x[:, 0].tolist() == [0.0, 1.0, 2.0]


def test_a_pair_that_is_none_is_named_by_its_part() -> None:
    good = [(torch.zeros(2), 0), (torch.ones(2), 1)]
    for train, test, part in (([3], None, "train"), (good, [3], "test")):
        with pytest.raises(DataError, match=f"^{part}: sample 0 is a int, expected a pair"):
            accord.from_torch(train, test)


@pytest.mark.parametrize("seed", range(5))
def test_every_class_of_every_site_keeps_some_images_for_testing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sites and two classes with two images each: one of each is set aside."""
    monkeypatch.setattr(folders, "read_images", lambda paths, size: np.zeros((len(paths), 1, 2, 2), np.uint8))
    sites, classes = np.repeat(["n", "o", "s"], 4).tolist(), (["cat", "cat", "dog", "dog"] * 3)
    listing = folders.Listing(tuple(Path(str(n)) for n in range(12)), tuple(classes), tuple(sites))
    data = folders.image_dataset("x", {"all": listing}, None, 0.5, seed, False)
    assert data.test_domains is not None
    assert sorted(zip(data.test_domains.tolist(), data.test.y.tolist(), strict=True)) == [
        (site, label) for site in range(3) for label in range(2)
    ]


def test_folders_that_are_half_sites_and_half_classes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "inside").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match=r"/b has no folders inside but .*/a has; all must be classes"):
        folders.list_parts(tmp_path)


def test_a_download_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part, chunks = tmp_path / "x.part", [b"abc", b"defg", b""]
    found: list[int] = []
    monkeypatch.setattr(download.os, "fsync", lambda handle: found.append(part.stat().st_size))
    headers = {"Content-Length": "7"}
    response: Any = SimpleNamespace(status=200, headers=headers, read=lambda size: chunks.pop(0))
    told: list[tuple[str, int, int]] = []
    download._store(response, part, 0, "x", lambda *how: told.append(how))
    assert found == [7]
    assert part.read_bytes() == b"abcdefg"
    assert told == [("x", 3, 7), ("x", 7, 7)]


def test_of_draws_that_are_too_short_the_first_that_came_nearest_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve samples, three clients, three each: 4 are missing, then 1, then 1 elsewhere, then 4 again, ten times."""
    drawn = [[10, 1, 1], [2, 7, 3], [3, 2, 7], *([[10, 1, 1]] * 7)]
    asked: list[int] = []

    def counts(*given: Any) -> Any:
        asked.append(len(asked))
        return np.array(drawn[asked[-1]])[:, None]

    monkeypatch.setattr("accord.data.partitions.dirichlet.dirichlet_counts", counts)
    pool = Pool(torch.zeros(12, 1), torch.zeros(12, dtype=torch.int64))
    dataset = Dataset("toy", pool, pool, ("a",))
    dealt = PARTITIONS["dirichlet"](dataset, 3, np.random.default_rng(0), min_size=3)
    assert dealt.sizes.tolist() == [3, 6, 3]
    assert len(asked) == 10
    asked.clear()
    assert PARTITIONS["dirichlet"](dataset, 3, np.random.default_rng(0), min_size=2).sizes.tolist() == [2, 7, 3]
    assert len(asked) == 2, "the first that has enough ends it"


def test_names_are_ordered_by_their_numbers_or_by_their_letters() -> None:
    assert in_order({"10", "9", "1", "01"}) == ["01", "1", "9", "10"]
    assert in_order({"10", "9", "b"}) == ["10", "9", "b"]
    assert in_order(set()) == []
    with pytest.raises(DataError, match="differ by spaces only: ' a', 'b '; write each in one way"):
        numbered(["b ", "a", " a", "b"])


@pytest.mark.parametrize("fraction", [-0.5, 0.0, 1.0, 1.5])
def test_a_share_for_testing_is_more_than_nothing_and_less_than_all(fraction: float) -> None:
    with pytest.raises(DataError, match="the test fraction must lie between 0 and 1"):
        stratified(np.arange(9) % 3, fraction, np.random.default_rng(0))
    kept, aside = stratified(np.arange(9) % 3, 0.99, np.random.default_rng(0))
    assert (len(kept), len(aside)) == (3, 6), "never all of a class"


def test_numbers_of_images_by_hand() -> None:
    """SplitMix64 from the first number of the client's own stream, in Python's whole numbers."""
    start, mask = int(stream(5, "crop", 2).bit_generator.random_raw()), 2**64 - 1

    def mixed(position: int) -> float:
        z = (position + start) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return ((z ^ (z >> 31)) >> 11) / 2**53

    positions = [0, 1, 7, 100_000]
    assert per_image(5, "crop", 2, np.array(positions)).tolist() == [mixed(position) for position in positions]


def test_every_crop_of_an_image_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padding of 1 has nine places, each mirrored or not; what lies outside is black."""
    x = torch.arange(1.0, 13.0).reshape(1, 2, 2, 3)
    black = (-1.0, -2.0)
    padded = torch.tensor(black).view(1, 2, 1, 1).expand(1, 2, 4, 5).clone()
    padded[:, :, 1:3, 1:4] = x
    for chosen in range(18):
        monkeypatch.setattr(cropping, "per_image", lambda *given, chosen=chosen: np.array([(chosen + 0.5) / 18]))
        found = cropping.CropFlip(1, black, 0)(0, np.array([0]), x)
        down, across, mirrored = chosen // 6, chosen // 2 % 3, chosen % 2 == 1
        expected = padded[:, :, down : down + 2, across : across + 3]
        assert torch.equal(found, expected.flip(-1) if mirrored else expected)


def test_pictures_of_one_part_are_not_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "cub50" / "test" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match=r"cub50: its pictures are not on this machine"):
        accord.load_dataset("cub50", tmp_path)


def test_what_is_left_of_an_archive_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_BYTES", 10)
    contents._drain("it", io.BytesIO(b"x" * 10))
    contents._drain("it", None)
    contents._limit("it", 10)
    for refused in (lambda: contents._drain("it", io.BytesIO(b"x" * 11)), lambda: contents._limit("it", 11)):
        with pytest.raises(DataError, match="it is larger than 0 MiB unpacked"):
            refused()


@pytest.mark.parametrize("normalise", [True, False])
def test_a_search_has_its_identities_cameras_and_pixels(normalise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(paths: Any, size: Any) -> Any:
        return np.stack([np.full((3, *size), int(path.name), np.uint8) for path in paths])

    monkeypatch.setattr(identities, "read_images", read)

    def seen(*sightings: tuple[int, str, int]) -> list[identities.Sighting]:
        return [identities.Sighting(Path(str(name)), who, camera) for name, who, camera in sightings]

    parts = identities.Sightings(
        seen((1, "z", 1), (2, "b", 2)), seen((3, "a", 4)), seen((4, "z", 5), (5, "c", 6), (6, "b", 7))
    )
    data = identities.search_dataset("people", parts, (2, 1), normalise)
    assert data.classes == ("b", "z", "a", "c"), "those that are trained first"
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([1, 0], [2, 1, 3, 0])
    assert (data.train.x[:, 0, 0, 0].tolist(), data.test.x[:, 0, 0, 0].tolist()) == ([1, 2], [3, 4, 5, 6])
    assert tuple(data.train.x.shape[1:]) == (3, 2, 1)
    half = (0.5,) * 3 if normalise else ()
    assert (data.train.mean, data.train.std, data.test.mean, data.test.std) == (half, half, half, half)
    assert data.search is not None
    assert (data.search.queries, data.search.cameras.tolist()) == (1, [4, 5, 6, 7])
    assert data.note == "resized to 2 x 1"
    for part in ("train", "query", "gallery"):
        with pytest.raises(DataError, match=f"people: its part {part} holds no pictures"):
            identities.search_dataset("people", replace(parts, **{part: []}), (2, 1), normalise)


def test_how_large_a_sample_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LARGEST", 12)
    for shape in ((12,), (3, 4), (1,) * 16):
        assert inputs.Inputs("array", shape).shape == shape
        assert inputs.Inputs.from_json(inputs.Inputs("array", shape).to_json()).shape == shape
    for shape in ((13,), (0,), (), (3, 5)):
        with pytest.raises(DataError, match="the shape of a sample must be whole numbers of at least 1"):
            inputs.Inputs("array", shape)
    with pytest.raises(DataError, match="shape of the inputs must be a list of at most 16 entries"):
        inputs.Inputs.from_json(inputs.Inputs("array", (1,) * 17).to_json())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None], "bool"),
        ([True, 2.5, None], "number"),
        ([2, np.bool_(True)], "number"),
        ([True, "x"], "text"),
        ([None, None], "number"),
        ([1, pd.Timestamp("2020-01-01")], "date"),
        ([None, pd.Timedelta(days=1)], "date"),
    ],
    ids=range(7),
)
def test_what_a_column_of_several_types_is(values: list[Any], kind: str) -> None:
    assert kind_of(np.array(values, dtype=object)) == kind


def test_a_class_that_runs_out_gets_no_share_and_the_others_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, five and five are left, eight are wanted: 4, 2, 2 and then 0, 2, 1 for those missing."""
    asked: list[Any] = []

    def draw(concentration: Any, rng: Any) -> Any:
        asked.append(concentration.tolist())
        return np.array([0.5, 0.25, 0.25])

    def multinomial(count: int, share: Any) -> Any:
        asked.append((count, share.tolist()))
        return np.array({8: [4, 2, 2], 3: [0, 2, 1]}[count])

    monkeypatch.setattr("accord.data.partitions.dirichlet.dirichlet_draw", draw)
    rng: Any = SimpleNamespace(multinomial=multinomial)
    left = np.array([1, 5, 5])
    assert lda_client(left, 8, 0.5, False, rng).tolist() == [1, 4, 3]
    assert asked == [[0.5] * 3, (8, [0.5, 0.25, 0.25]), (3, [0.0, 0.5, 0.5])]


def test_clients_left_without_samples_are_named() -> None:
    try:

        @partition("nothing_for_most")
        def rule(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
            return Groups.of([[0]] + [[]] * (clients - 1))

        pool = Pool(torch.zeros(9, 1), torch.zeros(9, dtype=torch.int64))
        dataset = Dataset("toy", pool, pool, ("a",))
        for clients, shown in ((6, "1, 2, 3, 4, 5"), (7, "1, 2, 3, 4, 5, ..."), (8, "1, 2, 3, 4, 5, ...")):
            with pytest.raises(DataError, match=rf"leaves {clients - 1} of {clients} .* \(clients {shown}\); ask"):
                rule(dataset, clients, np.random.default_rng(0))
    finally:
        PARTITIONS._entries.pop("nothing_for_most")  # the registry is shared by all tests of this process


def test_bounds_of_concentrations() -> None:
    for name in ("dirichlet", "lda"):
        assert settings_of(PARTITIONS[name])["alpha"].bounds == Range(low=1e-6, high=1e9)


@pytest.mark.parametrize("line", ["0000/a.jpg", "0000/0000_000_01_x.jpg one", "../0000_000_01_x.jpg 3", "a b 3", "3"])
def test_a_line_of_a_list_is_a_file_and_an_identity(line: str, tmp_path: Path) -> None:
    good = "0000/0000_000_01_0303morning_0015_0.jpg 7"
    (tmp_path / "list_query.txt").write_text(f"{good}\n")
    (seen,) = msmt17._list(tmp_path, "query", "test")
    assert (seen.path, seen.identity, seen.camera) == (tmp_path / "test" / good.split()[0], "test-0007", 1)
    (tmp_path / "list_query.txt").write_text(f"{good}\n{line}\n")
    with pytest.raises(DataError, match=r"list_query\.txt: .* is no file and identity"):
        msmt17._list(tmp_path, "query", "test")


def test_a_permutation_has_its_seed_and_leaves_the_first_client_where_asked() -> None:
    pool = Pool(torch.zeros(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64))
    dataset = Dataset("toy", pool, pool, ("a",))
    for keep in (True, False):
        change = TRANSFORMS["permute"](dataset, 3, 5, keep_first=keep, environments=2)
        assert change.transform == Permute(5, keep)
        assert [one.name for one in change.environments] == ["client 0", "client 1"]
        x = torch.arange(16.0).reshape(1, 1, 4, 4)
        assert torch.equal(change.environments[0].change(x), x) is keep
        expected = stream(5, "permute", 1).permutation(np.arange(16))
        assert change.environments[1].change(x).flatten().tolist() == expected.tolist()


def test_an_image_beyond_all_shares_has_the_last_angle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares may add up to a little less than one."""
    monkeypatch.setattr(rotation, "per_image", lambda *given: np.array([0.0, 0.6, 0.9999999]))
    monkeypatch.setattr(rotation.Rotate, "shares", lambda self, client: np.array([0.5, 0.4999]))
    turned = rotation.Rotate((0.0, 90.0), per="image")
    assert turned.choice(0, np.arange(3)).tolist() == [0, 1, 1]


def test_of_images_of_many_sizes_two_are_named(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    files = [tmp_path / f"{width}.png" for width in (2, 3, 4)]
    for width, file in enumerate(files, start=2):
        image.fromarray(np.zeros((2, width), np.uint8)).save(file)
    with pytest.raises(DataError, match=r"2\.png is 2 x 2, .*3\.png is 3 x 2\. Give image_size"):
        read_images(files, None)
