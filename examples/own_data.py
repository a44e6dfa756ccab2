"""Your own arrays, your own network, a method by name.

python examples/own_data.py
"""

import numpy as np
from torch import nn

import accord

rng = np.random.default_rng(0)
names = np.array(["Aix", "Brest", "Lille", "Lyon", "Metz", "Nice", "Paris", "Pau"])
hospital = rng.integers(0, 8, 4000)  # who holds which row
labels = rng.integers(0, 3, 4000)
# Every hospital's machine shifts its measurements its own way: the same classes, other inputs.
rows = rng.normal(size=(4000, 20)) + labels[:, None] + rng.normal(size=(8, 20))[hospital]

data = accord.from_arrays(rows.astype(np.float32), labels, clients=names[hospital], name="machines")
network = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
config = accord.load_config(sets=["algorithm.name=scaffold", "rounds=20", "local.lr=0.02"])

if __name__ == "__main__":
    outcome = accord.run(config, data=data, model=accord.adapt(network, head="2"))
    print(
        f"accuracy {outcome.summary['accuracy']:.3f}, worst hospital {outcome.summary['client_accuracy']['worst']:.3f}"
    )
