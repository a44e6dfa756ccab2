"""What holds of a paper and what does not, in a few sentences: they stand first on its page and in the index.

`{ufo-t1: fedufo.mnist}` in `verdicts.toml` is a number of an experiment's table, as its own text would ask for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from accord.config.load import read_toml
from accord.errors import ConfigError
from accord.papers import shelf
from accord.papers.readings import filled
from accord.papers.table import Table

_PLACE = re.compile(r"\{([\w-]+): ([^{}]+)\}")


def texts() -> dict[str, str]:
    """By paper, with placeholders."""
    return {paper: str(text) for paper, text in read_toml(shelf.HERE / "verdicts.toml").items()}


def verdict(paper: str, tables: Sequence[Table]) -> str:
    """In one paragraph; empty where there is none."""
    known = {table.experiment.id: table for table in tables}

    def number(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise ConfigError(f"verdicts.toml: {paper} asks for {{{match[0][1:-1]}}}, and there is no such experiment")
        return filled(f"{{{match[2]}}}", known[match[1]])

    return " ".join(_PLACE.sub(number, texts().get(paper, "")).split())
