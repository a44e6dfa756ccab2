"""Which method goes with which filter: the table in docs/privacy.md, found by trying every one of them.

python scripts/filter_table.py            write docs/privacy.md
python scripts/filter_table.py --check    only say whether it is as the code is (some minutes)
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from accord.config import RunConfig, from_dict
from accord.core.methods import ALGORITHMS, FAMILIES
from accord.engine.federation import Federation
from accord.engine.suitability import UnsuitableError
from accord.engine.traffic import Traffic, measure_traffic

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "privacy.md"
NETWORKS = {"fedfusion": "mcmahan_cnn", "fedbn": "fedbr_cnn"}  # of methods that do not take the default one
PROTECTIONS = ("central", "local", "sample")
MARKS = ("<!-- filters: made by `make tables` -->", "<!-- filters end -->")


def configured(name: str, **more: object) -> RunConfig:
    """The method with its defaults, on few digits."""
    common = {
        "algorithm": {"name": name},
        "model": {"name": NETWORKS.get(name, "2nn")},
        "data": {"limit": 300},
        "partition": {"clients": 6},
        "executor": "sequential",
        "device": "cpu",
        "rounds": 2,
    }
    return from_dict({**common, **more})


def private(name: str, protection: str) -> tuple[str, str]:
    """Yes, or no and why."""
    try:
        Federation.build(configured(name, privacy={"name": protection, "noise": 1.0}))
    except UnsuitableError as error:
        return "no", str(error).partition("': ")[2].partition("; use ")[0] or str(error)
    return "yes", ""


def bytes_up(traffic: Traffic) -> int:
    """What one client sends in a round's training."""
    return sum(parcel.bytes for parcel in traffic if parcel.direction == "up" and parcel.task == "train")


def compressed(name: str) -> str:
    """The share of a training answer's bytes that travels with the top 1 % of changes in eight bits."""
    plain = configured(name)
    try:
        small = measure_traffic(replace(plain, compress=replace(plain.compress, keep=0.01, bits=8)))
    except UnsuitableError:
        return "no"
    before = bytes_up(measure_traffic(plain))
    return f"{100 * bytes_up(small) / before:.2f} %" if before else "nothing is sent"


def table() -> list[str]:
    """Line by line, and the reasons below."""
    rows = ["| method | central | local | sample | top-k 1 %, 8 bit |", "|---|---|---|---|---|"]
    reasons: dict[str, int] = {}
    for family, title in FAMILIES.items():
        rows.append(f"| **{title}** | | | | |")
        for name in [name for name in ALGORITHMS if ALGORITHMS.facts(name)["family"] == family]:
            cells = []
            for protection in PROTECTIONS:
                fits, why = private(name, protection)
                note = f" ({reasons.setdefault(why, len(reasons) + 1)})" if why else ""
                cells.append(f"{fits}{note}")
            rows.append(f"| `{name}` | {' | '.join(cells)} | {compressed(name)} |")
            print(rows[-1], flush=True)
    return [*rows, "", *(f"{number}. {why}." for why, number in reasons.items())]


def main() -> None:
    """Write it, or look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the table is stale")
    page = PAGE.read_text()
    before, _, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise SystemExit(f"{PAGE} has no place for the table: write {MARKS[0]} and {MARKS[1]} where it belongs")
    new = "\n".join([f"{before}{MARKS[0]}", *table(), f"{end}{after}"])
    if new == page:
        return
    if parser.parse_args().check:
        raise SystemExit("stale: run `make tables`")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
