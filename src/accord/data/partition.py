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

Rotated and permuted data are one of these and a transform (`accord.data.transforms`).
"""

from __future__ import annotations

from accord.data.partition_core import PARTITIONS, Partition
from accord.data.partition_dirichlet import dirichlet, lda
from accord.data.partition_given import domains, iid, natural, quantity
from accord.data.partition_labels import class_shards, label_split, sorted_shards

__all__ = [
    "PARTITIONS",
    "Partition",
    "class_shards",
    "dirichlet",
    "domains",
    "iid",
    "label_split",
    "lda",
    "natural",
    "quantity",
    "sorted_shards",
]
