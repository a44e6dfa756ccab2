"""Examples in docstrings, `>>> accord.run(...)` with what it gives, shown as the code they are."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n[ \t]*\n|\Z)", flags=re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Puts them into fences; Markdown would take `[1, 2]` for a link."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Every object that was read."""
        if obj.docstring is not None:
            text = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
            obj.docstring.value = re.sub(r" +# doctest: \+\w+", "", text)
