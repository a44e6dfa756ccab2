"""The model card: what a model was made of, how good it is and for whom, and what it does not promise.

It holds nothing that depends on the clock or on where the run was: the same configuration writes the same card.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from accord._version import __version__
from accord.config.load import changed
from accord.config.toml import literal
from accord.core.given import name_of
from accord.core.whole import Whole, around, bare
from accord.engine.federation import Federation
from accord.measures.sites import Sites

SITES = 40  # lines of the table of sites
LISTED = 12  # classes and names in one line
JUDGED = ("accuracy", "personal_accuracy")  # of which the site with the lowest is named
SPREAD = ("mean", "worst", "best", "std")
SIMULATED = (
    "**Trained in a simulation** of federated learning: the data of all sites lay on one machine. This says nothing "
    "about networks, delays or privacy in a real federation."
)
REAL = (
    "**Trained in a federation**: the data of every site stayed there. What left the sites is what "
    "`accord explain` says of the method."
)


@dataclass(frozen=True)
class Subject:
    """What a card is about."""

    federation: Federation
    network: nn.Module  # as it was trained
    model: nn.Module | None  # all of the global model's prediction; None: there is none
    clients: Mapping[int, str]  # whose own models are kept, with their names
    why_not: str  # why none are, where there could be some


def card(subject: Subject, summary: Mapping[str, Any], sites: Sites | None) -> str:
    """The text of `README.md`, in Markdown."""
    return "\n".join(
        [
            *_title(subject),
            *_data(subject),
            *_settings(subject),
            *_results(summary),
            *_sites(sites),
            *_limits(subject, summary),
            *_use(subject),
            *_again(subject),
            "",
        ]
    )


def _title(subject: Subject) -> Iterator[str]:
    federation, config = subject.federation, subject.federation.config
    count = sum(p.numel() for p in bare(subject.network).parameters())
    yield f"# {config.algorithm.name} on {_plain(federation.data.name)}"
    yield ""
    yield REAL if federation.real else SIMULATED
    yield ""
    called = name_of(subject.network) if federation.own_network else config.model.name
    put_around = ", ".join(str(item["kind"]).replace("_", " ") for item in around(subject.model or subject.network))
    yield f"- network: {_plain(called)}, {count:,} parameters{f'; around it: {put_around}' if put_around else ''}"
    yield f"- method: {config.algorithm.name} (`accord explain {config.algorithm.name}`), {config.rounds} rounds"
    yield f"- written by Accord {__version__}"


def _data(subject: Subject) -> Iterator[str]:
    data = subject.federation.data
    yield from ("", "## Data", "")
    yield f"- {_plain(data.name)}: {len(data.train.order):,} training samples at {len(data):,} sites"
    pool = "" if subject.federation.real else f"{len(data.test_pool):,} samples, "
    yield f"- test data: {pool}the sites' own {len(data.test.order):,}"
    sizes = data.sizes
    yield f"- a site's training samples: {int(sizes.min())} to {int(sizes.max())}, mean {float(sizes.mean()):,.1f}"
    if data.classes:
        yield f"- {len(data.classes)} classes: {_some(data.classes)}"
    if data.names:
        yield f"- sites: {_some(data.names)}"
    if data.note:
        yield f"- note: {_plain(data.note)}"


def _settings(subject: Subject) -> Iterator[str]:
    found = changed(subject.federation.config)
    yield from ("", "## Settings that differ from the defaults", "")
    yield from [f"- `{key} = {_plain(literal(value))}`" for key, value in found.items()] or ["- none"]


def _results(summary: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "## Results", "")
    kept = {key: value for key, value in summary.items() if key not in ("seconds", "seed", "rounds")}
    yield from (f"- {key}: {value:.4g}" for key, value in kept.items() if isinstance(value, float))
    spreads = {key: value for key, value in kept.items() if isinstance(value, dict) and SPREAD[0] in value}
    if spreads:
        yield from ("", "How evenly it serves the sites (`std` is the deviation over sites):", "")
        yield from _table(
            ["", *SPREAD], ([key, *(_number(value.get(n)) for n in SPREAD)] for key, value in spreads.items())
        )


def _sites(sites: Sites | None) -> Iterator[str]:
    if sites is None:
        return
    yield from ("", "## Site by site", "")
    columns = [name for name in sites.columns if name not in ("client", "class", "class_share")]
    rows = ([_number(sites.columns[name][place]) for name in columns] for place in range(min(len(sites), SITES)))
    yield from _table(columns, rows)
    for name in JUDGED:
        known = [(value, place) for place, value in enumerate(sites.columns.get(name, ())) if value is not None]
        if known:
            value, place = min(known)
            yield from ("", f"Lowest {name}: {_plain(sites.columns['site'][place])}, {value:.4g}.")
    if len(sites) > SITES:
        yield from ("", f"The first {SITES} of {len(sites):,} sites; all of them are in the run's `sites.csv`.")


def _limits(subject: Subject, summary: Mapping[str, Any]) -> Iterator[str]:
    data, whole = subject.federation.data, subject.federation.algorithm.has_global_model
    yield from ("", "## Limits", "")
    yield "- Judged on data of the same sources as it was trained on. How it does elsewhere is not known."
    yield "- Weights can reveal what they were trained on: nothing was done here to prevent that."
    if subject.federation.config.evaluate.split == "validation":
        yield "- The numbers above are those of validation samples, kept apart from the training samples."
    if data.transform is not None:
        yield "- Every site saw its inputs changed in a way of its own (`transform`); raw inputs are taken as they are."
    if isinstance(subject.model, Whole) and subject.model.together:
        yield "- An answer depends on the samples that are shown with it: ask about many samples at once."
    if left := summary.get("left_out"):
        yield f"- {len(left)} sites failed in some rounds and were left out of them."
    if subject.model is None:
        whose = "predicts in a way that it cannot hand over" if whole else "keeps one for each of them"
        yield f"- There is no model for all sites: the method {whose}."
    if subject.why_not:
        yield f"- The sites' own models are **not** in this folder: {subject.why_not}."
    elif subject.clients:
        absent = [k for k in subject.federation.facts.members if k not in subject.clients]
        yield f"- `clients/` holds the own models of {len(subject.clients):,} sites, each after its last training."
        if absent:
            yield f"- {len(absent)} sites have none, as they failed in the last exchange: {_some(map(str, absent))}"


def _use(subject: Subject) -> Iterator[str]:
    network = ", network=MyNetwork()" if subject.federation.own_network else ""
    yield from ("", "## Use", "", "```python", "import accord", "")
    if subject.model is not None:
        yield f'model = accord.load("model"{network})  # this folder'
        yield "model.predict(raw)  # raw inputs, as they were given for training"
    if subject.clients:
        name = next(iter(subject.clients.values()))
        yield f'model = accord.load("model", client={_plain(name)!r}{network})'
    yield "```"
    if network:
        yield from (
            "",
            "`MyNetwork()` is your own network, as you gave it for training: its code is not in this folder.",
        )


def _again(subject: Subject) -> Iterator[str]:
    federation = subject.federation
    yield from ("", "## Reproduce", "")
    sets = " ".join(
        f"--set {shlex.quote(f'{key}={_plain(literal(value))}')}" for key, value in changed(federation.config).items()
    )
    if federation.real:
        yield "The same sites, `federation.json` and `config.toml` of the run's folder."
        return
    if not (federation.own_data or federation.own_network):
        yield from ("```", f"accord run {sets}".rstrip(), "```")
        if federation.config.data.dir:
            yield from ("", "and `--data-dir` (or `--data`) with the place where the data lies.")
        return
    own = [
        f"{name}=your own {name}"
        for name, given in (("data", federation.own_data), ("model", federation.own_network))
        if given
    ]
    yield f"`accord.run(config, ...)` with {' and '.join(own)}, and the settings above (`config.toml` of the run)."


def _table(titles: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _number(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else _plain(str(value))


def _some(words: Any) -> str:
    every = [_plain(str(word)) for word in words]
    more = f" and {len(every) - LISTED:,} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more


def _plain(words: str) -> str:
    """Somebody's words, in one line and without power over the page."""
    line = "".join(c if c.isprintable() else " " for c in words)
    return line.replace("|", "\\|").replace("`", "'").replace("<", "&lt;")[:400]
