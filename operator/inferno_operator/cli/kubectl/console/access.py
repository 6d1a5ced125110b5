"""Who may ask: one browser on this machine, or requests that a proxy passes on with a token.

Other pages in a browser are kept out: a request must name this host (against DNS rebinding), and
one that changes something must come from here (Origin) and carry the token of its form. See OWASP,
Cross-Site Request Forgery Prevention.
"""

import hmac
import re
import secrets
from collections.abc import Collection, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Protocol

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "token"  # noqa: S105 - the name of a parameter
SAFE = ("GET", "HEAD")

BEARER = re.compile(r"bearer +(?P<token>[\x21-\x7e]+) *", re.IGNORECASE)
"""A bearer token in a header; RFC 6750 allows fewer characters still, and schemes have no case."""

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


class ConsoleAccess(Protocol):
    """Decides who may ask."""

    def refusal(self, request: Request) -> Response | None:
        """What a request gets that may not see or do what it asks for; None if it may."""


class Forms:
    """The tokens of the forms of one person, whose secret nobody else knows."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def form_token(self, action: str) -> str:
        """The token of a form that does one thing, which nobody else can know."""
        return hmac.new(self._secret.encode(), action.encode(), sha256).hexdigest()

    def is_form(self, action: str, token: str) -> bool:
        """Whether a token is that of a form."""
        return hmac.compare_digest(self.form_token(action).encode(), token.encode())


class LocalAccess(Forms):
    """The secrets of one run of the console.

    Parameters
    ----------
    port
        Where it listens on the loopback address.
    """

    def __init__(self, port: int) -> None:
        super().__init__(secrets.token_urlsafe(32))
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._cookie = f"inferno-console-{port}"
        self._unused: str | None = secrets.token_urlsafe(32)
        self.address = f"http://127.0.0.1:{port}/?{TOKEN}={self._unused}"

    def refusal(self, request: Request) -> Response | None:
        """What a request gets that may not see or do what it asks for; None if it may."""
        if refusal := refusal_of_strangers(request, self._hosts, "http"):
            return refusal
        if TOKEN in request.query_params:
            return self._opened(request.query_params[TOKEN])
        if not _same(request.cookies.get(self._cookie, ""), self._secret):
            return said(
                HTTPStatus.UNAUTHORIZED,
                "open the address that kubectl inferno console printed; it opens one browser, once",
            )
        return None

    def _opened(self, token: str) -> Response:
        """The token becomes a cookie, once; the address without it is what stays in a history."""
        if self._unused is None or not _same(token, self._unused):
            return said(HTTPStatus.UNAUTHORIZED, "this address was used; start the console anew")
        self._unused = None
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict")
        return answer


class ProxyAccess:
    """Lets in requests to the address that browsers use, with a token that a proxy shows.

    Parameters
    ----------
    host
        The host of that address, with its port if it has one.
    """

    def __init__(self, host: str) -> None:
        self._hosts = (host,)

    def refusal(self, request: Request) -> Response | None:
        """What a request gets that may not see or do what it asks for; None if it may."""
        if refusal := refusal_of_strangers(request, self._hosts, "https"):
            return refusal
        return None if bearer_of(request) else said(HTTPStatus.UNAUTHORIZED, NO_BEARER)


class Guarded:
    """An application for those who may ask, with the headers that all answers have."""

    def __init__(self, app: ASGIApp, access: ConsoleAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._access.refusal(Request(scope))
        await (refusal or self._app)(scope, receive, with_headers)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def bearer_of(request: Request) -> str:
    """The bearer token of a request (RFC 6750, section 2.1); "" if it shows none."""
    shown = BEARER.fullmatch(request.headers.get("authorization", ""))
    return shown["token"] if shown else ""


def refusal_of_strangers(request: Request, hosts: Collection[str], scheme: str) -> Response | None:
    """What a request gets that names another host, or changes something from elsewhere."""
    host = request.headers.get("host", "")
    if host not in hosts:
        return said(HTTPStatus.FORBIDDEN, "this console has another address")
    if request.method not in SAFE and request.headers.get("origin") != f"{scheme}://{host}":
        return said(HTTPStatus.FORBIDDEN, "forms of other pages change nothing here")
    return None


def said(status: HTTPStatus, text: str) -> Response:
    """A line of text as an answer."""
    return PlainTextResponse(f"{text}\n", status)
