"""Data sets, their division among clients, and your own data."""

from accord.data.bridges import from_flwr_partitioner, from_huggingface
from accord.data.datasets import DATASETS, load_dataset
from accord.data.federate import federate
from accord.data.federated import Dataset, FederatedData, Groups, Pool
from accord.data.own import from_arrays, from_torch
from accord.data.partition import PARTITIONS
from accord.data.transforms import TRANSFORMS

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "TRANSFORMS",
    "Dataset",
    "FederatedData",
    "Groups",
    "Pool",
    "federate",
    "from_arrays",
    "from_flwr_partitioner",
    "from_huggingface",
    "from_torch",
    "load_dataset",
]
