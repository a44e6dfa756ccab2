"""A model in use: raw inputs in, answers out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from accord.core.types import Facts
from accord.core.whole import Whole, bare, fill
from accord.data.inputs import Inputs
from accord.deploy.answers import Answers
from accord.deploy.facts import check_tokens, facts_of, is_ragged, packed
from accord.deploy.folder import ModelFolder
from accord.deploy.rebuilt import rebuilt
from accord.wire.model import dtype_of

BATCH = 1024  # samples the network is shown at once


class Loaded(nn.Module):
    """A trained network that takes raw inputs, as they were given for training: pixels, arrays, token ids, table rows.

    `network` is the trained module itself, of inputs as `inputs.tensor(raw)` makes them.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: Inputs,
        answers: Answers,
        dtype: torch.dtype,
        client: str = "",
        facts: Facts | None = None,
    ) -> None:
        super().__init__()
        self.network, self.inputs, self.answers, self.dtype = network, inputs, answers, dtype
        self.client = client  # whose own model it is; empty: everybody's
        self.fields = facts.fields if facts else None  # where a sample is several inputs: how they are packed into one
        self.vocabulary = facts.vocabulary if facts else 0  # token ids there are, where samples are those
        self.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.answers.names

    @property
    def problem(self) -> str:
        """What it answers: classification, multilabel, regression or tokens."""
        return self.answers.problem

    def tensor(self, raw: Any) -> Tensor:
        """What the network sees of raw samples, where the network is."""
        x = self.inputs.tensor(raw if self.fields is None else packed(self.fields, raw))
        if self.inputs.kind == "tokens":
            check_tokens(x, self.vocabulary, "a sample")
        place = next(self.network.parameters()).device
        return x.to(place, self.dtype) if x.is_floating_point() else x.to(place)

    def compute(self, x: Tensor) -> Tensor:
        """[B, C] outputs for inputs as `tensor` makes them."""
        apart = self.fields is not None and getattr(bare(self.network), "takes_fields", False)
        outputs: Tensor = self.network(self.fields.unpacked(x) if apart and self.fields is not None else x)
        return outputs

    def forward(self, raw: Any) -> Tensor:
        """[B, C] the network's outputs."""
        return self.compute(self.tensor(raw))

    def probabilities(self, raw: Any) -> Tensor:
        """[B, C] of each class, or of each label."""
        return self.answers.probabilities(self.outputs(raw))

    def predict(self, raw: Any) -> list[Any]:
        """A class name for each sample; a list of labels, or numbers, where the problem is such a one."""
        answers = self.answers.words(self.outputs(raw))
        if self.problem == "tokens" and is_ragged(self.fields, raw):
            return [answer[: len(sequence)] for answer, sequence in zip(answers, raw, strict=True)]
        return answers

    def outputs(self, raw: Any) -> Tensor:
        """[B, C] as `forward` gives them, without gradients, batch by batch unless answers depend on one another."""
        x = self.tensor(raw)
        together = isinstance(self.network, Whole) and self.network.together
        with torch.inference_mode():
            parts = torch.split(x, max(len(x), 1) if together else BATCH)
            return torch.cat([self.compute(part) for part in parts]).cpu()


def load(folder: Path | str, client: str | int | None = None, network: nn.Module | None = None) -> Loaded:
    """The model a run has left, of its folder or of the folder `model` in it; `client`: that client's own.

    A network of your own, which has no name here, is given again: its values are replaced by the trained ones.

    >>> model = accord.load("runs/ditto-hospitals-s0", client="Lyon")             # doctest: +SKIP
    >>> model.predict(pandas.read_csv("new.csv"))                                 # doctest: +SKIP
    ['benign', 'malignant', 'benign']
    """
    found = ModelFolder(folder)
    record = found.record
    inputs = Inputs.from_json(record["inputs"])
    answers = Answers(record["problem"], record["classes"], record["outputs"])
    values = found.values(client)
    module = rebuilt(record, network, sum(t.numel() * t.element_size() for t in values.values()))
    fill(module, values, str(found.path))
    name = "" if client is None else found.name_of(client)
    return Loaded(module, inputs, answers, dtype_of(record), name, facts_of(record))


def predict(
    folder: Path | str, raw: Any, client: str | int | None = None, network: nn.Module | None = None
) -> list[Any]:
    """What the model a run has left says of raw samples: `load(folder).predict(raw)`."""
    return load(folder, client, network).predict(raw)
