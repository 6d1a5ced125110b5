"""An HTTP server on loopback that answers scrapes."""

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tests.controlplane.ports import HOST

POLL_S = 0.05
"""How often it looks whether it has to end [s]."""

Answer = Callable[[str], bytes | HTTPStatus | None]
"""The page at a path, or the status of a refusal; None: close the connection without an answer."""


class ScrapeServer:
    """Answers each scrape in a thread of its own."""

    def __init__(self, answer: Answer) -> None:
        self._http = _HttpServer(answer)

    def start(self) -> None:
        """Begin to answer."""
        Thread(target=self._http.serve_forever, args=(POLL_S,), name="scrapes", daemon=True).start()

    def stop(self) -> None:
        """Answer no more scrapes; those that hang are left alone."""
        self._http.shutdown()
        self._http.server_close()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{HOST}:{self._http.server_port}"


class Scraped:
    """What answers scrapes while its context lasts."""

    _http: ScrapeServer

    def __enter__(self) -> Self:
        self._http.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.stop()


class _HttpServer(ThreadingHTTPServer):
    request_queue_size = 128  # Prometheus scrapes many replicas in the same moment

    def __init__(self, answer: Answer) -> None:
        super().__init__((HOST, 0), _Scrape)
        self.answer = answer


class _Scrape(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_GET(self) -> None:
        """Answer with a page of metrics."""
        page = self.server.answer(self.path)
        with suppress(ConnectionError):  # Prometheus ended, or waits no longer
            self._reply(page)

    def _reply(self, page: bytes | HTTPStatus | None) -> None:
        if isinstance(page, HTTPStatus):
            self.send_error(page)
        elif page is not None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    def log_message(self, _format: str, *_arguments: object) -> None:
        """Say nothing of single scrapes."""
