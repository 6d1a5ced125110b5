"""The page "How good are estimates?": what is estimated for everything that was measured.

AIConfigurator says its times itself: see tests/data/published.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from inferno_operator.cli.tables.table import TextTable
from tests.published.judge import Judged, judged, judged_recent, median_size
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
- Llama-3.1-70B in FP8 on several cards is estimated a quarter too slow in the median: the time of
  an exchange between cards is fitted to engines of 2024, too.
- The engine is not part of the estimate. In March 2025 three engines took 26, 44 and 55 ms for a
  token of DeepSeek-R1 on the same eight H200.
- A step of a model with experts reads more of them the larger the batch; the straight line of
  `stepParms` is too slow for a lone request and for a full batch, and too fast between.
- Nothing was measured on the MI325X, the MI355X, the L4 and the TPU v6e: their error is not known.
"""


BESIDE = """
## Beside AIConfigurator

[AIConfigurator](https://github.com/ai-dynamo/aiconfigurator) 0.12.0 adds up times that operators of
engines of 2026 take on NVIDIA's cards, which come with it from PyPI. The medians of the errors of
entries, on the same times; `python -m tests.published --size` prints what both say of each time.
"""

EARLY = """
Most of these engines are of 2024, and slower than those that AIConfigurator knows:
"""

RECENT = """
These are of October 2025 to April 2026. The times come with AIConfigurator, which each of its
changes is checked against:
"""

COMPARISON = """
| measured | entries | `inferno size` | AIConfigurator |
|---|---|---|---|
"""


def page() -> str:
    found = judged()
    recent = {one.entry for one in judged_recent()}
    median = float(np.median([one.off for one in found]))
    return "".join(
        [
            INTRODUCTION,
            f"\nThe median of the errors of all {len(found)} entries is **{median:.0%}**.\n",
            HEADING,
            *(
                f"| {name} | {'; '.join(map(_errors, ones))} |\n"
                for name, ones in _group(found).items()
            ),
            WHY,
            BESIDE,
            EARLY,
            *_compare([one for one in found if one.entry not in recent]),
            RECENT,
            *_compare(judged_recent()),
        ]
    ).replace("%", " %")


def _group(found: Iterable[Judged]) -> Mapping[str, Sequence[Judged]]:
    """The entries of a model in a precision with an engine, together."""
    together: dict[str, list[Judged]] = {}
    for one in found:
        entry = one.entry
        together.setdefault(f"{entry.model} {entry.dtype}, {entry.engine}", []).append(one)
    return together


def _compare(found: Iterable[Judged]) -> Iterator[str]:
    """The entries of which AIConfigurator says something, and all of them together."""
    both = [one for one in found if one.aiconfigurator_errors.size]
    yield COMPARISON
    for name, ones in {**_group(both), "**all**": both}.items():
        ours = np.median([one.off for one in ones])
        theirs = np.median([median_size(one.aiconfigurator_errors) for one in ones])
        yield f"| {name} | {len(ones)} | {ours:.0%} | {theirs:.0%} |\n"


def tabulate_times() -> TextTable:
    """Every time, with what the estimate and AIConfigurator say of it."""
    rows = []
    for one in judged():
        entry, others = one.entry, one.aiconfigurator_errors
        for number, point in enumerate(one.points):
            load = (point.clients, point.input_tokens, point.output_tokens)
            error, other = one.errors[number], point.aiconfigurator_ms
            rows.append(
                (
                    f"{entry.model} {entry.dtype}",
                    f"{entry.cards} x {entry.accelerator}",
                    entry.engine,
                    *map(str, load),
                    point.time,
                    f"{point.ms:.1f}",
                    f"{point.ms * (1 + error):.1f}",
                    percent(error),
                    f"{other:.1f}" if other else "-",
                    percent(others[number]) if others.size else "-",
                )
            )
    load_of = (">CLIENTS", ">INPUT", ">OUTPUT", "TIME", ">MEASURED MS")
    said = (">SIZE MS", ">ERROR", ">AICONFIGURATOR MS", ">AICONFIGURATOR ERROR")
    return TextTable(("MODEL", "CARDS", "ENGINE", *load_of, *said), rows)


def _errors(one: Judged) -> str:
    """The least and the most of an entry, or the only one."""
    least, most = percent(one.errors.min()), percent(one.errors.max())
    span = least if least == most else f"{least.removesuffix('%')} to {most}"
    return f"{one.entry.cards} {one.entry.accelerator} {span}"
