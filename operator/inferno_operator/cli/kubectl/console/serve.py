"""Serve the console: who may ask, on the loopback address or behind an authenticating proxy.

    one browser on this machine --> host, origin, cookie --> pages
    browser --> proxy: logs people in, sets `Authorization: Bearer TOKEN`
            --> host, origin, token --> cookie: namespace --> pages for that token

Other pages in a browser are kept out: a request must name this host (against DNS rebinding), and
one that changes something must come from here (Origin) and carry the token of its form. See OWASP,
Cross-Site Request Forgery Prevention.

Behind a proxy the token of a request decides what it sees and changes: the API server is asked with
it and with nothing else, as the console has no rights. The cookie is no secret: it only names the
namespace.
"""

import asyncio
import errno
import hmac
import re
import secrets
import socket
import ssl
import time
import webbrowser
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress, Session, connect_as
from inferno_operator.cli.kubectl.console.app import STATIC, Forms, create_pages, read_form
from inferno_operator.cli.kubectl.console.html import NAMESPACES, render_namespaces
from inferno_operator.cli.kubectl.console.news import LISTED_S, DecodedObjects, News
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_operator.runtime.ports import UnauthenticatedError
from inferno_optimizer.api.connection import EndingRequests, QuietServer
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

TOKEN = "token"  # noqa: S105 - the name of a parameter

SAFE_METHODS = ("GET", "HEAD")

# A bearer token in a header; RFC 6750 allows fewer characters still, and schemes have no case.
BEARER = re.compile(r"bearer +(?P<token>[\x21-\x7e]+) *", re.IGNORECASE)

NO_BEARER = (
    "the proxy showed no token: let it set the header Authorization to 'Bearer TOKEN', with the"
    " token that the API server takes (oauth2-proxy: --pass-authorization-header)"
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self';"
    " connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without one, forms of our own would name no origin
    "X-Content-Type-Options": "nosniff",
}

# The namespace that a browser looks at; after a login at the proxy it is sent, too (lax).
COOKIE = "__Host-inferno-namespace"

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

NO_NAMESPACE = (
    "this is no name of a namespace: those have small letters, digits and dashes, such as llm"
)

API_SERVER_REFUSES = (
    "the API server does not take the token that the proxy shows: it has expired, or the API"
    " server does not know its issuer or audience"
)

TOO_MANY = "too many people look at namespaces now: try again in some minutes"

TOO_FAST = "you opened too many namespaces: try again in a minute"

OPEN_S = 300  # a namespace is read anew for a token after this time, which leaves memory then [s]

# Pages that are being made have this time until their connections are closed [s].
FINISH_S = LISTED_S

MOST_OPEN = 50  # namespaces that are open at once, each for one token
MOST_OF_ONE = 5  # namespaces of one person among them; as many more may finish their requests
MOST_OPENING = 8  # tokens that the API server is asked about at once
REFUSED_S = 10.0  # how long a token that the API server refused is not shown to it again [s]
MOST_REFUSED = 1000  # refused tokens that are remembered; the oldest are forgotten

Sleep = Callable[[float], Awaitable[object]]  # waits for so many seconds
LOOPBACK = "127.0.0.1"

CLOSE_S = 1  # how long open pages may end what they do [s]


class LocalAccess(Forms):
    """The secrets of one run of the console.

    `port`: where it listens on the loopback address.
    """

    def __init__(self, port: int) -> None:
        super().__init__(secrets.token_urlsafe(32))
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._cookie = f"inferno-console-{port}"
        self._unused: str | None = secrets.token_urlsafe(32)
        self.address = f"http://127.0.0.1:{port}/?{TOKEN}={self._unused}"

    def refusal(self, request: Request) -> Response | None:
        """Return what a request gets that may not do what it asks for; None if it may."""
        if refusal := refuse_strangers(request, self._hosts, "http"):
            return refusal
        if TOKEN in request.query_params:
            return self._redeem(request.query_params[TOKEN])
        if not _is_same(request.cookies.get(self._cookie, ""), self._secret):
            return reply(
                HTTPStatus.UNAUTHORIZED,
                "open the address that kubectl inferno console printed; it opens one browser, once",
            )
        return None

    def _redeem(self, token: str) -> Response:
        """Make the token a cookie, once; the address without it is what stays in a history."""
        if self._unused is None or not _is_same(token, self._unused):
            return reply(HTTPStatus.UNAUTHORIZED, "this address was used; start the console anew")
        self._unused = None
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict")
        return answer


def refuse_unproxied(host: str, request: Request) -> Response | None:
    """Return what a request gets without the host of browsers, or a token that a proxy shows."""
    if refusal := refuse_strangers(request, (host,), "https"):
        return refusal
    return None if read_bearer(request) else reply(HTTPStatus.UNAUTHORIZED, NO_BEARER)


class Guarded:
    """An application with the headers that all answers have, for those who may ask.

    `refuse` returns what a request gets that may not do what it asks for; None if it may.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[Request], Response | None]) -> None:
        self._app, self._refuse = app, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refuse(Request(scope))
        await (refusal or self._app)(scope, receive, with_headers)


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def read_bearer(request: Request) -> str:
    """Return the bearer token of a request (RFC 6750, section 2.1); "" if it shows none."""
    shown = BEARER.fullmatch(request.headers.get("authorization", ""))
    return shown["token"] if shown else ""


def refuse_strangers(request: Request, hosts: Collection[str], scheme: str) -> Response | None:
    """Return what a request gets that names another host, or changes something from elsewhere."""
    host = request.headers.get("host", "")
    if host not in hosts:
        return reply(HTTPStatus.FORBIDDEN, "this console has another address")
    if request.method not in SAFE_METHODS and request.headers.get("origin") != f"{scheme}://{host}":
        return reply(HTTPStatus.FORBIDDEN, "forms of other pages change nothing here")
    return None


def reply(status: HTTPStatus, text: str) -> Response:
    """Return a line of text as an answer."""
    return PlainTextResponse(f"{text}\n", status)


@dataclass(frozen=True, slots=True)
class OpenNamespace:
    """A namespace as a token of a user may see it, until `rest` is done or cancelled."""

    pages: ASGIApp
    user: str
    rest: asyncio.Future[object]


def create_proxied_console(
    server: ApiServerAddress,
    namespace: str,
    origin: str,
    sleep: Sleep,
    settings: ConsoleSettings,
) -> ASGIApp:
    """Return the console for requests that an authenticating proxy passes on.

    `server`: the API server, which decides what a person may see and do; `namespace`: what the
    page to choose a namespace suggests; `origin`: the address that browsers use, such as
    https://inferno.example.com; `sleep`: waits until a namespace is closed; `settings`: what
    pages show costs in, and where the operator runs. Raises InputError if the origin is no
    address with https.
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
    host = parts.netloc.lower().removesuffix(":443")  # as browsers write it
    return Guarded(Starlette(routes=routes), partial(refuse_unproxied, host))


class _ProxiedConsole:
    def __init__(
        self, server: ApiServerAddress, namespace: str, sleep: Sleep, settings: ConsoleSettings
    ) -> None:
        self._server, self._suggested = server, namespace
        self._sleep, self._settings = sleep, settings
        self._secret = secrets.token_urlsafe(32)
        self._decoded = DecodedObjects()
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(MOST_OPENING)
        self._refused: dict[str, float] = {}
        """Until when, by digest of token, in the order in which they were refused."""
        self._open: dict[tuple[str, str], OpenNamespace] = {}
        """By digest of token and namespace, in the order in which they were opened."""
        self._connected: dict[asyncio.Task[None], str] = {}
        """Whose connections each task keeps."""

    async def namespaces(self, _: Request) -> Response:
        """Show the form to choose a namespace."""
        return HTMLResponse(render_namespaces(self._suggested))

    async def choose(self, request: Request) -> Response:
        """Keep the namespace that was chosen; the API server decides about its pages."""
        namespace = (await read_form(request)).get("namespace", "").strip()
        if not NAMESPACE.fullmatch(namespace):
            page = render_namespaces(namespace, NO_NAMESPACE)
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
            return reply(HTTPStatus.BAD_REQUEST, f"choose a namespace first: {NAMESPACES}")
        token = read_bearer(request)
        digest = sha256(token.encode()).hexdigest()
        name = digest, namespace
        if name in self._open:
            return self._open[name].pages
        try:
            opening = self._opening.setdefault(digest, asyncio.Lock())
            async with opening:  # a page and its news ask at once
                if name not in self._open:
                    await self._follow(digest, token, namespace)
                return self._open[name].pages
        except UnauthenticatedError:
            return reply(HTTPStatus.UNAUTHORIZED, API_SERVER_REFUSES)
        except InfernoError as error:
            return reply(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    async def _follow(self, digest: str, token: str, namespace: str) -> None:
        name = digest, namespace
        if asyncio.get_running_loop().time() < self._refused.get(digest, 0):
            raise UnauthenticatedError(API_SERVER_REFUSES)
        async with self._slots, AsyncExitStack() as stack:
            session = await stack.enter_async_context(connect_as(token, self._server, namespace))
            user = await self._find_user(session, digest)
            forms = Forms(f"{self._secret} {user}")  # good for the next token, too
            news = News(session, time.process_time, self._decoded.decode)
            await stack.enter_async_context(news.follow())
            self._make_room(user, namespace)
            rest = asyncio.ensure_future(self._sleep(OPEN_S))
            stay = asyncio.create_task(self._keep_open(name, rest, stack.pop_all()))
        self._connected[stay] = user
        stay.add_done_callback(self._connected.pop)
        pages = create_pages(session, forms, news, self._settings, namespaces=NAMESPACES)
        self._open[name] = OpenNamespace(pages, user, rest)

    async def _find_user(self, session: Session, digest: str) -> str:
        """Return the name of a user, or the digest of the token where it is not known."""
        try:
            return await session.user() or digest
        except UnauthenticatedError:
            self._refused.pop(digest, None)
            self._refused[digest] = asyncio.get_running_loop().time() + REFUSED_S
            if len(self._refused) > MOST_REFUSED:
                del self._refused[next(iter(self._refused))]
            raise

    def _make_room(self, user: str, namespace: str) -> None:
        """End what a person has open, at first of the same namespace, where there is no room.

        Raises UnavailableError if others have all places, or what this person had open has
        not finished yet.
        """
        own = [name for name, there in self._open.items() if there.user == user]
        if len(own) < MOST_OF_ONE and len(self._open) < MOST_OPEN:
            return
        if not own:
            raise UnavailableError(TOO_MANY)
        if sum(each == user for each in self._connected.values()) >= 2 * MOST_OF_ONE:
            raise UnavailableError(TOO_FAST)
        oldest = next((name for name in own if name[1] == namespace), own[0])
        self._open.pop(oldest).rest.cancel()

    async def _keep_open(
        self, name: tuple[str, str], rest: asyncio.Future[object], opened: AsyncExitStack
    ) -> None:
        """Keep the connections of a namespace for a while, and until its requests have finished."""
        async with opened:
            await asyncio.wait([rest])
            if not rest.cancelled():
                self._open.pop(name, None)
            await self._sleep(FINISH_S)


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a console listens, and with which certificate; without one, it speaks plain HTTP."""

    host: str
    port: int = 0
    certificate: Path | None = None
    private_key: Path | None = None

    @property
    def files(self) -> str:
        """The options that name its files."""
        key = f", --private-key {self.private_key}" if self.private_key else ""
        return f"--certificate {self.certificate}{key}"


LOCAL = Listener(LOOPBACK)


async def serve(
    session: Session,
    port: int,
    settings: ConsoleSettings,
    tell: Callable[[str], None],
    *,
    browser: bool,
) -> None:
    """Serve the console.

    `session`: the namespace, and the rights of the user; `port`: where to listen on the
    loopback address; 0 takes a free one; `settings`: what pages show costs in, and where the
    operator runs; `tell`: receives the address; `browser`: whether to open it in the browser,
    too. Raises InputError if the port is in use; InfernoError if the namespace cannot be read.
    """
    await session.optimizers()
    with _listen(Listener(LOOPBACK, port)) as listening:
        access, news = LocalAccess(listening.getsockname()[1]), News(session, time.process_time)
        server = _build_server(
            Guarded(create_pages(session, access, news, settings), access.refusal)
        )
        tell(access.address)
        if browser:
            await asyncio.to_thread(webbrowser.open, access.address)
        async with news.follow():
            await server.serve([listening])
    tell("the console has ended")


async def serve_guarded_console(
    console: ASGIApp, listener: Listener, tell: Callable[[str], None]
) -> None:
    """Serve a console behind a proxy, until the process is told to end.

    `console`: what is served; `listener`: Where, and with which certificate; `tell`: receives
    where it listens. Raises InputError if the certificate or its key cannot be used, or the
    host or port.
    """
    server = _build_server(console, listener)
    try:
        server.config.load()
    except OSError as error:  # ssl.SSLError is one
        is_wrong = isinstance(error, ssl.SSLError)
        pair = "no certificate with its private key, in PEM"
        problem = pair if is_wrong else error.strerror or str(error)
        raise InputError(f"{listener.files}: {problem}") from error
    with _listen(listener) as listening:
        tell(f"listening on {listener.host}, port {listening.getsockname()[1]}")
        await server.serve([listening])


def _build_server(console: ASGIApp, listener: Listener = LOCAL) -> QuietServer:
    """Build a server that ends without a word, whatever it serves then."""
    refusal = reply(HTTPStatus.SERVICE_UNAVAILABLE, "the console ends")
    config = uvicorn.Config(
        EndingRequests(console, refusal),
        host=listener.host,
        port=listener.port,
        ssl_certfile=listener.certificate,
        ssl_keyfile=listener.private_key,
        lifespan="off",
        access_log=False,  # addresses hold the token
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return QuietServer(config)


def _listen(listener: Listener) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((listener.host, listener.port))
        listening.listen()  # whoever is told the address may come before the server runs
    except OSError as error:
        listening.close()
        where = f"--host {listener.host}, " if listener.host != LOOPBACK else ""
        advice = "; 0 takes a free one" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        raise InputError(f"{where}--port {listener.port}: {error.strerror}{advice}") from error
    return listening
