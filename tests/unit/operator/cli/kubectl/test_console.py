"""The console: pages and their links, their forms, and events about a Server."""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from kubernetes.aio.client import CustomObjectsApi
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from inferno_operator.adapters.kubernetes.kubectl import Session
from inferno_operator.cli.kubectl.console.app import Forms, create_pages
from inferno_operator.cli.kubectl.console.html import NAVIGATION, PageQuery, Pages
from inferno_operator.cli.kubectl.console.news import News
from inferno_operator.cli.kubectl.console.page import ConsolePage, ConsoleSettings, PlanForm
from inferno_operator.cli.kubectl.console.serve import HEADERS, Guarded, LocalAccess
from inferno_operator.cli.kubectl.console.server import (
    EVENTS_SHOWN,
    SeenEvents,
    describe_events,
    encode_events,
)
from inferno_operator.cli.tables.table import TextTable
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.ports import RejectedError, UnauthenticatedError
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError
from tests.cluster.console import hidden_fields
from tests.past import NOW

PORT = 8123
HOME = f"http://127.0.0.1:{PORT}"
EVIL = '<script>alert("x")</script>'


class Browser:
    """Asks an application, and keeps its cookies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self.cookies = app, httpx.Cookies()

    def get(self, address: str, **headers: str) -> httpx.Response:
        return self._ask("GET", address, headers)

    def post(self, address: str, **headers: str) -> httpx.Response:
        return self._ask("POST", address, headers)

    def send(self, address: str, form: Mapping[str, str]) -> httpx.Response:
        return self._ask("POST", address, {}, form)

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str], form: Mapping[str, str] = {}
    ) -> httpx.Response:
        return asyncio.run(self._answer(method, address, headers, form))

    async def _answer(
        self, method: str, address: str, headers: Mapping[str, str], form: Mapping[str, str]
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(
            transport=transport, base_url=HOME, cookies=self.cookies
        ) as client:
            answer = await client.request(method, address, headers=headers, data=form)
            self.cookies.update(client.cookies)
            return answer


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(f"hello {Request(scope).method}")(scope, receive, send)


@pytest.fixture
def access() -> LocalAccess:
    return LocalAccess(PORT)


@pytest.fixture
def browser(access: LocalAccess) -> Browser:
    return Browser(Guarded(hello, access.refusal))


@pytest.fixture
def opened(browser: Browser, access: LocalAccess) -> Browser:
    browser.get(access.address)
    return browser


def html(page: ConsolePage) -> str:
    return Pages("llm", str.upper).render(page, "/", PageQuery())


def test_the_address_opens_one_browser_once(browser: Browser, access: LocalAccess) -> None:
    assert browser.get("/").status_code == 401

    first = browser.get(access.address)

    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= set(first.headers["set-cookie"].split("; "))
    assert browser.get("/").text == "hello GET"
    assert browser.get(access.address).status_code == 401


def test_the_cookie_is_not_what_the_address_has(opened: Browser, access: LocalAccess) -> None:
    (cookie,) = opened.cookies.values()
    assert cookie

    assert cookie not in access.address


@pytest.mark.parametrize("token", ["", "x", "ä"])
def test_another_token_opens_nothing(browser: Browser, token: str) -> None:
    assert browser.get(f"/?token={token}").status_code == 401
    assert not browser.cookies


@pytest.mark.parametrize("host", ["evil.test", f"evil.test:{PORT}", "127.0.0.1", "127.0.0.1:80"])
def test_requests_to_another_host_are_refused(opened: Browser, host: str) -> None:
    assert opened.get("/", Host=host).status_code == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.test", f"https://127.0.0.1:{PORT}"])
def test_only_pages_from_here_change_anything(opened: Browser, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}

    assert opened.post("/", **headers).status_code == 403
    assert opened.post("/", Origin=HOME).text == "hello POST"


@pytest.mark.parametrize("path", ["/", "/?token=x"])
def test_every_answer_has_the_headers(browser: Browser, path: str) -> None:
    headers = browser.get(path).headers

    assert {name: headers[name] for name in HEADERS} == HEADERS


def test_a_form_does_what_it_was_made_for(access: LocalAccess) -> None:
    token = access.form_token("approve p sha256:1")

    assert access.is_form("approve p sha256:1", token)
    assert not access.is_form("reject p sha256:1", token)
    assert not access.is_form("approve p sha256:2", token)
    assert not LocalAccess(PORT).is_form("approve p sha256:1", token)


def test_a_heading_sorts_and_then_turns_the_order_round() -> None:
    first = PageQuery([("set", "a=1"), ("q", "x")])
    again = PageQuery([("set", "a=1"), ("sort", "LOAD")])

    assert first.sorted_by("LOAD") == "?set=a%3D1&q=x&sort=LOAD"
    assert again.sorted_by("LOAD") == "?set=a%3D1&sort=LOAD&order=falling"


def test_nothing_on_a_page_is_code() -> None:
    table = TextTable(("SERVER",), [(EVIL,)])
    page = ConsolePage(EVIL, (EVIL, table), dict, form=PlanForm(EVIL, EVIL))

    text = html(page)

    assert "<script>alert" not in text
    assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/news.js" defer>']
    assert 'href="/servers/%3Cscript%3E' in text


def test_a_plan_that_is_not_what_it_shows_has_no_button_to_approve() -> None:
    page = ConsolePage("Plan p", (), dict, form=PlanForm("p", "d", "do not approve it"))

    text = html(page)

    assert "do not approve it" in text
    assert "/plans/p/approve" not in text
    assert "/plans/p/reject" in text


def test_the_address_names_the_loopback_alone(access: LocalAccess) -> None:
    assert urlsplit(access.address).netloc == f"127.0.0.1:{PORT}"


class Failing(Session):
    """A namespace of which nothing can be read."""

    def __init__(self, error: InfernoError, namespace: str = "llm") -> None:
        super().__init__(CustomObjectsApi(object()), namespace)
        self._error = error

    async def plans(self) -> list[Observation]:
        raise self._error

    async def check_rights(self, *_: object, **__: object) -> None:
        raise self._error


def pages_that_fail(error: InfernoError, namespace: str = "llm") -> Browser:
    session = Failing(error, namespace)
    news = News(session, time.process_time)
    return Browser(create_pages(session, Forms("secret"), news, ConsoleSettings()))


@pytest.fixture
def pages() -> Browser:
    return pages_that_fail(UnavailableError("Plans: the API server does not answer"))


@pytest.mark.parametrize("address", ["/nothing", "/plans/p/forget", "/servers/a/b"])
def test_an_address_without_a_page_leads_to_those_that_there_are(
    pages: Browser, address: str
) -> None:
    answer = pages.get(address)

    assert answer.status_code in {404, 405}
    assert "There is no such page" in answer.text
    assert all(f'href="{there}"' in answer.text for there, _ in NAVIGATION)


def test_a_form_of_an_earlier_visit_says_what_to_do(pages: Browser) -> None:
    answer = pages.post("/plans/p/approve")

    assert answer.status_code == 403
    assert "Nothing was changed" in answer.text
    assert "open the Plan again, and answer it there" in answer.text


@pytest.mark.parametrize(("namespace", "status"), [("llm", 503), ("staging", 403)])
def test_a_form_answers_a_plan_of_its_namespace_alone(namespace: str, status: int) -> None:
    page = ConsolePage("Plan p", (), dict, form=PlanForm("p", "d"))
    text = Pages("llm", Forms("secret").form_token).render(page, "/", PageQuery())
    pages = pages_that_fail(UnavailableError("nobody answers"), namespace)

    answer = pages.send("/plans/p/approve", hidden_fields(text, "/plans/p/approve"))

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("error", "status", "advice"),
    [
        (UnavailableError("nobody answers"), 503, "Reload this page to try again."),
        (UnauthenticatedError("too old"), 401, "Log in again."),
        (RejectedError("forbidden"), 403, "takes the ClusterRole inferno-view in it: ask"),
    ],
)
def test_a_page_that_cannot_be_read_says_what_to_do(
    error: InfernoError, status: int, advice: str
) -> None:
    answer = pages_that_fail(error).get("/plans")

    assert answer.status_code == status
    assert f'<p class="notice trouble"><span>{error}</span></p>' in answer.text
    assert advice in answer.text


def test_a_change_that_does_not_work_can_be_corrected() -> None:
    pages = pages_that_fail(InputError("capacity.X: expected KIND.NAME.FIELD=VALUE"))

    answer = pages.get("/next?set=capacity.X")

    assert answer.status_code == 400
    assert 'name="set" size="60" value="capacity.X"' in answer.text
    assert 'name="set"' not in pages.get("/plans").text


def test_a_button_says_what_it_does() -> None:
    asked = html(ConsolePage("Plan p", (), dict, form=PlanForm("p", "d")))
    refused = html(ConsolePage("Plan p", (), dict, form=PlanForm("p", "d", "do not approve it")))
    what_if = html(ConsolePage("Next plan", (), dict, changes=()))

    assert "Approved, the operator changes the Servers as below." in asked
    assert "Rejected, nothing changes" in asked
    assert "Approved" not in refused
    assert "Rejected, nothing changes" in refused
    assert "no Server changes" in what_if


def event(reason: str, **times: object) -> dict[str, Any]:
    return {"reason": reason, "type": "Normal", "message": f"{reason}!", **times}


def test_events_are_shown_with_the_newest_first_whatever_tells_their_time() -> None:
    seen = SeenEvents(
        [
            event("Older", eventTime="2026-11-24T11:00:00.000000Z", lastTimestamp=None),
            event("Newest", series={"lastObservedTime": "2026-11-24T11:59:00.000000Z"}),
            event("Middle", lastTimestamp="2026-11-24T11:30:00Z"),
            event("Timeless"),
        ]
    )

    (table,) = describe_events(seen, NOW)

    assert isinstance(table, TextTable)
    assert [(row[0], row[2]) for row in table.rows] == [
        ("Newest", "1m"), ("Middle", "30m"), ("Older", "1h"), ("Timeless", "-"),
    ]  # fmt: skip


def test_only_the_newest_events_are_shown() -> None:
    events = [
        event(f"E{n}", eventTime=f"2026-11-24T11:{n:02}:00Z") for n in range(EVENTS_SHOWN + 5)
    ]

    shown = encode_events(SeenEvents(events))

    assert [item["reason"] for item in shown] == [f"E{n}" for n in range(EVENTS_SHOWN + 4, 4, -1)]


def test_who_may_not_see_events_is_told_so() -> None:
    refusal = "HTTP 403: cannot list resource events"

    assert list(describe_events(SeenEvents(refusal=refusal), NOW)) == [
        f"events are not shown: {refusal}"
    ]
    assert list(describe_events(SeenEvents(), NOW)) == []
