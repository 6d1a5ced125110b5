"""The runs of models that were predicted before they were measured; see tests/data/h100-*."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.h100.runs import DATA, Measured

BATCH = 48


@dataclass(frozen=True)
class Trials:
    """The runs of a model: where they are, and from when arrivals count [s]."""

    folder: Path
    requests: str
    first_s: float

    def file(self, name: str) -> str:
        """A file, as `inferno calibrate` would be given it."""
        return f"../{self.folder.name}/{name}.csv"


QWEN = Trials(DATA.parent / "h100-qwen3-4b", "requests.csv", 5.0)
LLAMA = Trials(DATA.parent / "h100-llama3-3b", "requests.csv.gz", 8.0)

AS_PRINTED, WITHOUT_CAPTURES = QWEN.file("bench"), QWEN.file("bench-without-captures")
"""What `inferno bench` measured, and the same without the time in which graphs were made."""

WARM = LLAMA.file("bench")
"""What it measured of an engine that had made all graphs before."""

USUAL_SHARE = 0.75
"""Rates up to this share of the predicted saturation are usual."""


@cache
def unseen(trials: Trials) -> list[Measured]:
    """All runs, in the order in which they were made."""
    requests: dict[str, list[list[float]]] = defaultdict(list)
    content = (trials.folder / trials.requests).read_bytes()
    text = gzip.decompress(content) if trials.requests.endswith(".gz") else content
    for name, *numbers in list(csv.reader(text.decode().splitlines()))[1:]:
        requests[name].append(list(map(float, numbers)))
    return [_measured(trials, name, np.array(rows)) for name, rows in requests.items()]


@cache
def foretold(trials: Trials) -> Mapping[str, Mapping[str, float]]:
    """What was predicted for each run, before it was made."""
    with (trials.folder / "predicted.csv").open(encoding="utf-8") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    return {name: {k: float(v) for k, v in row.items()} for name, row in rows.items()}


def usual(trials: Trials, run: Measured) -> bool:
    """Whether a run was planned with a usual rate."""
    before = foretold(trials)[run.name]
    return before["rate"] <= USUAL_SHARE * before["saturation"] * 1.001


def _measured(trials: Trials, name: str, rows: np.ndarray) -> Measured:
    before = foretold(trials)[name]
    arrival, inputs, outputs, first, last = rows[rows[:, 0] >= trials.first_s].T
    itl = (last - first).sum() / (outputs - 1.0).sum()
    rate = len(arrival) / before["seconds"]
    times = (itl, first.mean(), np.percentile(first, 95), rate, before["cached"])
    return Measured(name, 0, BATCH, inputs.mean(), outputs.mean(), *map(float, times))
