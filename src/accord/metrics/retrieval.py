"""Mean average precision of a search by features, as re-identification is judged.

Features are scaled to length one and ranked by inner product. With cameras, a gallery item of the query's own
identity and camera is left out of its ranking (the protocol of Market-1501).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from accord.errors import ConfigError, DataError


class Retrieval(NamedTuple):
    """Mean over the queries that have something to find; `skipped` counts the others."""

    mean_average_precision: float
    queries: int
    skipped: int


def mean_average_precision(
    query: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    query_cameras: Tensor | None = None,
    gallery_cameras: Tensor | None = None,
    max_scores: int = 2**21,
) -> Retrieval:
    """Mean over queries of the mean, over their matches, of the precision at the match's rank.

    Without a gallery every query searches among the other queries (leave one out). Equal scores keep the
    gallery's order. `max_scores` bounds the scores held at once, and so the memory, not the result.
    """
    leave_one_out = gallery is None
    if gallery is None:
        if gallery_labels is not None or gallery_cameras is not None:
            raise DataError("gallery labels or cameras were given without gallery features")
        gallery, gallery_labels, gallery_cameras = query, query_labels, query_cameras
    if gallery_labels is None:
        raise DataError("gallery features were given without gallery labels")
    if (query_cameras is None) != (gallery_cameras is None):
        raise DataError("cameras must be given for queries and gallery, or for neither")
    if max_scores < 1:
        raise ConfigError(f"max_scores must be at least 1, got {max_scores}")
    query, query_labels, query_cameras = _checked("query", query, query_labels, query_cameras)
    gallery, gallery_labels, gallery_cameras = _checked("gallery", gallery, gallery_labels, gallery_cameras)
    if query.shape[1] != gallery.shape[1]:
        raise DataError(f"queries have {query.shape[1]} features, the gallery has {gallery.shape[1]}")

    total, found = 0.0, 0
    block = max(1, max_scores // len(gallery))
    for start in range(0, len(query), block):
        rows = torch.arange(start, min(start + block, len(query)), device=query.device)
        match = query_labels[rows, None] == gallery_labels
        left_out = torch.zeros_like(match)
        if leave_one_out:
            left_out[torch.arange(len(rows), device=rows.device), rows] = True
        if query_cameras is not None and gallery_cameras is not None:
            left_out |= match & (query_cameras[rows, None] == gallery_cameras)
        # Items that are left out go to the end of the ranking, behind all others, and are no matches.
        scores = (query[rows] @ gallery.T).masked_fill(left_out, -torch.inf)
        ranked = (match & ~left_out).gather(1, scores.argsort(dim=1, descending=True, stable=True))
        hits = ranked.cumsum(dim=1)
        precision = hits.double() / torch.arange(1, len(gallery) + 1, device=hits.device)
        matches = hits[:, -1]
        has_match = matches > 0
        average = ((precision * ranked).sum(dim=1) / matches.clamp(min=1))[has_match]
        total += float(average.sum())
        found += len(average)
    if not found:
        raise DataError("no query has a match in the gallery (another item of its label), so nothing can be found")
    return Retrieval(total / found, found, len(query) - found)


def _checked(
    name: str, features: Tensor, labels: Tensor, cameras: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    if features.dim() != 2 or 0 in features.shape:
        raise DataError(f"{name} features must be [items, features], none of them 0, got {tuple(features.shape)}")
    for what, column in (("labels", labels), ("cameras", cameras)):
        if column is not None and column.shape != features.shape[:1]:
            raise DataError(
                f"{name} {what} must be one per item, {len(features)} in all, got shape {tuple(column.shape)}"
            )
    # Half precision would tie scores that differ.
    wide = features.detach() if features.dtype == torch.float64 else features.detach().float()
    if not bool(wide.isfinite().all()):
        raise DataError(f"{name} features hold values that are not finite numbers")
    unit = normalize(wide, dim=1)
    return unit, labels.to(unit.device), None if cameras is None else cameras.to(unit.device)
