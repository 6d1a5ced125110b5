"""What pages on troubleshooting quote of messages is what the programs say."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.reference.shown import ROOT
from tests.reference.troubleshooting import FOLDER

LEAD = re.compile(r"^(?:- )?(\*[^*]+\*(?:,\s+\*[^*]+\*)*)", re.MULTILINE)
"""What a paragraph or an item of a list quotes before it explains it."""

VARYING = re.compile(r"\.\.\.|\{|\}|\S*\d\S*")
"""Parts of a quote that differ in each message."""

OF_OTHERS = {"unable to get local issuer certificate"}  # OpenSSL says it


def quotes() -> Iterator[tuple[str, str]]:
    for page in sorted(FOLDER.glob("*.md")):
        for lead in LEAD.findall(page.read_text(encoding="utf-8")):
            for quote in re.findall(r"\*([^*]+)\*", lead):
                if (text := " ".join(quote.split())) not in OF_OTHERS:
                    yield page.name, text


@cache
def said() -> str:
    """Every text in the code, a line for each, in small letters."""
    files = (path for part in ("operator", "optimizer") for path in (ROOT / part).rglob("*.py"))
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return "\n".join(" ".join(text.split()) for text in texts).lower()


@pytest.mark.parametrize(("page", "quote"), list(quotes()))
def test_a_message_that_a_page_quotes_is_in_the_code(page: str, quote: str) -> None:
    parts = [part.strip(" ,:") for part in VARYING.split(quote.lower())]

    assert [part for part in parts if part not in said()] == [], page
