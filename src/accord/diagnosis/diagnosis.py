"""A federation looked over: findings, a suggestion, and the ways to show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from accord._version import __version__
from accord.config import RunConfig
from accord.core.keys import Key
from accord.data.federated import FederatedData
from accord.diagnosis.available import refusals
from accord.diagnosis.concept import concept_shift
from accord.diagnosis.duplicates import duplicate_samples
from accord.diagnosis.features import views_of
from accord.diagnosis.finding import Finding
from accord.diagnosis.gathered import gathered
from accord.diagnosis.labels import label_skew
from accord.diagnosis.page import write_page
from accord.diagnosis.probe import client_drift
from accord.diagnosis.quantity import quantity_skew
from accord.diagnosis.rare import rare_classes
from accord.diagnosis.shift import feature_shift
from accord.diagnosis.suggestion import Suggestion, suggested
from accord.diagnosis.text import as_lines
from accord.engine.build import check_data
from accord.engine.files import write_atomic
from accord.wire.writing import as_text

Told = Callable[[str], None]


def _untold(what: str) -> None:
    """Nobody wants to know what is being looked at."""


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and what to do about it."""

    name: str
    problem: str
    clients: int
    samples: int
    seed: int
    findings: tuple[Finding, ...]
    suggestion: Suggestion
    note: str = ""
    command: str = ""  # what to do next

    def __getitem__(self, name: str) -> Finding:
        """A finding by its name: labels, quantity, features, concept, drift, rare, duplicates."""
        return {finding.name: finding for finding in self.findings}[name]

    @property
    def found(self) -> tuple[str, ...]:
        """Names of the skews that are there."""
        return tuple(finding.name for finding in self.findings if finding.found)

    def as_record(self) -> dict[str, Any]:
        """Plain values, for a file."""
        return {
            "accord": __version__,
            "data": self.name,
            "task": self.problem,
            "clients": self.clients,
            "samples": self.samples,
            "seed": self.seed,
            "note": self.note,
            "command": self.command,
            "findings": [finding.as_record() for finding in self.findings],
            "suggestion": self.suggestion.as_record(),
        }

    def __str__(self) -> str:
        return "\n".join(as_lines(self, lambda text, indent: text))

    def json(self, path: Path | str) -> Path:
        """Write numbers and sentences to a file."""
        write_atomic(Path(path), as_text(self.as_record(), indent=1) + "\n")
        return Path(path)

    def page(self, path: Path | str) -> Path:
        """Write it as one HTML file that asks nobody for anything."""
        return write_page(self.as_record(), [dict(finding.picture) for finding in self.findings], Path(path))


def looked_over(
    data: FederatedData,
    config: RunConfig,
    network: nn.Module | None = None,
    *,
    quick: bool = False,
    told: Told = _untold,
) -> Diagnosis:
    """Every finding, one after the other; `quick` leaves out the probe, which trains."""
    check_data(data)
    key = Key(config.seed)
    told("labels and sizes")
    findings = [label_skew(data, key), quantity_skew(data)]
    some = gathered(data, key)
    told("inputs")
    views = views_of(some, data.vocabulary, key)
    findings.append(feature_shift(some, views, key))
    told("what labels mean")
    findings.append(concept_shift(some, views, key))
    if not quick:
        told("a few rounds of FedAvg")
        findings.append(client_drift(data, some, views, config, network, key))
    told("rare classes and copies")
    findings += [rare_classes(data), duplicate_samples(data, some)]
    return Diagnosis(
        data.name,
        data.problem,
        len(data),
        len(data.train.order),
        config.seed,
        tuple(findings),
        suggested(findings, refusals(config, data, network)),
        data.note,
    )
