"""Writes docs/results/fedbr_question.md from the records under results/: no number on that page is typed.

python benchmarks/fedbr_question.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "fedbr_question.md"
LEVELS = (0.3, 0.4, 0.5)
# The paper's Tables 1 and 4: accuracy after 1000 rounds, rounds to 55 % (CIFAR-10) and 80 % (RotatedMNIST).
PAPER_CIFAR = {
    "fedavg": (58.99, 736),
    "fedprox": (59.14, 738),
    "moon": (58.23, 820),
    "fedbr": (64.65, 496),
    "fedbr-component1": (64.32, 442),
    "fedbr-component2": (63.44, 483),
}
PAPER_MNIST = {"fedavg": (82.47, 828), "fedbr": (86.58, 628)}
MOMENTUM = {"none": "none", "fresh": "0.9, new in every round", "kept": "0.9, kept over rounds"}


@dataclass(frozen=True)
class Run:
    """A record, read."""

    found: dict[str, Any]

    @classmethod
    def of(cls, experiment: str, row: str) -> Run:
        return cls(json.loads((ROOT / "results" / experiment / f"{row}.json").read_text(encoding="utf-8")))

    @property
    def curve(self) -> dict[int, float]:
        return {one["round"]: one["accuracy"] for one in self.found["evaluations"]}

    @property
    def rounds(self) -> int:
        return max(self.curve)

    def best(self, count: int = 5) -> float:
        """FedBR's own figure: the mean of the five largest."""
        return statistics.mean(sorted(self.curve.values())[-count:])

    def last(self, count: int = 5) -> float:
        return statistics.mean(list(self.curve.values())[-count:])

    def before(self, count: int = 5) -> float:
        return statistics.mean(list(self.curve.values())[-2 * count : -count])

    def reaches(self, level: float) -> int | None:
        return next((round for round, accuracy in self.curve.items() if accuracy >= level), None)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(run: Run, levels: Sequence[float]) -> list[str]:
    """What every table says of a run."""
    reached = [str(run.reaches(level) or "-") for level in levels]
    return [str(run.rounds), percent(run.last()), percent(run.best()), *reached, f"{run.found['seconds']:.0f}"]


def head(*first: str, levels: Sequence[float] = LEVELS) -> list[str]:
    reached = [f"first at {100 * level:.0f} %" for level in levels]
    return [*first, "rounds", "last five evaluations", "five best", *reached, "seconds"]


def readings() -> str:
    rows = []
    for init in ("torchvision", "torch"):
        for division, words in (("flat", "alpha per class"), ("prior", "alpha times the class shares")):
            for momentum in MOMENTUM:
                run = Run.of("br-question", f"{init}-{division}-{momentum}")
                rows.append([f"`{init}`", words, MOMENTUM[momentum], *cells(run, LEVELS)])
    return table(head("first weights", "division", "momentum"), rows)


def against(run: Run, paper: dict[str, tuple[float, int]], name: str) -> list[str]:
    accuracy, rounds = paper[name]
    return [*cells(run, LEVELS), f"{accuracy:.2f}", str(rounds)]


def methods(fedavg: Run) -> str:
    names = ["fedprox", "moon", "fedbr", "fedbr-component1", "fedbr-component2"]
    found = {"fedavg": fedavg, **{name: Run.of("br-cifar10", name) for name in names}}
    rows = [[name, *against(run, PAPER_CIFAR, name)] for name, run in found.items()]
    return table([*head("method"), "paper, 1000 rounds", "paper, rounds to 55 %"], rows)


def momenta() -> str:
    rows = []
    for momentum, words in MOMENTUM.items():
        ours = Run.of("br-cifar10", "fedbr" if momentum == "kept" else f"fedbr-{momentum}")
        plain = Run.of("br-question", f"torchvision-flat-{momentum}")
        rows += [[words, "fedavg", *cells(plain, LEVELS)], [words, "fedbr", *cells(ours, LEVELS)]]
    return table(head("momentum", "method"), rows)


def apart(momentum: str) -> tuple[list[float], float]:
    """Two runs of one configuration: the difference at each common round, and of the means of the last five."""
    first, again = (Run.of("br-question", f"torchvision-flat-{momentum}{end}").curve for end in ("", "-repeat"))
    found = [100 * abs(first[round] - again[round]) for round in sorted(first.keys() & again.keys())]
    last = sorted(first.keys() & again.keys())[-5:]
    return found, 100 * abs(statistics.mean(first[r] for r in last) - statistics.mean(again[r] for r in last))


def repeats() -> str:
    rows = []
    for momentum, words in MOMENTUM.items():
        found, mean = apart(momentum)
        rows.append([words, f"{statistics.mean(found):.1f}", f"{max(found):.1f}", f"{mean:.1f}"])
    return table(["momentum", "points apart, mean", "largest", "means of five evaluations"], rows)


def digits() -> str:
    levels = (0.4, 0.5, 0.6)
    rows = []
    for name, (accuracy, rounds) in PAPER_MNIST.items():
        rows.append([name, *cells(Run.of("br-mnist", f"{name}-flat"), levels), f"{accuracy:.2f}", str(rounds)])
    return table([*head("method", levels=levels), "paper, 1000 rounds", "paper, rounds to 80 %"], rows)


TEXT = """# The question FedBR: under which reading does its CIFAR-10 setting train?

Written by `python benchmarks/fedbr_question.py` from the records in `results/`; the rows are those of
`benchmarks/plans/papers.toml`:

    python benchmarks/gpu_rows.py run benchmarks/plans/papers.toml --runs runs --jobs 9 --mps \\
      --only br-question,br-cifar10,br-mnist
    python benchmarks/gpu_rows.py collect benchmarks/plans/papers.toml --runs runs --out results

CIFAR-10, VGG11, ten clients, 50 steps of 32 samples with rate 0.01 in a round, every image turned by an angle drawn
from its client's distribution, Dir(1) as in the paper (the code: 0.1), inputs in [0, 1], no part of a client's data
held out (the code: a fifth); accuracy is the mean over the ten test angles, every ten rounds, in
percent. **One seed, test data, nothing tuned; which readings and methods to go on with was chosen by these test
figures.** {gpu}, torch {torch}, `batched`, compiled, tf32; Accord {accord}, whose clients drew other batches than
those of 0.2. Seconds are those on the clock while nine to twelve runs
shared the GPU, so they compare neither methods nor machines.

## FedAvg in twelve readings

The paper does not say how the weights are drawn, and of the division only that it is LDA with alpha = 0.1. It has
momentum "when using CCT and ResNet", so none here. Its published code (LINs-lab/FedBR, 3e24f7f, read but not run) has
0.9 for FedAvg and FedBR alike.

{readings}

**How far two runs of the same seed and settings are apart** (they differ in rounding alone; rounds 10 to
{repeat_rounds}):

{repeats}

Differences between rows with momentum that are of this size say nothing.

- **Division.** Read as the code for CIFAR-10 and MNIST has it (the concentration 0.1 is multiplied by the shares of the
  remaining samples, so 0.01 per class), nearly all samples of a client are of one class, and FedAvg never gets beyond
  {skewed_best} % in the {skewed_rounds} rounds at most that were run. Read as the code for CIFAR-100 has it, 0.1 per
  class, it learns. In those rounds no reading of the published division showed a way to the paper's figures.
- **First weights.** torchvision's, which the published network has: {kept_130} % at round 130 with momentum kept,
  against {torch_kept_130} % with torch's own rule. Without momentum torch's rule stays at {torch_none} % for
  {torch_none_rounds} rounds: in a network without norms the signal dies out layer by layer.
- **Momentum** helps: over the last five evaluations none {none_last}, fresh {fresh_last}, kept {kept_last}. Between
  the last two there is no difference beyond that of two equal runs. In the published code a client is made anew in each
  round as a copy of the server's, whose optimizer has never stepped: by that its momentum is `fresh`, not kept.
- With torchvision's weights and 0.1 per class FedAvg is at {none_last} (no momentum, as the paper has it) to
  {fresh_last} after {rounds} rounds; the paper has {paper} after 1000 and 55 % at round {paper_rounds}. From the five
  evaluations before to the last five it rose by {none_rise} (none), {fresh_rise} (fresh) and {kept_rise} (kept) points:
  whether it arrives has not been tried.

All twelve ran to about round 130, when the machine was given back; the three that had learnt most by then were run
again from the start, to round 300.

## Methods in that reading (momentum kept)

{methods}

lambda = 0.1 (the paper's for CIFAR-10), everything else at its default, no setting searched for any of them; FedProx
mu = 0.1, MOON mu = 1. FedBR's projector has an optimizer of its own, which is new in every round here too.

## FedBR and momentum

{momenta}

The rows of FedBR without kept momentum were added after it had been seen to stall with it.

- Component 1 (pseudo-data against the classifier's bias) is faster: 40 % at round {first_40}, FedAvg's two equal runs
  at {kept_40} and {repeat_40}; 50 % at {first_50} and {kept_50}, {faster} times (the paper: {paper_faster} times, to
  55 %). Its lead of {ahead} points over the last five evaluations is about what two equal runs have been apart
  ({five_apart}); FedProx's and MOON's are less.
- Component 2 (features held to the global ones) costs the first rounds: with momentum kept FedBR stays below 15 % until
  round {stuck}, and ends at {both_last} (component 2 alone at {second_last}) against FedAvg's {kept_last}. The paper's
  lead of FedBR is not seen within {rounds} rounds of this reading; its curve was still rising.
- Without momentum, as the paper has it, FedBR ends at {alone_last} against FedAvg's {none_last}: {alone_ahead} points
  ahead where two equal runs of FedAvg differ by {none_apart} at most. That is one seed and one division.

## RotatedMNIST in the same reading

0.1 per class, momentum kept, rate 0.001, B = 64, torch's weights (the published network has them), lambda = 1.

{digits}

## What is left

The rounds from 300 to 1000, more seeds, a choice of the reading on validation data, component 2 with a smaller weight
or a later start, and the readings of the code's own division beyond round {skewed_rounds}. FedBR against FedAvg is open
until then.
"""


def page() -> str:
    flat = {m: Run.of("br-question", f"torchvision-flat-{m}") for m in MOMENTUM}
    torchs = {m: Run.of("br-question", f"torch-flat-{m}") for m in MOMENTUM}
    skewed = [Run.of("br-question", f"{init}-prior-{m}") for init in ("torchvision", "torch") for m in MOMENTUM]
    kept, first, both = flat["kept"], Run.of("br-cifar10", "fedbr-component1"), Run.of("br-cifar10", "fedbr")
    alone, repeat = Run.of("br-cifar10", "fedbr-none"), Run.of("br-question", "torchvision-flat-kept-repeat")
    first_50, kept_50 = first.reaches(0.5) or 0, kept.reaches(0.5) or 0
    paper = {name: rounds for name, (_, rounds) in PAPER_CIFAR.items()}
    return TEXT.format(
        gpu=kept.found["hardware"]["gpu"],
        torch=kept.found["versions"]["torch"],
        accord=kept.found["versions"]["accord"],
        readings=readings(),
        methods=methods(kept),
        momenta=momenta(),
        repeats=repeats(),
        repeat_rounds=repeat.rounds,
        first_40=first.reaches(0.4),
        kept_40=kept.reaches(0.4),
        repeat_40=repeat.reaches(0.4),
        alone_ahead=f"{100 * (alone.last() - flat['none'].last()):.1f}",
        five_apart=f"{max(apart(m)[1] for m in MOMENTUM):.1f}",
        none_apart=f"{max(apart('none')[0]):.1f}",
        digits=digits(),
        **{f"{m}_130": percent(run.curve[130]) for m, run in flat.items()},
        **{f"{m}_rise": f"{100 * (run.last() - run.before()):.1f}" for m, run in flat.items()},
        **{f"{m}_last": percent(run.last()) for m, run in flat.items()},
        skewed_best=percent(max(run.best(1) for run in skewed)),
        skewed_rounds=max(run.rounds for run in skewed),
        torch_kept_130=percent(torchs["kept"].curve[130]),
        torch_none=percent(torchs["none"].best()),
        torch_none_rounds=torchs["none"].rounds,
        rounds=kept.rounds,
        paper=PAPER_CIFAR["fedavg"][0],
        paper_rounds=paper["fedavg"],
        first_50=first_50,
        kept_50=kept_50,
        faster=f"{kept_50 / first_50:.1f}",
        paper_faster=f"{paper['fedavg'] / paper['fedbr-component1']:.1f}",
        ahead=f"{100 * (first.last() - kept.last()):.1f}",
        stuck=max(round for round, accuracy in both.curve.items() if accuracy < 0.15),
        both_last=percent(both.last()),
        second_last=percent(Run.of("br-cifar10", "fedbr-component2").last()),
        alone_last=percent(alone.last()),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
