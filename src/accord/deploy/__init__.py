"""A trained model in use: read from its folder, asked about raw inputs, exported. Knows nothing of what trains.

| where | what |
|---|---|
| `folder` | the files of a model, checked before they are believed |
| `rebuilt` | from a description to a network, and what a method puts around it |
| `answers` | from a network's outputs to class names, labels or numbers |
| `loaded` | the model itself: raw inputs in, answers out |
| `exported` | the same as an ONNX or a `torch.export` file |
"""

from accord.deploy.loaded import Loaded, load, predict

__all__ = ["Loaded", "load", "predict"]
