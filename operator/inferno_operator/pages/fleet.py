"""The page of a plan for a fleet: what it shows, as values with texts that are ready to be read."""

from collections.abc import Sequence
from dataclasses import dataclass

from inferno_operator.pages.figures import KeyFigure
from inferno_optimizer.solution import Level


@dataclass(frozen=True, slots=True)
class PredictedLatency:
    """A predicted latency beside its target [ms]; a target of 0 means that there is none.

    `band` says where it comes from and what it is off by, as `estimated: +-20 %`.
    """

    predicted_ms: float
    target_ms: float
    percentile: float = 0.0
    band: str = ""

    @property
    def share(self) -> float:
        """Predicted latency as a share of the target."""
        return self.predicted_ms / self.target_ms

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.predicted_ms <= self.target_ms


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server with what runs and what is planned; no latency where none is predicted."""

    name: str
    service_class: str
    model: str
    load: float
    now: str
    planned: str
    cost: str
    itl: PredictedLatency | None
    ttft: PredictedLatency | None
    reason: str
    served: bool


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A server that gets less than it needs: why, and what would serve it."""

    server: str
    message: str
    remedies: Sequence[str]


@dataclass(frozen=True, slots=True)
class CardRow:
    """The cards of a type; `worth` is what one more card would bring, as text."""

    type: str
    used: int
    held: int
    available: int
    worth: str

    @property
    def share(self) -> float:
        """Share of the cards that is in use."""
        return min((self.used + self.held) / self.available, 1.0) if self.available else 0.0


@dataclass(frozen=True, slots=True)
class FleetPage:
    """All that the page shows.

    Attributes
    ----------
    title
        The name of the fleet.
    rate
        The unit of costs.
    figures
        The numbers that it begins with.
    has_ttft
        Whether the time to first token is predicted for any server.
    shortfalls
        The servers that get less than they need, the most important ones first.
    more_shortfalls
        How many more there are, which are named in the table only.
    servers, cards
        The tables.
    levels
        The load of each priority that is served, with the most that is proven possible.
    notes
        Sentences on servers and models.
    """

    title: str
    rate: str
    figures: Sequence[KeyFigure]
    has_ttft: bool
    shortfalls: Sequence[Shortfall]
    more_shortfalls: int
    servers: Sequence[ServerRow]
    cards: Sequence[CardRow]
    levels: Sequence[Level]
    notes: Sequence[str]
