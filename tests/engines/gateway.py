"""A gateway that keeps the requests for a server in a queue while nothing serves."""

from http import HTTPStatus
from types import TracebackType
from typing import Self

from tests.engines.prometheus import Target
from tests.engines.scrape_server import ScrapeServer

PATH = "/metrics"


class Gateway:
    """Serves the metrics of an endpoint picker with flow control; a context manager.

    Attributes
    ----------
    waiting
        Requests in its queue.
    pool
        Value of the label `inference_pool`.
    """

    def __init__(self, pool: str) -> None:
        self.waiting = 0
        self.pool = pool
        self._http = ScrapeServer(self._answer)

    def __enter__(self) -> Self:
        self._http.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.stop()

    @property
    def target(self) -> Target:
        """What Prometheus has to scrape."""
        return Target(self._http.address, PATH, {"pod": f"gateway-{self.pool}"})

    def _answer(self, path: str) -> bytes | HTTPStatus:
        if path != PATH:
            return HTTPStatus.NOT_FOUND
        name = "inference_extension_flow_control_queue_size"
        text = f'# TYPE {name} gauge\n{name}{{inference_pool="{self.pool}"}} {self.waiting}\n'
        return text.encode()
