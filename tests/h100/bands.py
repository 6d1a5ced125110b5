"""What short runs of the same engine may show: `python -m tests.h100.bands`.

Simulates, step by step, many runs as long as each that was measured, with as many requests, and a
long one. Writes `tests/data/h100-bands.csv`, which the page reads.
"""

import csv
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields

import numpy as np

from tests.h100.runs import DATA, Measured, measured
from tests.h100.simulation import Arrival, StepTimes, serve
from tests.h100.unseen import LLAMA, QWEN, foretold, unseen

FILE = DATA.parent / "h100-bands.csv"

RUNS, LOW, HIGH = 200, 10, 90
"""Short runs, and the percentiles of what they show."""

LONG_S, LAST_S = 12000.0, 10.0
"""Time of the long run; arrivals after the time that counts [s]."""

SHORTEST, LONGEST = 0.5, 1.5
"""Lengths of requests, relative to the mean."""

AHEAD = 1.7
"""Steps from when an engine behind HTTP has a request until one may have it, less one that runs.

With it, and the very arrivals of a run, the steps have the TTFT that was measured.
"""


@dataclass(frozen=True)
class Setting:
    """How a run was made: its engine, and the time before and in which arrivals count [s]."""

    run: Measured
    steps: StepTimes
    first_s: float
    seconds: float


@dataclass(frozen=True)
class Band:
    """What short runs show, and a long one: mean ITL, mean TTFT and its percentile 95 [ms]."""

    run: str
    itl_low: float
    itl_high: float
    itl: float
    ttft_low: float
    ttft_high: float
    ttft: float
    ttft_p95_low: float
    ttft_p95_high: float
    ttft_p95: float


def settings() -> Iterator[Setting]:
    """All runs with random arrivals; the steps are regressions over those of the engine."""
    first = StepTimes((9.01, 0.012, 0.0, 5.52e-5), (7.53, 0.068, 0.02746, 2.86e-4))
    with (DATA / "runs.csv").open(encoding="utf-8") as file:
        counts = {row["run"]: int(row["n"]) for row in csv.DictReader(file)}
    for run in measured():
        if not run.clients:
            yield Setting(run, first, 10.0, counts[run.name] / run.rate)
    second = StepTimes((8.07, 0.021, 0.0, 5.34e-5), (7.72, 0.031, 0.01937, 3.20e-4), AHEAD)
    third = StepTimes((5.79, 0.0096, 0.0, 4.03e-5), (5.93, -0.0547, 0.01304, 2.57e-4), AHEAD)
    for trials, steps in ((QWEN, second), (LLAMA, third)):
        for run in unseen(trials):
            yield Setting(run, steps, trials.first_s, foretold(trials)[run.name]["seconds"])


def simulated(
    setting: Setting, seconds: float, chance: np.random.Generator
) -> tuple[float, float, float]:
    """Mean ITL, mean TTFT and its percentile 95 [ms] of a run with that rate in the time [s]."""
    run, first_s = setting.run, setting.first_s
    parts = (0.0, first_s), (first_s, seconds), (first_s + seconds, LAST_S)
    came = np.concatenate(
        [np.sort(chance.uniform(at, at + time, round(run.rate * time))) for at, time in parts]
    )
    own, outputs = (
        np.maximum(np.rint(mean * chance.uniform(SHORTEST, LONGEST, len(came))), 2).astype(int)
        for mean in (run.inputs - run.cached, run.outputs)
    )
    cached = round(run.cached)
    arrivals = [
        Arrival(1000.0 * at, cached + prompt, tokens, cached)
        for at, prompt, tokens in zip(came.tolist(), own.tolist(), outputs.tolist(), strict=True)
    ]
    serve(setting.steps, run.batch, arrivals)
    counted = [a for a in arrivals if first_s <= a.came / 1000.0 < first_s + seconds]
    ttft = np.array([a.first - a.came for a in counted])
    itl = sum(a.last - a.first for a in counted) / sum(a.outputs - 1 for a in counted)
    return itl, float(ttft.mean()), float(np.percentile(ttft, 95))


def band(setting: Setting) -> Band:
    """What many runs show that are as long as one, and a long one."""
    chance = np.random.default_rng(1)
    short = np.array([simulated(setting, setting.seconds, chance) for _ in range(RUNS)])
    edges = np.percentile(short, (LOW, HIGH), axis=0)
    table = np.vstack((edges, simulated(setting, LONG_S, chance)))
    return Band(setting.run.name, *(float(f"{value:.4g}") for value in table.T.ravel()))


def bands() -> dict[str, Band]:
    """Those in the file, by the name of the run."""
    with FILE.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return {name: Band(name, *map(float, values)) for name, *values in rows}


def main() -> None:
    """Write the file."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow([field.name for field in fields(Band)])
        lines.writerows(astuple(band(setting)) for setting in settings())


if __name__ == "__main__":
    main()
