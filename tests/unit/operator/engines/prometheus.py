"""A Prometheus that answers from a table, and counts what it is asked."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from inferno_operator.engines.series_groups import PART
from inferno_operator.runtime.prometheus import Prometheus, QueryResult, Sample

NOW = 1_800_000_000.0

Row = tuple[str, float]
"""A part and its value."""


class Table(Prometheus):
    """Answers each query whose text has a word with rows for some labels.

    `rows` has the parts by label values; `failing` is raised instead, where its word is found;
    `twice` are labels whose series are answered twice; an answer takes the `seconds` of the first
    word in the query.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.rows: dict[tuple[str, ...], dict[str, Mapping[str, float]]] = {}
        self.failing: dict[str, Exception] = {}
        self.twice: set[tuple[str, ...]] = set()
        self.seconds: dict[str, float] = {}
        self.names: tuple[str, ...] = ()
        self.asked: list[str] = []
        self.warnings: tuple[str, ...] = ()
        self.clock: Callable[[], float] = lambda: NOW

    def serve(self, *values: str, **parts: Mapping[str, float]) -> None:
        """Give a server these parts, by a word of the queries that have them."""
        self.rows[values] = dict(parts)

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        self.asked.append(expression)
        await asyncio.sleep(next((s for word, s in self.seconds.items() if word in expression), 0))
        for word, error in self.failing.items():
            if word in expression:
                raise error
        time = self.clock() if at is None else at
        samples = [
            Sample({**dict(zip(self.labels, values, strict=True)), PART: part}, time, value)
            for values, words in self.rows.items()
            for word, parts in words.items()
            if word in expression
            for part, value in parts.items()
            for _ in range(2 if values in self.twice else 1)
        ]
        return QueryResult(tuple(samples), self.warnings)

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        self.asked.append(matcher)
        return self.names
