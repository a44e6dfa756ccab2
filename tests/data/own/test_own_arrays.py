"""Data sets made of the user's own arrays and PyTorch data sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from accord.data.own import from_arrays, from_torch
from accord.errors import DataError

X = np.arange(40, dtype=np.float64).reshape(20, 2)
Y = np.arange(20) % 2


def test_arrays_with_clients_and_test():
    data = from_arrays(
        X,
        Y,
        ["b", "a"] * 10,
        test=(X[:4] + 0.5, Y[:4], ["a", "a", "b", "b"]),
        classes=["no", "yes"],
        name="mine",
    )
    assert (data.name, data.classes, data.num_classes) == ("mine", ("no", "yes"), 2)
    assert data.train.x.dtype == torch.float32
    assert torch.equal(data.train.x, torch.arange(40.0).reshape(20, 2))
    assert data.train_clients.tolist() == [1, 0] * 10  # numbered by the sorted order of the ids
    assert data.test_clients.tolist() == [0, 0, 1, 1]
    assert data.train_clients.dtype == data.test_clients.dtype == np.int64
    assert data.test.x[0].tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    "clients",
    [
        np.array([30, 7, 100] * 6 + [7, 7]),
        torch.tensor([30, 7, 100] * 6 + [7, 7]),
        ["m30", "k7", "z100"] * 6 + ["k7", "k7"],
        np.array([30, 7, 100] * 6 + [7, 7], dtype=np.uint16),
    ],
)
def test_client_ids_of_all_kinds(clients):
    data = from_arrays(X, Y, clients, test=(X, Y))
    assert data.train_clients.tolist() == [1, 0, 2] * 6 + [0, 0]
    assert data.test_clients is None


def test_what_is_given_is_copied():
    x = X.astype(np.float32)
    data = from_arrays(x, Y, test=(x, Y))
    x[:] = -1
    assert float(data.train.x.min()) == 0


@pytest.mark.parametrize(
    ("x", "dtype", "shape"),
    [
        (np.zeros((20, 3, 4, 4), np.uint8), torch.uint8, (20, 3, 4, 4)),
        (np.zeros((20, 4, 4), np.uint8), torch.uint8, (20, 1, 4, 4)),
        (np.zeros((20, 5), np.int32), torch.int64, (20, 5)),
        (np.zeros((20, 5), ">f8")[:, ::-1], torch.float32, (20, 5)),
        (np.zeros((20, 5), np.float16), torch.float32, (20, 5)),
        (np.zeros((20, 5), bool), torch.float32, (20, 5)),
        (torch.zeros(20, 5, dtype=torch.bfloat16), torch.float32, (20, 5)),
        (torch.zeros(20, 5, requires_grad=True), torch.float32, (20, 5)),
        ([[0.0, 1.0]] * 20, torch.float32, (20, 2)),
    ],
)
def test_kinds_of_inputs(x, dtype, shape):
    data = from_arrays(x, Y, test=(x, Y))
    assert (data.train.x.dtype, tuple(data.train.x.shape)) == (dtype, shape)
    assert not data.train.x.requires_grad
    assert data.train.x.is_contiguous()


def test_kinds_of_labels():
    for y in (
        Y,
        Y.astype(float),
        Y.astype(bool),
        Y.reshape(-1, 1),
        Y.tolist(),
        torch.from_numpy(Y),
        Y.astype(np.uint8),
    ):
        data = from_arrays(X, y, test=(X, Y), task="classification")
        assert data.train.y.dtype == torch.int64
        assert data.train.y.tolist() == Y.tolist()
    one_class = from_arrays(X, np.zeros(20, int))
    assert one_class.classes == ("0",)
    assert from_arrays(X, Y, classes=7).num_classes == 7


def test_without_test_a_fifth_of_each_class_is_set_aside():
    y = np.repeat([0, 1, 2], [50, 10, 5])
    x = np.arange(65.0).reshape(-1, 1)
    data = from_arrays(x, y)
    assert np.bincount(data.test.y).tolist() == [10, 2, 1]
    together = torch.cat([data.train.x, data.test.x]).flatten()
    assert sorted(together.tolist()) == x.ravel().tolist()
    assert all(y[int(v)] == c for v, c in zip(data.test.x.flatten(), data.test.y, strict=True))
    again, other = from_arrays(x, y), from_arrays(x, y, seed=1)
    assert torch.equal(data.test.x, again.test.x)
    assert not torch.equal(data.test.x, other.test.x)
    assert len(from_arrays(x, y, test_fraction=0.5).test) == 25 + 5 + 3  # 2.5 rounds up
    with pytest.raises(DataError, match="between 0 and 1"):
        from_arrays(x, y, test_fraction=0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 25), min_size=1, max_size=6).filter(lambda s: max(s) > 1), st.integers(0, 20))
def test_without_test_every_client_keeps_its_share(sizes, seed):
    clients = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = np.arange(len(clients), dtype=float).reshape(-1, 1)
    data = from_arrays(x, np.arange(len(clients)) % 3, clients, seed=seed, classes=3)
    tested = np.bincount(data.test_clients, minlength=len(sizes))
    for n, m in zip(sizes, tested.tolist(), strict=True):
        assert m == (0 if n == 1 else max(1, int(0.2 * n + 0.5)))
    for pool, ids in ((data.train, data.train_clients), (data.test, data.test_clients)):
        assert clients[pool.x.flatten().numpy().astype(int)].tolist() == ids.tolist()


def test_normalise_uses_the_train_part_only():
    x = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    data = from_arrays(x, [0, 1, 0], test=(x * 100, [0, 1, 0]), normalise=True)
    # column 0: mean 2, deviation sqrt(8 / 3); column 1 never changes and is only centred
    assert data.train.mean == (2.0, 5.0)
    assert data.train.std == pytest.approx(((8 / 3) ** 0.5, 1.0))
    assert data.test.mean == data.train.mean
    taken, _ = data.train.take(np.arange(3))
    assert taken[:, 1].tolist() == [0, 0, 0]
    assert taken[2, 0].item() == pytest.approx(2 / (8 / 3) ** 0.5)


def test_normalise_pixels_per_channel():
    x = np.zeros((2, 2, 1, 2), np.uint8)
    x[:, 1] = [[[0, 255]], [[255, 0]]]
    data = from_arrays(x, [0, 1], test=(x, [0, 1]), normalise=True)
    assert (data.train.mean, data.train.std) == ((0.0, 0.5), (1.0, 0.5))
    with pytest.raises(DataError, match="token ids"):
        from_arrays(x.astype(int), [0, 1], test=(x.astype(int), [0, 1]), normalise=True)


def test_moments_of_more_rows_than_are_taken_at_once():
    """Blocks of 4096: the only one stands in the first row of the second."""
    x = np.zeros((4100, 1))
    x[4096] = 1.0
    data = from_arrays(x, np.arange(4100) % 2, test=(x[:2], [0, 1]), normalise=True)
    share = 1 / 4100
    assert data.train.mean == pytest.approx((share,), rel=1e-12)
    assert data.train.std == pytest.approx(((share * (1 - share)) ** 0.5,), rel=1e-12)


def test_of_every_client_the_test_samples_are_spread_over_its_classes():
    """Forty samples of each of three clients, a quarter of each class: ten for testing, of each class two or three."""
    y, clients = np.tile(np.arange(4), 30), np.repeat([0, 1, 2], 40)
    for seed in range(5):
        data = from_arrays(np.zeros((120, 1)), y, clients, test_fraction=0.25, seed=seed)
        for client in range(3):
            counts = np.bincount(data.test.y[data.test_clients == client], minlength=4)
            assert sorted(counts.tolist()) == [2, 2, 3, 3]


def test_whole_numbers_without_a_sign_may_be_as_large_as_those_with_one():
    largest = 2**63 - 1
    data = from_arrays(np.full((4, 1), largest, np.uint64), [0, 1, 0, 1], test=(np.ones((1, 1), np.uint16), [0]))
    assert data.train.x.flatten().tolist() == [largest] * 4
    assert data.test.x.dtype == torch.int64
    with pytest.raises(DataError, match=r"above 2\^63 - 1"):
        from_arrays(np.array([[1], [2**63]], np.uint64), [0, 1])


def test_a_mask_that_hides_nothing_is_none():
    data = from_arrays(np.ma.array(X, mask=False), Y, np.ma.array(Y, mask=False), test=(X, Y))
    assert data.train.x.tolist() == X.tolist()
    with pytest.raises(DataError, match="clients has masked entries"):
        from_arrays(X, Y, np.ma.array(Y, mask=Y == 1))


@pytest.mark.parametrize(("samples", "first_refused"), [(5, 1000), (1500, 1500)])
def test_a_label_beyond_a_thousand_and_all_samples_is_asked_about(samples, first_refused):
    """Up to there it is taken for a class."""
    x, y = np.zeros((samples, 1)), np.zeros(samples, np.int64)
    y[0] = first_refused - 1
    assert from_arrays(x, y).num_classes == first_refused
    y[0] = first_refused
    with pytest.raises(DataError, match=f"the largest label is {first_refused}, but there are only {samples} samples"):
        from_arrays(x, y)
    assert from_arrays(x, y, classes=first_refused + 1).num_classes == first_refused + 1


def nan_at(*places: tuple[int, int], value: float = np.nan) -> np.ndarray:
    x = X.copy()
    for place in places:
        x[place] = value
    return x


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            nan_at((7, 1), (3, 1), (3, 0)),
            r"x has NaN or infinite values in 2 of 20 rows, first nan in row 3 at \(0,\)",
        ),
        (nan_at((5, 1), value=-np.inf), r"1 of 20 rows, first -inf in row 5 at \(1,\)"),
        (nan_at((5, 1), value=1e300), "first inf in row 5"),
        (np.array([[1.0], [1.0, 2.0]], dtype=object), "dtype object"),
        ([[1.0], [1.0, 2.0]], "no rectangular array"),
        ([[None, 1.0]], "1 missing entries, first at position 0"),
        (np.zeros(20), r"must be \[samples, ...\], got shape \(20,\)"),
        (np.zeros((0, 2)), r"x is empty: shape \(0, 2\)"),
        (np.zeros((20, 0)), "x is empty"),
        (np.array([["a"]] * 20), "must hold real numbers, got dtype <U1"),
        (np.zeros((20, 2), complex), "real numbers"),
        (np.zeros((20, 2), "datetime64[s]"), "real numbers"),
        (np.zeros((20, 8, 8, 3), np.uint8), "channels last"),
        (np.full((20, 2), 2**63, np.uint64), "2\\^63"),
        (np.ma.array(X, mask=X > 38), "1 masked entries"),
        ({"a": 1}, r"x\['a'\] must be \[samples, ...\]"),
    ],
)
def test_inputs_that_are_refused(x, message):
    with pytest.raises(DataError, match=message):
        from_arrays(x, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y[:19], "there are 20 samples but y has 19 labels"),
        (Y + 0.5, "20 labels are not .* first 0.5 at position 0"),
        (
            np.where(np.arange(20) == 4, np.nan, Y),
            r"1 labels are not \(1 of them NaN\), first nan at position 4",
        ),
        (np.where(np.arange(20) == 4, np.inf, Y), "first inf at position 4"),
        ([None, *Y[1:].tolist()], "1 missing entries, first at position 0"),
        (Y - 1, "10 negative labels, first -1 at position 0"),
        (np.eye(2)[Y], r"got shape \(20, 2\); from one-hot: y.argmax\(1\)"),
        (np.array(["cat", "dog"] * 10), "return_inverse"),
        (np.full(20, 10**6), "largest label is 1000000, but there are only 20 samples"),
    ],
)
def test_labels_that_are_refused(y, message):
    with pytest.raises(DataError, match=message):
        from_arrays(X, y, task="classification")


def test_class_names_that_do_not_fit():
    with pytest.raises(DataError, match=r"y has 10 labels outside 0\.\.0, first 1 at position 1; there are 1 classes"):
        from_arrays(X, Y, classes=["only"])
    with pytest.raises(DataError, match=r"test y has 1 labels outside 0\.\.1, first 5 at position 2"):
        from_arrays(X, Y, test=(X[:3], [0, 1, 5]), classes=2)
    with pytest.raises(DataError, match="different names"):
        from_arrays(X, Y, classes=["a", "a"])
    with pytest.raises(DataError, match="at least one"):
        from_arrays(X, Y, classes=0)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (["a"] * 19, r"20 samples but clients has shape \(19,\)"),
        (np.full(20, 0.5), "whole numbers or strings, got 0.5"),
        ([1, "1"] * 10, "mixes strings and numbers"),
        ([None, "1"] * 10, "mixes|missing"),
        (np.arange(20) - 1, "1 negative ids, first at position 0"),
        (np.zeros((20, 1), int), "one id per sample"),
        (["a"] * 19 + [" "], "names of 1 to 200 characters, got ' '"),
        (["a"] * 19 + ["b" * 201], "names of 1 to 200 characters"),
    ],
)
def test_client_ids_that_are_refused(clients, message):
    with pytest.raises(DataError, match=message):
        from_arrays(X, Y, clients)


def test_a_name_may_have_two_hundred_characters():
    assert from_arrays(X, Y, ["a"] * 10 + ["b" * 200] * 10).client_names == ("a", "b" * 200)


def test_test_parts_that_are_refused():
    for test in (X, X[:2], X[:3], (X,), (X, Y, Y, Y), [X]):
        with pytest.raises(DataError, match=r"test must be \(x, y\)"):
            from_arrays(X, Y, test=test)
    with pytest.raises(DataError, match=r"train samples are \(2,\) torch.float32, test samples \(1,\)"):
        from_arrays(X, Y, test=(X[:, :1], Y))
    with pytest.raises(DataError, match="must be alike"):
        from_arrays(X, Y, test=(X.astype(int), Y))
    with pytest.raises(DataError, match="test x has NaN"):
        from_arrays(X, Y, test=(nan_at((0, 0)), Y))
    with pytest.raises(DataError, match="test has client ids but train has none"):
        from_arrays(X, Y, test=(X, Y, Y))
    with pytest.raises(DataError, match="1 clients have test samples but no train samples, first 9"):
        from_arrays(X, Y, Y, test=(X[:2], Y[:2], [0, 9]))


def test_clients_are_known_by_their_names_however_these_are_written():
    data = from_arrays(X, Y, Y, test=(X[:2], Y[:2], ["1", "0"]))
    assert (data.test_clients.tolist(), data.client_names) == ([1, 0], ("0", "1"))


class Squares(TorchDataset):
    """A map-style data set that answers every index, so iterating it would never end."""

    classes = ("even", "odd")

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int):
        return torch.full((1, 2, 2), float(i * i)), i % 2


class Stream(IterableDataset):
    def __iter__(self):
        yield from ((np.array([i, i + 1.0]), torch.tensor(i % 3)) for i in range(9))


def test_from_torch_map_style_iterable_and_subset():
    data = from_torch(Squares(), Subset(Squares(), [1, 4]), clients=[0, 1] * 5, test_clients=[1, 0])
    assert data.train.x[:, 0, 0, 0].tolist() == [float(i * i) for i in range(10)]
    assert data.test.x[:, 0, 0, 0].tolist() == [1.0, 16.0]
    assert data.test.y.tolist() == [1, 0]
    assert (data.classes, data.test_clients.tolist()) == (("even", "odd"), [1, 0])
    stream = from_torch(Stream(), Stream())
    assert stream.train.x[:2].tolist() == [[0, 1], [1, 2]]
    assert stream.train.y.tolist() == [0, 1, 2] * 3
    assert len(from_torch(TensorDataset(torch.zeros(10, 3), torch.arange(10) % 2)).test) == 2
    assert len(from_torch([([1.0, 2.0], 0), ([1.0, 2.0], 1)] * 5).train) == 8


@pytest.mark.parametrize("classes", [[], (), 7, "ab", None])
def test_what_is_no_list_of_names_names_no_classes(classes):
    train = Squares()
    train.classes = classes
    assert from_torch(train).classes == ("0", "1")


def test_from_torch_images_with_palettes():
    """One may hide transparency, of which Pillow warns unless it is asked for."""
    palette = Image.new("P", (3, 2), 1)
    palette.putpalette([0, 0, 0, 200, 100, 50])
    palette.info["transparency"] = b"\xff\x80"
    data = from_torch([(palette, 0), (palette, 1)] * 5)
    assert data.train.x[0, :, 0, 0].tolist() == [200, 100, 50]
    both = Image.new("LA", (3, 2), (9, 128))
    assert from_torch([(both, 0), (both, 1)] * 5).train.x[0, :, 0, 0].tolist() == [9]


def test_from_torch_images():
    grey = [(Image.new("L", (3, 2), i), i % 2) for i in range(10)]
    data = from_torch(grey, grey)
    assert data.train.x.shape == (10, 1, 2, 3)
    assert data.train.x[:, 0, 0, 0].tolist() == list(range(10))
    colour = [(Image.new("RGB", (3, 2), (i, 5, 6)), i % 2) for i in range(10)]
    data = from_torch(colour, colour)
    assert data.train.x[4, :, 0, 0].tolist() == [4, 5, 6]
    with pytest.raises(DataError, match="8 bits per channel"):
        from_torch([(Image.new("I;16", (3, 2)), 0)] * 4)


def test_from_torch_refusals():
    with pytest.raises(DataError, match="sample 0 is a Tensor, expected a pair"):
        from_torch([torch.zeros(3)])
    with pytest.raises(DataError, match=r"sample 0 has shape \(3,\) but sample 1 has \(4,\)"):
        from_torch([(torch.zeros(3), 0), (torch.zeros(4), 0)])
    with pytest.raises(DataError, match="train is empty"):
        from_torch([])
    with pytest.raises(DataError, match=r"loader\.dataset"):
        from_torch(DataLoader(Squares()))
    with pytest.raises(DataError, match="test_clients was given without test"):
        from_torch(Squares(), test_clients=[1])
    with pytest.raises(DataError, match="missing"):
        from_torch([(torch.zeros(3), None), (torch.zeros(3), 1)])


def test_named_inputs_must_be_named_in_both_parts() -> None:
    named, plain, y = {"a": np.ones((4, 2))}, np.ones((4, 2)), np.array([0, 1, 0, 1])
    for train, test in ((named, plain), (plain, named), (named, {"b": plain})):
        with pytest.raises(DataError, match="train and test inputs must have the same names, shapes and kinds"):
            from_arrays(train, y, test=(test, y))
    assert from_arrays(named, y, test=(named, y)).fields is not None


def test_each_named_input_must_be_alike_in_both_parts() -> None:
    y = np.array([0, 1])
    train = {"a": np.ones((2, 3)), "b": np.ones((2, 2))}
    for b in (np.ones((2, 4)), np.ones((2, 2), np.int64), np.ones(2)):
        with pytest.raises(DataError, match="the same names, shapes and kinds"):
            from_arrays(train, y, test=({**train, "b": b}, y))
    for other in ({"a": train["a"]}, {**train, "c": train["b"]}):
        with pytest.raises(DataError, match="the same names, shapes and kinds"):
            from_arrays(train, y, test=(other, y))


@pytest.mark.parametrize("names", [(), ("a", "not one"), ("a", 1), ("2", "a"), (1,)])
def test_named_inputs_need_names_a_network_can_have(names: tuple[object, ...]) -> None:
    with pytest.raises(DataError, match="needs names that can be a network's arguments"):
        from_arrays({name: np.ones((4, 1)) for name in names}, [0, 1, 0, 1])


def test_named_inputs_need_as_many_rows() -> None:
    with pytest.raises(DataError, match=r"a row for every sample; got \{'a': 4, 'b': 3\}"):
        from_arrays({"a": np.ones((4, 1)), "b": np.ones((3, 1))}, [0, 1, 0, 1])


def test_a_vocabulary_of_a_named_input_is_that_of_both_parts() -> None:
    for largest, expected in ((9, 10), (2, 6)):
        data = from_arrays({"word": [3, 5]}, [0, 1], test=({"word": [largest]}, [0]))
        assert data.fields is not None
        assert [field.vocabulary for field in data.fields.fields] == [expected]


def test_tensors_of_a_torch_data_set_must_be_two() -> None:
    x, y = torch.zeros(10, 3), torch.arange(10) % 2
    with pytest.raises(DataError, match=r"sample 0 is a tuple, expected a pair \(x, y\)"):
        from_torch(TensorDataset(x, y, y))
    assert from_torch(TensorDataset(x, y)).train.x.shape[1:] == (3,)
