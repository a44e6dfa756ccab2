"""Mixup: FedAvg on mixed samples.

Zhang, Cisse, Dauphin, Lopez-Paz. "mixup: Beyond empirical risk minimization". ICLR 2018, arXiv 1710.09412; in
federated learning as a baseline of Guo, Tang, Lin, ICML 2023 (FedBR).

    client k, every batch:  l ~ Beta(alpha, alpha),  j a random permutation of the batch
               x~ = l x_i + (1 - l) x_j,   loss = l CE(h(x~), y_i) + (1 - l) CE(h(x~), y_j)
    server:    as FedAvg

Sent: as FedAvg. Defaults: alpha = 0.2, one l per batch. The two terms are computed as one cross-entropy with
soft labels, which is the same number. A short last batch is mixed within itself. alpha = 0 is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

import accord.authoring as fl
from accord.errors import DataError
from accord.parts.samples import soft_labels


@dataclass(frozen=True)
class Mixup(fl.Part):
    """x~ = l x_i + (1 - l) x_j, y~ = l y_i + (1 - l) y_j: one l per batch, j a permutation of the batch.

    Cross-entropy is linear in the label, so soft labels give exactly l CE(y_i) + (1 - l) CE(y_j), and every
    other loss that reads labels sees the same mixture.
    """

    needs = "soft labels to mix"
    mixes = True
    alpha: float = 0.2

    def noise(self, rng: np.random.Generator, steps: int, batch: int) -> dict[str, Any]:
        """l per step, and a number per sample: sorting them gives a permutation of any length."""
        if self.alpha == 0:
            return {}
        return {
            "mixup.share": rng.beta(self.alpha, self.alpha, steps),
            "mixup.order": rng.random((steps, batch)),
        }

    def begin(self, model: fl.Model, job: fl.Job) -> fl.Corner:
        """Refuses inputs that have no mean."""
        if self.alpha and not job.data.x.is_floating_point():
            raise DataError(f"mixup needs inputs that are real numbers, these are {job.data.x.dtype}")
        return {}

    def batch(self, job: fl.Job, corner: fl.Corner, batch: fl.Batch) -> fl.Batch:
        """The mixed batch; its rows are no stored samples any more, which the empty index says."""
        if self.alpha == 0:
            return batch
        share = batch.noise["mixup.share"].to(batch.x.dtype)
        # Padding (weight 0) is sorted behind the samples, so that samples are only mixed with samples.
        keys = batch.noise["mixup.order"][: len(batch.x)] + 2 * (1 - batch.weight)
        order = keys.argsort(stable=True)
        labels = soft_labels(batch.y, job.data.num_classes, batch.x)
        return batch._replace(
            x=share * batch.x + (1 - share) * batch.x.index_select(0, order),
            y=share * labels + (1 - share) * labels.index_select(0, order),
            index=batch.index[:0],
        )


@fl.method("data", part=("alpha",))
def mixup(
    setup: fl.Setup,
    *,
    alpha: Annotated[
        float, fl.AtLeast(0), fl.Search(choices=(0.1, 0.2, 0.4, 1.0)), "lambda ~ Beta(alpha, alpha); 0 mixes nothing"
    ] = 0.2,
    weight: fl.Weight = "examples",
) -> fl.Method:
    """Average models trained on mixed samples."""
    return fl.averaging(setup, Mixup(alpha), weight=weight)
