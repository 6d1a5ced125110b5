"""The two tiers of tests: `make test` has what people run, `make extended-test` the others.

A test is marked `extended` where it takes long by its nature and another one of its subject does
not: whole lives in a cluster, kills, swaps of pods, pages at all widths, many random systems.
"""

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet

EVERY = 8


def extended(*values: object) -> list[ParameterSet]:
    """Values of one parameter whose tests belong to `make extended-test`."""
    return [pytest.param(value, marks=pytest.mark.extended) for value in values]


def sampled(values: Iterable[object]) -> list[object]:
    """All values of one parameter, of which only each eighth belongs to `make test`."""
    return [
        value if number % EVERY == 0 else extended(value)[0] for number, value in enumerate(values)
    ]
