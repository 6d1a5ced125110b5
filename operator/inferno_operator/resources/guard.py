"""Guard: the limits beyond which a plan waits for approval, and windows in which all plans wait."""

from typing import Annotated

from pydantic import Field

from inferno_operator.resources.recurrence import MAX_WINDOWS, RecurringWindow
from inferno_operator.resources.schema import Items, NonNegativeInteger, Number, Part

Percent = Annotated[Number, Field(ge=0, le=100)]


class Freeze(RecurringWindow):
    """A recurring window of time in which no plan is carried out without approval."""


class Guard(Part):
    """Limits for plans that are carried out without approval."""

    max_cost_increase_percent: Annotated[Number | None, Field(ge=0)] = None
    """Largest increase of the cost of all Servers [%]; absent means no limit."""
    max_replicas_decrease_percent: Percent | None = None
    """Largest share of the replicas that is taken away [%]; absent means 50, 100 no limit."""
    max_served_load_decrease_percent: Percent | None = None
    """Largest share of the load that is not served any more [%]; absent means 50, 100 no limit.
    Below 100, no Server under load loses its last replica."""
    max_servers_changed: NonNegativeInteger | None = None
    """Most Servers that change; absent means no limit."""
    freeze: Annotated[Items[Freeze], Field(max_length=MAX_WINDOWS)] = ()
    """Windows of time in which no plan is carried out without approval."""
