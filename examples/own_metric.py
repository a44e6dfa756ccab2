"""Your own metric: a function of logits and labels, recorded for all and for each client.

python examples/own_metric.py
"""

import torch

import accord


@accord.metric("top3_accuracy", better="higher", doc="the label is among the three largest logits", percent=True)
def top3_accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float((logits.topk(3, dim=1).indices == labels[:, None]).any(1).double().mean())


config = accord.load_config(sets=["rounds=5", "evaluate.top3_accuracy=true"])

if __name__ == "__main__":
    summary = accord.run(config).summary
    everyone, clients = summary["top3_accuracy"], summary["client_top3_accuracy"]
    print(f"among the first three: {everyone:.3f}, for the worst client {clients['worst']:.3f}")
