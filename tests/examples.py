"""How many random cases a property is tried on: few by a test, many by `make soak`."""

from hypothesis import settings

SOAK = "soak"
"""The profile of `make soak`."""

TIMES = 20
"""As many more cases it takes."""


def several(examples: int) -> settings:
    """Settings of a property that is tried on so many examples."""
    is_soak = settings.get_current_profile_name() == SOAK
    return settings(max_examples=TIMES * examples if is_soak else examples)
