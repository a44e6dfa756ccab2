"""A graph over the samples of a batch, inferred from the correlation of their features (FedRANE, 3.3).

    P_ij = <c_i, c_j> / ((|c_i| + eps) (|c_j| + eps)),   c_i = z_i - mean(z_i)          rows of Z
    B = argmin 1/2 |P - P B|_F^2 + lambda |B|_*  subject to diag(B) = 0,   A = (|B| + |B|^T) / 2

n samples, D features. All functions take leading batch dimensions. Nothing here is differentiated: gradients
of inverses and eigenvectors are unstable, and the attention over the graph carries the gradient. `mask`
[..., n] is False for samples that do not count: they have no neighbours and change no other sample's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

GraphMode = Literal["official", "ridge", "lowrank"]
ITERATIONS = 5  # of the low-rank graph
NO_EDGE = 1e-9  # what rounding leaves between samples that have nothing in common
SMALLEST = 1e-8  # added to the spectrum of B B^T before the inverse square root


def standardise(rows: Tensor, eps: float) -> Tensor:
    """Centred rows of (nearly) unit length, whose products are Pearson correlations; constant rows give 0."""
    return unit(rows - rows.mean(-1, keepdim=True), eps)


def unit(rows: Tensor, eps: float) -> Tensor:
    """Rows over their length; `eps` keeps the gradient of a short row below 1 / eps."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / (length + eps)


def adjacency(features: Tensor, mask: Tensor, mode: GraphMode, lam: float, eps: float) -> Tensor:
    """A [..., n, n] of features [..., n, D]: not negative, symmetric, zero diagonal; float64."""
    with torch.no_grad():
        # Diverged features have no graph; the loss will say so more clearly than a failed factorisation.
        rows = standardise(features.double(), eps).nan_to_num() * mask.unsqueeze(-1)
        weights = SOLVERS[mode](rows @ rows.mT, lam).abs()
        edges = (weights + weights.mT) / 2
        both = mask.unsqueeze(-1) & mask.unsqueeze(-2)
        return torch.where(both & (edges > NO_EDGE), edges, 0.0)


def official(correlation: Tensor, lam: float) -> Tensor:
    """B_ij = -H_ij / H_jj with H = (P + lambda I)^-1: what the authors' code computes, in one shot."""
    return _regression(_inverse(correlation + lam * _eye(correlation)))


def ridge(correlation: Tensor, lam: float) -> Tensor:
    """The same with H = (P^T P + 2 lambda I)^-1: the minimiser with |B|_F^2 for the nuclear norm."""
    return _regression(_inverse(correlation.mT @ correlation + 2 * lam * _eye(correlation)))


def lowrank(correlation: Tensor, lam: float) -> Tensor:
    """The nuclear norm by reweighting: B for a fixed Phi, then Phi = (B B^T)^-1/2, starting at Phi = I.

    With S = lambda (Phi + Phi^T) and H = (P^T P + S)^-1, the minimiser of 1/2 |P - P B|^2 + lambda Tr(B^T Phi B)
    with a zero diagonal is B = I - H S - H diag((1 - [H S]_jj) / H_jj). The paper's -H_ij / H_jj is this only
    while Phi is diagonal; repeating it does not converge. Tr(B^T Phi B) is |B|_* at that Phi, but with Phi held its
    gradient is twice that of |B|_*: where the paper's steps settle, B is the minimiser for 2 lambda.
    """
    eye, square = _eye(correlation), correlation.mT @ correlation
    phi = weights = eye
    for _ in range(ITERATIONS):
        penalty = lam * (phi + phi.mT)
        inverse = _inverse(square + penalty)
        shrunk = inverse @ penalty
        price = (1 - _diagonal(shrunk)) / _diagonal(inverse)  # of the constraint, per column
        weights = _hollow(eye - shrunk - inverse * price.unsqueeze(-2))
        values, vectors = torch.linalg.eigh(weights @ weights.mT + SMALLEST * eye)
        phi = (vectors * values.clamp(min=SMALLEST).rsqrt().unsqueeze(-2)) @ vectors.mT
    return weights


SOLVERS: dict[GraphMode, Callable[[Tensor, float], Tensor]] = {
    "official": official,
    "ridge": ridge,
    "lowrank": lowrank,
}


def _regression(inverse: Tensor) -> Tensor:
    return _hollow(-inverse / _diagonal(inverse).unsqueeze(-2))


def _inverse(matrix: Tensor) -> Tensor:
    """Of a symmetric positive definite matrix; the unchecked factorisation never waits for the device.

    `cholesky_inverse` would, for several clients' matrices at once.
    """
    factor = torch.linalg.cholesky_ex(matrix).L
    inverse: Tensor = torch.linalg.solve_triangular(factor, _eye(matrix), upper=False)
    return inverse.mT @ inverse


def _eye(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _hollow(matrix: Tensor) -> Tensor:
    """Exact zeros on the diagonal, where only rounding is left."""
    return matrix * (1 - _eye(matrix))
