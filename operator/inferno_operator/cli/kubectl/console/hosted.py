"""The console for many people: all that a person sees and does is done with that person's token.

    browser --> access: host, origin --> cookie: signed name of a visit --> pages of that person

The server has no rights; the tokens are kept by `visits`.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from math import ceil
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
from inferno_operator.cli.kubectl.console.access import SAFE, Guarded, refusal_of_strangers, said
from inferno_operator.cli.kubectl.console.app import STATIC, form_of
from inferno_operator.cli.kubectl.console.attempts import LoginAttempts
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_operator.cli.kubectl.console.visits import VISIT_S, Sleep, Visits
from inferno_operator.runtime.ports import UnauthenticatedError
from inferno_optimizer.errors import InfernoError, InputError

COOKIE = "__Host-inferno-console"
"""Browsers take a cookie of such a name over TLS alone, and for this host alone."""

LEAST_KEY = 32
"""Fewest characters of the key that signs cookies."""

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
TOKEN = re.compile(r"[\x21-\x7e]+")
"""What may be a namespace, and a token in a header (RFC 6750 allows fewer characters still)."""

NO_NAMESPACE = (
    "this is no name of a namespace: those have small letters, digits and dashes, such as llm"
)
UNREADABLE = "this is no token: those are one line of letters, digits and signs, without spaces"
NOT_TAKEN = (
    "the API server does not take this token: it has expired, or is of another cluster; make"
    " a new one"
)
"""Why a person cannot log in, and what to do."""


def hosted_console(
    server: ApiServerAddress,
    namespace: str,
    origin: str,
    key: str,
    sleep: Sleep,
    clock: Callable[[], float],
    settings: ConsoleSettings,
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
    hosted = _Hosted(Visits(server, key, sleep, settings), LoginAttempts(clock), namespace)
    return Guarded(hosted, _HostedAccess(origin))


class _HostedAccess:
    def __init__(self, origin: str) -> None:
        self._hosts = (urlsplit(origin).netloc,)

    def refusal(self, request: Request) -> Response | None:
        return refusal_of_strangers(request, self._hosts, "https")


class _Hosted:
    def __init__(self, visits: Visits, attempts: LoginAttempts, namespace: str) -> None:
        self._visits, self._attempts, self._namespace = visits, attempts, namespace
        environment = Environment(
            loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined
        )
        self._login_page = environment.get_template("login.html")
        routes = [
            Route("/login", self.login_page),
            Route("/login", self.login, methods=["POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            *STATIC,
            Mount("/", self.pages),
        ]
        self._app = Starlette(routes=routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await self._app(scope, receive, send)

    async def pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the pages of the person who asks, or show the way to log in."""
        await self._pages_for(Request(scope))(scope, receive, send)

    def _pages_for(self, request: Request) -> ASGIApp:
        found = self._visits.of(request.cookies.get(COOKIE, ""))
        if found:
            return found[1].pages
        if request.method in SAFE and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        return said(HTTPStatus.UNAUTHORIZED, "log in first: /login")

    async def login_page(self, _: Request) -> Response:
        return self._login(self._namespace)

    async def login(self, request: Request) -> Response:
        form = await form_of(request)
        token, namespace = form.get("token", "").strip(), form.get("namespace", "").strip()
        if not NAMESPACE.fullmatch(namespace):
            return self._login(namespace, NO_NAMESPACE)
        if not TOKEN.fullmatch(token):
            return self._login(namespace, UNREADABLE)
        client = request.client.host if request.client else ""
        if wait_s := self._attempts.wait_s(client):
            return self._too_often(namespace, wait_s)
        self._attempts.begin(client)
        try:
            cookie = await self._visits.begin(token, namespace)
        except UnauthenticatedError:
            return self._login(namespace, NOT_TAKEN)
        except InfernoError as error:
            return self._login(namespace, str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        self._attempts.succeeded(client)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE, cookie, max_age=VISIT_S, httponly=True, secure=True, samesite="strict"
        )
        return answer

    async def logout(self, request: Request) -> Response:
        found = self._visits.of(request.cookies.get(COOKIE, ""))
        if found:
            name, visit = found
            if not visit.forms.is_form("logout", (await form_of(request)).get("form", "")):
                return said(HTTPStatus.FORBIDDEN, "this is no form of the console")
            await self._visits.end(name)
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="strict")
        return answer

    def _login(
        self, namespace: str, refusal: str = "", status: HTTPStatus = HTTPStatus.UNAUTHORIZED
    ) -> Response:
        page = self._login_page.render(namespace=namespace, refusal=refusal)
        return HTMLResponse(page, status if refusal else HTTPStatus.OK)

    def _too_often(self, namespace: str, wait_s: float) -> Response:
        seconds, status = ceil(wait_s), HTTPStatus.TOO_MANY_REQUESTS
        text = f"too many logins failed: try again in {seconds} s"
        answer = self._login(namespace, text, status)
        answer.headers["Retry-After"] = str(seconds)
        return answer
