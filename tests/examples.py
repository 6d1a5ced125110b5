"""How many random cases a property is tried on.

An eighth of them by `make test`, all by `make extended-test`, many more by `make soak`.
"""

from hypothesis import settings

USUAL = 100
"""Examples of a property that asks for no number."""

TIMES = {"tests": 1 / 8, "extended": 1, "soak": 20}
"""By how much numbers of examples are multiplied, by the profile."""


def several(examples: int) -> settings:
    """Settings of a property that `make extended-test` tries on so many examples."""
    return settings(max_examples=_number(examples, settings.get_current_profile_name()))


def load_profile(name: str) -> None:
    """Let the properties of test files that are imported from now on take a profile's examples.

    There is no deadline for an example: it would measure how busy the machine is, and every test
    has a time limit of its own.
    """
    settings.register_profile(name, deadline=None, max_examples=_number(USUAL, name))
    settings.load_profile(name)


def _number(examples: int, profile: str) -> int:
    return round(TIMES[profile] * examples)
