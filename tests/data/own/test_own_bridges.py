"""Hugging Face data sets and Flower partitioners, by stand-ins with the same few methods.

The stand-ins follow `datasets.Dataset` (columns by name, rows by iteration, `add_column`, `select_columns`)
and `flwr_datasets.partitioner.Partitioner` (a data set that can be assigned only once).
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from accord.data.own import from_flwr_partitioner, from_huggingface
from accord.errors import DataError


class Table:
    def __init__(self, columns: dict[str, list], features: dict | None = None) -> None:
        self.columns = columns
        self.features = features or dict.fromkeys(columns)

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> list:
        return list(self.columns[name])

    def __iter__(self):
        return (dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True))

    def add_column(self, name: str, values) -> Table:
        return Table({**self.columns, name: list(values)})

    def select(self, rows) -> Table:
        return Table({name: [values[i] for i in rows] for name, values in self.columns.items()})

    def select_columns(self, names: list[str]) -> Table:
        return Table({name: self.columns[name] for name in names})


class Partitioner:
    def __init__(self, groups: list[list[int]]) -> None:
        self._dataset = None
        self.groups = groups
        self.made = 0

    @property
    def dataset(self):
        if self._dataset is None:
            raise AttributeError("The dataset field should be set before using it.")
        return self._dataset

    @dataset.setter
    def dataset(self, value) -> None:
        if self._dataset is not None:
            raise Exception("The dataset should be assigned only once to the partitioner.")
        self._dataset = value

    @property
    def num_partitions(self) -> int:
        return len(self.groups)

    def load_partition(self, partition_id: int):
        self.made += 1
        return self.dataset.select(self.groups[partition_id])


def images(count: int = 10) -> Table:
    return Table(
        {
            "img": [Image.new("RGB", (3, 2), (i, 0, 9)) for i in range(count)],
            "label": [i % 2 for i in range(count)],
            "hospital": ["west" if i < 4 else "east" for i in range(count)],
            "heavy": [None] * count,
        },
        {"img": None, "label": SimpleNamespace(names=["cat", "dog"]), "hospital": None, "heavy": None},
    )


def test_columns_are_guessed_and_names_taken():
    data = from_huggingface(images(), client="hospital", test=images(4), name="scans")
    assert (data.name, data.classes) == ("scans", ("cat", "dog"))
    assert data.train.x.shape == (10, 3, 2, 3)
    assert data.train.x[:, 0, 0, 0].tolist() == list(range(10))
    assert data.train_clients.tolist() == [1] * 4 + [0] * 6  # east before west
    assert data.test_clients.tolist() == [1] * 4
    assert data.client_names == ("east", "west")


def test_numbers_that_stand_for_sites_become_their_names():
    table = Table(
        {"x": [[float(i)] for i in range(6)], "y": [0, 1] * 3, "site": [1, 0, 0, 1, 1, 0]},
        {"x": None, "y": None, "site": SimpleNamespace(names=["west", "east"])},
    )
    data = from_huggingface(table, client="site", test=table)
    assert (data.client_names, data.train_clients.tolist()) == (("east", "west"), [0, 1, 1, 0, 0, 1])


def test_a_dictionary_of_parts_and_no_test_part():
    data = from_huggingface({"train": images(), "test": images(4)})
    assert (len(data.train), len(data.test)) == (10, 4)
    data = from_huggingface({"train": images(), "test": images(4)}, test=images(6))
    assert len(data.test) == 6, "what is given goes before what is there"
    data = from_huggingface({"train": images()}, client="hospital")
    # a fifth of west's 4 and of east's 6 samples, rounded
    assert data.test_clients.tolist() == [1, 0]
    with pytest.raises(DataError, match="has the parts validation; expected train"):
        from_huggingface({"validation": images()})


def test_a_column_of_inputs_is_named_by_its_part():
    good, bad = Table({"x": [[1.0], [2.0]], "y": [0, 1]}), Table({"x": [[1.0], [2.0, 3.0]], "y": [0, 1]})
    for train, test, part in ((bad, good, "train"), (good, bad, "test")):
        with pytest.raises(DataError, match=f"{part} column 'x': sample 0 has shape"):
            from_huggingface(train, test=test)


def test_rows_of_numbers():
    table = Table({"x": [[i, i / 2] for i in range(6)], "y": [0, 1, 2] * 2})
    data = from_huggingface(table, test=table)
    assert torch.equal(data.train.x, torch.tensor([[i, i / 2] for i in range(6)]))
    assert data.classes == ("0", "1", "2")


def test_columns_that_are_missing_or_doubtful():
    with pytest.raises(DataError, match=r"no label column 'lable'.*Did you mean 'label'.*Columns: img, label"):
        from_huggingface(images(), label="lable")
    with pytest.raises(DataError, match=r"cannot tell the feature column among a, y; give feature='...'"):
        from_huggingface(Table({"a": [1], "y": [1]}))
    with pytest.raises(DataError, match="cannot tell the label column"):
        from_huggingface(Table({"x": [[1.0]], "y": [1], "label": [2]}))
    with pytest.raises(DataError, match="no client column"):
        from_huggingface(images(), client="clinic")
    with pytest.raises(DataError, match="no test column 'img'"):
        from_huggingface(images(), test=Table({"x": [[1.0]], "label": [1]}))
    with pytest.raises(DataError, match=r"expected a Hugging Face datasets\.Dataset, got list"):
        from_huggingface([1, 2])
    with pytest.raises(DataError, match="without streaming"):
        from_huggingface(SimpleNamespace(column_names=["x", "y"]))
    with pytest.raises(DataError, match="but not both"):
        from_huggingface(images(), client="hospital", clients=[0] * 10)


def test_bad_values_are_named_by_column():
    with pytest.raises(DataError, match=r"column 'y' has 1 missing entries, first at position 1"):
        from_huggingface(Table({"x": [[1.0], [2.0]], "y": [1, None]}))
    with pytest.raises(DataError, match=r"sample 0 has shape \(1,\) but sample 1 has \(2,\)"):
        from_huggingface(Table({"x": [[1.0], [2.0, 3.0]], "y": [1, 0]}))


def test_partitions_become_client_ids_and_the_partitioner_is_left_as_it_was():
    partitioner = Partitioner([[5, 0, 1], [2], [9, 8, 7, 6, 4, 3]])
    table = images()
    partitioner.dataset = table
    ids = from_flwr_partitioner(partitioner)
    assert ids.tolist() == [0, 0, 1, 2, 2, 0, 2, 2, 2, 2]
    assert ids.dtype == np.int64
    assert partitioner.dataset is table
    assert partitioner.made == 3
    data = from_huggingface(table, clients=ids, test=images(4))
    assert data.train_clients.tolist() == ids.tolist()


def test_samples_in_no_partition_or_in_two():
    partitioner = Partitioner([[0, 1], [2]])
    partitioner.dataset = images(5)
    with pytest.raises(DataError, match="2 of 5 samples are in no partition, first 3"):
        from_flwr_partitioner(partitioner)
    assert from_flwr_partitioner(partitioner, allow_missing=True).tolist() == [0, 0, 1, -1, -1]
    for groups in ([[0, 1], [1, 2, 3, 4]], [[0, 0, 1, 2, 3, 4]]):
        partitioner = Partitioner(groups)
        table = partitioner.dataset = images(5)
        with pytest.raises(DataError, match="given out before"):
            from_flwr_partitioner(partitioner)
        assert partitioner.dataset is table


def test_partitioners_that_cannot_be_used():
    with pytest.raises(DataError, match=r"partitioner\.dataset = dataset"):
        from_flwr_partitioner(Partitioner([[0]]))
    with pytest.raises(DataError, match="does not keep its data set"):
        from_flwr_partitioner(SimpleNamespace(dataset=images(), num_partitions=1))

    class Vertical(Partitioner):
        def load_partition(self, partition_id: int):
            return self.dataset.select_columns(["label"])

    partitioner = Vertical([[0]])
    partitioner.dataset = images()
    with pytest.raises(DataError, match="divides columns, not samples"):
        from_flwr_partitioner(partitioner)


def test_only_the_column_that_is_read_is_decoded():
    class Costly(Table):
        def __iter__(self):
            assert list(self.columns) == ["x"], "the other columns would be decoded too"
            return super().__iter__()

        def select_columns(self, names: list[str]) -> Costly:
            return Costly({name: self.columns[name] for name in names})

    table = Costly({"x": [[1.0], [2.0]], "y": [0, 1], "video": [None, None]})
    assert from_huggingface(table, test=table).train.x.tolist() == [[1.0], [2.0]]


def test_samples_that_are_tensors_or_arrays():
    from accord.data.own.samples import stacked

    assert torch.equal(stacked([torch.ones(2), np.zeros(2)], "x"), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert isinstance(stacked([np.zeros(2), torch.ones(2)], "x"), np.ndarray)
    assert stacked([torch.tensor([3])], "x").tolist() == [[3]]
    with pytest.raises(DataError, match="x is empty"):
        stacked([], "x")
    assert stacked([Image.new("RGB", (3, 2), (1, 2, 3))], "x").shape == (1, 3, 2, 3)
    assert stacked([Image.new("LA", (3, 2))], "x").shape == (1, 2, 3)
    assert stacked([Image.new("P", (3, 2))], "x").shape == (1, 3, 2, 3)
    for mode in ("I", "I;16", "F"):
        with pytest.raises(DataError, match=f"images with '{mode}' pixels"):
            stacked([Image.new(mode, (3, 2))], "x")
