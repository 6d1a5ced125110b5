"""Docstrings that cite a page of `docs/design`, or a section of one, cite what exists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reference.shown import ROOT

DESIGN = ROOT / "docs" / "design"

CITATION = re.compile(r"`(?P<page>[\w-]+\.md)`(?:, section (?P<section>\"[^\"]+\"|\S+))?")

BARE = re.compile(r"(?<![\w`/\"'.-])[\w-]+\.md\b")
"""A page that is named without backticks: nobody would find out where it is."""


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module that names a page, each in one line."""
    source = path.read_text(encoding="utf-8")
    if ".md" not in source:  # parsing takes long
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield " ".join(str(node.value.value).split())


def sections(page: Path) -> set[str]:
    """The titles of a page's sections."""
    return set(re.findall(r"^#{2,} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def dead(text: str) -> Iterator[str]:
    """What a text cites that does not exist."""
    yield from BARE.findall(text)
    for citation in CITATION.finditer(text):
        page, section = DESIGN / citation["page"], citation["section"]
        if not page.exists() or (section and section.strip('"') not in sections(page)):
            yield citation[0]


@pytest.mark.parametrize("folder", ["operator", "optimizer", "tests"])
def test_every_page_and_section_that_docstrings_cite_exists(folder: str) -> None:
    cited = [
        (module.name, citation)
        for module in sorted((ROOT / folder).rglob("*.py"))
        for text in docstrings(module)
        for citation in dead(text)
    ]

    assert cited == []


def test_docstrings_cite_the_pages_of_sizing_and_assignment() -> None:
    modules = (ROOT / "optimizer").rglob("*.py")
    texts = [text for module in modules for text in docstrings(module)]
    cited = {citation["page"] for text in texts for citation in CITATION.finditer(text)}

    assert cited >= {"sizing.md", "assignment.md"}


@pytest.mark.parametrize(
    "text",
    [
        "See `nowhere.md`.",
        "See sizing.md, section 5.2.",
        "See `sizing.md`, section 5.2.",
        'See `sizing.md`, section "Nothing of the kind".',
    ],
)
def test_a_citation_of_what_does_not_exist_is_dead(text: str) -> None:
    assert list(dead(text))


def test_a_citation_of_a_section_that_exists_is_not() -> None:
    assert not list(dead('See `assignment.md`, section "Greedy".'))
