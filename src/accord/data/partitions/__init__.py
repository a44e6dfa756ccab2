"""All partitions by name: `PARTITIONS["dirichlet"](dataset, clients, rng, alpha=0.1)`.

| name | who gets what | source |
|---|---|---|
| `dirichlet` | every class divided by Dirichlet shares over clients | FedRANE and many others |
| `lda` | equal sizes, label shares of each client from a Dirichlet draw | Hsu et al. 2019, FedBR |
| `class_shards` | every class cut into shards, two random ones per client | FedUFO |
| `sorted_shards` | samples sorted by label, cut into shards, two per client | McMahan et al. 2017, FedMMD |
| `label_split` | disjoint classes | FedMMD, FedFusion |
| `iid` | a random equal split | |
| `quantity` | IID labels, very different sizes | |
| `domains` | a domain's classes divided among its clients | PACS in FedBR |
| `natural` | the clients named by the data set | |
| `auto` | `natural` where the data names clients, else `dirichlet` | |

Rotated and permuted data are one of these and a transform (`accord.data.transforms`).

A partition is a function below `@partition("name")`, in a file of this folder, and is found by itself. Its keyword
arguments are its settings; its first line of documentation is what `accord list partitions` says:

    @partition("alternate")
    def alternate(dataset: Dataset, clients: int, rng: np.random.Generator) -> Groups:
        '''Sample i to client i mod K.'''
        return by_owner(np.arange(len(dataset.train)) % clients, clients)

Outside this package the same decorator registers a partition once its module is imported.
"""

from accord.data.partitions.registry import PARTITIONS, partition
from accord.settings import import_all

__all__ = ["PARTITIONS", "partition"]

import_all(__name__)
