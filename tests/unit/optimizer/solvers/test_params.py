"""The numbers of the search are checked where they are set."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from inferno_optimizer.solvers.params import DEFAULTS, SolveParams


@pytest.mark.parametrize(
    "changes",
    [
        {"near": 1.5},
        {"near": float("nan")},
        {"linear_step": 0.0},
        {"dive_parts": ()},
        {"small": -1},
        {"pricing_rounds": 0},
        {"rounding": 1.0},
        {"sample_large": 1_500},
    ],
    ids=str,
)
def test_a_number_that_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(changes))):
        replace(DEFAULTS, **changes)


def test_the_numbers_that_are_used_are_valid() -> None:
    assert SolveParams() == DEFAULTS
