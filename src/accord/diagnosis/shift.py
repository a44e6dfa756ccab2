"""Feature shift: do inputs of the same label look different at different clients?

Two measurements, both given the label, so that label skew alone is none: the discrepancy of clients' mean features
(MMD), and how well a classifier tells from an input whose it is (a domain classifier; 0.5 is guessing). A shift is said
to be one if it is also seen in the inputs alone: where clients agree about the inputs and disagree about their labels,
inputs of the same label differ too, and that is concept shift.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accord.core.keys import Key
from accord.data.federated import Index
from accord.diagnosis.chance import Chance, against_chance, chance, outstanding
from accord.diagnosis.features import Views
from accord.diagnosis.finding import Finding, Severity, graded, several, unknown
from accord.diagnosis.gathered import Gathered

Floats = npt.NDArray[np.float64]
NAME, TITLE = "features", "Feature shift"
MILD, STRONG = 0.57, 0.68  # of the domain classifier's mean area under its curve
INPUTS = 0.5  # of the deviations beyond chance given the label, that must be there in the inputs alone
ALONE = 0.8  # of a single client's, where the others are alike
FOLDS = 4
PENALTY = 1e-2  # of the classifier's weights, relative to the mean square of its inputs
SHOWN = 40
ROOM = 0.1  # of the picture's scale, so that chance is not drawn in dark colours


def feature_shift(some: Gathered, views: Views, key: Key) -> Finding:
    """Among the gathered samples whose label two clients hold."""
    usable = comparable(some.client, some.strata)
    if len(some.chosen) < 2 or usable.sum() < 40:
        why = (
            "Fewer than two clients have samples enough to compare their inputs."
            if len(some.chosen) < 2
            else "No label is held by two clients: whether their inputs differ otherwise too cannot be told."
        )
        return unknown(NAME, TITLE, why)
    client, strata = some.client[usable], some.strata[usable]
    rows, features = views.rows[usable], views.features[usable]
    rng = key.at("diagnosis.shift")
    given, apart = _given_label(features, client, strata, len(some.chosen), rng)
    alone = _inputs_alone(features, client, strata, len(some.chosen), rng)
    curves = domain_classifier(np.concatenate([rows, rows**2, features * 16], 1), client, strata, len(some.chosen), rng)
    known = ~np.isnan(curves)
    area = float(np.average(curves[known], weights=_sizes(client, len(some.chosen))[known])) if known.any() else 0.5
    sure = given.sure and alone.sure and alone.away >= INPUTS * given.away
    matrix = discrepancies(features, client, strata, len(some.chosen))
    between = matrix.sum(1) / (len(matrix) - 1)  # of each client with the others
    severity: Severity = graded(area, MILD, STRONG, sure=sure)
    stand_out = [k for k in apart if known[k] and curves[k] >= ALONE]
    many = severity != "none"
    if not many and sure and stand_out:
        severity = "mild"
    names = tuple(some.names[k] for k in stand_out) if severity != "none" else ()
    numbers: dict[str, float | int | None] = {
        "domain_classifier_auc": area,
        "mmd_between_clients": float(between.mean()),
        "mmd_deviations_beyond_chance": given.away,
        "inputs_alone_deviations_beyond_chance": alone.away,
        "share_of_shufflings": given.share,
        "clients_that_stand_out": len(stand_out),
        "samples": len(client),
    }
    order = np.arange(len(some.chosen))[:SHOWN]
    return Finding(
        NAME,
        TITLE,
        severity,
        _sentence(some, area, given, sure, severity, many, names) + some.remark,
        numbers,
        names,
        {
            "kind": "heat",
            "rows": [some.names[k] for k in order],
            "columns": [some.names[k] for k in order],
            "cells": np.clip(matrix[np.ix_(order, order)], 0, None).round(4).tolist(),
            "names": ["client", "client"],
            "high": max(ROOM, float(matrix.max())),
            "caption": "How different inputs of two clients are: squared MMD as a share of all spread, less chance",
        },
    )


def comparable(client: Index, strata: Index) -> npt.NDArray[np.bool_]:
    """[N] whether another client holds the same label."""
    pairs = np.unique(np.stack([strata, client]), axis=1)
    holders = np.bincount(pairs[0], minlength=int(strata.max(initial=0)) + 1)
    return np.asarray(holders[strata] > 1)


def _sizes(client: Index, clients: int) -> Index:
    return np.bincount(client, minlength=clients).astype(np.int64)


def means(values: Floats, groups: Index, count: int) -> Floats:
    """[K, D] mean of each group's values; zeros where a group is empty."""
    member = np.zeros((count, len(groups)))
    member[groups, np.arange(len(groups))] = 1.0
    return np.asarray((member @ values) / np.maximum(member.sum(1, keepdims=True), 1))


def within(features: Floats, strata: Index) -> Floats:
    """Features without what the label says of them."""
    return features - means(features, strata, int(strata.max(initial=0)) + 1)[strata]


def _given_label(
    features: Floats, client: Index, strata: Index, clients: int, rng: np.random.Generator
) -> tuple[Chance, list[int]]:
    """The discrepancy over all clients, and which of them stand out."""
    left = within(features, strata)

    def squares(groups: Index) -> Floats:
        return np.asarray((means(left, groups, clients) ** 2).sum(1))

    seen, shuffled = against_chance(squares, client, strata, rng)
    share = _sizes(client, clients) / len(client)
    return chance(float(seen @ share), shuffled @ share), outstanding(seen, shuffled)


def beside_labels(features: Floats, strata: Index, client: Index | None = None) -> Floats:
    """Features without the directions between labels, along which label skew and other labels for the same inputs
    move clients: what a client's mean has left is how far its inputs are from any mixture of the classes.

    With `client`, of directions between labels only what is there within clients too.
    """
    count = int(strata.max(initial=0)) + 1
    left = features - features.mean(0)
    centres = means(left, strata, count) if client is None else _effects(left, strata, client)[:count]
    weight = np.sqrt(np.bincount(strata, minlength=count) / len(strata))
    _, lengths, directions = np.linalg.svd(centres * weight[:, None], full_matrices=False)
    basis = directions[: min(int((lengths > 1e-9).sum()), features.shape[1] // 4)]
    return np.asarray(left - (left @ basis.T) @ basis)


def _effects(values: Floats, strata: Index, client: Index) -> Floats:
    """[labels + clients, D] what label and client each add to a sample's values, by least squares."""
    labels = int(strata.max(initial=0)) + 1
    design = np.zeros((len(strata), labels + int(client.max(initial=0)) + 1))
    design[np.arange(len(strata)), strata] = 1.0
    design[np.arange(len(strata)), labels + client] = 1.0
    return np.asarray(np.linalg.pinv(design.T @ design) @ (design.T @ values))


def _inputs_alone(features: Floats, client: Index, strata: Index, clients: int, rng: np.random.Generator) -> Chance:
    """The discrepancy of inputs whatever their labels."""
    left = beside_labels(features, strata)

    def squares(groups: Index) -> Floats:
        return np.asarray((means(left, groups, clients) ** 2).sum(1))

    seen, shuffled = against_chance(squares, client, strata, rng)
    share = _sizes(client, clients) / len(client)
    return chance(float(seen @ share), shuffled @ share)


def domain_classifier(inputs: Floats, client: Index, strata: Index, clients: int, rng: np.random.Generator) -> Floats:
    """[K] area under the curve of telling each client's samples from others' of the same label; NaN where unknown.

    Ridge regression on who holds a sample, judged on samples it was not fitted to.
    """
    inputs = within(inputs, strata)
    target = np.zeros((len(client), clients))
    target[np.arange(len(client)), client] = 1.0
    target = within(target, strata)
    fold = rng.permutation(len(client)) % FOLDS
    scores = np.zeros_like(target)
    for number in range(FOLDS):
        fit, judge = fold != number, fold == number
        gram = inputs[fit].T @ inputs[fit]
        gram[np.diag_indices_from(gram)] += PENALTY * max(float(np.trace(gram)), 1e-12) / len(gram) + 1e-9
        scores[judge] = inputs[judge] @ np.linalg.solve(gram, inputs[fit].T @ target[fit])
    return np.array([area(scores[:, k], client == k, strata, fold) for k in range(clients)])


def area(scores: Floats, own: npt.NDArray[np.bool_], strata: Index, fold: Index | None = None) -> float:
    """How often a client's sample has the higher score than another's of the same label (and fold)."""
    cells = strata if fold is None else strata * FOLDS + fold
    order = np.lexsort((scores, cells))
    cells, scores, mine = cells[order], scores[order], own[order]
    starts = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]])
    ends = np.r_[starts[1:], len(cells)]
    right = total = 0.0
    for start, end in zip(starts, ends, strict=True):
        part, values = mine[start:end], scores[start:end]
        n, m = int(part.sum()), int((~part).sum())
        if not n or not m:
            continue
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        rank = (np.cumsum(count) - (count - 1) / 2)[place]  # ties share their ranks
        right += float(rank[part].sum()) - n * (n + 1) / 2
        total += n * m
    return right / total if total else float("nan")


def discrepancies(features: Floats, client: Index, strata: Index, clients: int) -> Floats:
    """[K, K] squared MMD between two clients' inputs, as a share of the spread of all, without what chance adds.

    0 where inputs are alike, 1 where two clients have nothing to do with each other, or a little more.
    """
    left = beside_labels(features, strata, client)
    centres, sizes = means(left, client, clients), _sizes(client, clients)
    spread = (means(left**2, client, clients) - centres**2).sum(1) / np.maximum(sizes - 1, 1)
    squared = ((centres[:, None] - centres[None]) ** 2).sum(-1) - spread[:, None] - spread[None]
    np.fill_diagonal(squared, 0.0)
    return np.asarray(squared / max(float((left**2).sum(1).mean()), 1e-12))


def _sentence(
    some: Gathered, area: float, given: Chance, sure: bool, severity: Severity, many: bool, names: tuple[str, ...]
) -> str:
    condition = "of the same label" if some.stratified else "(not given the labels, which every position has)"
    told = f"a classifier tells whose input it is with an AUC of {area:.2f} (0.5 is guessing)"
    if severity == "none":
        if given.sure and not sure:
            return (
                f"Inputs themselves are alike at all clients; that those {condition} differ ({told}) comes from the "
                "labels: see concept shift."
            )
        why = "more than chance makes it, but too little to matter" if sure else "no more than chance makes it"
        return f"Inputs {condition} look alike at all clients: {told}, {why}."
    beyond = f"the MMD between clients is {given.away:.0f} deviations beyond chance"
    if not many:
        return f"Most clients' inputs are alike, but those of {several(names)} differ: {beyond}."
    which = f"; most apart: {several(names)}" if names and len(names) < len(some.chosen) else ""
    return f"Inputs {condition} differ between clients: {told}, and {beyond}{which}."
