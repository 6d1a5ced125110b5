"""The page "How far is it off?": predictions beside what was measured on a real GPU."""

from tests.h100.limits import CALIBRATED, ONE_SHAPE, THREE_SHAPES, Limit, limits
from tests.h100.runs import Measured, fitted, measured, predicted
from tests.reference.markdown import percent

PAGE = "docs/how-far-is-it-off.md"

INTRODUCTION = """\
# How far is it off?

What a plan predicts, beside what was measured on one NVIDIA H100 with an engine that mixes prefills
with decode steps (continuous batching of transformers, a model of the shape of Llama-3.1-8B).
Errors are (predicted - measured) / measured. The parameters are `stepParms` as `inferno calibrate`
finds them: from eight runs with 512 input and 128 output tokens (*one shape*), or from all fifteen
runs with a fixed number of clients (*three shapes*). Nothing was fitted to random arrivals.
`tests/data/h100` has the data; `python -m tests.h100` writes this page from them.

## Random arrivals

512 input and 128 output tokens on average; ITL and TTFT in ms; measured, then the errors.

| requests/s | largest batch | ITL | TTFT | p95 of TTFT | one shape: ITL, TTFT, p95 | three shapes |
|---|---|---|---|---|---|---|
"""

LIMITS = """
The first row has too many requests for its batch. At 19.7 requests/s, 93 % of the saturation, a
small error of the parameters becomes a large one of the wait, and a run of minutes says little of
the tail.

## The largest errors

A test has the same limits. Random arrivals are those up to 18 requests/s with a largest batch of
64; a full batch has 32 clients at least.

| what | calibrated on | runs | largest error | of the run | limit |
|---|---|---|---|---|---|
"""

UNSEEN = """
The last eight rows were predicted first and measured then, on 2026-11-26. *Another model* has the
shape of Qwen3-4B, and requests of lengths that were not calibrated; `inferno bench` had 2.4
minutes. *Without captures* leaves out the steps in which the engine made CUDA graphs. The *third
model* has the shape of Llama-3.2-3B, behind an engine that had made all its graphs before. Its
Model was also scaled to an H200, by what `inferno catalogue estimate` says of both cards: the ITL
came out 16 to 19 % too short, and 7 to 10 % with the same `u`.

## What to do about it

- Let an engine see its load before you measure it: a size of step that comes for the first time
  costs 0.1 s for a CUDA graph.
- Calibrate with the lengths that you serve. A single shape cannot tell `overhead`, and a prompt
  token costs 22 to 31 µs, depending on the length.
- Up to 75 % of the saturation, also at other lengths, expect the ITL within 7 % and the TTFT within
  15 %. Keep plans below that where the tail matters.
- Prompts that all begin with the same words are served faster than predicted, because their keys
  and values stay in the cache of the card (50 MB); a hit rate alone does not tell it.
"""


def page() -> str:
    """The page."""
    random = sorted(
        (run for run in measured() if not run.clients), key=lambda run: (run.batch, run.rate)
    )
    arrivals = "".join(map(_arrivals, random))
    largest = "".join(map(_limit, limits()))
    return f"{INTRODUCTION}{arrivals}{LIMITS}{largest}{UNSEEN}"


def _limit(limit: Limit) -> str:
    run, error = limit.worst
    number, most = f"{len(limit.runs)}", f"{100 * limit.most:.0f} %"
    worst = f"{run.inputs:.0f}/{run.outputs:.0f}, " + (
        f"{run.clients} clients" if run.clients else f"{run.rate:.1f}/s"
    )
    return _row(limit.name, CALIBRATED[limit.file], number, f"{100 * error:+.1f} %", worst, most)


def _arrivals(run: Measured) -> str:
    cells = [f"{run.rate:.1f}", f"{run.batch}", f"{run.itl:.1f}", f"{run.ttft:.0f}"]
    errors = (
        f"{_off(p.itl, run.itl)}, {_off(p.ttft, run.ttft)}, {_off(p.ttft_p95, run.ttft_p95)}"
        for p in (predicted(fitted(file), run) for file in (ONE_SHAPE, THREE_SHAPES))
    )
    return _row(*cells, f"{run.ttft_p95:.0f}", *errors)


def _off(found: float, truth: float) -> str:
    return percent(found / truth - 1).replace("%", " %")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
