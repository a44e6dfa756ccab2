"""Concept shift: do clients call the same input by different labels?

Every sample is held against those around it: as far as the nearest few of its own client lie. If clients mean the same
by a label, others' samples in that ball disagree with it no more often than its own client's. Only clients
with like inputs are compared, so feature shift is none; labels count as if every client held its classes
equally often, so label skew is none; and what disagrees within a client too is noise in its labels, which is told apart
since all directions are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from accord.core.keys import Key
from accord.data.federated import Index
from accord.diagnosis.chance import chance, outstanding, shufflings
from accord.diagnosis.features import Views
from accord.diagnosis.finding import Finding, Severity, graded, several, unknown
from accord.diagnosis.gathered import Gathered
from accord.diagnosis.shift import discrepancies

Floats = npt.NDArray[np.float64]
NAME, TITLE = "concept", "Concept shift"
MILD, STRONG = 0.06, 0.2  # of the surplus of disagreement with others
ALONE = 0.3  # of a single client's
NEIGHBOURS = 5  # of the own client, which make the ball
REACH, FURTHEST = 12, 400  # neighbours that are looked at: for each client, and at most
SAMPLES = 2000
ALIKE = 0.025  # discrepancy of two clients' inputs, above which they have no inputs in common that could be compared
HEAVIEST = 10.0  # weight of a sample of a class that its client hardly holds
TURNS = 49
SHOWN = 40


@dataclass(frozen=True)
class Disagreement:
    """Surplus over the own client's, as a mean over all samples and by client."""

    overall: float
    each: Floats  # [K] NaN where a client has nobody around it
    own: Floats  # [K] how often a client's own neighbours disagree
    met: int  # samples with both kinds of neighbours


def concept_shift(some: Gathered, views: Views, key: Key) -> Finding:
    """Among the gathered samples."""
    if some.problem == "tokens":
        return unknown(NAME, TITLE, "Not defined for task tokens: every position of a sample has a label of its own.")
    rng = key.at("diagnosis.concept")
    kept = np.sort(rng.choice(len(some), min(SAMPLES, len(some)), replace=False))
    client, strata = some.client[kept], some.strata[kept]
    labels = _labels(some.y[kept], some.problem)
    if len(some.chosen) < 2 or np.bincount(client, minlength=1).max(initial=0) <= NEIGHBOURS:
        return unknown(NAME, TITLE, "Clients have too few samples to compare what they call the same inputs.")
    if not labels.std(0).any():
        return Finding(NAME, TITLE, "none", "All samples have the same label: nobody can disagree.")
    near = neighbours(views.places[kept], min(REACH * len(some.chosen), FURTHEST))
    alike = discrepancies(views.features, some.client, some.strata, len(some.chosen)) < ALIKE
    unlike = disagreements(labels, near)
    seen = disagreement(client, strata, near, unlike, alike)
    if seen.met < 40:
        return unknown(NAME, TITLE, "Clients' inputs differ too much to compare what they call the same input.")
    turned = [
        disagreement(shuffled, strata, near, unlike, alike) for shuffled in shufflings(client, strata, rng, TURNS)
    ]
    overall = chance(seen.overall, np.array([one.overall for one in turned]))
    each = np.nan_to_num(np.stack([one.each for one in turned]))
    apart = outstanding(np.nan_to_num(seen.each), each)
    surplus = seen.each - each.mean(0)
    sure = overall.share <= 1 / (TURNS + 1) and overall.away >= 5.0
    severity: Severity = graded(overall.excess, MILD, STRONG, sure=sure)
    many = severity != "none"
    # One against the rest: it must have inputs in common with most of them.
    stand_out = [k for k in apart if surplus[k] >= ALONE and alike[k].mean() >= 0.5]
    if not many and stand_out:
        severity = "mild"
    names = tuple(some.names[k] for k in stand_out) if severity != "none" else ()
    noise = mean_noise(seen.own)
    numbers: dict[str, float | int | None] = {
        "surplus_disagreement": overall.excess,
        "deviations_beyond_chance": overall.away,
        "disagreement_within_clients": noise,
        "samples_in_overlap": seen.met,
        "clients_that_stand_out": len(stand_out),
    }
    order = np.argsort(-np.nan_to_num(surplus, nan=-1), kind="stable")[:SHOWN]
    return Finding(
        NAME,
        TITLE,
        severity,
        _sentence(severity, overall.excess, noise, names, some) + some.remark,
        numbers,
        names,
        {
            "kind": "bars",
            "labels": [some.names[k] for k in order],
            "values": np.nan_to_num(surplus[order] * 100).round(1).tolist(),
            "caption": "How much more often others disagree with a client than it with itself, percent of cases",
        },
    )


def _labels(y: Tensor, problem: str) -> Floats:
    """[N, D] rows whose mean squared difference is 1 where two samples disagree wholly."""
    if problem == "classification":
        return np.asarray(y.numpy()[:, None], dtype=np.float64)
    values = y.reshape(len(y), -1).double().numpy()
    if problem == "multilabel":
        return np.asarray(values)
    scale = values.std(0)
    return np.asarray(values / np.where(scale > 0, scale, 1.0) / np.sqrt(2))  # two independent numbers disagree by 1


def disagreements(labels: Floats, near: Index) -> Floats:
    """[N, M] how much each sample disagrees with each of its neighbours, 0 to 1."""
    if labels.shape[1] == 1 and (labels == labels.round()).all():
        return np.asarray(labels[:, 0][near] != labels[:, :1], dtype=np.float64)
    return np.asarray(np.minimum(((labels[near] - labels[:, None]) ** 2).mean(-1), 4.0))


def neighbours(rows: Floats, most: int) -> Index:
    """[N, M] the nearest samples of all clients, the nearest first, itself left out."""
    squares = (rows**2).sum(1)
    apart = squares[:, None] + squares[None] - 2 * rows @ rows.T
    np.fill_diagonal(apart, np.inf)
    most = min(most, len(rows) - 1)
    first = np.argpartition(apart, most - 1, axis=1)[:, :most]
    return np.take_along_axis(first, np.argsort(np.take_along_axis(apart, first, 1), axis=1, kind="stable"), 1)


def disagreement(
    client: Index, strata: Index, near: Index, unlike: Floats, alike: npt.NDArray[np.bool_]
) -> Disagreement:
    """With others in the ball, beyond that with one's own; [K, K] `alike` says whose inputs can be compared."""
    clients, classes = len(alike), int(strata.max(initial=0)) + 1
    held = np.bincount(client * classes + strata, minlength=clients * classes).reshape(clients, classes)
    kinds = np.maximum((held > 0).sum(1), 1)
    even = held.sum(1) / kinds  # samples of a class if the client held its classes equally often
    weight = np.minimum(even[client] / np.maximum(held[client, strata], 1), HEAVIEST)
    mine = client[near] == client[:, None]
    rank = np.cumsum(mine, 1)
    inside = rank <= NEIGHBOURS
    full = rank[:, -1] >= NEIGHBOURS
    # Only labels that both clients hold: who never saw a class cannot mean anything by it.
    both = (held[client[:, None], strata[near]] > 1) & (held[client[near], strata[:, None]] > 1)
    votes = weight[near] * inside * both
    own, others = votes * mine, votes * (~mine & alike[client[:, None], client[near]])
    meets = full & (others.sum(1) > 0) & (own.sum(1) > 0)
    inner = np.divide((own * unlike).sum(1), own.sum(1), out=np.zeros(len(client)), where=meets)
    outer = np.divide((others * unlike).sum(1), others.sum(1), out=np.zeros(len(client)), where=meets)
    counts: Floats = np.bincount(client, weights=weight * meets, minlength=clients).astype(np.float64)
    each_own = _by_client(inner * weight * meets, client, counts, clients)
    each_outer = _by_client(outer * weight * meets, client, counts, clients)
    total = max(float((weight * meets).sum()), 1e-12)
    around = float((inner * weight * meets).sum() / total)
    overall = float((outer * weight * meets).sum() / total) - around
    # Noise of a client's own labels makes others disagree too: half of it is its own.
    each = each_outer - 0.5 * (each_own + np.where(np.isnan(each_own), np.nan, around))
    return Disagreement(overall, np.asarray(each), each_own, int(meets.sum()))


def _by_client(values: Floats, client: Index, counts: Floats, clients: int) -> Floats:
    sums = np.bincount(client, weights=values, minlength=clients)
    return np.asarray(np.divide(sums, counts, out=np.full(clients, np.nan), where=counts > 0))


def mean_noise(own: Floats) -> float:
    """How often neighbours within a client disagree."""
    return float(np.nanmean(own)) if np.isfinite(own).any() else 0.0


def _sentence(severity: Severity, surplus: float, noise: float, names: tuple[str, ...], some: Gathered) -> str:
    about = "by the same labels" if some.problem != "regression" else "the same numbers"
    within = f"a client's own neighbouring samples disagree in {100 * noise:.0f} % of cases"
    if some.problem == "regression":
        within = f"within a client neighbouring samples differ by {100 * noise:.0f} % of what unrelated ones do"
    if severity == "none":
        return f"Clients call similar inputs {about}: others disagree no more than one's own ({within})."
    if names and 4 * len(names) <= len(some.chosen):  # a few against the rest
        who = f"{several(names)} {'calls' if len(names) == 1 else 'call'}"
        return f"{who[:1].upper()}{who[1:]} inputs by other labels than the rest does ({within})."
    which = f"; most: {several(names)}" if names and len(names) < len(some.chosen) else ""
    return (
        f"Clients call similar inputs by different labels: {within}, and others disagree {100 * surplus:.0f} points "
        f"more{which}. One model cannot be right for all of them."
    )
