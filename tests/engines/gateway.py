"""A gateway that keeps the requests for a server in a queue while nothing serves."""

from http import HTTPStatus

from tests.engines.prometheus import Target
from tests.engines.scrape_server import Scraped, ScrapeServer

PATH = "/metrics"


class Gateway(Scraped):
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
