"""The runs that were measured, and what the step model predicts for each; see tests/data/h100."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from inferno_operator.cli.offline.runs import read_runs
from inferno_optimizer.calibration.steps import StepFit, fit_steps
from inferno_optimizer.sizing.latencies import Latencies
from inferno_optimizer.sizing.limits import TargetLimits
from inferno_optimizer.sizing.performance import Requests
from inferno_optimizer.sizing.replicas import Replicas
from inferno_optimizer.sizing.step_model import StepModel
from inferno_optimizer.system import StepParameters, Target

DATA = Path(__file__).parents[1] / "data/h100"
BUDGET = 2048.0
LENGTH_COV = 0.29
"""Of the lengths of all runs: uniform, half to one and a half of the mean."""

P95 = 1
"""Place of the 95th percentile in a tail."""


@dataclass(frozen=True)
class Measured:
    """A run: clients (0: Poisson arrivals), largest batch, mean lengths, times [ms]; requests/s.

    Of each prompt, `cached` tokens need not be computed.
    """

    name: str
    clients: int
    batch: int
    inputs: float
    outputs: float
    itl: float
    ttft: float
    ttft_p95: float
    rate: float
    cached: float = 0.0


@dataclass(frozen=True)
class Predicted:
    """What is predicted for a run [ms, requests/s]; only rate and ITL for a number of clients."""

    itl: float
    rate: float
    ttft: float = 0.0
    ttft_p95: float = 0.0
    itl_percentiles: tuple[float, ...] = ()


def measured() -> list[Measured]:
    with (DATA / "runs.csv").open(encoding="utf-8") as file:
        return [
            Measured(
                row["run"],
                int(row["concurrency"]),
                int(row["max_batch"]),
                *(float(row[name]) for name in ("h", "k", "itl", "ttft", "t95", "rate")),
            )
            for row in csv.DictReader(file)
        ]


def itl_percentiles(run: Measured) -> list[float]:
    """Percentiles 90, 95 and 99 of the mean inter-token latencies of the requests of a run [ms]."""
    with (DATA / "itl.csv").open(encoding="utf-8") as file:
        (row,) = (row for row in csv.DictReader(file) if row["run"] == run.name)
    return [float(row[name]) for name in ("p90", "p95", "p99")]


@cache
def fitted(file: str) -> StepFit:
    """The parameters that follow from the runs in a file."""
    runs, _ = read_runs([str(DATA / file)])
    fit = fit_steps([run.window for run in runs], BUDGET)
    if fit is None:
        raise ValueError(file)
    return fit


def replica(
    parameters: StepParameters,
    batch: int,
    inputs: float,
    outputs: float,
    cov: float = LENGTH_COV,
    cached: float = 0.0,
) -> StepModel:
    """A replica that serves requests of these lengths, of whose prompts some tokens are cached."""
    values = (batch, outputs, inputs, inputs - cached)
    size, tokens, prompts, computed = (np.array([round(value)]) for value in values)
    nothing = np.zeros(1, np.int64)
    one = np.ones(1)
    requests = Requests(size, tokens, prompts, nothing, one, np.array([cov]), computed, one)
    return StepModel.of([parameters], np.zeros(1, np.int64), requests)


def latencies(model: StepModel, rate: float) -> Latencies:
    """Latencies at a rate [requests/s]."""
    replicas = Replicas(model, TargetLimits.of([Target()]))
    return replicas.latencies(np.array([rate / 1000.0]))


def predicted(fit: StepFit, run: Measured) -> Predicted:
    batch = run.clients or run.batch
    model = replica(fit.parameters, batch, run.inputs, run.outputs, cached=run.cached)
    if run.clients:
        n = np.array([float(run.clients)])
        step = model.decode_step_ms(n, (n - 1.0) / model.full_ms, of_clients=True)
        return Predicted(float(step[0]), float(1000.0 * n[0] / model.full_ms[0]))
    found = latencies(model, run.rate)
    return Predicted(
        float(found.itl_ms[0]),
        run.rate,
        float(found.ttft_ms[0]),
        float(found.ttft_percentiles[0, P95]),
        tuple(found.itl_percentiles[0].tolist()),
    )
