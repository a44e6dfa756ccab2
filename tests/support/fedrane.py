"""FedRANE's formulas once more: loops over samples, inverses by numpy, plain autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.algorithms.fedrane.relations import Relations
from support.federation import TinyRun, as_module

EPS, LAM = 0.01, 0.1


def pearson_reference(z: Any) -> Any:
    n = len(z)
    p = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            a, b = z[i] - z[i].mean(), z[j] - z[j].mean()
            p[i, j] = a @ b / ((math.sqrt(a @ a) + EPS) * (math.sqrt(b @ b) + EPS))
    return p


def weights_reference(p: Any, mode: str, lam: float = LAM, iterations: int = 5) -> Any:
    """B: for the low-rank graph column by column, each a small constrained least-squares problem."""
    n = len(p)
    if mode in ("official", "ridge"):
        h = np.linalg.inv(p + lam * np.eye(n) if mode == "official" else p.T @ p + 2 * lam * np.eye(n))
        return np.array([[0 if i == j else -h[i, j] / h[j, j] for j in range(n)] for i in range(n)])
    phi = np.eye(n)
    for _ in range(iterations):
        b = np.zeros((n, n))
        for j in range(n):  # min over b with b_j = 0: the other rows of (P^T P + 2 lam Phi) b = P^T p_j
            rest = [i for i in range(n) if i != j]
            system = (p.T @ p + lam * (phi + phi.T))[np.ix_(rest, rest)]
            b[rest, j] = np.linalg.solve(system, (p.T @ p[:, j])[rest])
        values, vectors = np.linalg.eigh(b @ b.T + 1e-8 * np.eye(n))
        phi = vectors @ np.diag(values**-0.5) @ vectors.T
    return b


def graph_reference(z: Tensor, mode: str) -> Any:
    b = np.abs(weights_reference(pearson_reference(z.detach().double().numpy()), mode))
    return np.where(b + b.T > 2e-9, (b + b.T) / 2, 0)  # rounding is no edge


def augment_reference(z: Tensor, relations: Any, part: Relations) -> Tensor:
    """Message passing sample by sample over explicit lists of neighbours."""
    a = graph_reference(z, part.graph)
    h = z
    for hop in range(part.hops):
        if part.attention == "dot":
            receive, send, value = (relations[f"{hop}.{name}"] for name in ("receive", "send", "value"))
        rows = []
        for i in range(len(h)):
            neighbours = [j for j in range(len(h)) if j != i and a[i, j] > 0]
            if part.top_k:
                neighbours = sorted(neighbours, key=lambda j, i=i: -a[i, j])[: part.top_k]
            if not neighbours:
                rows.append(h[i])
                continue
            if part.attention == "gat":
                message = gat_reference(h, i, neighbours, a, relations, hop, part)
                rows.append(h[i] + message if part.residual else message)
                continue
            attention = [torch.exp((receive @ h[i]) @ (send @ h[j]) / math.sqrt(h.shape[1])) for j in neighbours]
            if part.edge_weight:
                attention = [e * a[i, j] for e, j in zip(attention, neighbours, strict=True)]
            message = sum(e * (value @ h[j]) for e, j in zip(attention, neighbours, strict=True)) / sum(attention)
            rows.append(h[i] + message if part.residual else message)
        h = torch.stack(rows)
    return h


def gat_reference(h: Tensor, i: int, near: list[int], a: Any, relations: Any, hop: int, part: Relations) -> Tensor:
    """The message to sample i: every head's weighted mean through ELU, then the mean of the heads."""
    heads = []
    for head in range(part.heads):
        w, receive, send = (relations[f"{hop}.{head}.{name}"] for name in ("value", "receive", "send"))
        mine, total, message = w @ h[i], 0.0, torch.zeros_like(h[i])
        for j in near:
            score = receive @ mine + send @ (w @ h[j])
            share = torch.exp(score if score > 0 else 0.1 * score) * (a[i, j] if part.edge_weight else 1.0)
            total, message = total + share, message + share * (w @ h[j])
        message = message / total
        heads.append(torch.where(message > 0, message, torch.exp(message) - 1))
    return sum(heads) / len(heads)  # type: ignore[return-value]


def contrast_reference(z: Tensor, after: Tensor, tau: float, similarity: str, symmetric: bool) -> Tensor:
    rows = torch.cat([z, after])
    if similarity == "pearson":
        rows = rows - rows.mean(1, keepdim=True)
    rows = torch.stack([r / (r.pow(2).sum().sqrt() + EPS) for r in rows])
    n, terms = len(z), []
    for i in range(2 * n if symmetric else n):
        pair = (i + n) % (2 * n)
        bottom = sum(torch.exp(rows[i] @ rows[j] / tau) for j in range(2 * n) if j != i)
        terms.append(-torch.log(torch.exp(rows[i] @ rows[pair] / tau) / bottom))
    return sum(terms) / len(terms)  # type: ignore[return-value]


def train_reference(run: TinyRun, state: Any, client: int, round: int, part: Relations) -> tuple[Any, Any]:
    """A client's model and relations after its local steps."""
    x, y = run.data.client(client)
    module: Any = as_module(run.model, state["model"])
    relations = {n: t.clone().requires_grad_() for n, t in state["relations"].items()}
    leaves = [*module.parameters(), *relations.values()]
    for rows in run.batches(client, round=round):
        z = module.features(x[rows])
        after = augment_reference(z, relations, part)
        loss = F.cross_entropy(module.head(after), y[rows])
        loss = loss + part.contrast * contrast_reference(z, after, part.tau, part.similarity, part.symmetric)
        for leaf, grad in zip(leaves, torch.autograd.grad(loss, leaves, allow_unused=True), strict=True):
            if grad is not None:  # samples without neighbours use none of the relations
                leaf.data -= 0.1 * grad
    params = {n: p.detach() for n, p in module.named_parameters()}
    return params, {n: t.detach() for n, t in relations.items()}


def bargain_reference(deviations: Any, power: Any) -> Any:
    """(D^T D p)_k = power_k / p_k by minimising over one p_k at a time."""
    gram = deviations @ deviations.T
    p = np.ones(len(gram))
    for _ in range(3000):
        for k in range(len(p)):
            r = gram[k] @ p - gram[k, k] * p[k]
            p[k] = (-r + math.sqrt(r * r + 4 * gram[k, k] * power[k])) / (2 * gram[k, k])
    return p
