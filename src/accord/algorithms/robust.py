"""Robust aggregation: FedAvg with a rule that a few hostile clients cannot bend at will.

    median         every weight is the median of the clients' values              (Yin et al., arXiv 1803.01498)
    trimmed_mean   every weight is the mean without the lowest and the highest
                   floor(trim k) of the k values                                  (the same)
    krum           the model whose k - f - 2 nearest others are nearest by squared distance, f = floor(hostile k);
                   keep > 1: the mean of so many (multi-Krum), 0: of all but f    (Blanchard et al., NeurIPS 2017,
                                                                                  arXiv 1703.02757)
    norm_clip      changes w_k - w_t scaled to a norm of at most `limit`, then the mean by samples
                                                                                  (Sun et al., arXiv 1911.07963)

Yin, Chen, Ramchandran, Bartlett. "Byzantine-robust distributed learning". ICML 2018. Blanchard, El Mhamdi, Guerraoui,
Stainer. "Machine learning with adversaries". Sun, Kairouz, Suresh, McMahan. "Can you really backdoor federated
learning?".

Clients train as in FedAvg. Sent: as FedAvg; the server must see each client's model. The first three treat clients
alike, as a number of samples is only claimed. Krum needs k >= 2 f + 3 answers, and chooses buffers by the models they
belong to. norm_clip bounds the model only: running statistics of batch norm are averaged as they are, so prefer group
norm with it. The rules (`accord.aggregate.robust`) can stand in for the mean in any other method.
Defaults: trim = 0.1 and hostile = 0.2 (below 10 and 5 clients that is nobody), keep = 1, limit = 5, which is ours:
look at the norms of honest changes first. trim = 0 is FedAvg with uniform weights, a limit nobody reaches is FedAvg.
"""

from __future__ import annotations

from typing import Annotated

import accord.authoring as fl
from accord.aggregate.robust import Krum, Median, NormClip, TrimmedMean
from accord.core.algorithm import Aggregator

BELOW_HALF = fl.Range(low=0, below=0.5)


def _with_rule(setup: fl.Setup, model: Aggregator, buffers: Aggregator) -> fl.Method:
    return setup.method(setup.local(fl.SampleLoss()), {"model": model, "buffers": buffers})


@fl.method("server")
def median(setup: fl.Setup) -> fl.Method:
    """The median of every weight."""
    return _with_rule(setup, Median(), Median())


@fl.method("server")
def trimmed_mean(
    setup: fl.Setup,
    *,
    trim: Annotated[float, BELOW_HALF, fl.Search(choices=(0.1, 0.2, 0.3)), "share cut at either end"] = 0.1,
) -> fl.Method:
    """The mean of every weight without its extremes."""
    return _with_rule(setup, TrimmedMean(trim), TrimmedMean(trim))


@fl.method("server")
def krum(
    setup: fl.Setup,
    *,
    hostile: Annotated[float, BELOW_HALF, "share of a round's clients taken to be hostile"] = 0.2,
    keep: Annotated[int, fl.AtLeast(0), "models averaged: 1 is Krum, more multi-Krum, 0 all but the hostile"] = 1,
) -> fl.Method:
    """The model, or the mean of those, with the nearest neighbours."""
    return _with_rule(setup, Krum(hostile, keep), Krum(hostile, keep))


@fl.method("server")
def norm_clip(
    setup: fl.Setup,
    *,
    limit: Annotated[
        float, fl.Range(above=0), fl.Search(0.5, 20.0, log=True), "largest norm of a client's change"
    ] = 5.0,
) -> fl.Method:
    """The mean of changes of bounded size."""
    return _with_rule(setup, NormClip(limit), fl.Mean())
