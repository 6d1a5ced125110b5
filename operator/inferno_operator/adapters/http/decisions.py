"""Serve decisions over HTTP, as KEDA's metrics-api scaler reads them.

An error is never a number: an autoscaler that gets no number changes nothing.
"""

import hmac
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from inferno_operator.controllers.actuation.publication.plan import Published
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import InfernoError, UnavailableError

Decide = Callable[[Key], Published]
"""Returns what is published of a Server, or raises `UnavailableError` or `GoneError`."""

SERVER = "/v1/desired/{namespace}/{server}"
ACCELERATOR = SERVER + "/{accelerator:.+}"

SCHEME = "bearer "
OFF = "decisions are not published: set INFERNO_PUBLISH_TOKEN_FILE"


class Decisions:
    """The handlers of requests for decisions.

    Parameters
    ----------
    decide
        Returns what is published of a Server.
    token
        The file with the bearer token, read for each request; without it, nothing is published.
    """

    def __init__(self, decide: Decide, token: Path | None) -> None:
        self._decide = decide
        self._token = token

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the handlers."""
        return [web.get(SERVER, self._answer), web.get(ACCELERATOR, self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        if self._token is None:
            return _error(HTTPStatus.NOT_FOUND, OFF)
        try:
            if not _is_allowed(request.headers.get("Authorization", ""), self._token):
                message = f"the bearer token is not the one in {self._token}"
                return _error(HTTPStatus.UNAUTHORIZED, message)
            return web.json_response(self._document(request.match_info))
        except GoneError as error:
            return _error(HTTPStatus.NOT_FOUND, str(error))
        except InfernoError as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _document(self, asked: Mapping[str, str]) -> Mapping[str, Any]:
        """Return the replicas on one accelerator, or those of the whole decision."""
        found = self._decide(Key(asked["namespace"], asked["server"]))
        if "accelerator" in asked:
            accelerator = asked["accelerator"]
            return {"replicas": found.on(accelerator), "accelerator": accelerator}
        decided = found.decided
        whole = {"replicas": sum(decided.values()), "accelerator": next(iter(decided), "")}
        mix = [{"replicas": count, "accelerator": name} for name, count in decided.items()]
        return {**whole, "mix": mix} if len(mix) > 1 else whole


def _is_allowed(authorization: str, file: Path) -> bool:
    """Whether a request has the token in the file; compared in constant time."""
    given = authorization[len(SCHEME) :] if authorization.lower().startswith(SCHEME) else ""
    shown = given.strip().encode(errors="surrogateescape")  # a header may have any bytes
    return hmac.compare_digest(shown, _read(file))


def _read(file: Path) -> bytes:
    """Return the token; no message has a part of it."""
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise UnavailableError(f"{file}: {error.strerror}") from error
    if not token:
        raise UnavailableError(f"{file} is empty: write a token into it")
    return token


def _error(status: HTTPStatus, message: str) -> web.Response:
    challenge = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return web.json_response({"error": message}, status=status, headers=challenge)
