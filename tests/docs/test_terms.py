"""One word, one thing: names of classes, and the tables for contributors about them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = ("operator/inferno_operator", "optimizer/inferno_optimizer")
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def public_classes() -> dict[str, list[str]]:
    """The modules of each public class, by its name."""
    modules = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(str(path.relative_to(ROOT)))
    return modules


def rows(heading: str) -> Iterator[str]:
    """The first cells of the table under a heading of the page for contributors."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield line.split("|")[1]


def words(heading: str) -> set[str]:
    return {word for cell in rows(heading) for word in re.findall(r"`(\w+)`", cell)}


def test_no_two_public_classes_share_a_name_unless_the_table_says_why() -> None:
    shared = {name: where for name, where in public_classes().items() if len(where) > 1}

    assert set(shared) == words("Names that two classes share"), shared


def test_the_terms_are_names_of_public_classes() -> None:
    terms = words("Terms")

    assert len(terms) > 20
    assert terms <= set(public_classes())
