"""The page "How good are estimates?": what is estimated for everything that was measured."""

import numpy as np

from tests.published.judge import Judged, judged
from tests.reference.markdown import percent

PAGE = "docs/how-good-are-estimates.md"

INTRODUCTION = """\
# How good are estimates?

What [`inferno catalogue estimate`](guides/catalogue.md) says, beside published measurements. Errors
are (estimated - measured) / measured; the error of an entry is the median of their sizes. For each
entry, the five numbers of [the estimate](design/estimates.md) are fitted to all *other* models.
`tests/data/published` has every time and its source; `python -m tests.published` writes this page.
"""

HEADING = """
| measured | errors by cards |
|---|---|
"""

WHY = """
- Models of 70 thousand million parameters on two or four H100 or H200 are estimated a third to a
  half too slow: the time of an exchange between cards was fitted to slower ones, too.
- The engine is not part of the estimate. In March 2025 three engines took 26, 44 and 55 ms for a
  token of DeepSeek-R1 on the same eight H200.
- A step of a model with experts reads more of them the larger the batch; the straight line of
  `stepParms` is too slow for a lone request and for a full batch, and too fast between.
- Nothing was measured on the MI325X, the MI355X, the L4 and the TPU v6e: their error is not known.
"""


def page() -> str:
    found = judged()
    median = float(np.median([one.off for one in found]))
    together: dict[str, list[Judged]] = {}
    for one in found:
        entry = one.entry
        together.setdefault(f"{entry.model} {entry.dtype}, {entry.engine}", []).append(one)
    return "".join(
        [
            INTRODUCTION,
            f"\nThe median of the errors of all {len(found)} entries is **{median:.0%}**.\n",
            HEADING,
            *(f"| {name} | {'; '.join(map(_errors, ones))} |\n" for name, ones in together.items()),
            WHY,
        ]
    ).replace("%", " %")


def _errors(one: Judged) -> str:
    """The least and the most of an entry, or the only one."""
    least, most = percent(one.errors.min()), percent(one.errors.max())
    span = least if least == most else f"{least.removesuffix('%')} to {most}"
    return f"{one.entry.cards} {one.entry.accelerator} {span}"
