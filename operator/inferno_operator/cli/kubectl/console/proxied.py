"""The console behind an authenticating proxy, which shows the token of a person with each request.

    browser --> proxy: logs people in, sets `Authorization: Bearer TOKEN`
            --> access: host, origin --> cookie: namespace --> pages of that person

The cookie is no secret: what a person sees and does is decided by the token of the request. The
proxy renews tokens; a new token begins a new visit of the same person.
"""

from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from inferno_operator.cli.kubectl.console.access import said
from inferno_operator.cli.kubectl.console.app import form_of
from inferno_operator.cli.kubectl.console.login import (
    NAMESPACE,
    NO_NAMESPACE,
    TOKEN,
    Login,
    way_in,
    with_login,
)
from inferno_operator.cli.kubectl.console.visits import Visit, Visits

COOKIE = "__Host-inferno-namespace"
"""The namespace that a browser looks at; after a login at the proxy it is sent, too (lax)."""

NO_BEARER = (
    "the proxy showed no token: let it set the header Authorization to 'Bearer TOKEN', with the"
    " token that the API server takes (oauth2-proxy: --pass-authorization-header)"
)
NOT_TAKEN = (
    "the API server does not take the token that the proxy shows: it has expired, or the API"
    " server does not know its issuer or audience"
)
"""Why a person cannot log in, and what to do."""


class Proxied:
    """The pages of each person whose token comes with the requests.

    Parameters
    ----------
    visits
        The people who are there.
    clock
        Seconds since some moment; tokens that the API server refuses are counted over time.
    namespace
        What the page to choose a namespace suggests.
    """

    def __init__(self, visits: Visits, clock: Callable[[], float], namespace: str) -> None:
        self._visits = visits
        self._login = Login(clock, namespace, asks_token=False, not_taken=NOT_TAKEN)
        self.app = with_login(self._login, self.login, self.logout, self.pages)

    async def pages(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the pages of the person whose token comes with the request."""
        await (await self._pages_for(Request(scope)))(scope, receive, send)

    async def _pages_for(self, request: Request) -> ASGIApp:
        namespace = request.cookies.get(COOKIE, "")
        if not NAMESPACE.fullmatch(namespace):
            return way_in(request)
        found = await self._visit(request, namespace)
        return found if isinstance(found, Response) else found.pages

    async def login(self, request: Request) -> Response:
        """Keep the namespace that was chosen, if its pages can be shown."""
        namespace = (await form_of(request)).get("namespace", "").strip()
        if not NAMESPACE.fullmatch(namespace):
            return self._login.page(namespace, NO_NAMESPACE)
        found = await self._visit(request, namespace)
        if isinstance(found, Response):
            return found
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(COOKIE, namespace, httponly=True, secure=True, samesite="lax")
        return answer

    async def logout(self, request: Request) -> Response:
        """End the visit, so that another namespace can be chosen; the proxy is not asked."""
        visit = self._visits.of_bearer(bearer_of(request), request.cookies.get(COOKIE, ""))
        if not await self._visits.leave(visit, (await form_of(request)).get("form", "")):
            return said(HTTPStatus.FORBIDDEN, "this is no form of the console")
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="lax")
        return answer

    async def _visit(self, request: Request, namespace: str) -> Visit | Response:
        token = bearer_of(request)
        if not token:
            return self._login.page(namespace, NO_BEARER)
        if visit := self._visits.of_bearer(token, namespace):
            return visit
        return await self._login.attempt(
            request, namespace, lambda: self._visits.begin_bearer(token, namespace)
        )


def bearer_of(request: Request) -> str:
    """The bearer token of a request (RFC 6750, section 2.1); "" if it shows none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and TOKEN.fullmatch(token) else ""
