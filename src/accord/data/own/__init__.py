"""Your own data as a `Dataset`: tables, arrays, PyTorch and Hugging Face data sets, Flower's partitioners, images.

    dataset = from_table("patients.csv", label="outcome", client="hospital")  # or a pandas DataFrame
    dataset = from_arrays(x, y, clients=hospital)  # client ids: whole numbers or strings, one per sample
    dataset = from_torch(train_set, test_set)
    dataset = from_folder("~/pictures")  # class/image, or site/class/image

Tables and folders are data sets by name as well (`table`, `folder`), so that a configuration can say them. Client ids,
where they are given, divide the data, and keep their names.

Without test data a fifth of the samples is set aside for testing, always the same for the same seed: of each
class if there are no clients, else of each client, spread over its classes.
"""

from accord.data.own import given, named_table  # register themselves among the data sets by name
from accord.data.own.arrays import from_arrays, from_torch
from accord.data.own.flower import from_flwr_partitioner
from accord.data.own.folder import from_folder
from accord.data.own.huggingface import from_huggingface
from accord.data.own.sequences import from_sequences
from accord.data.own.table import from_table

__all__ = [
    "from_arrays",
    "from_flwr_partitioner",
    "from_folder",
    "from_huggingface",
    "from_sequences",
    "from_table",
    "from_torch",
    "given",
    "named_table",
]
