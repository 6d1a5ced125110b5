"""The routes of the console: read the namespace, compute a page, render it.

A page is made once for all who ask for it before anything changes: many pages may be open.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import get_args
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.answer import PlanAnswer, answer_plan, sort_plans
from inferno_operator.cli.kubectl.console.data import SeenLeader, data_view
from inferno_operator.cli.kubectl.console.fleet import capacity_view, fleet_view
from inferno_operator.cli.kubectl.console.history import MOST_OBJECTS, PlanLoads, history_view
from inferno_operator.cli.kubectl.console.html import PageQuery, Pages, static_file
from inferno_operator.cli.kubectl.console.models import model_view, models_view
from inferno_operator.cli.kubectl.console.news import News
from inferno_operator.cli.kubectl.console.page import ConsolePage, ConsoleSettings
from inferno_operator.cli.kubectl.console.plans import next_view, plan_view, plans_view
from inferno_operator.cli.kubectl.console.server import SeenEvents, server_view
from inferno_operator.cli.kubectl.dry_run import DryRun, decide
from inferno_operator.cli.kubectl.selection import choose_server
from inferno_operator.cli.tables.table import format_csv, order_rows
from inferno_operator.resources import Server
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.ports import GoneError, RejectedError, UnauthenticatedError
from inferno_optimizer.errors import InfernoError, InputError

KEPT_S = 5.0
"""How long a page is good where nothing changes: it tells how long ago things were [s]."""

MOST_KEPT = 64
"""Pages that are kept, at most."""

Endpoint = Callable[[Request], Awaitable[Response]]

SOLVE_S = 10.0
"""Time limit of the exact solver for a page [s]."""

ICON = "icon.svg"

MEDIA = {
    "style.css": "text/css",
    "console.css": "text/css",
    "news.js": "text/javascript",
    ICON: "image/svg+xml",
}

ANSWERS = {"approve": "Approved", "reject": "Rejected"}
"""What the forms say to a Plan."""

ADVICE = {
    HTTPStatus.BAD_REQUEST: "Correct that, then load this page again, or go on by the links above.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Reload this page to try again.",
    HTTPStatus.UNAUTHORIZED: "Log in again.",
    HTTPStatus.FORBIDDEN: "To see a namespace takes the ClusterRole inferno-view in it: ask whoever"
    " gives rights there.",
}
"""What a person can do about a failure, by the status."""

NO_PAGE = (
    "The links above lead to all pages; a table on each leads to its Servers, Models and Plans."
)

MOST_FORM = 16_384
"""Largest form that is read [bytes]."""


@dataclass(frozen=True, slots=True)
class _Made:
    version: int
    until_s: float
    answer: asyncio.Task[Response]


class SharedPages:
    """The pages that were made since the last change.

    Parameters
    ----------
    news
        What tells of changes.
    clock
        Seconds since some moment.
    """

    def __init__(self, news: News, clock: Callable[[], float]) -> None:
        self._news, self._clock = news, clock
        self._made: dict[str, _Made] = {}

    def forget(self) -> None:
        """Make every page anew."""
        self._made.clear()

    def shared(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint that answers equal requests together."""

        async def answer(request: Request) -> Response:
            address = f"{request.url.path}?{request.url.query}"
            made = self._made.get(address)
            if made is None or not self._is_new(made):
                made = self._begun(endpoint(request))
                self._made = {a: m for a, m in self._made.items() if self._is_new(m)}
                if len(self._made) >= MOST_KEPT:
                    self.forget()
                self._made[address] = made
            return await asyncio.shield(made.answer)

        return answer

    def _begun(self, answer: Awaitable[Response]) -> _Made:
        task = asyncio.ensure_future(answer)
        return _Made(self._news.version, self._clock() + KEPT_S, task)

    def _is_new(self, made: _Made) -> bool:
        """Whether a page is as it would be made now; what failed is tried again."""
        failed = made.answer.done() and (made.answer.cancelled() or made.answer.exception())
        is_old = made.version != self._news.version or self._clock() > made.until_s
        return not failed and not is_old


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


def pages_of(
    session: Session, forms: Forms, news: News, settings: ConsoleSettings, *, namespaces: str = ""
) -> ASGIApp:
    """Return the pages of a namespace, with the rights of a session.

    `namespaces` is the address where another one can be chosen; "" if there is none.
    """
    console = _Console(session, forms, news, settings, namespaces)
    shared = console.made.shared
    routes = [
        Route("/", shared(console.fleet)),
        Route("/next", shared(console.next_plan)),
        Route("/plans", shared(console.plans)),
        Route("/plans/{name}", shared(console.plan)),
        Route("/plans/{name}/{answer}", console.answer, methods=["POST"]),
        Route("/servers/{name}", shared(console.server)),
        Route("/capacity", shared(console.capacity)),
        Route("/models", shared(console.models)),
        Route("/models/{name}", shared(console.model)),
        Route("/history", shared(console.history)),
        Route("/data", shared(console.data)),
        Route("/news", console.news),
        *STATIC,
    ]
    handlers = {InfernoError: console.failed, HTTPException: console.missing}
    return Starlette(routes=routes, exception_handlers=handlers)


class _Console:
    def __init__(
        self,
        session: Session,
        forms: Forms,
        news: News,
        settings: ConsoleSettings,
        namespaces: str,
    ) -> None:
        self._session, self._forms, self._news = session, forms, news
        self._money, self._operator_namespace = settings.money, settings.operator_namespace
        self._pages = Pages(session.namespace, forms.form_token, settings.money, namespaces)
        self._one_solve, self._past = asyncio.Lock(), PlanLoads()
        self.made = SharedPages(news, time.monotonic)

    async def fleet(self, request: Request) -> Response:
        objects = await self._objects(request)

        def view() -> ConsolePage:
            past = self._past.loads(sort_plans(objects)) if len(objects) <= MOST_OBJECTS else ()
            return fleet_view(
                objects, self._session.namespace, datetime.now(UTC), self._money, past
            )

        return self._answer(request, await asyncio.to_thread(view))

    async def next_plan(self, request: Request) -> Response:
        changes = asked_changes(request)
        objects = await self._objects(request)
        outcome = await self._decided(objects, request, changes)
        without = await self._decided(objects, request, ()) if changes else None
        view = partial(next_view, objects, outcome, changes, self._money, without)
        return self._answer(request, await asyncio.to_thread(view))

    async def plans(self, request: Request) -> Response:
        plans = await self._read(request, self._session.plans)
        return self._answer(request, plans_view(plans, datetime.now(UTC), self._money))

    async def plan(self, request: Request) -> Response:
        name, plans = request.path_params["name"], await self._read(request, self._session.plans)
        other = request.query_params.get("with", "")
        objects = [*plans, *await self._servers()]
        view = partial(plan_view, objects, self._session.namespace, name, other, self._money)
        return self._answer(request, await asyncio.to_thread(view))

    async def server(self, request: Request) -> Response:
        name, objects = request.path_params["name"], await self._objects(request)
        namespace = self._session.namespace
        events = await self._events(choose_server(objects, namespace, name))
        outcome = await self._decided(objects, request, ())

        def view() -> ConsolePage:
            past = self._past.loads(sort_plans(objects))
            page = partial(
                server_view, objects, outcome, namespace, name, datetime.now(UTC), self._money
            )
            return page(past=past, events=events)

        return self._answer(request, await asyncio.to_thread(view))

    async def capacity(self, request: Request) -> Response:
        objects = await self._objects(request)
        return self._answer(
            request, await asyncio.to_thread(capacity_view, objects, datetime.now(UTC), self._money)
        )

    async def models(self, request: Request) -> Response:
        objects = await self._objects(request)
        return self._answer(request, await asyncio.to_thread(models_view, objects, self._money))

    async def model(self, request: Request) -> Response:
        name, objects = request.path_params["name"], await self._objects(request)
        view = partial(
            model_view, objects, self._session.namespace, name, datetime.now(UTC), self._money
        )
        return self._answer(request, await asyncio.to_thread(view))

    async def history(self, request: Request) -> Response:
        objects = await self._objects(request)
        view = partial(history_view, objects, datetime.now(UTC), self._money)
        return self._answer(request, await asyncio.to_thread(view))

    async def data(self, request: Request) -> Response:
        objects, leader = await self._objects(request), await self._leader()
        return self._answer(
            request, await asyncio.to_thread(data_view, objects, datetime.now(UTC), leader)
        )

    async def answer(self, request: Request) -> Response:
        """Answer a Plan as its form says, if it is still the one that was shown."""
        name, said = request.path_params["name"], request.path_params["answer"]
        if said not in ANSWERS:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        form = await form_of(request)
        digest = form.get("digest", "")
        action = f"{said} {self._session.namespace}/{name} {digest}"
        if not self._forms.is_form(action, form.get("form", "")):
            text = "This form is of an earlier visit: open the Plan again, and answer it there."
            page = self._pages.problem("Nothing was changed", text)
            return HTMLResponse(page, HTTPStatus.FORBIDDEN)
        state: PlanAnswer = next(s for s in get_args(PlanAnswer) if s == ANSWERS[said])
        await answer_plan(self._session, name, state, digest=digest)
        self.made.forget()
        return RedirectResponse(request.url.path.rpartition("/")[0], HTTPStatus.SEE_OTHER)

    async def news(self, _: Request) -> Response:
        if self._news.is_full:
            return PlainTextResponse("too many pages\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return StreamingResponse(self._news.events(), media_type="text/event-stream")

    async def failed(self, request: Request, error: Exception) -> Response:
        """Say what went wrong, in the form that was asked for."""
        status = HTTPStatus.SERVICE_UNAVAILABLE
        if isinstance(error, InputError):
            status = HTTPStatus.BAD_REQUEST
        elif isinstance(error, UnauthenticatedError):
            status = HTTPStatus.UNAUTHORIZED
        elif isinstance(error, RejectedError):
            status = HTTPStatus.FORBIDDEN
        if request.query_params.get("format") == "json":
            return JSONResponse({"error": str(error)}, status)
        advice = ADVICE.get(status, "") if request.method == "GET" else ""
        changes = asked_changes(request) if request.url.path == "/next" else None
        page = self._pages.problem(
            "This does not work", str(error), advice, changes, request.url.path
        )
        return HTMLResponse(page, status)

    async def missing(self, _: Request, error: Exception) -> Response:
        """Say that an address has no page, with the links to those that there are."""
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        return HTMLResponse(self._pages.problem("There is no such page", NO_PAGE), status)

    async def _objects(self, request: Request) -> Sequence[Observation]:
        """The objects of the namespace, with its Plans."""
        return await self._read(request, self._news.watched.objects)

    async def _events(self, server: Server) -> SeenEvents:
        """The events about a Server, for those who may see events."""
        try:
            return SeenEvents(await self._session.events(Server, server.metadata.name))
        except RejectedError as error:
            return SeenEvents(refusal=str(error))

    async def _leader(self) -> SeenLeader:
        """The Lease of the operators, for those who may read it."""
        try:
            return SeenLeader(await self._session.leader(self._operator_namespace))
        except (GoneError, RejectedError) as error:
            return SeenLeader(unknown=str(error))

    async def _servers(self) -> Sequence[Observation]:
        """The Servers; none for those who may only see Plans."""
        try:
            return [o for o in await self._news.watched.objects() if o.kind is Server]
        except RejectedError:
            return ()

    async def _read(
        self, request: Request, read: Callable[[], Awaitable[Sequence[Observation]]]
    ) -> Sequence[Observation]:
        """Read objects, for a page that is old as soon as anything changes from now on."""
        request.state.version = self._news.version
        return await read()

    async def _decided(
        self, seen: Sequence[Observation], request: Request, changes: Sequence[str]
    ) -> DryRun:
        """What would be decided now; one page at a time computes it."""
        name, namespace = request.query_params.get("optimizer"), self._session.namespace
        async with self._one_solve:
            return await asyncio.to_thread(decide, seen, namespace, name, changes, SOLVE_S)

    def _answer(self, request: Request, page: ConsolePage) -> Response:
        query = PageQuery(request.query_params.multi_items())
        match query.get("format"):
            case "json":
                return JSONResponse(page.document())
            case "csv":
                text = format_csv(order_rows(page.parts, query.order))
                return PlainTextResponse(text, media_type="text/csv")
        version = request.state.version
        return HTMLResponse(self._pages.html(page, request.url.path, query, version))


def asked_changes(request: Request) -> Sequence[str]:
    """The changes that a person wants to try."""
    return [word for text in request.query_params.getlist("set") for word in text.split()]


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; none if it is longer than ours."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM:
            return {}
    return dict(parse_qsl(body.decode(errors="replace")))


async def _static(request: Request) -> Response:
    return _file(request.path_params["name"])


async def _icon(_: Request) -> Response:
    return _file(ICON)


def _file(name: str) -> Response:
    if name not in MEDIA:
        return PlainTextResponse("there is no such file\n", HTTPStatus.NOT_FOUND)
    return Response(static_file(name), media_type=MEDIA[name])


STATIC = (Route("/static/{name}", _static), Route("/favicon.ico", _icon))
"""What everybody may read."""
