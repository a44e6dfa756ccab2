"""A node whose owner means harm: ours, but for what it says. The kind of harm is in the file HARM names, as it changes.

`python -m support.hostile_superexec ...` stands where a node finds `flower-superexec`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from accord.federation import own_superexec
from accord.flower.node import NodeService
from accord.flower.protocol import HELLO, TASK, Letter
from accord.wire.codec import decode, encode

HARM = "ACCORD_TEST_HARM"
truth = NodeService.answer


def said(self: NodeService, kind: str, header: str, enclosures: Mapping[str, bytes]) -> Letter:
    """What an honest node would say, made worse."""
    harm = Path(os.environ[HARM]).read_text().strip()
    letter = truth(self, kind, header, enclosures)
    if kind == HELLO and harm == "forged name":
        return Letter({**letter.header, "site": "site-0"})
    if kind != TASK or json.loads(header)["task"] != "train" or "reply" not in letter.enclosures:
        return letter
    return worse(letter, harm)


def worse(letter: Letter, harm: str) -> Letter:
    """One answer to a training."""
    trees, others = decode(letter.enclosures["reply"]), dict(letter.enclosures)
    first = next(iter(trees["model"]))
    if harm == "nan":
        trees["model"][first] = trees["model"][first] * float("nan")
    elif harm == "wrong shapes":
        trees["model"][first] = torch.zeros(1000)
    elif harm == "old round":
        return Letter({**letter.header, "version": [1, 0]}, others)
    elif harm == "other client":
        return Letter({**letter.header, "client": 0}, others)
    elif harm == "huge":
        trees["model"][first] = torch.zeros(16 << 20)  # 64 MiB, where one is allowed
    return Letter(letter.header, {**others, "reply": encode(trees)})


def main() -> None:
    """Otherwise as any node."""
    NodeService.answer = said  # type: ignore[method-assign]
    own_superexec.main()


if __name__ == "__main__":
    main()
