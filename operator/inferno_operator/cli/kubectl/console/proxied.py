"""The console behind an authenticating proxy, which shows the token of a person with each request.

    browser --> proxy: logs people in, sets `Authorization: Bearer TOKEN`
            --> access: host, origin, token --> cookie: namespace --> pages for that token

The token of a request decides what it sees and changes: the API server is asked with it and with
nothing else, as the console has no rights. The cookie is no secret: it only names the namespace.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress, connect_as
from inferno_operator.cli.kubectl.console.access import Forms, Guarded, ProxyAccess, bearer_of, said
from inferno_operator.cli.kubectl.console.app import STATIC, form_of, pages_of
from inferno_operator.cli.kubectl.console.decoded import DecodedObjects
from inferno_operator.cli.kubectl.console.html import NAMESPACES, namespaces_page
from inferno_operator.cli.kubectl.console.news import News
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_operator.cli.kubectl.console.watched import LISTED_S
from inferno_operator.runtime.ports import UnauthenticatedError
from inferno_optimizer.errors import InfernoError, InputError

COOKIE = "__Host-inferno-namespace"
"""The namespace that a browser looks at; after a login at the proxy it is sent, too (lax)."""

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

NO_NAMESPACE = (
    "this is no name of a namespace: those have small letters, digits and dashes, such as llm"
)
NOT_TAKEN = (
    "the API server does not take the token that the proxy shows: it has expired, or the API"
    " server does not know its issuer or audience"
)

OPEN_S = 300
"""A namespace is read anew for a token after this time, which leaves memory then [s]."""

CLOSE_S = LISTED_S
"""Pages that are being made have this time until their connections are closed [s]."""

MOST = 50
"""Namespaces that are open at once, each for one token."""

Sleep = Callable[[float], Awaitable[object]]
"""Waits for so many seconds."""


@dataclass(frozen=True, slots=True)
class OpenNamespace:
    """A namespace as a token may see it; while `stay` runs, there are connections."""

    pages: ASGIApp
    stay: asyncio.Task[None]


def proxied_console(
    server: ApiServerAddress,
    namespace: str,
    origin: str,
    sleep: Sleep,
    settings: ConsoleSettings,
) -> ASGIApp:
    """Return the console for requests that an authenticating proxy passes on.

    Parameters
    ----------
    server
        The API server, which decides what a person may see and do.
    namespace
        What the page to choose a namespace suggests.
    origin
        The address that browsers use, such as https://inferno.example.com.
    sleep
        Waits until a namespace is closed.
    settings
        What pages show costs in, and where the operator runs.

    Raises
    ------
    InputError
        The origin is no address with https.
    """
    parts = urlsplit(origin)
    if parts.scheme != "https" or f"https://{parts.netloc}" != origin:
        raise InputError(f"--origin {origin}: give https://HOST or https://HOST:PORT")
    console = _ProxiedConsole(server, namespace, sleep, settings)
    routes = [
        Route(NAMESPACES, console.namespaces),
        Route(NAMESPACES, console.choose, methods=["POST"]),
        *STATIC,
        Mount("/", console.pages),
    ]
    return Guarded(Starlette(routes=routes), ProxyAccess(parts.netloc))


class _ProxiedConsole:
    def __init__(
        self, server: ApiServerAddress, namespace: str, sleep: Sleep, settings: ConsoleSettings
    ) -> None:
        self._server, self._suggested = server, namespace
        self._sleep, self._settings = sleep, settings
        self._secret = secrets.token_urlsafe(32)
        self._decoded, self._opening = DecodedObjects(), asyncio.Lock()
        self._open: dict[str, OpenNamespace] = {}
        """By digest of token and namespace, in the order in which they were opened."""

    async def namespaces(self, _: Request) -> Response:
        """Show the form to choose a namespace."""
        return HTMLResponse(namespaces_page(self._suggested))

    async def choose(self, request: Request) -> Response:
        """Keep the namespace that was chosen; the API server decides about its pages."""
        namespace = (await form_of(request)).get("namespace", "").strip()
        if not NAMESPACE.fullmatch(namespace):
            page = namespaces_page(namespace, NO_NAMESPACE)
            return HTMLResponse(page, HTTPStatus.BAD_REQUEST)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(COOKIE, namespace, httponly=True, secure=True, samesite="lax")
        return answer

    async def pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the pages of the namespace of a cookie, for the token of the request."""
        await (await self._pages_for(Request(scope)))(scope, receive, send)

    async def _pages_for(self, request: Request) -> ASGIApp:
        namespace = request.cookies.get(COOKIE, "")
        if not NAMESPACE.fullmatch(namespace):
            if "text/html" in request.headers.get("accept", ""):
                return RedirectResponse(NAMESPACES, HTTPStatus.SEE_OTHER)
            return said(HTTPStatus.BAD_REQUEST, f"choose a namespace first: {NAMESPACES}")
        token = bearer_of(request)
        name = sha256(f"{token} {namespace}".encode()).hexdigest()
        if name in self._open:
            return self._open[name].pages
        try:
            async with self._opening:  # a page and its news ask at once
                if name not in self._open:
                    await self._read(name, token, namespace)
                return self._open[name].pages
        except UnauthenticatedError:
            return said(HTTPStatus.UNAUTHORIZED, NOT_TAKEN)
        except InfernoError as error:
            return said(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    async def _read(self, name: str, token: str, namespace: str) -> None:
        """Follow a namespace with a token for a while."""
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(connect_as(token, self._server, namespace))
            forms = Forms(f"{self._secret} {await session.user()}")  # good for the next token, too
            news = News(session, time.process_time, self._decoded.decode)
            await stack.enter_async_context(news.followed())
            if len(self._open) >= MOST:
                self._open.pop(next(iter(self._open))).stay.cancel()
            stay = asyncio.create_task(self._stay(name, stack.pop_all()))
        pages = pages_of(session, forms, news, self._settings, namespaces=NAMESPACES)
        self._open[name] = OpenNamespace(pages, stay)

    async def _stay(self, name: str, opened: AsyncExitStack) -> None:
        """Keep the connections of a namespace for a while."""
        async with opened:
            try:
                await self._sleep(OPEN_S)
            finally:
                self._open.pop(name, None)
            await self._sleep(CLOSE_S)
