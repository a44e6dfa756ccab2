"""Data sets, their division among clients, and your own data.

| where | what |
|---|---|
| `federated` | the one in-memory form: pools of samples, and positions in them for each client |
| `public/` | data sets by name, one file each |
| `own/` | your own tables, arrays, PyTorch and Hugging Face data sets, Flower's partitioners, folders of images |
| `inputs`, `columns` | how a raw sample becomes what a network sees |
| `files/` | where files lie, their download, their formats |
| `division` | from a data set to federated data in one call, `federate` |
| `partitions/` | who gets which samples |
| `splits` | local train, validation and test parts |
| `transforms/` | fixed changes of each client's inputs |
| `description` | how different the clients are, in numbers |
"""

from accord.data.division import federate
from accord.data.federated import Dataset, FederatedData, Groups, Pool
from accord.data.own import (
    from_arrays,
    from_flwr_partitioner,
    from_folder,
    from_huggingface,
    from_sequences,
    from_table,
    from_torch,
)
from accord.data.partitions import PARTITIONS
from accord.data.public import DATASETS, load_dataset
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
    "from_folder",
    "from_huggingface",
    "from_sequences",
    "from_table",
    "from_torch",
    "load_dataset",
]
