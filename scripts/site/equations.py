"""LaTeX to MathML, which browsers draw themselves, and the font they draw it with: no script is needed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from importlib.resources import files

from fontTools import subset
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert

UNSTRETCHED = re.compile(r"<mo([^>]*)>(&#x02016;|&#x0007C;|\|)</mo>")
LEFT_OVER = re.compile(r"\\[A-Za-z]+|<mi>&amp;</mi>|&amp;")
ALWAYS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-=()[]{}|,.;:/ √‖"


def mathml(tex: str) -> str:
    """One formula in display style; ValueError where a command of it is not known."""
    made: str = convert(tex, display="block")
    # Bars around a norm are written with \big where they should grow: by themselves they would grow unevenly.
    made = UNSTRETCHED.sub(
        lambda found: f'<mo{_flat(found[1])} stretchy="false" lspace="0" rspace="0">{found[2]}</mo>', made
    )
    if left := LEFT_OVER.search(re.sub(r"<mtext>.*?</mtext>", "", made)):
        raise ValueError(f"{left[0]} of {tex} cannot be rendered: say it in another way")
    return made.replace('display="block"', f'displaystyle="true" aria-label="{escape(tex)}"', 1)


def _flat(attributes: str) -> str:
    return re.sub(r' (stretchy|minsize|maxsize|fence)="[^"]*"', "", attributes)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Formulas below one another, each with whose step it is."""
    lines = [f"<tr><th scope='row'>{escape(who)}</th><td>{mathml(tex)}</td></tr>" for who, tex in rows]
    return "\n".join(["<div class='equations' tabindex='0'><table class='formulas'>", *lines, "</table></div>"])


def font(pages: Iterable[str]) -> bytes:
    """STIX Two Math, which comes with ziamath, with the signs these pages use: a twentieth of the whole."""
    signs = set(ALWAYS).union(*(set(unescape(page)) for page in pages))
    letters = {ord(sign) for sign in signs if ord(sign) > 31}
    # Browsers draw a variable, <mi>w</mi>, with the italic letters that Unicode has for it.
    italics = {0x1D434 + place for place in range(52)} | {0x210E} | {0x1D6E2 + place for place in range(58)}
    options = subset.Options(flavor="woff", layout_features=["*"], notdef_outline=True)
    whole = TTFont(str(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf"))
    maker = subset.Subsetter(options)
    maker.populate(unicodes=letters | italics)
    maker.subset(whole)
    whole.flavor = "woff"
    written = io.BytesIO()
    whole.save(written)
    return written.getvalue()
