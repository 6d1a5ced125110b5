"""The page "How far is it off?": what is predicted for every run of a real GPU."""

from collections.abc import Iterator

from tests.h100.limits import ONE_SHAPE, THREE_SHAPES, Limit, limits
from tests.h100.runs import Measured, Predicted, fitted, itl_percentiles, measured, predicted

PAGE = "docs/how-far-is-it-off.md"

CALIBRATED_ON = (ONE_SHAPE, THREE_SHAPES)
"""One shape, and three shapes."""

INTRODUCTION = """\
# How far is it off?

What a plan predicts, beside what was measured on one NVIDIA H100 with an engine that mixes
prefills with decode steps (continuous batching of transformers, a model of the shape of
Llama-3.1-8B). The data are in `tests/data/h100`; `python -m tests.h100` writes this page from
them. Errors are (predicted - measured) / measured. The parameters are `stepParms` as `inferno
calibrate` finds them, from the eight runs with 512 input and 128 output tokens (*one shape*), or
from all fifteen runs with a fixed number of clients (*three shapes*). Nothing was fitted to
random arrivals.
"""

LIMITS = """
## What must hold

The largest error of each kind, and what it may be; a test has the same limits. Random arrivals are
those up to 18 requests/s, with a largest batch of 64. A full batch has 32 clients at least.

| what | calibrated on | runs | largest error | of the run | limit |
|---|---|---|---|---|---|
"""

OPEN = """
## Random arrivals

512 input and 128 output tokens, in means; ITL and TTFT in ms.

| requests/s | largest batch | ITL | TTFT | p95 of TTFT | one shape: ITL, TTFT, p95 | three shapes |
|---|---|---|---|---|---|---|
"""

VARIATION = """
## How inter-token latencies vary

Percentiles 90, 95 and 99 of the mean time between the tokens of a request, in the same runs.

| requests/s | largest batch | measured | one shape | three shapes |
|---|---|---|---|---|
"""

CLOSED = """
## A fixed number of clients

| input/output tokens | clients | ITL | requests/s | one shape: ITL, requests/s | three shapes |
|---|---|---|---|---|---|
"""

WHY = """
## What is left

- Close to saturation a small error of the parameters becomes a large one of the wait. The run
  with a largest batch of 16 is at 89 % of its saturation, and its wait is a matter of chance: a
  long simulation of the same steps has a mean TTFT of 261 ms where the run has 421 ms.
- Percentiles above 85 % of the saturation are those of one exponential wait; the true tail is
  longer.
- One shape cannot tell what a request costs besides its tokens in the cache (`overhead`), so that
  128 clients with short prompts and long answers come out too fast. Runs of several shapes tell.
"""


def page() -> str:
    """The page."""
    runs = measured()
    random = sorted((run for run in runs if not run.clients), key=lambda run: (run.batch, run.rate))
    arrivals = "".join(_arrivals(run) for run in random)
    variation = "".join(map(_variation, random))
    clients = "".join(_clients(run) for run in runs if run.clients)
    kept = "".join(map(_limit, limits()))
    return (
        f"{INTRODUCTION}{LIMITS}{kept}{OPEN}{arrivals}{VARIATION}{variation}{CLOSED}{clients}{WHY}"
    )


def _limit(limit: Limit) -> str:
    run, error = limit.worst
    shapes = "one shape" if limit.file == ONE_SHAPE else "three shapes"
    number, most = f"{len(limit.runs)}", f"{100 * limit.most:.0f} %"
    return _row(limit.name, shapes, number, f"{100 * error:+.1f} %", _title(run), most)


def _title(run: Measured) -> str:
    lengths = f"{run.inputs:.0f}/{run.outputs:.0f}"
    return f"{lengths}, {run.clients} clients" if run.clients else f"{lengths}, {run.rate:.1f}/s"


def _arrivals(run: Measured) -> str:
    cells = [f"{run.rate:.1f}", f"{run.batch}", f"{run.itl:.1f}", f"{run.ttft:.0f}"]
    errors = (
        f"{_off(p.itl, run.itl)}, {_off(p.ttft, run.ttft)}, {_off(p.ttft_p95, run.ttft_p95)}"
        for p in _both(run)
    )
    return _row(*cells, f"{run.ttft_p95:.0f}", *errors)


def _variation(run: Measured) -> str:
    truth = itl_percentiles(run)
    errors = (", ".join(map(_off, p.itl_percentiles, truth)) for p in _both(run))
    times = ", ".join(f"{time:.1f}" for time in truth)
    return _row(f"{run.rate:.1f}", f"{run.batch}", times, *errors)


def _clients(run: Measured) -> str:
    lengths = f"{run.inputs:.0f}/{run.outputs:.0f}"
    errors = (f"{_off(p.itl, run.itl)}, {_off(p.rate, run.rate)}" for p in _both(run))
    return _row(lengths, f"{run.clients}", f"{run.itl:.1f}", f"{run.rate:.1f}", *errors)


def _both(run: Measured) -> Iterator[Predicted]:
    return (predicted(fitted(file), run) for file in CALIBRATED_ON)


def _off(found: float, truth: float) -> str:
    return f"{100 * (found / truth - 1):+.0f} %"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"
