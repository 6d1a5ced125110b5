"""Serve decisions over HTTP, as KEDA's metrics-api scaler reads them.

An error is never a number: an autoscaler that gets no number changes nothing.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inferno_operator.adapters.http.tokens import CHALLENGE, file_of, shows_token
from inferno_operator.controllers.scaling.publication import Published
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import InfernoError

Decide = Callable[[Key], Published]
"""Returns what is published of a Server, or raises `UnavailableError` or `GoneError`."""

SERVER = "/v1/desired/{namespace}/{server}"
ACCELERATOR = SERVER + "/{accelerator:path}"

OFF = "decisions are not published: set INFERNO_PUBLISH_TOKEN_FILE"


class Decisions:
    """The handlers of requests for decisions.

    Parameters
    ----------
    decide
        Returns what is published of a Server.
    tokens
        The file with the bearer token, or a folder with a file for each namespace, named after it;
        read for each request. Without it, nothing is published.
    """

    def __init__(self, decide: Decide, tokens: Path | None) -> None:
        self._decide = decide
        self._tokens = tokens

    def routes(self) -> list[Route]:
        """Return the routes of the handlers."""
        return [Route(path, self._answer) for path in (SERVER, ACCELERATOR)]

    async def _answer(self, request: Request) -> Response:
        if self._tokens is None:
            return _error(HTTPStatus.NOT_FOUND, OFF)
        namespace = request.path_params["namespace"]
        try:
            file = file_of(namespace, self._tokens)
            if file is None or not shows_token(request, file):
                message = f"the bearer token is not the one of the namespace in {self._tokens}"
                return _error(HTTPStatus.UNAUTHORIZED, message)
            return JSONResponse(self._document(request.path_params))
        except GoneError as error:
            return _error(HTTPStatus.NOT_FOUND, str(error))
        except InfernoError as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _document(self, asked: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the replicas on one accelerator, or those of the whole decision."""
        published = self._decide(Key(asked["namespace"], asked["server"]))
        if "accelerator" in asked:
            accelerator = asked["accelerator"]
            return {"replicas": published.on(accelerator), "accelerator": accelerator}
        decided = published.decided
        whole = {"replicas": sum(decided.values()), "accelerator": next(iter(decided), "")}
        mix = [{"replicas": count, "accelerator": name} for name, count in decided.items()]
        return {**whole, "mix": mix} if len(mix) > 1 else whole


def _error(status: HTTPStatus, message: str) -> Response:
    challenge = CHALLENGE if status == HTTPStatus.UNAUTHORIZED else None
    return JSONResponse({"error": message}, status, challenge)
