"""Label skew: do clients hold other labels than the whole? Distance (EMD) and entropy, against chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from accord.core.keys import Key
from accord.data.dealing import owners
from accord.data.description import Description, mean_of
from accord.data.federated import FederatedData, Index
from accord.diagnosis.chance import Chance, against_chance, chance, outstanding
from accord.diagnosis.finding import Finding, Severity, called, graded, several, unknown
from accord.diagnosis.gathered import label_rows

Floats = npt.NDArray[np.float64]
NAME, TITLE = "labels", "Label skew"
MILD, STRONG = 0.15, 0.6  # of the mean distance (0 to 2) beyond chance
MILD_NUMBER, STRONG_NUMBER = 0.15, 0.5  # the same where labels are numbers: in their own deviations
CLIENTS, SAMPLES = 1000, 200_000  # more are not shuffled
GRID = 256  # numbers at which distributions of numbers are compared
SHOWN = 60  # clients and classes in the picture


def label_skew(data: FederatedData, key: Key) -> Finding:
    """Of all clients; where there are very many, of some."""
    rng = key.at("diagnosis.labels")
    order, client, remark = _looked_at(data, rng)
    able = np.unique(client)
    if len(able) < 2:
        return unknown(NAME, TITLE, "Only one client has training samples: there is nobody to compare it with.")
    place = np.searchsorted(able, client).astype(np.int64)
    names = tuple(called(data, int(k)) for k in able)
    y = data.train_pool.y[order].cpu()
    if data.problem == "regression":
        return _of_numbers(y.reshape(len(y), -1).double().numpy(), place, names, rng, remark)
    classes: tuple[str, ...] = ()
    if data.problem == "classification":
        count = _by_class(y.numpy().astype(np.int64), data.num_classes, len(able))
        classes = data.classes
    else:
        count = _by_rows(label_rows(y, data.problem, data.num_classes), len(able))
    held = Description(data.name, "train", count(place), names, classes)  # type: ignore[arg-type]
    if int((held.counts.sum(0) > 0).sum()) < 2:
        return Finding(NAME, TITLE, "none", "All samples have the same label: there is nothing to be skewed.")

    def distances(groups: Index) -> Floats:
        return np.nan_to_num(Description("", "train", count(groups)).distance)  # type: ignore[arg-type]

    seen, shuffled = against_chance(distances, place, np.zeros(len(place), np.int64), rng)
    found = chance(float(seen.mean()), shuffled.mean(1))
    apart = outstanding(seen, shuffled)
    severity, many = _severity(found, seen, shuffled, apart, MILD, STRONG)
    stand_out = tuple(names[k] for k in apart) if severity != "none" else ()
    spread, among = mean_of(held.effective_classes), int((held.counts.sum(0) > 0).sum())
    return Finding(
        NAME,
        TITLE,
        severity,
        _sentence(found, severity, many, stand_out, spread, among) + remark,
        {**_numbers(found, apart), "effective_labels": spread, "labels": among},
        stand_out,
        _picture(held),
    )


def _looked_at(data: FederatedData, rng: np.random.Generator) -> tuple[Index, Index, str]:
    """Samples, and whose they are."""
    order, client = data.train.order, owners(data.train)
    able = np.flatnonzero(data.sizes)
    if len(able) > CLIENTS:
        chosen = np.zeros(len(data), dtype=bool)
        chosen[rng.choice(able, CLIENTS, replace=False)] = True
        order, client = order[chosen[client]], client[chosen[client]]
    if len(order) > SAMPLES:
        kept = np.sort(rng.choice(len(order), SAMPLES, replace=False))
        order, client = order[kept], client[kept]
    whole = len(order) == len(data.train.order)
    return (
        order,
        client,
        "" if whole else f" ({len(order):,} samples of {len(np.unique(client))} clients were counted.)",
    )


def _by_class(labels: Index, classes: int, clients: int) -> Callable[[Index], Floats]:
    def count(groups: Index) -> Floats:
        cells = np.bincount(groups * classes + labels, minlength=clients * classes)
        return cells.reshape(clients, classes).astype(np.float64)

    return count


def _by_rows(rows: Floats, clients: int) -> Callable[[Index], Floats]:
    def count(groups: Index) -> Floats:
        sums = np.zeros((clients, rows.shape[1]))
        np.add.at(sums, groups, rows)
        return sums

    return count


def _severity(
    found: Chance, seen: Floats, shuffled: Floats, apart: list[int], mild: float, strong: float
) -> tuple[Severity, bool]:
    """By the mean over clients; or, where that hides them, by single ones. Whether it is many."""
    severity = graded(found.excess, mild, strong, sure=found.sure)
    if severity != "none":
        return severity, True
    alone = apart and max(float(seen[k] - shuffled[:, k].mean()) for k in apart) >= strong
    return ("mild" if alone else "none"), False


def _numbers(found: Chance, apart: list[int]) -> dict[str, float | int | None]:
    return {
        "distance": found.seen,
        "distance_by_chance": found.mean,
        "share_of_shufflings": found.share,
        "clients_that_stand_out": len(apart),
    }


def _sentence(found: Chance, severity: Severity, many: bool, apart: tuple[str, ...], spread: float, among: int) -> str:
    measured = f"their label distance to the whole (EMD, 0 to 2) is {found.seen:.2f} on average"
    by_chance = f"chance alone gives {found.mean:.2f}"
    if severity == "none":
        calm = f"Clients hold the same labels as far as one can tell: {measured}, and {by_chance}."
        return (
            calm if found.mean < 1 else f"{calm} They hold so few samples that a strong skew could hide behind chance."
        )
    if not many:
        who = f"{several(apart)} {'does' if len(apart) == 1 else 'do'} not"
        return f"Most clients hold the same labels, but {who}: {measured}, {by_chance}."
    return (
        f"Clients hold different labels: {measured}, {by_chance}; by entropy a client holds {spread:.1f} of {among} "
        "equally frequent labels."
    )


def _picture(held: Description) -> dict[str, object]:
    columns = held.classes if len(held.classes) == held.counts.shape[1] else map(str, range(held.counts.shape[1]))
    return {
        "kind": "heat",
        "rows": list(held.clients[:SHOWN]),
        "columns": list(columns)[:SHOWN],
        "cells": np.nan_to_num(held.shares[:SHOWN, :SHOWN] * 100).round(1).tolist(),
        "names": ["label", "client"],
        "caption": "Percent of a client's labels",
    }


def _of_numbers(y: Floats, place: Index, names: tuple[str, ...], rng: np.random.Generator, remark: str) -> Finding:
    """How far a client's numbers lie from all: the area between their distribution functions, in deviations."""
    scale = y.std(0)
    y = (y - y.mean(0))[:, scale > 0] / scale[scale > 0]
    if not y.shape[1]:
        return Finding(NAME, TITLE, "none", "All samples have the same label: there is nothing to be skewed.")
    columns = [Steps.of(column) for column in y.T]

    def distances(groups: Index) -> Floats:
        return np.asarray(np.mean([column.transport(groups, len(names)) for column in columns], axis=0))

    seen, shuffled = against_chance(distances, place, np.zeros(len(place), np.int64), rng)
    found = chance(float(seen.mean()), shuffled.mean(1))
    apart = outstanding(seen, shuffled)
    severity, _ = _severity(found, seen, shuffled, apart, MILD_NUMBER, STRONG_NUMBER)
    measured = f"a client's lie {found.seen:.2f} deviations from the whole's on average, by chance {found.mean:.2f}"
    sentence = (
        f"The numbers to be predicted are spread alike at all clients: {measured}."
        if severity == "none"
        else f"The numbers to be predicted differ between clients: {measured} (EMD of their distributions)."
    )
    means = np.bincount(place, weights=y[:, 0], minlength=len(names)) / np.bincount(place, minlength=len(names))
    order = np.argsort(means, kind="stable")[:SHOWN]
    return Finding(
        NAME,
        TITLE,
        severity,
        sentence + remark,
        _numbers(found, apart),
        tuple(names[k] for k in apart) if severity != "none" else (),
        {
            "kind": "bars",
            "labels": [names[k] for k in order],
            "values": means[order].round(3).tolist(),
            "caption": "Mean label of a client, in deviations from the mean of all",
        },
    )


class Steps:
    """A column of numbers, cut at some of its values."""

    def __init__(self, edges: Floats, cell: Index) -> None:
        self.edges, self.cell = edges, cell

    @classmethod
    def of(cls, values: Floats) -> Steps:
        """At all of its values, or at equally frequent ones."""
        edges = np.unique(values)
        if len(edges) > GRID:
            edges = np.unique(np.quantile(values, np.linspace(0, 1, GRID)))
        return cls(edges, np.searchsorted(edges, values, side="left").astype(np.int64))

    def transport(self, groups: Index, clients: int) -> Floats:
        """[K] 1-Wasserstein distance of each client's numbers to all of them."""
        cells = np.bincount(groups * len(self.edges) + self.cell, minlength=clients * len(self.edges))
        below = np.cumsum(cells.reshape(clients, -1), 1, dtype=np.float64)
        whole = below.sum(0) / max(len(groups), 1)
        shares = below / np.maximum(below[:, -1:], 1)
        return np.asarray((np.abs(shares - whole)[:, :-1] * np.diff(self.edges)).sum(1) * (below[:, -1] > 0))
