"""Paths that nothing answers, as in the original; also a known path with another verb."""

from collections.abc import Sequence
from html import escape
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match


def answer_unrouted(routes: Sequence[BaseRoute], request: Request) -> Response:
    """Send a client that wrote a slash too many to where it meant, any other one away."""
    meant = {**request.scope, "path": request.scope["path"].removesuffix("/")}
    slash = meant["path"] != request.scope["path"]
    if not slash or not any(route.matches(meant)[0] is Match.FULL for route in routes):
        plain = {"Content-Type": "text/plain"}
        return Response("404 page not found", HTTPStatus.NOT_FOUND, plain)
    location = request.scope["raw_path"].decode().removesuffix("/")
    if request.method != "GET":
        return RedirectResponse(location, HTTPStatus.TEMPORARY_REDIRECT)
    page = f'<a href="{escape(location)}">Moved Permanently</a>.\n\n'
    return HTMLResponse(page, HTTPStatus.MOVED_PERMANENTLY, {"Location": location})
