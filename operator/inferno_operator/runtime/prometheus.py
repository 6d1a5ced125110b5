"""The interface of controllers to Prometheus, and what it answers."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inferno_optimizer.errors import InfernoError, UnavailableError

_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


def is_label_name(name: str) -> bool:
    """Whether this is the name of a label that users may set: queries have it without quotes."""
    return _LABEL.fullmatch(name) is not None


def quote_string(value: str) -> str:
    """Return a value as a string literal of PromQL."""
    return json.dumps(value, ensure_ascii=False)


class RefusedError(InfernoError):
    """Prometheus refuses a query (4xx), or its answer is not what was asked for.

    It is not sent again: the query, the credentials or the URL must be corrected. The message
    has the words of Prometheus and the query.
    """

    reason = "Refused"


class OversizedError(RefusedError):
    """The answer is larger than what is read: ask for less of it at a time."""


class BusyError(UnavailableError):
    """Prometheus asks for fewer queries (429)."""


class Sample(NamedTuple):
    """The value of one series at a time.

    `time` is the time of the evaluation, Unix time [s]. `value` may be NaN or infinite, as
    Prometheus returns them.
    """

    labels: Mapping[str, str]
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to an instant query.

    `samples` is empty if no series matches. `warnings` are those of Prometheus: the answer may
    be incomplete.
    """

    samples: tuple[Sample, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one series over time: Unix times [s], in order, and a value for each.

    A step at which there is no value is absent; a value may be NaN or infinite.
    """

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The answer to a range query; `warnings` as in `QueryResult`."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()


MOST_POINTS = 11_000
"""Most steps of a range query that Prometheus evaluates."""


class PrometheusPast(Protocol):
    """Answers range queries; it raises what `Prometheus` raises."""

    async def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> RangeResult:
        """Evaluate an expression at start, start + step, and so on, up to the end.

        Parameters
        ----------
        expression
            The PromQL expression.
        start, end
            Unix times [s], with at most `MOST_POINTS` steps between them.
        step
            Time between two evaluations [s].
        """


class Prometheus(Protocol):
    """Answers queries of the Prometheus HTTP API, version 1.

    Every method raises `RefusedError` if Prometheus refuses the query, and `UnavailableError`
    if a later call may succeed: it does not answer in time, or answers 429 or 5xx.
    """

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        """Evaluate an expression; a scalar becomes one sample without labels.

        Parameters
        ----------
        expression
            The PromQL expression.
        at
            The time of the evaluation, Unix time [s]; None: now.
        """

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        """Return the names of the metrics that have a series that a matcher selects, sorted.

        Parameters
        ----------
        matcher
            A series selector, such as `{namespace="prod"}`.
        """
