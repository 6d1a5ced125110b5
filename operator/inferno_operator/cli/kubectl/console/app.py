"""The routes of the console: read the namespace, compute a page, render it.

A page is made once for all who ask for it before anything changes: many pages may be open.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from http import HTTPStatus
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
from inferno_operator.cli.kubectl.choices import (
    DryRun,
    PlanAnswer,
    answer_plan,
    choose_server,
    decide,
    sort_plans,
)
from inferno_operator.cli.kubectl.console.data import SeenLeader, view_data
from inferno_operator.cli.kubectl.console.fleet import view_capacity, view_fleet
from inferno_operator.cli.kubectl.console.html import PageQuery, Pages, read_static_file
from inferno_operator.cli.kubectl.console.models import view_model, view_models
from inferno_operator.cli.kubectl.console.news import News
from inferno_operator.cli.kubectl.console.page import ConsolePage, ConsoleSettings, SeenNamespace
from inferno_operator.cli.kubectl.console.plans import (
    MOST_OBJECTS,
    PlanLoads,
    view_history,
    view_next_plan,
    view_plan,
    view_plans,
)
from inferno_operator.cli.kubectl.console.server import SeenEvents, view_server
from inferno_operator.cli.tables.table import format_csv, order_rows
from inferno_operator.resources import Server
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.ports import GoneError, RejectedError, UnauthenticatedError
from inferno_optimizer.errors import InfernoError, InputError

KEPT_S = 5.0  # how long a page is good where nothing changes: it says how long ago things were [s]
MOST_KEPT = 64  # pages that are kept, at most
SOLVE_S = 10.0  # time limit of the exact solver for a page [s]
MOST_FORM = 16_384  # largest form that is read [bytes]
MEDIA = {
    "style.css": "text/css",
    "console.css": "text/css",
    "news.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

# What the forms say to a Plan.
ANSWERS: Mapping[str, PlanAnswer] = {"approve": "Approved", "reject": "Rejected"}

# What a person can do about a failure, by the status.
ADVICE = {
    HTTPStatus.BAD_REQUEST: "Correct that, then load this page again, or go on by the links above.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Reload this page to try again.",
    HTTPStatus.UNAUTHORIZED: "Log in again.",
    HTTPStatus.FORBIDDEN: "To see a namespace takes the ClusterRole inferno-view in it: ask whoever"
    " gives rights there.",
}

NO_PAGE = (
    "The links above lead to all pages; a table on each leads to its Servers, Models and Plans."
)

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _Made:
    version: int
    until_s: float
    answer: asyncio.Task[Response]


class SharedPages:
    """The pages that were made since the last change.

    `news`: what tells of changes; `clock`: seconds since some moment.
    """

    def __init__(self, news: News, clock: Callable[[], float]) -> None:
        self._news, self._clock = news, clock
        self._made: dict[str, _Made] = {}

    def forget(self) -> None:
        """Make every page anew."""
        self._made.clear()

    def share(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint that answers equal requests together."""

        async def answer(request: Request) -> Response:
            address = f"{request.url.path}?{request.url.query}"
            made = self._made.get(address)
            if made is None or not self._is_new(made):
                task = asyncio.ensure_future(endpoint(request))
                made = _Made(self._news.version, self._clock() + KEPT_S, task)
                self._made = {a: m for a, m in self._made.items() if self._is_new(m)}
                if len(self._made) >= MOST_KEPT:
                    self.forget()
                self._made[address] = made
            return await asyncio.shield(made.answer)

        return answer

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
        """Return the token of a form that does one thing, which nobody else can know."""
        return hmac.new(self._secret.encode(), action.encode(), sha256).hexdigest()

    def is_form(self, action: str, token: str) -> bool:
        """Whether a token is that of a form."""
        return hmac.compare_digest(self.form_token(action).encode(), token.encode())


def create_pages(
    session: Session, forms: Forms, news: News, settings: ConsoleSettings, *, namespaces: str = ""
) -> ASGIApp:
    """Return the pages of a namespace, with the rights of a session.

    `namespaces` is the address where another one can be chosen; "" if there is none.
    """
    console = _Console(session, forms, news, settings, namespaces)
    pages = {
        "/": console.view(console.view_fleet),
        "/next": console.next_plan,
        "/plans": console.plans,
        "/plans/{name}": console.plan,
        "/servers/{name}": console.server,
        "/capacity": console.view(view_capacity),
        "/models": console.view(view_models),
        "/models/{name}": console.view(view_model),
        "/history": console.view(view_history),
        "/data": console.data,
    }
    routes = [
        *(Route(path, console.shared.share(console.respond(page))) for path, page in pages.items()),
        Route("/plans/{name}/{answer}", console.answer, methods=["POST"]),
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
        self._namespace, self._objects = session.namespace, news.watched.objects
        self._money, self._operator_namespace = settings.money, settings.operator_namespace
        self._pages = Pages(session.namespace, forms.form_token, settings.money, namespaces)
        self._one_solve, self._past = asyncio.Lock(), PlanLoads()
        self.shared = SharedPages(news, time.monotonic)

    def respond(self, build: Callable[[Request], Awaitable[ConsolePage]]) -> Endpoint:
        """Return the endpoint that answers with a page as HTML, JSON or CSV."""

        async def answer(request: Request) -> Response:
            version = self._news.version  # the page is old as soon as anything changes from now on
            page = await build(request)
            query = PageQuery(request.query_params.multi_items())
            match query.get("format"):
                case "json":
                    return JSONResponse(page.document())
                case "csv":
                    text = format_csv(order_rows(page.parts, query.order))
                    return PlainTextResponse(text, media_type="text/csv")
            return HTMLResponse(self._pages.render(page, request.url.path, query, version))

        return answer

    def view(self, view: Callable[..., ConsolePage]) -> Callable[[Request], Awaitable[ConsolePage]]:
        """Return what makes a page of all objects; the address may name what it is about."""

        async def build(request: Request) -> ConsolePage:
            return await asyncio.to_thread(view, await self._see(), **request.path_params)

        return build

    def view_fleet(self, seen: SeenNamespace) -> ConsolePage:
        """Return the first page; loads over time are left out where they would be too many."""
        is_large = len(seen.objects) > MOST_OBJECTS
        return view_fleet(seen, () if is_large else self._past.loads(sort_plans(seen.objects)))

    async def next_plan(self, request: Request) -> ConsolePage:
        changes, seen = read_changes(request), await self._see()
        outcome = await self._decide(seen, request, changes)
        without = await self._decide(seen, request, ()) if changes else None
        return await asyncio.to_thread(view_next_plan, seen, outcome, changes, without)

    async def plans(self, _: Request) -> ConsolePage:
        return view_plans(self._as_seen(await self._session.plans()))

    async def plan(self, request: Request) -> ConsolePage:
        name, other = request.path_params["name"], request.query_params.get("with", "")
        objects = list(await self._session.plans())
        with suppress(RejectedError):  # some people may see Plans only
            objects += [o for o in await self._objects() if o.kind is Server]
        return await asyncio.to_thread(view_plan, self._as_seen(objects), name, other)

    async def server(self, request: Request) -> ConsolePage:
        name, seen = request.path_params["name"], await self._see()
        found = choose_server(seen.objects, seen.name, name)
        try:
            events = SeenEvents(await self._session.events(Server, found.metadata.name))
        except RejectedError as error:
            events = SeenEvents(refusal=str(error))
        outcome = await self._decide(seen, request, ())

        def build() -> ConsolePage:
            past = self._past.loads(sort_plans(seen.objects))
            return view_server(seen, outcome, name, past=past, events=events)

        return await asyncio.to_thread(build)

    async def data(self, _: Request) -> ConsolePage:
        seen = await self._see()
        try:
            leader = SeenLeader(await self._session.leader(self._operator_namespace))
        except (GoneError, RejectedError) as error:
            leader = SeenLeader(unknown=str(error))
        return await asyncio.to_thread(view_data, seen, leader)

    async def _see(self) -> SeenNamespace:
        return self._as_seen(await self._objects())

    def _as_seen(self, objects: Sequence[Observation]) -> SeenNamespace:
        return SeenNamespace(objects, self._namespace, datetime.now(UTC), self._money)

    async def answer(self, request: Request) -> Response:
        """Answer a Plan as its form says, if it is still the one that was shown."""
        name, verb = request.path_params["name"], request.path_params["answer"]
        if verb not in ANSWERS:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        form = await read_form(request)
        digest = form.get("digest", "")
        action = f"{verb} {self._namespace}/{name} {digest}"
        if not self._forms.is_form(action, form.get("form", "")):
            text = "This form is of an earlier visit: open the Plan again, and answer it there."
            page = self._pages.render_problem("Nothing was changed", text)
            return HTMLResponse(page, HTTPStatus.FORBIDDEN)
        await answer_plan(self._session, name, ANSWERS[verb], digest=digest)
        self.shared.forget()
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
        changes = read_changes(request) if request.url.path == "/next" else None
        page = self._pages.render_problem(
            "This does not work", str(error), advice, changes, request.url.path
        )
        return HTMLResponse(page, status)

    async def missing(self, _: Request, error: Exception) -> Response:
        """Say that an address has no page, with the links to those that there are."""
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        return HTMLResponse(self._pages.render_problem("There is no such page", NO_PAGE), status)

    async def _decide(
        self, seen: SeenNamespace, request: Request, changes: Sequence[str]
    ) -> DryRun:
        """Decide as the operator would now; one page at a time computes it."""
        name = request.query_params.get("optimizer")
        async with self._one_solve:
            return await asyncio.to_thread(decide, seen.objects, seen.name, name, changes, SOLVE_S)


def read_changes(request: Request) -> Sequence[str]:
    """Return the changes that a person wants to try."""
    return [word for text in request.query_params.getlist("set") for word in text.split()]


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; none if it is longer than ours."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_FORM:
            return {}
    return dict(parse_qsl(body.decode(errors="replace")))


async def _send_file(request: Request) -> Response:
    name = request.path_params.get("name", "icon.svg")
    if name not in MEDIA:
        return PlainTextResponse("there is no such file\n", HTTPStatus.NOT_FOUND)
    return Response(read_static_file(name), media_type=MEDIA[name])


# What everybody may read.
STATIC = (Route("/static/{name}", _send_file), Route("/favicon.ico", _send_file))
