"""The page "How far is it off?": predictions beside what was measured on a real GPU."""

from tests.h100.limits import CALIBRATED, ONE_SHAPE, THREE_SHAPES, Limit, limits
from tests.h100.runs import Measured, fitted, measured, predicted
from tests.reference.markdown import percent

PAGE = "docs/how-far-is-it-off.md"

INTRODUCTION = """\
# How far is it off?

Predictions beside measurements on one NVIDIA H100, with a model of the shape of Llama-3.1-8B.
Errors are (predicted - measured) / measured. `inferno calibrate` found the parameters (`stepParms`)
from eight runs of 512 input and 128 output tokens (*one shape*), or from all fifteen runs with a
fixed number of clients (*three shapes*).
`tests/data/h100` has the data; `python -m tests.h100` writes this page from them.

## What to expect

- Up to 75 % of the saturation, also at other lengths, expect the ITL within 7 % and the TTFT within
  15 %. Keep plans below that where the tail matters.
- Let an engine see its load before you measure it: a size of step that comes for the first time
  costs 0.1 s for a CUDA graph.
- Calibrate with the lengths that you serve: a prompt token costs 22 to 31 µs, depending on the
  length.
- Prompts that all begin with the same words are served faster than predicted, because their keys
  and values stay in the cache of the card (50 MB).

## Random arrivals

About 512 input and 128 output tokens; the largest batch is 64, and 16 in the first row, which is
too small for its requests. ITL and TTFT in ms, then the errors of ITL, TTFT and p95 of TTFT.

| requests/s | ITL | TTFT | p95 of TTFT | one shape | three shapes |
|---|---|---|---|---|---|
"""

LIMITS = """
At 19.7 requests/s, 93 % of the saturation, a small error of the parameters becomes a large one of
the wait.

## The largest errors

Random arrivals are those up to 18 requests/s with a largest batch of 64; a full batch has 32
clients at least. The last eight rows were predicted first and measured then, on 2026-11-26:
*another model* has the shape of Qwen3-4B, at lengths that were not calibrated; *without captures*
leaves out the steps in which the engine made CUDA graphs; *a third model* has the shape of
Llama-3.2-3B.

| what (calibrated on) | largest error |
|---|---|
"""

UNSEEN = """
Scaled to an H200 by what `inferno catalogue estimate` says of both cards, the ITL of the third
model came out 16 to 19 % too short.
"""


def page() -> str:
    random = sorted(
        (run for run in measured() if not run.clients), key=lambda run: (run.batch, run.rate)
    )
    arrivals = "".join(map(_arrivals, random))
    largest = "".join(map(_limit, limits()))
    return f"{INTRODUCTION}{arrivals}{LIMITS}{largest}{UNSEEN}"


def _limit(limit: Limit) -> str:
    _, error = limit.worst
    return _row(f"{limit.name} ({CALIBRATED[limit.file]})", f"{100 * error:+.1f} %")


def _arrivals(run: Measured) -> str:
    cells = [f"{run.rate:.1f}", f"{run.itl:.1f}", f"{run.ttft:.0f}", f"{run.ttft_p95:.0f}"]
    errors = (
        ", ".join(
            [
                _off(p.itl, run.itl),
                _off(p.ttft, run.ttft),
                _off(p.ttft_p95, run.ttft_p95),
            ]
        )
        for p in (predicted(fitted(file), run) for file in (ONE_SHAPE, THREE_SHAPES))
    )
    return _row(*cells, *(f"{each} %" for each in errors))


def _off(found: float, truth: float) -> str:
    return percent(found / truth - 1).replace("%", "")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
