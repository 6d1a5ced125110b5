"""The page "How good are estimates?": what is estimated for everything that was measured."""

from collections.abc import Iterator

import numpy as np

from tests.published.judge import Judged, judged
from tests.reference.markdown import percent

PAGE = "docs/how-good-are-estimates.md"

INTRODUCTION = """\
# How good are estimates?

What [`inferno catalogue estimate`](guides/catalogue.md) says, beside what others have measured.
The data and their sources are in `tests/data/published`; `python -m tests.published` writes this
page from them. Errors are (estimated - measured) / measured. The estimate has five numbers that
were fitted to measurements; for each entry they are fitted to all *other* models, so that no model
is judged by numbers that know it. The error of an entry is the median of the sizes of the errors of
its times.
"""

HEADING = """
## Each entry

| entry | source | times | error | least | most |
|---|---|---|---|---|---|
"""

POINTS = """
## Each time

Clients whose requests are alike; times in ms: *step*, a decode step; *itl*, the mean time between
tokens; *ttft*, to the first token; *request*, of requests that begin together.

| entry | clients | input/output tokens | time | measured | error |
|---|---|---|---|---|---|
"""

WHY = """
## What is left out, and what is left

- The sample data of the Inferno project are no measurements: the alpha of every model stands in the
  same ratio between two accelerators, to three digits.
- Published figures of Qwen3 on the H20 are left out: that card has no public data sheet.
- The engine is not part of the estimate. DeepSeek-R1 was measured in March 2025, two months after
  its release: with four clients on the same eight H200, three engines took 26, 44 and 55 ms for a
  token. The page has the fastest.
- Models of 70 thousand million parameters on two or four H100 or H200 are estimated a third to a
  half too slow: the time of an exchange between cards was fitted to slower ones, too.
- A step of a model with experts reads more of them the larger the batch; `stepParms` have a
  straight line for that, which is too slow for a lone request and for a full batch, and too fast
  between.
- Nothing was measured on the MI325X, the MI355X, the L4 and the TPU v6e; their error is not known.
"""


def page() -> str:
    """The page."""
    found = judged()
    median = float(np.median([one.off for one in found]))
    return "".join(
        [
            INTRODUCTION,
            f"\nThe median of the errors of all {len(found)} entries is **{median:.0%}**.\n",
            HEADING,
            *map(_entry, found),
            POINTS,
            *(line for one in found for line in _points(one)),
            WHY,
        ]
    ).replace("%", " %")


def _entry(one: Judged) -> str:
    least, most = one.errors.min(), one.errors.max()
    cells = (str(one.entry), one.entry.source, str(len(one.points)), f"{one.off:.0%}")
    return f"| {' | '.join(cells)} | {percent(least)} | {percent(most)} |\n"


def _points(one: Judged) -> Iterator[str]:
    for point, error in zip(one.points, one.errors, strict=True):
        tokens = f"{point.input_tokens}/{point.output_tokens}"
        cells = (str(one.entry), str(point.clients), tokens, point.time, f"{point.ms:.4g}")
        yield f"| {' | '.join(cells)} | {percent(error)} |\n"
