"""The index of the reasons that the pages on troubleshooting explain."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.reference.markdown import table

FOLDER = Path(__file__).parents[2] / "docs" / "troubleshooting"
ALERTS = FOLDER / "alerts.md"

CHAPTER = re.compile(r"^## (.+)$\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
REASON = re.compile(r"^### (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Reasons that one kind of object, or one program, gives."""

    page: Path
    title: str
    reasons: tuple[str, ...]


def chapters() -> Iterator[Chapter]:
    """All with reasons, in the order of the pages; alerts have a page of their own."""
    for page in sorted(FOLDER.glob("*.md")):
        for title, text in CHAPTER.findall(page.read_text(encoding="utf-8")):
            if reasons := tuple(REASON.findall(text)):
                yield Chapter(page, title, reasons)


def alerts() -> list[str]:
    """Names of the alerts that have a section."""
    return [title for title, _ in CHAPTER.findall(ALERTS.read_text(encoding="utf-8"))]


def index_of_reasons() -> str:
    """A table of links, a line for each chapter."""
    lines = [(chapter.title, _links(chapter)) for chapter in chapters()]
    return table(("where", "reasons"), lines)


def _links(chapter: Chapter) -> str:
    page = "" if chapter.page.name == "index.md" else chapter.page.name
    return ", ".join(f"[{reason}]({page}#{reason.lower()})" for reason in sorted(chapter.reasons))
