"""Which namespaces need a plan now: targets are missed, or a load has jumped; pure."""

from collections.abc import Mapping

from inferno_operator.controllers.measurement.load import jumped
from inferno_operator.resources import Load, Measure, Measured
from inferno_operator.resources.measurement import USABLE
from inferno_operator.resources.objects import Key

MissedTargets = tuple[tuple[str, ...], Load | None]
"""The targets that a Server misses, and its load."""

Missed = Mapping[Key, MissedTargets]
"""What Servers miss that miss targets."""


def missed_now(measured: Mapping[Key, Measured]) -> dict[Key, MissedTargets]:
    """Return the Servers that miss targets now."""
    return {
        key: (found.misses_targets, found.load)
        for key, found in measured.items()
        if found.misses_targets and found.quality in USABLE
    }


def with_news(before: Missed, now: Missed) -> set[str]:
    """Return the namespaces in which a plan may help more than the last one.

    A Server misses a target that it did not miss before, or has another load.
    """
    return {key.namespace for key, state in now.items() if before.get(key) != state}


def with_jumps(
    before: Mapping[Key, Load], now: Mapping[Key, Load], measures: Mapping[Key, Measure]
) -> set[str]:
    """Return the namespaces of Servers whose load is known for the first time, or has jumped."""
    return {
        key.namespace
        for key, load in now.items()
        if jumped(before.get(key), load, measures.get(key))
    }
