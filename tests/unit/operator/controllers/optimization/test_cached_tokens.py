"""Cached tokens on their way from a decision to the manifest of a Server."""

from inferno_operator.controllers.optimization.changes import desired_allocation
from inferno_operator.resources import ServerAllocation
from inferno_optimizer.system import Allocation, Load


def test_a_decision_tells_the_cached_tokens_that_it_counts_on() -> None:
    load = Load(60, input_tokens=2000, output_tokens=128, cached_tokens=1200)

    manifest = desired_allocation(Allocation("H100", 2, load=load))

    read = ServerAllocation.model_validate(manifest)
    assert read.load is not None
    assert read.load.cached_tokens == 1200


def test_a_decision_without_cached_tokens_says_nothing_of_them() -> None:
    manifest = desired_allocation(Allocation("H100", 2, load=Load(60, output_tokens=128)))

    assert "cachedTokens" not in manifest["load"]


def test_a_decision_tells_the_tokens_of_a_step_that_it_counts_on() -> None:
    load = Load(60, input_tokens=2000, output_tokens=128, tokens_per_step=2.5)

    manifest = desired_allocation(Allocation("H100", 2, load=load))

    read = ServerAllocation.model_validate(manifest)
    assert read.load is not None
    assert read.load.tokens_per_step == 2.5
