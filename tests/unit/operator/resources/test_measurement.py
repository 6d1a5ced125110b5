"""What is refused of `spec.measure`."""

from typing import Any

import pytest
from pydantic import ValidationError

from inferno_operator.resources import Measure


def measure(**windows: object) -> Measure:
    spec: dict[str, Any] = {"source": "vLLM", "labels": {"model_name": "m"}, "windows": windows}
    return Measure.model_validate(spec)


@pytest.mark.parametrize(
    ("windows", "field"),
    [
        ({"shortSeconds": 9}, "shortSeconds"),
        ({"longSeconds": 3601}, "longSeconds"),
        ({"shortSeconds": 400}, "longSeconds must not be less than shortSeconds"),
        ({"shortSeconds": 120, "longSeconds": 60}, "longSeconds must not be less"),
    ],
)
def test_windows_that_cannot_be_are_refused(windows: dict[str, int], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        measure(**windows)


def test_windows_may_be_equal_and_have_defaults() -> None:
    chosen = measure(longSeconds=60).windows

    assert chosen is not None
    assert (chosen.short_seconds, chosen.long_seconds) == (60, 60)
