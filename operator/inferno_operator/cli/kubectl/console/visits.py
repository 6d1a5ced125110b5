"""The people who are logged in to the console, and the tokens with which they read and answer.

    token --> the API server takes it --> visit: pages, connections --> logout, or `VISIT_S`

Tokens are in memory only, and leave it when the visit ends. A person who logged in has a cookie
with the signed name of the visit; where the token comes with each request, the visit is named by
its digest. See OWASP, Session Management Cheat Sheet.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256

from itsdangerous import BadSignature, Signer
from starlette.types import ASGIApp

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress, connect_as
from inferno_operator.cli.kubectl.console.access import Forms
from inferno_operator.cli.kubectl.console.app import pages_of
from inferno_operator.cli.kubectl.console.decoded import DecodedObjects
from inferno_operator.cli.kubectl.console.news import News
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_optimizer.errors import UnavailableError

VISIT_S = 8 * 3600
"""After this time a person logs in again [s]."""

MOST = 50
"""Visits at once, of all people."""

MOST_OF_ONE = 5
"""Visits of one person at once, so that nobody takes the places of the others."""

SALT = "inferno-console"
"""Signatures for this purpose are good for no other."""

Sleep = Callable[[float], Awaitable[object]]
"""Waits for so many seconds."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A person who is logged in; while `stay` runs, there are connections."""

    name: str
    user: str
    pages: ASGIApp
    forms: Forms
    stay: asyncio.Task[None]


class Visits:
    """The visits, in the order in which they began.

    Parameters
    ----------
    server
        The API server, which decides what a person may see and do.
    key
        Signs cookies.
    sleep
        Waits for the end of a visit.
    settings
        What pages show costs in, and where the operator runs.
    """

    def __init__(
        self, server: ApiServerAddress, key: str, sleep: Sleep, settings: ConsoleSettings
    ) -> None:
        self._server, self._sleep, self._settings = server, sleep, settings
        self._signer = Signer(key, salt=SALT)
        self._decoded = DecodedObjects()
        self._visits: dict[str, Visit] = {}
        self._beginning = asyncio.Lock()

    async def begin(self, token: str, namespace: str) -> str:
        """Log a person in; returns the cookie.

        Raises
        ------
        UnauthenticatedError
            The API server does not take the token.
        UnavailableError
            Too many people are logged in.
        """
        visit = await self._begin(secrets.token_urlsafe(32), token, namespace, "Log out")
        return self._signer.sign(visit.name).decode()

    async def begin_bearer(self, token: str, namespace: str) -> Visit:
        """Let in a person whose token comes with each request, unless that happened meanwhile.

        Raises
        ------
        UnauthenticatedError
            The API server does not take the token.
        UnavailableError
            Too many people are there.
        """
        async with self._beginning:  # a page and its news ask at once
            present = self.of_bearer(token, namespace)
            name = _digest(token, namespace)
            return present or await self._begin(name, token, namespace, "Other namespace")

    def of_bearer(self, token: str, namespace: str) -> Visit | None:
        """The visit of a person whose token comes with each request; None if there is none."""
        return self._visits.get(_digest(token, namespace))

    async def _begin(self, name: str, token: str, namespace: str, leave: str) -> Visit:
        """Begin a visit, whose pages have a button to end it."""
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(connect_as(token, self._server, namespace))
            user = await session.user()
            await self._end_oldest(user)
            if len(self._visits) >= MOST:
                raise UnavailableError(f"{MOST} people are logged in already; try again later")
            forms, news = Forms(), News(session, time.process_time, self._decoded.decode)
            await stack.enter_async_context(news.followed())
            stay = asyncio.create_task(self._stay(name, stack.pop_all()))
            pages = pages_of(session, forms, news, self._settings, leave=leave)
            self._visits[name] = visit = Visit(name, user, pages, forms, stay)
        return visit

    def of(self, cookie: str) -> Visit | None:
        """The visit that a cookie names; None if there is none."""
        try:
            return self._visits.get(self._signer.unsign(cookie).decode())
        except BadSignature:
            return None

    async def leave(self, visit: Visit | None, form: str) -> bool:
        """End a visit, if there is one, as its form asks; False if that is no form of it."""
        if visit is None:
            return True
        if not visit.forms.is_form("logout", form):
            return False
        await self.end(visit.name)
        return True

    async def end(self, name: str) -> None:
        """Log a person out, if that did not happen yet."""
        visit = self._visits.pop(name, None)
        if visit:
            visit.stay.cancel()
            await asyncio.gather(visit.stay, return_exceptions=True)

    async def _stay(self, name: str, opened: AsyncExitStack) -> None:
        """Keep the connections of a visit until it ends."""
        async with opened:
            try:
                await self._sleep(VISIT_S)
            finally:
                self._visits.pop(name, None)

    async def _end_oldest(self, user: str) -> None:
        """End the oldest visit of a person who has as many as one may have."""
        own = [name for name, visit in self._visits.items() if visit.user == user]
        if len(own) >= MOST_OF_ONE:
            await self.end(own[0])


def _digest(token: str, namespace: str) -> str:
    """The name of the visit of a token to a namespace, from which the token cannot be found."""
    return sha256(f"{token} {namespace}".encode()).hexdigest()
