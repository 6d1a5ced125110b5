"""Tables, and texts between markers, in Markdown."""

import re
from collections.abc import Mapping, Sequence

MARKED = re.compile(r"(<!-- generated:(\S+) -->\n)(.*?)(<!-- /generated:\2 -->)", re.DOTALL)


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Make a table; a cell may hold anything but a line break."""
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def code(text: object) -> str:
    """Words as they are typed; nothing stays nothing."""
    return f"`{text}`" if str(text) else ""


def percent(share: float) -> str:
    """A relative error in whole percent, with its sign; what rounds to nothing has none."""
    return re.sub(r"^[+-]0%$", "0%", f"{share:+.0%}")


def fenced(text: str) -> str:
    """A block that is shown as it is."""
    return f"```text\n{text.strip()}\n```"


def marked(page: str) -> list[str]:
    """Keys of the generated parts of a page."""
    return [match[2] for match in MARKED.finditer(page)]


def fill(page: str, parts: Mapping[str, str]) -> str:
    """Put parts between their markers."""
    return MARKED.sub(lambda match: f"{match[1]}\n{parts[match[2]]}\n\n{match[4]}", page)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
