"""A page for every method, made from what the package itself says: card, settings, traffic, records of runs."""

from __future__ import annotations

import json
import re
import statistics
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import equations

from accord.cli.settings import Key
from accord.config import catalog, load_config
from accord.config.cards import settings_of_entry
from accord.config.load import read_toml
from accord.config.toml import literal
from accord.core.methods import ALGORITHMS, FAMILIES, is_personal
from accord.engine.traffic import Parcel, measure_traffic
from accord.papers import shelf
from accord.settings import REQUIRED

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
sys.path.append(str(ROOT / "scripts"))
from method_table import NETWORKS  # noqa: E402

# Fewer samples than `accord explain` takes: what travels does not depend on them, and 48 methods are asked.
FEW = ("data.limit=400", "clients.count=10")
PLAIN = re.compile(r"([\\`*_{}\[\]<>#|~^])")


def cards() -> dict[str, Any]:
    """What `docs/cards.toml` adds to the cards."""
    return dict(read_toml(ROOT / "docs" / "cards.toml"))


def nav() -> list[dict[str, Any]]:
    """The methods by family, for the menu."""
    return [{title: [{name: f"methods/{name}.md"} for name in of_family(family)]} for family, title in FAMILIES.items()]


def of_family(family: str) -> list[str]:
    """The names, in the order of the registry."""
    return [name for name in ALGORITHMS if ALGORITHMS.facts(name)["family"] == family]


def pages() -> Iterator[tuple[str, str]]:
    """Where each lies, and its Markdown."""
    told = cards()
    for name in ALGORITHMS:
        yield f"methods/{name}.md", page(name, told.get(name, {}))


def page(name: str, told: Mapping[str, Any]) -> str:
    """One method from its name to its settings."""
    card = catalog.card("algorithm", ALGORITHMS[name])
    title, paper, formulas, prose = parts(card)
    family = FAMILIES[ALGORITHMS.facts(name)["family"]]
    kind = "Judged by the clients' own models." if is_personal(name) else "Judged by the global model."
    sections = [
        f"---\ntitle: {name}\ndescription: {json.dumps(catalog.summary('algorithm', ALGORITHMS[name]))}\n---",
        f"# {name}",
        f"**{plain(title)}**",
        f"*{family}.* {kind}",
        *([f"{plain(paper)}"] if paper else []),
        f"```\naccord run --algorithm {name}{network(name)}\naccord explain {name}\n```",
        "## Equations",
        *shown(told.get("equations", ()), formulas),
        *(["## When to use it", str(told["when"])] if told.get("when") else []),
        "## What leaves a client",
        *traffic(name),
        "## Our results",
        *results(name),
        "## Settings",
        settings(name),
        *(["## From the card", *prose] if prose else []),
    ]
    return "\n\n".join(sections) + "\n"


def linked(markdown: str) -> str:
    """Names of methods in a page beside the folder of their pages, as links."""
    known = "|".join(map(re.escape, ALGORITHMS))
    return re.sub(rf"(?<!\[)`({known})`(?!\])", r"[`\1`](methods/\1.md)", markdown)


def network(name: str) -> str:
    """What has to be said of the network where the default one does not do."""
    return f" --set model.name={NETWORKS[name]}" if name in NETWORKS else ""


def plain(text: str) -> str:
    """Text of a card as Markdown that shows it as it is; what stands in backquotes stays code."""
    pieces = re.split(r"(`[^`\n]+`)", " ".join(text.split()))
    return "".join(one if one.startswith("`") else PLAIN.sub(r"\\\1", one) for one in pieces)


def parts(card: str) -> tuple[str, str, list[str], list[str]]:
    """A card's title, its paper, its indented formulas, and the rest as Markdown."""
    title, *blocks = re.split(r"\n\s*\n", card.strip("\n"))
    formulas = [block for block in blocks if block.startswith("    ")]
    rest = [block for block in blocks if block not in formulas]
    paper = rest.pop(0) if rest and re.search(r'"|arXiv', rest[0]) and not rest[0].startswith("UNRESOLVED") else ""
    return title, paper, formulas, [prose(block) for block in rest]


def prose(block: str) -> str:
    """A paragraph; one with indented lines stays laid out as it is, lines with a dash are a list."""
    lines = block.splitlines()
    if any(line.startswith("- ") for line in lines):
        items = re.split(r"\n(?=- )", block)
        head = [] if items[0].startswith("- ") else [plain(items.pop(0))]
        return "\n".join([*head, *([""] if head else []), *(f"- {plain(item[2:])}" for item in items)])
    if any(line.startswith("  ") for line in lines):
        return f"```text\n{block}\n```"
    return plain(block)


def shown(rows: Sequence[Sequence[str]], formulas: Sequence[str]) -> list[str]:
    """Rendered, with the card's own text to unfold; or that text alone."""
    text = "\n\n".join(textwrap.dedent(block) for block in formulas)
    code = f"```text\n{text}\n```"
    if not rows:
        return [code] if text else ["The card has none."]
    same = f'??? note "The same as `accord explain` prints it"\n\n{textwrap.indent(code, "    ")}'
    return [equations.table(rows), *([same] if text else [])]


def traffic(name: str) -> list[str]:
    """Every tree one client sends and receives, with its kind."""
    config = load_config(sets=[f"algorithm.name={name}", f"model.name={NETWORKS.get(name, '2nn')}", *FEW])
    found = measure_traffic(config)
    if not found:
        return ["All data is gathered in one place before training." if found.needs_each else "Nothing is sent."]
    lines = [
        f"Of one client, by default settings (model `{config.model.name}`, {found.clients} clients of `{found.data}`,"
        f" {config.clients.count} a round). Kinds: [what leaves a client](../security.md#what-leaves-a-client).",
        table(("when", "task", "", "tree", "what it is", "bytes"), map(parcel, found)),
    ]
    numbers = [f"{', '.join(names)} ({task})" for task, names in found.numbers.items() if names]
    lines += [f"Beside these, numbers: {'; '.join(numbers)}."] if numbers else []
    if found.needs_each:
        lines.append(f"**Sums are not enough** for its server: it {', and '.join(found.needs_each)}.")
    else:
        lines.append("**Sums are enough:** weighted sums of the answers are all its server needs.")
    return lines


def parcel(one: Parcel) -> tuple[str, ...]:
    """A row of the table."""
    kind = one.kind.word if one.kind is not None else "others' answers" if one.passed_on else ""
    return one.when, one.task, one.direction, f"`{one.tree}`", f"**{kind}**" if kind else "", f"{one.bytes:,}"


def results(name: str) -> list[str]:
    """What our own pages and records have of it."""
    found = [*all_methods(name), *records(name)]
    return found or ["None yet: it is in none of our comparisons so far. [Results](../results/README.md)."]


def result_pages() -> dict[str, str]:
    """The papers that have a page of results, with its title for the menu."""
    written = {paper: title for paper, title in shelf.PAPERS.items() if (RESULTS / f"{paper}.md").is_file()}
    return {paper: re.split(r":| \(", title)[0] for paper, title in written.items()}


def all_methods(name: str) -> list[str]:
    """Its row of the table of all methods, with FedAvg's below it."""
    text = (RESULTS / "all_methods.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    head, known = rows[0], {row[0]: row for row in rows[1:]}
    if name not in known:
        return []
    wanted = [place for place, column in enumerate(head) if column not in ("runs", "best %", "top-5 rounds %")]
    chosen = [known[one] for one in dict.fromkeys((name, "fedavg", "local")) if one in known]
    picked = [[row[place] for place in wanted] for row in chosen]
    words = (
        "On one federation, all methods at their defaults (5,000 digits, 20 clients, Dirichlet(0.1), 40 rounds, three"
        " seeds, version 0.1; [what this says and does not say](../results/all_methods.md)):"
    )
    return [words, table([head[place] for place in wanted], picked)]


def records(name: str) -> list[str]:
    """Runs of the papers' experiments that were kept, newest reading of each row, over seeds."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in kept():
        if record.get("algorithm") == name and not record.get("broke_off"):
            row = re.sub(r"-seed\d+$", "", str(record["row"]))
            groups.setdefault((str(record["experiment"]), row), []).append(record)
    lines = []
    for (experiment, row), some in sorted(groups.items()):
        last = [one["evaluations"][-1] for one in some]
        if not all("accuracy" in one for one in last):
            continue
        values = [100 * float(one["accuracy"]) for one in last]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        paper = shelf.PREFIXES[experiment.partition("-")[0]]
        where = f"../results/{paper if paper in result_pages() else 'README'}.md"
        rounds = max(int(one["round"]) for one in last)
        lines.append(
            (
                f"[`{experiment}`]({where})",
                f"`{row}`",
                str(rounds),
                str(len(values)),
                f"{statistics.mean(values):.2f}{spread}",
            )
        )
    if not lines:
        return []
    words = "Runs of the papers' experiments (`accord reproduce`), accuracy at the last evaluation:"
    return [words, table(("experiment", "row", "rounds", "seeds", "accuracy %"), lines)]


@cache
def kept() -> list[Mapping[str, Any]]:
    """All records of runs in `results/`."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "results").rglob("*.json"))]


def settings(name: str) -> str:
    """Its own settings; those of training are the same for all methods."""
    own = [Key(f"algorithm.{one.name}", one) for one in settings_of_entry("algorithm", ALGORITHMS[name]).values()]
    if not own:
        return "It has none of its own. Those of training are the [same for all methods](../settings.md)."
    return settings_table(own) + "\n\nThose of training are the [same for all methods](../settings.md)."


def settings_table(keys: Sequence[Key]) -> str:
    """Key, default, meaning, what is allowed."""
    rows = []
    for key in keys:
        default = "" if key.setting.default is REQUIRED else literal(key.setting.default)
        whose = f" ({', '.join(f'`{name}`' for name in key.names)})" if key.names else ""
        rows.append(
            (f"`{key.key}`", f"`{default}`" if default else "", escape(key.setting.doc) + whose, escape(key.allowed))
        )
    return table(("setting", "default", "what it is", "allowed"), rows)


def table(head: Sequence[str], rows: Any) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
