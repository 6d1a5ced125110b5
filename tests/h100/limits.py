"""How far predictions may be off, and how far they are at most."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.h100.runs import Measured, Predicted, fitted, measured, predicted
from tests.h100.unseen import AS_PRINTED, LLAMA, QWEN, WARM, WITHOUT_CAPTURES, unseen, usual

ONE_SHAPE, THREE_SHAPES = "closed-512-128.csv", "closed-all.csv"
"""Runs with 512 input and 128 output tokens, and all with a fixed number of clients."""

CALIBRATED = {
    ONE_SHAPE: "one shape",
    THREE_SHAPES: "three shapes",
    AS_PRINTED: "another model",
    WITHOUT_CAPTURES: "another model, without captures",
    WARM: "a third model",
}
"""What the page calls the runs in a file."""

USUAL_BATCH, USUAL_RATE = 64, 18.0
USUAL_INPUTS = range(400, 700)
MANY_CLIENTS = 32


@dataclass(frozen=True)
class Limit:
    """What is predicted from the runs in `file` for `runs`, and its largest relative error."""

    name: str
    file: str
    runs: tuple[Measured, ...]
    figure: Callable[[Measured | Predicted], float]
    most: float

    def error(self, run: Measured) -> float:
        """(predicted - measured) / measured."""
        return self.figure(predicted(fitted(self.file), run)) / self.figure(run) - 1.0

    @property
    def worst(self) -> tuple[Measured, float]:
        """The run with the largest error, and the error."""
        errors = ((run, self.error(run)) for run in self.runs)
        return max(errors, key=lambda pair: abs(pair[1]))


def limits() -> Iterator[Limit]:
    runs = tuple(measured())
    open_runs = (run for run in runs if not run.clients)
    random = tuple(r for r in open_runs if r.batch == USUAL_BATCH and r.rate <= USUAL_RATE)
    few = tuple(
        run
        for run in runs
        if 0 < run.clients <= MANY_CLIENTS and round(run.inputs) not in USUAL_INPUTS
    )
    full = tuple(run for run in runs if run.clients >= MANY_CLIENTS)
    yield Limit("ITL, random arrivals", ONE_SHAPE, random, lambda r: r.itl, 0.07)
    yield Limit("TTFT, random arrivals", ONE_SHAPE, random, lambda r: r.ttft, 0.10)
    yield Limit("p95 of TTFT, random arrivals", ONE_SHAPE, random, lambda r: r.ttft_p95, 0.15)
    yield Limit("ITL at other lengths, up to 32 clients", ONE_SHAPE, few, lambda r: r.itl, 0.10)
    yield Limit("ITL of all runs", THREE_SHAPES, runs, lambda r: r.itl, 0.12)
    yield Limit("requests/s of full batches", THREE_SHAPES, full, lambda r: r.rate, 0.06)
    new = tuple(unseen(QWEN))
    known = tuple(run for run in new if usual(QWEN, run))
    yield Limit("ITL, up to 75 % of the saturation", AS_PRINTED, known, lambda r: r.itl, 0.07)
    yield Limit("TTFT, up to 75 %", WITHOUT_CAPTURES, known, lambda r: r.ttft, 0.15)
    yield Limit("p95 of TTFT, up to 75 %", WITHOUT_CAPTURES, known, lambda r: r.ttft_p95, 0.20)
    yield Limit("ITL, all rates", AS_PRINTED, new, lambda r: r.itl, 0.16)
    yield Limit("ITL, all rates", WITHOUT_CAPTURES, new, lambda r: r.itl, 0.10)
    warm = tuple(run for run in unseen(LLAMA) if not run.cached)
    cached = tuple(run for run in unseen(LLAMA) if run.cached)
    yield Limit("ITL, all rates", WARM, warm, lambda r: r.itl, 0.08)
    yield Limit("ITL, cached prompts", WARM, cached, lambda r: r.itl, 0.20)
    yield Limit("TTFT, cached prompts", WARM, cached, lambda r: r.ttft, 0.16)
