"""What a server counts, for Prometheus."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_optimizer.api.pool import WorkerPool

Clock = Callable[[], float]


class OptimizerMetrics:
    """Counts of one server, in a registry of its own."""

    def __init__(self, workers: WorkerPool) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "inferno_http_requests",
            "Requests that were answered.",
            ["path", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "inferno_http_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["path"],
            registry=self._registry,
        )
        running = Gauge("inferno_solves_running", "Optimizations at work.", registry=self._registry)
        running.set_function(lambda: workers.running)
        waiting = Gauge("inferno_solves_waiting", "Optimizations in line.", registry=self._registry)
        waiting.set_function(lambda: workers.waiting)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def page(self) -> bytes:
        """What a scraper gets."""
        return generate_latest(self._registry)


class Counted:
    """Counts what is answered on a path."""

    def __init__(
        self, app: ASGIApp, path: str, metrics: OptimizerMetrics, clock: Clock = time.perf_counter
    ) -> None:
        self._app = app
        self._path = path
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and count it."""
        start = self._clock()

        async def watch(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                self._metrics.count(self._path, message["status"], self._clock() - start)

        await self._app(scope, receive, watch)
