"""The page "How far is it off?": predictions beside what was measured on a real GPU."""

from tests.h100.limits import CALIBRATED, ONE_SHAPE, THREE_SHAPES, Limit, limits
from tests.h100.runs import Measured, fitted, measured, predicted
from tests.reference.markdown import percent

PAGE = "docs/how-far-is-it-off.md"

INTRODUCTION = """\
# How far is it off?

Predictions beside measurements on one NVIDIA H100, with a model of the shape of Llama-3.1-8B.
Errors are (predicted - measured) / measured. `inferno calibrate` found the parameters (`stepParms`)
from eight runs of 512 input and 128 output tokens (*one shape*), or all fifteen runs with a fixed
number of clients (*three shapes*). `python -m tests.h100` writes this page from `tests/data/h100`.

## What to expect

- Up to 75 % of the saturation, also at other lengths, expect the ITL within 7 % and the TTFT within
  15 %. Keep plans below that where the tail matters.
- Let an engine see its load first: each new size of step costs 0.1 s for a CUDA graph.
- Calibrate with the lengths that you serve: a prompt token costs 22 to 31 µs by the length.
- Prompts with the same beginning are faster than predicted: it stays in the card's cache (50 MB).

## Random arrivals

About 512 input and 128 output tokens; the largest batch is 64, in the first row 16, which is too
small. ITL and TTFT in ms, then the errors of ITL, TTFT and p95 of TTFT.

| requests/s | ITL | TTFT | p95 of TTFT | one shape | three shapes |
|---|---|---|---|---|---|
"""

LIMITS = """
At 19.7 requests/s, 93 % of the saturation, small errors of parameters become large ones of waits.

## The largest errors

Random arrivals are those up to 18 requests/s with a largest batch of 64; a full batch has 32
clients at least. The last eight rows were predicted before they were measured, on 2026-11-26:
*another model* has the shape of Qwen3-4B, at other lengths; *without captures* leaves out steps
that made CUDA graphs; *a third model* has the shape of Llama-3.2-3B.

| what (calibrated on) | largest error |
|---|---|
"""

UNSEEN = """
Scaled to an H200 by `inferno catalogue estimate`, the ITL of the third model was 16 to 19 % too
short.
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
