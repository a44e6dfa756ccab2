"""Inputs as a few numbers each, without any label, and those as points in which distributions can be compared.

What kind of shift there is nobody knows beforehand, so a row of a sample holds several views of it: its leading
principal components (position, style, turned or permuted pixels), how much they leave out (noise, sharpness), its mean
and spread (brightness, contrast). Random Fourier features of the rows make means comparable: the squared distance
between two clients' mean features is the maximum mean discrepancy (MMD) of a Gaussian kernel (Rahimi and Recht 2007,
Gretton et al. 2012).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accord.core.keys import Key
from accord.diagnosis.gathered import Gathered

Floats = npt.NDArray[np.float64]
COMPONENTS = 24
FOURIER = 256
WIDTHS = (0.7, 2.0)  # of the kernels, in median distances
LARGEST = 4096  # numbers of an input; larger images are averaged over squares, other inputs projected
HASHED = 256  # columns of counted tokens


class Views(NamedTuple):
    """What is compared of N samples."""

    rows: Floats  # [N, D] standardised numbers of each
    places: Floats  # [N, P] components as they are: the distance of two samples is that of their inputs
    features: Floats  # [N, F] points whose means are compared


def views_of(some: Gathered, vocabulary: int, key: Key) -> Views:
    """Of the inputs alone, without their labels."""
    if len(some) < 2:
        nothing = np.zeros((len(some), 1))
        return Views(nothing, nothing, nothing)
    places, rows = _rows(some, vocabulary, key)
    return Views(rows, places, fourier(rows, key))


def _rows(some: Gathered, vocabulary: int, key: Key) -> tuple[Floats, Floats]:
    x = _flat(some.x, vocabulary, key)
    spread = x.std(0)
    x = x[:, spread > 1e-9 * max(float(spread.max(initial=0)), 1e-30)]
    if not x.shape[1]:
        return np.zeros((len(some), 1)), np.zeros((len(some), 1))
    if some.x.dim() <= 2:  # columns of a table have units of their own, pixels have the same
        x = _standard(x)
    views = [_components(x, key)]
    if x.shape[1] > COMPONENTS:
        left = np.log(np.maximum(((x - x.mean(0)) ** 2).sum(1) - (views[0] ** 2).sum(1), 1e-12))
        views += [left[:, None], x.mean(1, keepdims=True), np.log(x.std(1, keepdims=True) + 1e-6)]
        steps = np.abs(np.diff(x, axis=1)).mean(1, keepdims=True)
        views.append(np.log(steps + 1e-6))
    made = np.concatenate([_standard(view) for view in views], 1)
    return views[0], np.clip(made, -6, 6)  # single samples far away must not decide


def _flat(x: Tensor, vocabulary: int, key: Key) -> Floats:
    if vocabulary:
        counts = np.zeros((len(x), min(vocabulary, HASHED)))
        tokens = x.reshape(len(x), -1).numpy().astype(np.int64)
        np.add.at(counts, (np.arange(len(x))[:, None], tokens % counts.shape[1]), 1.0)
        return np.asarray(np.sqrt(counts / np.maximum(counts.sum(1, keepdims=True), 1)), dtype=np.float64)
    x = x.float()
    if x.dim() == 4 and x[0].numel() > LARGEST:
        side = max(8, int((LARGEST / x.shape[1]) ** 0.5))
        x = torch.nn.functional.adaptive_avg_pool2d(x, (min(side, x.shape[2]), min(side, x.shape[3])))
    flat = x.reshape(len(x), -1)
    if flat.shape[1] > 2 * LARGEST:
        generator = torch.Generator().manual_seed(key.number("diagnosis.projection"))
        flat = flat @ (torch.randn(flat.shape[1], LARGEST // 8, generator=generator) / flat.shape[1] ** 0.5)
    return np.asarray(flat.double().numpy())


def _components(x: Floats, key: Key) -> Floats:
    """Leading principal components, by a randomised decomposition with a fixed start."""
    centred = torch.from_numpy(x - x.mean(0))
    rank = min(COMPONENTS, *centred.shape)
    if centred.shape[1] <= COMPONENTS:
        return np.asarray(x - x.mean(0))  # a narrow table is its own best view
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.number("diagnosis.components"))
        _, _, v = torch.svd_lowrank(centred, q=min(rank + 8, *centred.shape), niter=3)
    return np.asarray((centred @ v[:, :rank]).numpy(), dtype=np.float64)


def _standard(view: Floats) -> Floats:
    spread = view.std(0)
    return np.asarray((view - view.mean(0)) / np.where(spread > 0, spread, 1.0))


def fourier(rows: Floats, key: Key) -> Floats:
    """[N, 256] features whose means are compared; two widths of the kernel, half of them each."""
    rng = key.at("diagnosis.fourier")
    some = rows[rng.choice(len(rows), min(len(rows), 500), replace=False)]
    apart = np.sqrt(np.maximum(((some[:, None] - some[None]) ** 2).sum(-1), 0))
    usual = float(np.median(apart[np.triu_indices(len(some), 1)])) if len(some) > 1 else 1.0
    parts = []
    for width in WIDTHS:
        weights = rng.normal(size=(rows.shape[1], FOURIER // 4)) / (width * max(usual, 1e-6))
        angle = rows @ weights
        parts += [np.cos(angle), np.sin(angle)]
    return np.asarray(np.concatenate(parts, 1) * np.sqrt(4 / FOURIER / len(WIDTHS)))
