"""Tokens that a decision counts on, on their way to the manifest of a Server."""

from typing import Any

import pytest

from inferno_operator.controllers.planning.conversions import build_desired
from inferno_operator.resources import ServerAllocation
from inferno_optimizer.system import Allocation, Load


@pytest.mark.parametrize("counted", [{"cached_tokens": 1200}, {"tokens_per_step": 2.5}], ids=str)
def test_a_decision_tells_the_tokens_that_it_counts_on(counted: dict[str, Any]) -> None:
    load = Load(60, input_tokens=2000, output_tokens=128, **counted)

    manifest = build_desired(Allocation("H100", 2, load=load))

    read = ServerAllocation.model_validate(manifest).load
    assert {name: getattr(read, name) for name in counted} == counted


def test_a_decision_without_cached_tokens_says_nothing_of_them() -> None:
    manifest = build_desired(Allocation("H100", 2, load=Load(60, output_tokens=128)))

    assert "cachedTokens" not in manifest["load"]
