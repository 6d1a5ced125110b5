"""Visits of the console that people log in to, on a real API server: their end, their number."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_operator.cli.kubectl.console import visits
from inferno_operator.cli.kubectl.console.attempts import MOST_OF_CLIENT, WINDOW_S
from inferno_operator.cli.kubectl.console.hosted import hosted_console
from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from tests.cluster.console import KEY, api_server, hidden_fields, token_of
from tests.cluster.scene import Scene
from tests.controlplane.waiting import PATIENCE_S

pytestmark = pytest.mark.usefixtures("crds_installed")

ORIGIN = "https://console.test"


class Place:
    """A console in this process, whose visits end when `over` is set."""

    def __init__(self, scene: Scene, folder: Path, *, behind_proxy: bool = False) -> None:
        self._scene, self.over, self.slept = scene, asyncio.Event(), list[float]()
        server = api_server(scene.control_plane, folder)
        self.time_s = 0.0
        self.app = hosted_console(
            server,
            scene.namespace,
            ORIGIN,
            KEY,
            self._sleep,
            lambda: self.time_s,
            ConsoleSettings(),
            behind_proxy=behind_proxy,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.over.wait()

    def token(self, name: str) -> str:
        return token_of(self._scene.control_plane, self._scene.namespace, name, "inferno-view")

    async def log_in(self, browser: httpx.AsyncClient, token: str) -> httpx.Response:
        fields = {"token": token, "namespace": self._scene.namespace}
        return await browser.post("/login", data=fields, headers={"Origin": ORIGIN})


@asynccontextmanager
async def browser(app: ASGIApp, address: str = "192.0.2.1") -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        yield client


class Begun:
    """An application that tells when the body of an answer begins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self.begun = app, asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            await send(message)
            if message.get("body"):
                self.begun.set()

        await self._app(scope, receive, told)


async def test_a_visit_ends_on_time_though_nobody_asks(scene: Scene, tmp_path: Path) -> None:
    place = Place(scene, tmp_path)
    token, before = place.token("ann"), asyncio.all_tasks()
    app = Begun(place.app)

    async with browser(app) as ann:
        assert (await place.log_in(ann, token)).status_code == 303
        assert (await ann.get("/plans")).status_code == 200
        app.begun.clear()
        news = asyncio.create_task(ann.get("/news"))
        await asyncio.wait_for(app.begun.wait(), PATIENCE_S)
        assert place.slept == [8 * 3600]

        place.over.set()

        assert (await asyncio.wait_for(news, PATIENCE_S)).text.startswith("data: ")
        assert (await ann.get("/plans")).status_code == 401
        while left := asyncio.all_tasks() - before:
            _, pending = await asyncio.wait(left, timeout=PATIENCE_S)
            assert not pending, "the watches end, too"


async def test_nobody_who_logs_in_takes_the_place_of_another(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "MOST", 2)
    place = Place(scene, tmp_path)
    tokens = list(map(place.token, ("ann", "bob", "eve")))

    async with browser(place.app) as ann, browser(place.app) as bob, browser(place.app) as eve:
        first, second, third = [
            await place.log_in(*person) for person in zip((ann, bob, eve), tokens, strict=True)
        ]
        assert (first.status_code, second.status_code, third.status_code) == (303, 303, 503)
        assert "2 people are logged in already; try again later" in third.text
        assert (await ann.get("/plans")).status_code == 200
        fields = hidden_fields((await bob.get("/plans")).text, "/logout")
        await bob.post("/logout", data=fields, headers={"Origin": ORIGIN})
        assert (await place.log_in(eve, tokens[2])).status_code == 303


async def test_the_oldest_visit_of_a_person_with_too_many_ends(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "MOST_OF_ONE", 2)
    place = Place(scene, tmp_path)
    ann, bob = place.token("ann"), place.token("bob")

    async with browser(place.app) as other, browser(place.app) as first, browser(place.app) as last:
        await place.log_in(other, bob)
        await place.log_in(first, ann)
        for _ in range(2):
            assert (await place.log_in(last, ann)).status_code == 303
        opened = [(await person.get("/plans")).status_code for person in (other, first, last)]
        assert opened == [200, 401, 200]


async def test_who_guesses_tokens_waits_and_others_do_not(scene: Scene, tmp_path: Path) -> None:
    place = Place(scene, tmp_path)
    token = place.token("ann")

    async with browser(place.app) as eve, browser(place.app, "192.0.2.2") as ann:
        guesses = [place.log_in(eve, f"x.y.{number}") for number in range(MOST_OF_CLIENT + 3)]
        statuses = [answer.status_code for answer in await asyncio.gather(*guesses)]
        assert sorted(statuses) == [401] * MOST_OF_CLIENT + [429] * 3
        place.time_s = 20.5
        refused = await place.log_in(eve, token)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "40")
        told = "too many logins failed: try again in 40 s"
        assert f'<p class="short" role="alert">{told}</p>' in refused.text
        assert 'name="token"' in refused.text
        for _ in range(MOST_OF_CLIENT + 1):
            assert (await place.log_in(ann, token)).status_code == 303
        place.time_s = WINDOW_S
        assert (await place.log_in(eve, token)).status_code == 303
