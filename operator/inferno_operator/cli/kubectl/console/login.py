"""The page to log in, and who may try: for consoles that people reach over a network."""

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from math import ceil
from typing import TypeVar
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from inferno_operator.cli.kubectl.console.access import SAFE, refusal_of_strangers, said
from inferno_operator.cli.kubectl.console.app import STATIC
from inferno_operator.cli.kubectl.console.attempts import LoginAttempts
from inferno_operator.runtime.ports import UnauthenticatedError
from inferno_optimizer.errors import InfernoError

Begun = TypeVar("Begun")

Handler = Callable[[Request], Awaitable[Response]]
"""Answers a form."""

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
TOKEN = re.compile(r"[\x21-\x7e]+")
"""What may be a namespace, and a token in a header (RFC 6750 allows fewer characters still)."""

NO_NAMESPACE = (
    "this is no name of a namespace: those have small letters, digits and dashes, such as llm"
)
NOT_TAKEN = (
    "the API server does not take this token: it has expired, or is of another cluster; make"
    " a new one"
)
"""Why a person cannot log in, and what to do."""


class OriginAccess:
    """Lets in requests to the address that browsers use, and forms that come from there."""

    def __init__(self, origin: str) -> None:
        self._hosts = (urlsplit(origin).netloc,)

    def refusal(self, request: Request) -> Response | None:
        """What a request gets that may not see or do what it asks for; None if it may."""
        return refusal_of_strangers(request, self._hosts, "https")


class Login:
    """The page to log in, and how often somebody may try.

    Parameters
    ----------
    clock
        Seconds since some moment; attempts are counted over time.
    namespace
        What the page suggests.
    asks_token
        Whether the page has a field for a token, or an authenticating proxy shows it.
    not_taken
        What is said of a token that the API server refuses.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        namespace: str,
        *,
        asks_token: bool,
        not_taken: str = NOT_TAKEN,
    ) -> None:
        self._attempts, self._namespace = LoginAttempts(clock), namespace
        self._asks_token, self._not_taken = asks_token, not_taken
        environment = Environment(
            loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined
        )
        self._page = environment.get_template("login.html")

    def page(
        self,
        namespace: str | None = None,
        refusal: str = "",
        status: HTTPStatus = HTTPStatus.UNAUTHORIZED,
    ) -> Response:
        """The page; with a refusal it says why somebody is not logged in."""
        shown = self._namespace if namespace is None else namespace
        page = self._page.render(namespace=shown, refusal=refusal, asks_token=self._asks_token)
        return HTMLResponse(page, status if refusal else HTTPStatus.OK)

    async def attempt(
        self, request: Request, namespace: str, begin: Callable[[], Awaitable[Begun]]
    ) -> Begun | Response:
        """Begin a visit; returns what begins, or why it does not."""
        client = request.client.host if request.client else ""
        if wait_s := self._attempts.wait_s(client):
            return self._too_often(namespace, wait_s)
        self._attempts.begin(client)
        try:
            begun = await begin()
        except UnauthenticatedError:
            return self.page(namespace, self._not_taken)
        except InfernoError as error:
            return self.page(namespace, str(error), HTTPStatus.SERVICE_UNAVAILABLE)
        self._attempts.succeeded(client)
        return begun

    def _too_often(self, namespace: str, wait_s: float) -> Response:
        seconds, status = ceil(wait_s), HTTPStatus.TOO_MANY_REQUESTS
        text = f"too many logins failed: try again in {seconds} s"
        answer = self.page(namespace, text, status)
        answer.headers["Retry-After"] = str(seconds)
        return answer


def with_login(login: Login, enter: Handler, leave: Handler, pages: ASGIApp) -> ASGIApp:
    """Return the pages, with those to log in and out before them.

    `enter` and `leave` answer the forms at /login and /logout.
    """

    async def login_page(_: Request) -> Response:
        return login.page()

    routes = [
        Route("/login", login_page),
        Route("/login", enter, methods=["POST"]),
        Route("/logout", leave, methods=["POST"]),
        *STATIC,
        Mount("/", pages),
    ]
    return Starlette(routes=routes)


def way_in(request: Request) -> Response:
    """What somebody gets who is not logged in: browsers the page, programs a line."""
    if request.method in SAFE and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    return said(HTTPStatus.UNAUTHORIZED, "log in first: /login")
