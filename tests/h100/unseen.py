"""The runs of a model that was predicted before it was measured; see tests/data/h100-qwen3-4b."""

import csv
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tests.h100.runs import DATA, Measured

FOLDER = DATA.parent / "h100-qwen3-4b"

AS_PRINTED, WITHOUT_CAPTURES = (
    f"../{FOLDER.name}/{name}.csv" for name in ("bench", "bench-without-captures")
)
"""What `inferno bench` measured, and the same without the time in which graphs were made."""

BATCH = 48
SECONDS = 19.0
"""Time in which arrivals count [s]."""

USUAL_SHARE = 0.75
"""Rates up to this share of the predicted saturation are usual."""


def unseen() -> list[Measured]:
    """All runs, in the order in which they were made."""
    requests: dict[str, list[list[float]]] = defaultdict(list)
    with (FOLDER / "requests.csv").open(encoding="utf-8") as file:
        for name, *numbers in list(csv.reader(file))[1:]:
            requests[name].append(list(map(float, numbers)))
    return [_measured(name, np.array(rows)) for name, rows in requests.items()]


def foretold() -> Mapping[str, Mapping[str, float]]:
    """What was predicted for each run, before it was made."""
    with (FOLDER / "predicted.csv").open(encoding="utf-8") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    return {name: {k: float(v) for k, v in row.items()} for name, row in rows.items()}


def usual(run: Measured) -> bool:
    """Whether a run was planned with a usual rate."""
    before = foretold()[run.name]
    return before["rate"] <= USUAL_SHARE * before["saturation"] * 1.001


def _measured(name: str, rows: np.ndarray) -> Measured:
    _, inputs, outputs, first, last = rows.T
    itl = (last - first).sum() / (outputs - 1.0).sum()
    times = (itl, first.mean(), np.percentile(first, 95), len(rows) / SECONDS)
    return Measured(name, 0, BATCH, inputs.mean(), outputs.mean(), *map(float, times))
