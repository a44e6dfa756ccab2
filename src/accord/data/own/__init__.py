"""Your own data as a `Dataset`: arrays, PyTorch and Hugging Face data sets, Flower's partitioners, folders of images.

    dataset = from_arrays(x, y, clients=hospital)  # client ids: whole numbers or strings, one per sample
    dataset = from_torch(train_set, test_set)
    dataset = load_dataset("folder", path="~/pictures")  # a data set by name, so that a configuration can say it

Without test data a fifth of the samples is set aside for testing, always the same for the same seed: of each
class if there are no clients, else of each client, spread over its classes.
"""

from accord.data.own import folder  # registers itself among the data sets by name
from accord.data.own.arrays import from_arrays, from_torch
from accord.data.own.flower import from_flwr_partitioner
from accord.data.own.huggingface import from_huggingface
from accord.data.own.sequences import from_sequences
from accord.data.own.table import from_table

__all__ = [
    "folder",
    "from_arrays",
    "from_flwr_partitioner",
    "from_huggingface",
    "from_sequences",
    "from_table",
    "from_torch",
]
