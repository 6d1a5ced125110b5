"""A client of Prometheus that lives in the past."""

from dataclasses import dataclass

from inferno_operator.runtime.prometheus import Prometheus, QueryResult


@dataclass
class Clocked(Prometheus):
    """Answers as of a time that others set."""

    client: Prometheus
    now: float = 0.0

    async def query(self, expression: str, at: float | None = None) -> QueryResult:
        return await self.client.query(expression, self.now if at is None else at)

    async def metric_names(self, matcher: str) -> tuple[str, ...]:
        return await self.client.metric_names(matcher)
