"""The page of a replay: what it shows, as values with texts that are ready to be read."""

from collections.abc import Sequence
from dataclasses import dataclass

from inferno_operator.pages.charts import Chart
from inferno_operator.pages.figures import KeyFigure


@dataclass(frozen=True, slots=True)
class ClassShare:
    """Requests of a class that were within the targets."""

    name: str
    within: float


@dataclass(frozen=True, slots=True)
class WorstTime:
    """A time in which a server missed its targets; `begin` and `length` are ready to be read."""

    begin: str
    length: str
    server: str
    service_class: str
    accelerator: str
    outside: str
    decided: str
    cause: str


@dataclass(frozen=True, slots=True)
class PolicySection:
    """What a policy made of the load: a row of the first table, charts, and its worst times."""

    name: str
    cost: str
    regret: str
    of_optimum: str
    within: float
    missed_minutes: str
    replicas: str
    started: int
    moves: int
    classes: Sequence[ClassShare]
    charts: Sequence[Chart]
    worst: Sequence[WorstTime]


@dataclass(frozen=True, slots=True)
class ReplayPage:
    """All that the page shows.

    Attributes
    ----------
    title
        What was replayed.
    rate
        The unit of costs.
    figures
        The numbers that it begins with.
    classes
        The names of the classes, in the order of those of each policy.
    front
        Cost against targets of all policies.
    policies
        A section for each of them.
    """

    title: str
    rate: str
    figures: Sequence[KeyFigure]
    classes: Sequence[str]
    front: Chart
    policies: Sequence[PolicySection]
