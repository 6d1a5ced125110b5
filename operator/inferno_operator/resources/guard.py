"""Guard: how fast replicas go, beyond which limits a plan waits for approval, and when all wait."""

from typing import Annotated

from pydantic import Field

from inferno_operator.resources.recurrence import MAX_WINDOWS, RecurringWindow
from inferno_operator.resources.schema import (
    Items,
    NonNegativeInteger,
    Number,
    Part,
    PositiveInteger,
)
from inferno_optimizer.way_down import SHARE, WINDOW_S, WayDown

Percent = Annotated[Number, Field(ge=0, le=100)]


class Freeze(RecurringWindow):
    """A recurring window of time in which no plan is carried out without approval."""


class Guard(Part):
    """Limits for plans that are carried out without approval."""

    window: PositiveInteger | None = None
    """Time within which a Server loses at most maxDecreasePercent of its replicas [s]; absent means
    300."""
    max_decrease_percent: Percent | None = None
    """Largest share of the replicas that serve that a Server loses within the window [%]; absent
    means 50, 100 no limit. One replica may always go, but the last one under load waits for
    approval. Plans that take more are carried out in steps, unless a person approves them or a more
    important Server needs the cards."""

    max_cost_increase_percent: Annotated[Number | None, Field(ge=0)] = None
    """Largest increase of the cost of all Servers [%]; absent means no limit."""
    max_servers_changed: NonNegativeInteger | None = None
    """Most Servers that change; absent means no limit."""
    freeze: Annotated[Items[Freeze], Field(max_length=MAX_WINDOWS)] = ()
    """Windows of time in which no plan is carried out without approval."""

    @property
    def way_down(self) -> WayDown:
        """How fast replicas go."""
        percent, window = self.max_decrease_percent, self.window
        return WayDown(
            SHARE if percent is None else percent / 100.0,
            WINDOW_S if window is None else float(window),
        )
