"""t-SNE in plain torch (van der Maaten and Hinton 2008), exact, so that the machine that trained can draw the map.

Every pair of points is looked at in every step: two thousand points are a second on a GPU and half a minute on a core.
A map is kept in a byte per coordinate, which is finer than a printed dot.
"""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bytes = npt.NDArray[np.uint8]

PERPLEXITY = 30.0
EARLY, STEPS = 250, 750  # steps with affinities exaggerated, and all of them
EXAGGERATION = 12.0
HALVINGS = 60  # of the interval in which a point's width is searched


def tsne(features: Tensor, perplexity: float = PERPLEXITY, steps: int = STEPS) -> Tensor:
    """[N, 2] from [N, D]: the same for the same features on the same machine, as it begins with principal components.

    Fewer than four points have no neighbourhoods worth the name; they come back as their principal components.
    """
    place = principal(features.double())
    if len(features) < 4:
        return place
    near = affinities(features.double(), min(perplexity, (len(features) - 1) / 3)).to(features.dtype)
    place = (place / place[:, 0].std().clamp_min(1e-12) * 1e-4).to(features.dtype)
    rate = max(len(features) / EXAGGERATION / 4, 50.0)
    speed, gain = torch.zeros_like(place), torch.ones_like(place)
    for step in range(steps):
        early = step < EARLY
        slope = gradient(near * EXAGGERATION if early else near, place)
        # Jacobs' gains: faster where a coordinate keeps its direction, slower where it turns.
        gain = torch.where(slope * speed < 0, gain + 0.2, gain * 0.8).clamp_min(0.01)
        speed = (0.5 if early else 0.8) * speed - rate * gain * slope
        place = place + speed
    return place


def affinities(features: Tensor, perplexity: float) -> Tensor:
    """[N, N] joint probabilities: Gaussian neighbourhoods as wide as the perplexity asks, made symmetric."""
    squares = distances(features)
    count = len(squares)
    others = ~torch.eye(count, dtype=torch.bool, device=squares.device)
    low, high = torch.zeros(count, 1).to(squares), torch.full((count, 1), torch.inf).to(squares)
    width = 1 / squares.sum(1, keepdim=True).div(count - 1).clamp_min(1e-12)  # 1 / (2 sigma^2)
    shares = squares
    for _ in range(HALVINGS):
        logits = (-squares * width).masked_fill(~others, -torch.inf)
        shares = logits.softmax(1)
        entropy = -(shares * logits.log_softmax(1).masked_fill(~others, 0)).sum(1, keepdim=True)
        wide = entropy > np.log(perplexity)
        low, high = torch.where(wide, width, low), torch.where(wide, high, width)
        width = torch.where(high.isinf(), 2 * width, (low + high) / 2).clamp_max(1e60)  # equal points have none
    return (shares + shares.T) / (2 * count)


def gradient(near: Tensor, place: Tensor) -> Tensor:
    """Of the Kullback-Leibler divergence between the affinities and those of the map (Student's t, one degree)."""
    heavy = 1 / (1 + distances(place))
    heavy.fill_diagonal_(0)
    pull = (near - heavy / heavy.sum()) * heavy
    return 4 * (pull.sum(1, keepdim=True) * place - pull @ place)


def distances(points: Tensor) -> Tensor:
    """[N, N] squared."""
    square = points.square().sum(1)
    return (square[:, None] + square - 2 * points @ points.T).clamp_min(0)


def principal(points: Tensor) -> Tensor:
    """[N, 2] the first two principal components, each with its largest value positive."""
    centred = points - points.mean(0)
    left, size, _ = torch.linalg.svd(centred, full_matrices=False)
    found = torch.zeros(len(points), 2).to(points)
    parts = (left * size)[:, :2]
    found[:, : parts.shape[1]] = parts
    largest = found.abs().argmax(0, keepdim=True)
    return found * torch.where(found.gather(0, largest) < 0, -1.0, 1.0)


def packed(values: Tensor) -> str:
    """Bytes as text: a map's coordinates scaled to 0 to 255 with one scale for both, or labels as they are."""
    if values.is_floating_point():
        values = values - values.amin(0)
        values = (values / values.max().clamp_min(1e-12) * 255).round()
    return base64.b64encode(values.to(torch.uint8).cpu().numpy().tobytes()).decode("ascii")


def unpacked(text: str, width: int = 1) -> Bytes:
    """[N, width], as they were packed."""
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8).reshape(-1, width)
