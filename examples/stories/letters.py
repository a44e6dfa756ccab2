"""A text model: what letter comes next?

python examples/stories/letters.py

The text is what Python itself carries for `help()`: the language's manual in 79 topics. Every chapter is a client, so
that each has its own words; a small network learns to go on writing, without any chapter leaving its place.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch

import accord

LENGTH = 64  # letters of a sample
CHAPTERS = 12  # the longest ones


def samples() -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Windows of letters, the same windows one letter on, the chapter of each, and the alphabet."""
    chapters = sorted(topics, key=lambda name: -len(topics[name]))[:CHAPTERS]
    alphabet = sorted({letter for name in chapters for letter in topics[name]})
    number = {letter: place for place, letter in enumerate(alphabet)}
    x, y, owner = [], [], []
    for name in chapters:
        text = np.array([number[letter] for letter in topics[name]])
        for start in range(0, len(text) - LENGTH - 1, LENGTH):
            x.append(text[start : start + LENGTH])
            y.append(text[start + 1 : start + LENGTH + 1])
            owner.append(name)
    return np.stack(x), np.stack(y), owner, alphabet


def main(folder: Path, rounds: int = 10) -> tuple[float, str]:
    """Perplexity of the next letter on text nobody trained on, and how the model goes on with a word."""
    x, y, chapter, alphabet = samples()
    data = accord.from_arrays(x, y, clients=chapter, classes=alphabet, task="tokens", name="manual")
    outcome = accord.run(
        data=data,
        algorithm="fedavgm",
        rounds=rounds,
        lr=0.003,
        out=str(folder),
        sets=["model.name=transformer", "model.causal=true", "model.width=32", "local.optimizer=adam"],
    )
    assert outcome.model is not None
    number = {letter: place for place, letter in enumerate(alphabet)}
    text = "The exception "
    with torch.no_grad():
        for _ in range(20):
            seen = torch.tensor([[number[letter] for letter in text[-LENGTH:].rjust(LENGTH)]])
            text += alphabet[int(outcome.model(seen)[0, -1].argmax())]
    return float(outcome.summary["perplexity"]), text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/letters"))
    perplexity, text = main(parser.parse_args().folder)
    print(f"perplexity {perplexity:.1f}; {text!r}")
