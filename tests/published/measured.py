"""The measurements, and what estimates say of them; see tests/data/published."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from inferno_operator.cli.catalogue import (
    EstimateRequest,
    estimate,
    read_hardware,
    read_models,
)
from inferno_optimizer.calibration.roofline import Efficiency, Roofline
from inferno_optimizer.system import StepParameters

DATA = Path(__file__).parents[1] / "data/published"

SAME_SHAPE = {"DeepSeek-R1": "DeepSeek-V3", "Kimi-K2.5": "Kimi-K2"}
"""Models that the catalogue has under another name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What was measured: a model on cards, with an engine, published by somebody."""

    source: str
    model: str
    accelerator: str
    cards: int
    dtype: str
    engine: str

    def __str__(self) -> str:
        """Return all but who published it."""
        return f"{self.model} {self.dtype}, {self.cards} x {self.accelerator}, {self.engine}"

    @property
    def experts(self) -> bool:
        return replica(self).model.experts > 0

    @property
    def several(self) -> bool:
        return self.cards > 1


@dataclass(frozen=True, slots=True)
class Point:
    """A time that was measured [ms], with a fixed number of clients whose requests are alike.

    `time` says which: `step`, a decode step; `itl`, the mean time between tokens; `ttft`, to the
    first token; `request`, of requests that begin together. `aiconfigurator_ms` is what
    AIConfigurator says of it [ms]; None: it says nothing.
    """

    entry: Entry
    clients: int
    input_tokens: int
    output_tokens: int
    time: str
    ms: float
    aiconfigurator_ms: float | None


@cache
def points() -> tuple[Point, ...]:
    return (*early_points(), *recent_points())


@cache
def early_points() -> tuple[Point, ...]:
    return _read_points("times.csv")


@cache
def recent_points() -> tuple[Point, ...]:
    """Those of engines of late 2025 and of 2026."""
    return _read_points("recent.csv")


def _read_points(name: str) -> tuple[Point, ...]:
    with (DATA / name).open(encoding="utf-8") as file:
        return tuple(map(_point, csv.DictReader(file)))


def _point(row: Mapping[str, str]) -> Point:
    entry = Entry(
        row["source"],
        row["model"],
        row["accelerator"],
        int(row["cards"]),
        row["dtype"],
        row["engine"],
    )
    clients, inputs, outputs = (int(row[n]) for n in ("clients", "input_tokens", "output_tokens"))
    other = float(row["aiconfigurator"]) if row["aiconfigurator"] else None
    return Point(entry, clients, inputs, outputs, row["time"], float(row["ms"]), other)


@cache
def replica(entry: Entry, inputs: int = 1024, outputs: int = 256) -> Roofline:
    return _estimate(entry, inputs, outputs)[0]


@cache
def _estimate(entry: Entry, inputs: int, outputs: int) -> tuple[Roofline, int]:
    name = SAME_SHAPE.get(entry.model, entry.model)
    config = read_models().model(name).config
    wanted = EstimateRequest(name, config, name, entry.cards, entry.dtype, "bf16", inputs, outputs)
    hardware = read_hardware()
    found = estimate(wanted, hardware.card(entry.accelerator), hardware)
    return found.roofline, found.batch


def predicted(point: Point, efficiency: Efficiency) -> float:
    """What the estimate says of a time [ms], with the parameters that the command prints."""
    found = _parameters(point.entry, point.input_tokens, point.output_tokens, efficiency)
    return TIMES[point.time](found, point)


@lru_cache(maxsize=128)  # the same for all numbers of clients; a fit tries many efficiencies
def _parameters(entry: Entry, inputs: int, outputs: int, efficiency: Efficiency) -> StepParameters:
    roofline, batch = _estimate(entry, inputs, outputs)
    return replace(roofline, efficiency=efficiency).parameters(inputs, outputs, batch)


def _step(found: StepParameters, point: Point, requests: int | None = None) -> float:
    cached = point.input_tokens + point.output_tokens / 2.0 + found.overhead
    return found.alpha + found.kappa * cached * (requests or point.clients)


def _between_tokens(found: StepParameters, point: Point) -> float:
    """While a client gets its answer, the prompts of all others are computed once."""
    prompts = (point.clients - 1) * found.delta * point.input_tokens
    return _step(found, point) + prompts / point.output_tokens


def _first_token(found: StepParameters, point: Point) -> float:
    return _step(found, point, requests=1) + found.delta * point.input_tokens


def _together(found: StepParameters, point: Point) -> float:
    prompts = point.clients * found.delta * point.input_tokens
    return point.output_tokens * _step(found, point) + prompts


TIMES = {"step": _step, "itl": _between_tokens, "ttft": _first_token, "request": _together}
"""What the parameters say of each time."""
