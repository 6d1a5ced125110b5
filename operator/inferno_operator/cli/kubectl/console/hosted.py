"""The console for many people: all that a person sees and does is done with that person's token.

    browser --> access: host, origin --> cookie: signed name of a visit --> pages of that person

The server has no rights; the tokens are kept by `visits`. Where an authenticating proxy shows the
tokens, `proxied` serves the same pages.
"""

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
from inferno_operator.cli.kubectl.console.access import Guarded, said
from inferno_operator.cli.kubectl.console.app import form_of
from inferno_operator.cli.kubectl.console.login import (
    NAMESPACE,
    NO_NAMESPACE,
    TOKEN,
    Login,
    OriginAccess,
    way_in,
    with_login,
)
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_operator.cli.kubectl.console.proxied import Proxied
from inferno_operator.cli.kubectl.console.visits import VISIT_S, Sleep, Visits
from inferno_optimizer.errors import InputError

COOKIE = "__Host-inferno-console"
"""Browsers take a cookie of such a name over TLS alone, and for this host alone."""

LEAST_KEY = 32
"""Fewest characters of the key that signs cookies."""

UNREADABLE = "this is no token: those are one line of letters, digits and signs, without spaces"


def hosted_console(  # noqa: PLR0913 - what a server is made of
    server: ApiServerAddress,
    namespace: str,
    origin: str,
    key: str,
    sleep: Sleep,
    clock: Callable[[], float],
    settings: ConsoleSettings,
    *,
    behind_proxy: bool = False,
) -> ASGIApp:
    """Return the console that people log in to.

    Parameters
    ----------
    server
        The API server, which decides what a person may see and do.
    namespace
        What the form to log in suggests.
    origin
        The address that browsers use, such as https://inferno.example.com.
    key
        Signs cookies.
    sleep
        Waits for the end of a visit.
    clock
        Seconds since some moment; attempts to log in are counted over time.
    settings
        What pages show costs in, and where the operator runs.
    behind_proxy
        Whether an authenticating proxy shows the token of a person with each request.

    Raises
    ------
    InputError
        The key is too short, or the origin is no address with https.
    """
    parts = urlsplit(origin)
    if parts.scheme != "https" or f"https://{parts.netloc}" != origin:
        raise InputError(f"--origin {origin}: give https://HOST or https://HOST:PORT")
    if len(key) < LEAST_KEY:
        raise InputError(f"the key of the console has fewer than {LEAST_KEY} characters")
    visits = Visits(server, key, sleep, settings)
    kind = Proxied if behind_proxy else _Hosted
    return Guarded(kind(visits, clock, namespace).app, OriginAccess(origin))


class _Hosted:
    def __init__(self, visits: Visits, clock: Callable[[], float], namespace: str) -> None:
        self._visits, self._login = visits, Login(clock, namespace, asks_token=True)
        self.app = with_login(self._login, self.login, self.logout, self.pages)

    async def pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the pages of the person who asks, or show the way to log in."""
        request = Request(scope)
        visit = self._visits.of(request.cookies.get(COOKIE, ""))
        await (visit.pages if visit else way_in(request))(scope, receive, send)

    async def login(self, request: Request) -> Response:
        form = await form_of(request)
        token, namespace = form.get("token", "").strip(), form.get("namespace", "").strip()
        if not NAMESPACE.fullmatch(namespace):
            return self._login.page(namespace, NO_NAMESPACE)
        if not TOKEN.fullmatch(token):
            return self._login.page(namespace, UNREADABLE)
        cookie = await self._login.attempt(
            request, namespace, lambda: self._visits.begin(token, namespace)
        )
        if isinstance(cookie, Response):
            return cookie
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE, cookie, max_age=VISIT_S, httponly=True, secure=True, samesite="strict"
        )
        return answer

    async def logout(self, request: Request) -> Response:
        visit = self._visits.of(request.cookies.get(COOKIE, ""))
        if not await self._visits.leave(visit, (await form_of(request)).get("form", "")):
            return said(HTTPStatus.FORBIDDEN, "this is no form of the console")
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="strict")
        return answer
