"""Own arrays, images, sequences and data sets of others: what only shows where two things come together, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from accord.data.columns import Column
from accord.data.inputs import Inputs
from accord.data.own import (
    from_arrays,
    from_flwr_partitioner,
    from_folder,
    from_huggingface,
    from_sequences,
    from_torch,
)
from accord.data.own.samples import stacked
from accord.data.own.sites import in_order, numbered, site_ids
from accord.data.own.targets import targets
from accord.errors import ConfigError, DataError

X = np.arange(8.0).reshape(4, 2)
Y = np.array([0, 1, 0, 1])


@pytest.fixture
def double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_rows_set_aside_for_testing_do_not_count_in_the_moments() -> None:
    """Of 1, 10, 100 and 1000 one is set aside."""
    x = np.array([[1.0], [10.0], [100.0], [1000.0]])
    for seed in range(3):
        data = from_arrays(x, [0, 0, 0, 0], normalise=True, test_fraction=0.25, seed=seed)
        kept = [row for row in x[:, 0].tolist() if row != data.test.x.item()]
        mean = sum(kept) / 3
        assert len(data.test) == 1
        assert data.train.mean == data.test.mean == pytest.approx((mean,))
        assert data.train.std == data.test.std == pytest.approx((np.sqrt(sum((k - mean) ** 2 for k in kept) / 3),))


def test_named_rows_set_aside_for_testing_do_not_count_in_the_moments() -> None:
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    data = from_arrays({"a": x, "b": np.array([0, 1, 2, 3])}, [0] * 4, normalise=True, test_fraction=0.25)
    kept = [row for row in x.tolist() if row != data.test.x[0, 0].item()]
    assert data.train.mean == pytest.approx((sum(kept) / 3, 0.0))


def test_every_number_of_a_named_input_has_its_own_moments_and_token_ids_have_none() -> None:
    x = {"a": np.array([[[0.0, 2.0], [4.0, 6.0]], [[2.0, 6.0], [10.0, 14.0]]]), "word": [[1, 2, 3], [4, 5, 6]]}
    data = from_arrays(x, [0, 1], test=(x, [0, 1]), normalise=True)
    assert data.train.mean == pytest.approx((1.0, 4.0, 7.0, 10.0, 0.0, 0.0, 0.0))
    assert data.train.std == pytest.approx((1.0, 2.0, 3.0, 4.0, 1.0, 1.0, 1.0))
    taken, _ = data.train.take(np.array([1]))
    assert taken.tolist() == [[1.0, 1.0, 1.0, 1.0, 4.0, 5.0, 6.0]]


def test_moments_of_arrays_with_more_axes_are_those_of_the_axis_after_the_samples() -> None:
    x = np.array([[[1.0, 3.0], [10.0, 10.0]], [[1.0, 3.0], [30.0, 30.0]]])
    data = from_arrays(x, [0, 1], test=(x, [0, 1]), normalise=True)
    assert (data.train.mean, data.train.std) == ((2.0, 20.0), (1.0, 10.0))


@pytest.mark.parametrize("pixel", [7, 51, 99, 200, 255])
def test_a_channel_that_never_changes_is_only_centred_whatever_its_pixels(pixel: int) -> None:
    """Sums of 200 / 255 are rounded, and must not be taken for a deviation; a block of 4096 is not all."""
    for count in (3, 7, 100):
        x = np.full((count, 2, 3, 5), pixel, np.uint8)
        x[0, 1] = 0
        data = from_arrays(x, np.arange(count) % 2, test=(x, np.arange(count) % 2), normalise=True)
        share = 1 / count
        assert data.train.std[0] == 1.0
        assert data.train.std[1] == pytest.approx(pixel / 255 * (share * (1 - share)) ** 0.5)
        assert data.train.mean == pytest.approx((pixel / 255, pixel / 255 * (1 - share)))
    later = np.full((4097, 1), pixel, np.uint8)
    later[4096] = pixel - 1
    data = from_arrays(later, np.arange(4097) % 2, test=(later, np.arange(4097) % 2), normalise=True)
    share = 1 / 4097
    assert data.train.std == pytest.approx(((share * (1 - share)) ** 0.5 / 255,))


def test_a_vocabulary_of_a_named_input_counts_the_rows_set_aside() -> None:
    for seed in range(6):
        data = from_arrays({"word": [3, 9, 1, 0]}, [0, 0, 0, 0], seed=seed, test_fraction=0.5)
        assert data.fields is not None
        assert data.fields["word"].vocabulary == 10


def test_named_inputs_of_the_test_part_lie_in_the_order_of_the_train_part() -> None:
    train, test = {"b": [1.0, 2.0], "a": [3.0, 4.0]}, {"a": [30.0], "b": [10.0]}
    data = from_arrays(train, [0, 1], test=(test, [0]))
    assert data.fields is not None
    assert data.fields.names == ("b", "a")
    assert (data.train.x.tolist(), data.test.x.tolist()) == ([[1.0, 3.0], [2.0, 4.0]], [[10.0, 30.0]])


def test_a_named_grey_picture_of_bytes_has_an_axis_of_channels() -> None:
    data = from_arrays({"a": np.full((2, 2, 3), 51, np.uint8)}, [0, 1], test=({"a": np.zeros((1, 2, 3), "u1")}, [0]))
    assert data.fields is not None
    assert data.fields["a"].shape == (1, 2, 3)
    assert data.train.x[0].tolist() == pytest.approx([0.2] * 6)


def test_a_test_part_may_be_a_list_and_its_clients_nothing() -> None:
    data = from_arrays(X, Y, ["a", "b", "a", "b"], test=[X[:2], Y[:2], ["b", "a"]])
    assert data.test_clients is not None
    assert data.test_clients.tolist() == [1, 0]
    data = from_arrays(X, Y, ["a", "b", "a", "b"], test=(X[:2], Y[:2], None))
    assert (data.test_clients, data.client_names) == (None, ("a", "b"))


def test_labels_of_the_test_part_are_for_the_task_of_the_train_part() -> None:
    data = from_arrays(X, [0.5, 1.5, 2.5, 3.5], test=(X[:2], [1.0, 2.0]))
    assert (data.problem, data.test.y.tolist()) == ("regression", [1.0, 2.0])
    data = from_arrays(X, [0.5, 1.5, 2.5, 3.5], test=(X[:2], [1, 2]))
    assert data.test.y.dtype == torch.get_default_dtype()
    data = from_arrays(X, [[0, 1], [1, 1], [0, 0], [1, 0]], test=(X[:2], [[0, 1], [1, 0]]))
    assert (data.problem, data.test.y.tolist()) == ("multilabel", [[0, 1], [1, 0]])


def test_a_class_that_only_the_test_part_has_is_one() -> None:
    assert from_arrays(X, Y, test=(X[:2], [0, 4])).classes == ("0", "1", "2", "3", "4")
    tokens = from_arrays(X, [[0, 2], [1, 1], [2, -100], [0, 0]], test=(X[:1], [[3, -100]]))
    assert (tokens.problem, tokens.classes) == ("tokens", ("0", "1", "2", "3"))


def test_samples_of_both_parts_count_where_a_label_is_large() -> None:
    x, y = np.zeros((800, 1)), np.zeros(800, np.int64)
    y[0] = 1599
    assert from_arrays(x, y, test=(x, np.zeros(800, np.int64))).num_classes == 1600
    y[0] = 1600
    with pytest.raises(DataError, match="the largest label is 1600, but there are only 1600 samples"):
        from_arrays(x, y, test=(x, np.zeros(800, np.int64)))


def test_classes_may_be_a_number_or_names_of_numpys() -> None:
    assert from_arrays(X, Y, classes=np.int64(3)).classes == ("0", "1", "2")  # type: ignore[arg-type]
    assert from_arrays(X, Y, classes=np.array(["cat", "dog"])).classes == ("cat", "dog")  # type: ignore[arg-type]
    two = from_arrays(X, X + 0.5, classes=np.int64(2))  # type: ignore[arg-type]
    assert (two.problem, two.classes) == ("regression", ("0", "1"))
    assert from_arrays(X, Y + 0.5, classes=["price"]).classes == ("price",)
    assert from_arrays(X, Y, classes=[7, 8]).classes == ("7", "8")  # type: ignore[list-item]


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.float32])
def test_inputs_and_labels_of_every_kind_are_copied(kind: type) -> None:
    x, y = np.ones((4, 2), kind), Y.copy()
    for given in (x, torch.from_numpy(x)):
        x[:], y[:] = 1, [0, 1, 0, 1]
        data = from_arrays(given, y, test=(given, y))
        named = from_arrays({"a": given}, y, test=({"a": given}, y))
        x[:], y[:] = 9, 0
        assert data.train.x.tolist() == data.test.x.tolist() == [[1, 1]] * 4
        assert named.train.x[0, 0].item() == pytest.approx(1 / 255 if kind is np.uint8 else 1.0)
        assert data.train.y.tolist() == data.test.y.tolist() == [0, 1, 0, 1]


@pytest.mark.usefixtures("double")
def test_real_numbers_keep_all_their_digits_where_those_are_asked_for() -> None:
    x = np.full((2, 1), 0.1)
    data = from_arrays(x, [0.1, 0.3], test=(x * 1e300, [0.2, 0.4]))
    assert (data.train.x.dtype, data.train.y.dtype) == (torch.float64, torch.float64)
    assert (data.train.x.tolist(), data.train.y.tolist()) == ([[0.1], [0.1]], [0.1, 0.3])
    assert data.test.x[0].tolist() == [0.1 * 1e300]
    pixels = from_arrays({"a": np.full((2, 1), 51, "u1")}, [0, 1], test=({"a": np.full((1, 1), 51, "u1")}, [0]))
    assert pixels.train.x.tolist() == [[0.2], [0.2]]
    assert Inputs("array", (1,)).tensor([[0.1]]).tolist() == [[0.1]]
    assert Inputs("image", (1, 1, 1)).tensor([[[51]]]).tolist() == [[[[0.2]]]]


def test_data_frames_whose_rows_have_other_numbers() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [1, 0], "site": ["s", "n"]}, index=[7, 5])
    x = frame[["a", "b"]]
    data = from_arrays(x, frame["y"], frame["site"], test=(x, frame["y"], frame["site"]))
    assert (data.train.x.tolist(), data.train.y.tolist()) == ([[1.0, 3.0], [2.0, 4.0]], [1, 0])
    assert data.train_clients is not None
    assert (data.train_clients.tolist(), data.client_names) == ([1, 0], ("n", "s"))


def test_a_value_that_is_none_is_found_in_a_sample_of_several_axes() -> None:
    x = np.zeros((3, 2, 4))
    x[1, 1, 2] = x[2, 0, 0] = np.nan
    with pytest.raises(DataError, match=r"in 2 of 3 rows, first nan in row 1 at \(1, 2\)"):
        from_arrays(x, [0, 1, 0])


def test_wrong_entries_are_counted_and_the_first_is_shown() -> None:
    with pytest.raises(DataError, match="x has 2 missing entries, first at position 3"):
        from_arrays([[1.0, 2.0], [3.0, None], [None, 1.0]], [0, 1, 0])
    with pytest.raises(DataError, match="y has 2 negative labels, first -3 at position 2"):
        from_arrays(X, [0, 1, -3, -1])
    with pytest.raises(DataError, match=r"2 labels are not \(1 of them NaN\), first 0\.5 at position 1"):
        from_arrays(X, [0.0, 0.5, np.nan, 1.0], task="classification")
    with pytest.raises(DataError, match=r"x: sample 0 has shape \(1,\) but sample 2 has \(2,\)"):
        stacked([[1.0], [2.0], [3.0, 4.0], [5.0, 6.0]], "x")


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(DataError, match=r"x is a sparse tensor .*x\.to_dense\(\)"):
        from_arrays(torch.eye(4).to_sparse(), Y)
    with pytest.raises(DataError, match=r"y is a sparse tensor .*y\.to_dense\(\)"):
        from_arrays(X, torch.from_numpy(Y).to_sparse())


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ((X, Y[:3]), "but test y has 3 labels"),
        ((X, Y - 1), "^test y has 2 negative labels"),
        ((X[:, 0], Y), r"^test x must be \[samples"),
        ((X, Y, ["a"]), r"4 samples but test clients has shape \(1,\)"),
        ((X, Y, ["a", None, "a", None]), "^test clients has 2 missing ids, first at position 1"),
    ],
)
def test_what_is_wrong_in_the_test_part_is_said_to_be(test: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        from_arrays(X, Y, ["a"] * 4, test=test)


def test_what_is_wrong_in_a_named_input_of_the_test_part_is_said_to_be() -> None:
    with pytest.raises(DataError, match=r"^test x\['a'\] has NaN"):
        from_arrays({"a": [1.0, 2.0]}, [0, 1], test=({"a": [1.0, np.nan]}, [0, 1]))


def test_an_unknown_task_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="regression"):
        targets([0, 1], 2, "regresion")


def test_one_label_that_is_there_or_not_is_a_column() -> None:
    data = from_arrays(X, [[0], [1], [1], [0]], task="multilabel", classes=["ill"], test=(X[:2], [[1], [0]]))
    assert (data.problem, data.classes) == ("multilabel", ("ill",))
    assert (data.train.y.tolist(), data.test.y.tolist()) == ([[0], [1], [1], [0]], [[1], [0]])


def test_ids_of_clients_of_all_kinds_as_names() -> None:
    assert site_ids(np.array([3.0, 10.0]), 2) == ["3", "10"]
    assert site_ids(["-1", "a"], 2) == ["-1", "a"], "a word may be anything"
    assert site_ids([" a", "b"], 2) == [" a", "b"]
    with pytest.raises(DataError, match="clients has 2 negative ids, first at position 1"):
        site_ids([4, -3, 0, -1], 4)
    with pytest.raises(DataError, match="clients has 2 missing ids, first at position 1"):
        site_ids(np.array([4.0, np.nan, np.nan]), 3)
    with pytest.raises(DataError, match="whole numbers or strings, got inf"):
        site_ids(np.array([4.0, np.inf]), 2)


def test_the_first_of_the_strangers_is_that_of_the_smallest_number() -> None:
    with pytest.raises(DataError, match="2 clients have test samples but no train samples, first 9;"):
        numbered(["1", "2"], ["10", "1", "9", "9"])
    sites = numbered(["1", "2"], [])
    assert sites.test is not None
    assert (sites.test.tolist(), sites.test.dtype, sites.names) == ([], np.int64, ("1", "2"))
    assert numbered([" a", "b"]).names == (" a", "b"), "a space alone is no other client"


def test_digits_of_other_scripts_are_letters() -> None:
    assert in_order({"²", "10", "9"}) == ["10", "9", "²"]


def test_classes_that_are_given_go_before_those_of_a_torch_data_set() -> None:
    class Named(list[Any]):
        classes = ("even", "odd")

    pairs = Named([([float(n)], n % 2) for n in range(10)])
    assert from_torch(pairs).classes == ("even", "odd")
    assert from_torch(pairs, classes=["e", "o"]).classes == ("e", "o")
    assert from_torch(pairs, classes=3).classes == ("0", "1", "2")


def test_a_pair_may_be_a_list_and_one_that_is_none_is_named_by_its_place() -> None:
    data = from_torch([[[1.0], 0], [[2.0], 1]], [[[3.0], 1]])
    assert (data.train.x.tolist(), data.train.y.tolist(), data.test.x.tolist()) == ([[1.0], [2.0]], [0, 1], [[3.0]])
    with pytest.raises(DataError, match="train: sample 1 is a tuple, expected a pair"):
        from_torch([([1.0], 0), ([2.0], 1, 2)])
    with pytest.raises(DataError, match=r"^train labels: sample 0 has shape \(\) but sample 1 has \(2,\)"):
        from_torch([([1.0], 0), ([2.0], [1, 0])])
    with pytest.raises(DataError, match=r"^sample 1 of test labels has 1 missing entries"):
        from_torch([([1.0], 0), ([2.0], 1)], [([1.0], 0), ([2.0], None)])


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("1", (1, 1), 1), 255),
        (Image.new("RGBA", (1, 1), (9, 8, 7, 0)), [9, 8, 7]),
        (Image.new("CMYK", (1, 1), (0, 255, 0, 0)), [255, 0, 255]),
        (Image.new("LA", (1, 1), (9, 0)), 9),
    ],
)
def test_pixels_of_images_of_every_mode(image: Image.Image, expected: Any) -> None:
    found = stacked([image], "x")
    assert (found[0, ..., 0, 0].tolist(), found.dtype) == (expected, np.uint8)


def test_sequences_are_padded_to_a_length_beyond_the_longest() -> None:
    data = from_sequences([[1, 2], [3]], [[0, 1], [1]], test=([[2, 2, 1]], [[1, 0, 1]]), length=4)
    assert data.fields is not None
    assert data.fields.unpacked(data.train.x)["tokens"].tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]
    assert data.fields.unpacked(data.test.x)["mask"].tolist() == [[1.0, 1.0, 1.0, 0.0]]
    assert data.train.y.tolist() == [[0, 1, -100, -100], [1, -100, -100, -100]]
    assert data.test.y.tolist() == [[1, 0, 1, -100]]


def test_labels_and_sequences_that_are_wrong_are_named_by_their_part() -> None:
    with pytest.raises(DataError, match=r"^test y 0 must be a whole number for each of the 1 positions"):
        from_sequences([[1, 2], [3]], [[0, 1], [1]], test=([[2]], [[1, 0]]))
    with pytest.raises(DataError, match=r"^test x 1 must be a list"):
        from_sequences([[1, 2], [3]], [0, 1], test=([[2], []], [1, 0]))


@pytest.mark.parametrize(
    "y", [torch.tensor([1, 0, 1]), pd.Series([1, 0, 1], index=[7, 8, 9]), np.array([1, 0, 1]), (1, 0, 1)]
)
def test_a_label_for_every_sequence_may_come_in_any_form(y: Any) -> None:
    data = from_sequences([[1, 2], [3], [4]], y, test=([[2]], [1]))
    assert (data.problem, data.train.y.tolist()) == ("classification", [1, 0, 1])


def test_names_for_sequences_must_be_numbered() -> None:
    with pytest.raises(DataError, match="number your classes"):
        from_sequences([[1, 2], [3]], ["no", "yes"])


class Rows:
    """As much of `datasets.Dataset` as is asked for; columns are lazy, as newer versions have them."""

    def __init__(self, names: dict[str, list[str]] | None = None, **columns: list[Any]) -> None:
        self.columns, self.column_names = columns, list(columns)
        self.features = {column: SimpleNamespace(names=(names or {}).get(column)) for column in columns}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Any:
        return Lazy(self.columns[name])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True))


class Lazy:
    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __getitem__(self, where: slice) -> list[Any]:
        assert isinstance(where, slice), "one by one is slow"
        return self.values[where]


def test_what_is_given_goes_before_what_the_columns_say() -> None:
    rows = Rows({"y": ["cat", "dog"]}, image=[[1.0], [2.0]], x=[[3.0], [4.0]], label=[1, 1], y=[0, 1])
    data = from_huggingface(rows, "x", "y", test=rows)
    assert (data.train.x.tolist(), data.train.y.tolist(), data.classes) == ([[3.0], [4.0]], [0, 1], ("cat", "dog"))
    assert (data.test.x.tolist(), data.test.y.tolist()) == ([[3.0], [4.0]], [0, 1])
    assert from_huggingface(rows, "x", "y", test=rows, classes=["c", "d", "e"]).classes == ("c", "d", "e")


@pytest.mark.parametrize("feature", ["image", "img", "x", "features"])
@pytest.mark.parametrize("label", ["label", "labels", "y"])
def test_every_usual_name_of_a_column_is_known(feature: str, label: str) -> None:
    rows = Rows(**{feature: [[3.0], [4.0]], label: [0, 1]})
    assert from_huggingface(rows, test=rows).train.x.tolist() == [[3.0], [4.0]]


def test_ids_of_test_clients_may_be_given_beside_those_of_the_train_part() -> None:
    train, test = Rows(x=[[1.0], [2.0]], y=[0, 1]), Rows(x=[[3.0]], y=[1])
    for data in (
        from_huggingface(train, test=test, clients=["n", "s"], test_clients=["s"]),
        from_huggingface({"train": train, "test": test}, clients=["n", "s"], test_clients=["s"]),
    ):
        assert data.test_clients is not None
        assert (data.test_clients.tolist(), data.client_names) == ([1], ("n", "s"))
    with pytest.raises(DataError, match="test_clients was given without test"):
        from_huggingface(train, clients=["n", "s"], test_clients=["s"])


def test_each_part_has_its_own_names_of_sites_or_none() -> None:
    train = Rows({"site": ["west", "east"]}, x=[[1.0], [2.0]], y=[0, 1], site=[0, 1])
    test = Rows({"site": ["east", "west"]}, x=[[3.0], [4.0]], y=[1, 1], site=[0, 1])
    data = from_huggingface(train, client="site", test=test)
    assert data.train_clients is not None
    assert data.test_clients is not None
    assert (data.train_clients.tolist(), data.test_clients.tolist()) == ([1, 0], [0, 1])
    without = from_huggingface(train, client="site", test=Rows(x=[[3.0]], y=[1]))
    assert (without.test_clients, without.client_names) == (None, ("east", "west"))


def test_a_partition_of_nobody_is_a_client_without_samples() -> None:
    class Positions(list[int]):
        column_names = ("accord_position",)

        def add_column(self, name: str, values: Any) -> Positions:
            return Positions(values)

        def __getitem__(self, what: Any) -> Any:
            return self if isinstance(what, str) else list(self)[what]

    groups = [[2, 0], [], [1]]
    partitioner = SimpleNamespace(dataset=Positions([9, 9, 9]), _dataset=None, num_partitions=np.int64(3))
    partitioner.load_partition = lambda client: Positions(partitioner._dataset[place] for place in groups[client])
    assert from_flwr_partitioner(partitioner).tolist() == [0, 2, 0]


def pictures(root: Path, *folders: str) -> Path:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        for shade in (1, 2):
            Image.new("L", (2, 2), shade).save(root / folder / f"{shade}.png")
    return root


def test_sites_of_both_parts_of_a_folder_are_clients(tmp_path: Path) -> None:
    data = from_folder(pictures(tmp_path / "f", "train/lyon/cat", "train/nice/cat", "test/aix/cat", "test/nice/cat"))
    assert data.client_names == ("aix", "lyon", "nice")
    assert data.train_clients is not None
    assert data.test_clients is not None
    assert (data.train_clients.tolist(), data.test_clients.tolist()) == ([1, 1, 2, 2], [0, 0, 2, 2])


def test_a_folder_is_found_and_named_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = pictures(tmp_path / "zoo", "cat", "dog")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert from_folder("~/zoo").name == "zoo"
    monkeypatch.chdir(root)
    assert from_folder(".").name == "zoo"
    monkeypatch.chdir(root / "cat")
    assert (from_folder("..").name, from_folder("..", name="mine").name) == ("zoo", "mine")


def test_large_numbers_of_a_table_keep_their_last_digits() -> None:
    year = Inputs("table", (1,), (2.0**30,), (2.0,), (Column("born", "number"),))
    assert year.tensor([{"born": 2**30 + 1}]).tolist() == [[0.5]]
    plain = Inputs("table", (1,), columns=(Column("born", "number"),))
    assert plain.tensor([{"born": 7}]).tolist() == [[7.0]]


def test_samples_may_be_tensors_that_learn() -> None:
    raw = torch.tensor([[3.0, 2.0]], requires_grad=True)
    found = Inputs("array", (2,), (1.0, 2.0), (2.0, 4.0)).tensor(raw)
    assert (found.tolist(), found.requires_grad) == ([[1.0, 0.0]], False)
    assert Inputs("tokens", (2,)).tensor(torch.tensor([[3, 2]], dtype=torch.int32)).dtype == torch.int64


def test_samples_are_not_changed_by_being_looked_at() -> None:
    raw = np.array([[3.0, 2.0]], np.float32)
    found = Inputs("array", (2,)).tensor(raw)
    found += 1
    assert raw.tolist() == [[3.0, 2.0]]
    exact = np.array([[3, 2]])
    tokens = Inputs("tokens", (2,)).tensor(exact)
    tokens += 1
    assert exact.tolist() == [[3, 2]]


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (torch.uint8, "image"),
        (torch.int32, "tokens"),
        (torch.int64, "tokens"),
        (torch.float16, "array"),
        (torch.float64, "array"),
    ],
)
def test_what_samples_are_follows_from_their_type(kind: torch.dtype, form: str) -> None:
    found = Inputs.of(torch.zeros(5, 3, 2, dtype=kind))
    assert (found.kind, found.shape, found.mean, found.std) == (form, (3, 2), (), ())


def test_moments_of_pictures_are_those_of_their_channels() -> None:
    pixels = np.array([[[[0]], [[255]], [[51]]]], np.uint8)
    found = Inputs("image", (3, 1, 1), (0.5, 0.0, 0.2), (0.25, 0.5, 1.0)).tensor(pixels)
    assert found.flatten().tolist() == pytest.approx([-2.0, 2.0, 0.0], abs=1e-6)


def test_values_of_a_category_in_a_file_are_a_list() -> None:
    column = {"name": "ward", "kind": "category", "values": "ab", "fill": None}
    with pytest.raises(DataError, match="values of the inputs must be a list"):
        Inputs.from_json({"kind": "table", "shape": [2], "mean": [], "std": [], "columns": [column]})


def test_nothing_and_whole_numbers_fill_gaps_in_a_file() -> None:
    for kind, fill in (("number", 0), ("bool", 1), ("number", -2.5), ("number", None)):
        column = {"name": "a", "kind": kind, "values": [], "fill": fill}
        found = Inputs.from_json({"kind": "table", "shape": [1], "mean": [0], "std": [2], "columns": [column]})
        assert found.columns == (Column("a", kind, (), fill),)
        if fill is not None:
            assert found.tensor([{"a": None}]).tolist() == [[fill / 2]]
