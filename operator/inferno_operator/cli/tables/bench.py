"""What a run of a benchmark has measured, as text; pure."""

from collections.abc import Iterator

import numpy as np

from inferno_operator.adapters.completions.load import TrialResult
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_optimizer.calibration.plan import Trial
from inferno_optimizer.sizing.queueing import FloatArray

PERCENTILES = (50, 90, 95, 99)

BUSY = 0.7
"""Share of a processor from which tokens wait for the clients themselves."""

BEFORE = "let the engine serve such requests for some minutes before"


def trial_text(trial: Trial) -> str:
    """Return a run in words."""
    users = "1 client" if trial.clients == 1 else f"{trial.clients} clients"
    return (
        f"{users}, {trial.shape.input_tokens} input and {trial.shape.output_tokens} output tokens"
    )


def run_parts(measured: TrialResult) -> Iterator[Part]:
    """Yield the latencies of a run, and what else was counted."""
    errors = f"{measured.errors} errors"
    if not measured.answers:
        yield f"no request was answered in time, {errors}"
        return
    headings = ("MS", ">MEAN", *(f">P{percent}" for percent in PERCENTILES))
    yield TextTable(headings, [_row("TTFT", measured.ttft_ms), _row("ITL", measured.itl_ms)])
    speed = f"{measured.tokens_per_second:.1f} tokens/s"
    yield f"{len(measured.answers)} requests, {speed}, {errors}"
    if (added := measured.warm_up) > 0:
        then = "the run is repeated" if measured.repeated else BEFORE
        yield f"warm-up detected (+{added:.0%} ITL): {then}"
    if measured.busy > BUSY:
        yield (
            f"the clients were busy for {measured.busy:.0%} of the time: the engine may be faster"
            " than they are, so use a smaller --max-concurrency"
        )


def _row(name: str, times: FloatArray) -> tuple[str, ...]:
    values = (times.mean(), *np.percentile(times, PERCENTILES))
    return (name, *(f"{value:.2f}" for value in values))
