"""The console behind a proxy, before an API server that is made up: who gets how much of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import trustme
from aiohttp import web
from starlette.types import ASGIApp

from inferno_operator.adapters.kubernetes.kubectl import ApiServerAddress
from inferno_operator.cli.kubectl.console import serve
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_operator.cli.kubectl.console.serve import (
    COOKIE,
    FINISH_S,
    MOST_OF_ONE,
    MOST_OPENING,
    OPEN_S,
    create_proxied_console,
)
from inferno_operator.resources import Plan
from tests.cluster.console import hidden_fields
from tests.controlplane.waiting import PATIENCE_S
from tests.past import NAMESPACE, world
from tests.unit.operator.background import serving

ORIGIN = "https://console.test"


class Api:
    """An API server that has Plans at most.

    Attributes
    ----------
    users
        Names by token; "" for one that may not ask for it.
    reviews
        The tokens whose users were asked for; `most_at_once` at the same time.
    answers
        While it is not set, the user is not told.
    lists
        While it is not set, Plans are not listed.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self.users, self.reviews = users, list[str]()
        self._at_once = self.most_at_once = 0
        self.plans: Sequence[Mapping[str, object]] = ()
        self.asked, self.listed = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.answers, self.lists = asyncio.Event(), asyncio.Event()
        self.answers.set()
        self.lists.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/selfsubjectreviews"):
            return await self._review(request.headers["Authorization"].removeprefix("Bearer "))
        if "watch" in request.query:
            await asyncio.Event().wait()
        of_plans = request.path.endswith("/plans")
        if of_plans:
            self.listed.release()
            await self.lists.wait()
        items = [*self.plans] if of_plans else []
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def _review(self, token: str) -> web.Response:
        self.reviews.append(token)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.asked.release()
        await self.answers.wait()
        self._at_once -= 1
        if token not in self.users:
            return web.json_response({"message": "Unauthorized"}, status=401)
        if not self.users[token]:
            return web.json_response({"message": "Forbidden"}, status=403)
        review = {"status": {"userInfo": {"username": self.users[token]}}}
        return web.json_response(review, status=201)


class Place:
    """A console whose namespaces stay until they have to make room."""

    def __init__(self, api: Api, app: ASGIApp, slept: list[float]) -> None:
        self.api, self.slept = api, slept
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN)

    async def get(self, token: str, namespace: str, path: str = "/plans") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Cookie": f"{COOKIE}={namespace}"}
        return await self._client.get(path, headers=headers)

    async def statuses(self, token: str, *namespaces: str) -> list[int]:
        return [(await self.get(token, namespace)).status_code for namespace in namespaces]


@asynccontextmanager
async def place(
    folder: Path, users: Mapping[str, str], origin: str = ORIGIN
) -> AsyncIterator[Place]:
    authority, slept, over = folder / "ca.crt", list[float](), asyncio.Event()
    trustme.CA().cert_pem.write_to_path(str(authority))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await over.wait()

    api = Api(users)
    async with asyncio.timeout(PATIENCE_S), serving(api.answer) as url:
        address = ApiServerAddress(url, authority)
        app = create_proxied_console(address, "llm", origin, sleep, ConsoleSettings())
        try:
            yield Place(api, app, slept)
        finally:
            over.set()


async def test_who_opens_many_namespaces_closes_none_of_others(tmp_path: Path) -> None:
    made_up = [f"n{number}" for number in range(MOST_OF_ONE + 2)]
    async with place(tmp_path, {"a": "ann", "b": "bob"}) as console:
        assert await console.statuses("b", "llm") == [200]

        assert set(await console.statuses("a", *made_up)) == {200}

        reviews = len(console.api.reviews)
        assert await console.statuses("b", "llm") == [200]
        assert await console.statuses("a", *made_up[2:]) == MOST_OF_ONE * [200]
        assert len(console.api.reviews) == reviews, "they stayed open"
        assert await console.statuses("a", "n0") == [200]
        assert len(console.api.reviews) == reviews + 1


async def test_a_renewed_token_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    others = [f"n{number}" for number in range(MOST_OF_ONE - 1)]
    async with place(tmp_path, {"a": "ann", "a2": "ann"}) as console:
        await console.statuses("a", *others, "llm")

        assert await console.statuses("a2", "llm") == [200]

        reviews = len(console.api.reviews)
        assert await console.statuses("a", *others) == len(others) * [200]
        assert len(console.api.reviews) == reviews


async def test_there_is_no_place_while_others_have_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MOST_OPEN", 1)
    async with place(tmp_path, {"a": "ann", "b": "bob"}) as console:
        assert await console.statuses("a", "llm", "other") == [200, 200]

        refused = await console.get("b", "llm")

        assert refused.status_code == HTTPStatus.SERVICE_UNAVAILABLE
        assert "too many people" in refused.text
        assert await console.statuses("a", "other") == [200]


async def test_who_opens_one_after_the_other_gets_no_connections_without_end(
    tmp_path: Path,
) -> None:
    made_up = [f"n{number}" for number in range(2 * MOST_OF_ONE + 1)]
    async with place(tmp_path, {"a": "ann", "b": "bob"}) as console:
        assert await console.statuses("a", *made_up) == [*2 * MOST_OF_ONE * [200], 503]
        assert await console.statuses("b", "llm") == [200]


async def test_what_has_to_make_room_finishes_its_requests(tmp_path: Path) -> None:
    made_up = [f"n{number}" for number in range(MOST_OF_ONE)]
    async with place(tmp_path, {"a": "ann"}) as console:
        console.api.lists.clear()
        page = asyncio.create_task(console.get("a", "llm"))
        await console.api.listed.acquire()

        for namespace in made_up:
            assert (await console.get("a", namespace, "/nothing")).status_code == 404

        console.api.lists.set()
        assert (await page).status_code == 200
        assert console.slept == [*(MOST_OF_ONE + 1) * [OPEN_S], FINISH_S]


async def test_a_token_that_was_refused_is_not_asked_about_again_at_once(tmp_path: Path) -> None:
    namespaces = ["llm", *(f"n{number}" for number in range(20))]
    async with place(tmp_path, {"a": "ann"}) as console:
        answers = await asyncio.gather(*(console.get("eve", name) for name in namespaces))

        assert {answer.status_code for answer in answers} == {401}
        assert "does not know its issuer or audience" in answers[0].text
        assert console.api.reviews == ["eve"]
        assert await console.statuses("a", "llm") == [200]


async def test_a_refused_token_is_asked_about_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "REFUSED_S", 0.0)
    async with place(tmp_path, {}) as console:
        assert await console.statuses("a", "llm") == [401]
        console.api.users = {"a": "ann"}

        assert await console.statuses("a", "llm") == [200]


async def test_refused_tokens_that_are_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MOST_REFUSED", 1)
    async with place(tmp_path, {}) as console:
        for token in ("x", "y", "y", "x"):
            assert await console.statuses(token, "llm") == [401]

        assert console.api.reviews == ["x", "y", "x"]


async def test_a_few_tokens_are_asked_about_at_once(tmp_path: Path) -> None:
    tokens = [f"t{number}" for number in range(MOST_OPENING + 5)]
    async with place(tmp_path, dict.fromkeys(tokens, "ann")) as console:
        console.api.answers.clear()
        pages = [asyncio.create_task(console.get(t, "llm", "/nothing")) for t in tokens]
        for _ in range(MOST_OPENING):
            await console.api.asked.acquire()

        console.api.answers.set()

        await asyncio.gather(*pages)
        assert console.api.most_at_once == MOST_OPENING
        assert sorted(console.api.reviews) == sorted(tokens)


async def test_whom_the_api_server_does_not_name_has_forms_of_their_own(tmp_path: Path) -> None:
    *_, plan = (o.resource for o in world() if isinstance(o.resource, Plan))
    address = f"/plans/{plan.metadata.name}"
    action = f"{address}/reject"
    async with place(tmp_path, {"a": "", "b": ""}) as console:
        console.api.plans = [plan.model_dump(mode="json", by_alias=True, exclude_none=True)]

        pages = [(await console.get(token, NAMESPACE, address)).text for token in ("a", "b")]

        ann, bob = (hidden_fields(page, action) for page in pages)
        assert ann["digest"] == bob["digest"]
        assert ann["form"] != bob["form"]


@pytest.mark.parametrize("origin", ["https://Console.Test", "https://console.test:443"])
async def test_an_origin_may_be_written_in_other_ways(origin: str, tmp_path: Path) -> None:
    async with place(tmp_path, {"a": "ann"}, origin) as console:
        assert await console.statuses("a", "llm") == [200]
