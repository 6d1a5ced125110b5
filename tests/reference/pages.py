"""Which parts of which pages come from the code."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.reference import commands, crds
from tests.reference.chart import CHART, chart
from tests.reference.environment import environment
from tests.reference.markdown import fill, marked
from tests.reference.metrics import metrics
from tests.reference.rest import rest
from tests.reference.troubleshooting import FOLDER, index_of_reasons

DOCS = Path(__file__).parents[2] / "docs"

PARTS: Mapping[str, Callable[[], str]] = {
    "chart": chart,
    **commands.PARTS,
    **crds.PARTS,
    "environment": environment,
    "metrics": metrics,
    "reasons": index_of_reasons,
    "rest": rest,
}
"""Each stands on the page of its name in the reference, between its markers, or on one of these."""

ELSEWHERE = {"chart": CHART / "README.md", "reasons": FOLDER / "index.md"}


def page(part: str) -> Path:
    return ELSEWHERE.get(part, DOCS / "reference" / f"{part}.md")


def renewed(part: str) -> str:
    """Text of a page, with the part as the code has it now.

    Raises
    ------
    ValueError
        The page has no place for it.
    """
    text = page(part).read_text(encoding="utf-8")
    if marked(text) != [part]:
        raise ValueError(f"{page(part)} needs the marker generated:{part}, once")
    return fill(text, {part: PARTS[part]()})
