"""The console behind an authenticating proxy, on a real API server: each token decides."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferno_operator.cli.kubectl.console.page import ConsoleSettings
from inferno_operator.cli.kubectl.console.serve import (
    COOKIE,
    FINISH_S,
    OPEN_S,
    create_proxied_console,
)
from tests.cluster.console import api_server, hidden_fields, running_proxied_console, token_of
from tests.cluster.scene import Scene
from tests.cluster.test_plans import phases, propose, wait_for_phases
from tests.conftest import StartOperator
from tests.controlplane import ControlPlane
from tests.controlplane.waiting import PATIENCE_S

pytestmark = pytest.mark.usefixtures("crds_installed")

ORIGIN = "https://console.test"
PLAN = "/plans/inferno-1"


class Place:
    """A console in this process, whose namespaces are closed when `over` is set."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self._scene, self.over, self.slept = scene, asyncio.Event(), list[float]()
        server = api_server(scene.control_plane, folder)
        self.app = create_proxied_console(server, "llm", ORIGIN, self._sleep, ConsoleSettings())

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.over.wait()

    def token(self, name: str) -> str:
        return token_of(self._scene.control_plane, self._scene.namespace, name, "inferno-view")


@pytest.fixture
def place(scene: Scene, tmp_path: Path) -> Place:
    return Place(scene, tmp_path)


@asynccontextmanager
async def browser(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as client:
        yield client


@asynccontextmanager
async def through_proxy(
    place: Place, token: str, namespace: str = ""
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of which a proxy shows the token; it looks at a namespace, or at none yet."""
    async with browser(place.app) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        if namespace:
            client.cookies.set(COOKIE, namespace)
        yield client


async def choose(client: httpx.AsyncClient, namespace: str) -> httpx.Response:
    fields, headers = {"namespace": namespace}, {"Origin": ORIGIN}
    return await client.post("/namespaces", data=fields, headers=headers)


async def test_a_person_chooses_a_namespace_and_sees_it(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann")) as ann:
        asked = await ann.get("/", headers={"Accept": "text/html"})
        by_program = await ann.get("/?format=json")
        form = (await ann.get("/namespaces")).text
        wrong = await choose(ann, "My Models")

        chosen = await choose(ann, scene.namespace)

        assert (asked.status_code, asked.headers["location"]) == (303, "/namespaces")
        assert (by_program.status_code, wrong.status_code) == (400, 400)
        assert "Choose a namespace" in form
        assert 'value="llm"' in form
        assert "no name of a namespace" in wrong.text
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/")
        page = await ann.get("/plans")
        assert page.status_code == 200
        assert f'Namespace {scene.namespace} <a href="/namespaces">' in page.text


async def test_the_token_of_each_request_decides_and_not_the_cookie(
    scene: Scene, place: Place
) -> None:
    ann, nobody = place.token("ann"), token_of(scene.control_plane, scene.namespace, "eve")
    async with through_proxy(place, ann, scene.namespace) as client:
        assert (await client.get("/plans")).status_code == 200

        client.headers["Authorization"] = f"Bearer {nobody}"

        refused = await client.get("/plans")
        assert refused.status_code == 403
        assert "cannot list resource" in refused.text
        client.headers["Authorization"] = f"bearer {ann}"  # the scheme has no case (RFC 9110)
        assert (await client.get("/plans")).status_code == 200
        client.cookies.set(COOKIE, "default")
        assert (await client.get("/plans")).status_code == 403


async def test_rights_that_were_taken_away_end_at_once(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann"), scene.namespace) as ann:
        assert (await ann.get("/data")).status_code == 200

        scene.kubectl("delete", "rolebinding", "ann-inferno-view")
        async with asyncio.timeout(PATIENCE_S):
            while (await ann.get("/plans?q=1")).status_code == 200:
                pass

        refused = [await ann.get(path) for path in ("/data?q=1", "/plans?q=2")]
        assert [answer.status_code for answer in refused] == [403, 403]
        scene.kubectl("delete", "serviceaccount", "ann")
        async with asyncio.timeout(PATIENCE_S):
            while (await ann.get("/plans?q=3")).status_code == 403:
                pass
        assert (await ann.get("/plans?q=4")).status_code == 401


async def test_requests_that_come_at_once_read_a_namespace_once(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann"), scene.namespace) as ann:
        answers = await asyncio.gather(*(ann.get(path) for path in ("/plans", "/plans", "/data")))

        assert {answer.status_code for answer in answers} == {200}
        assert place.slept == [OPEN_S]


async def test_requests_without_a_token_say_what_the_proxy_has_to_do(place: Place) -> None:
    async with browser(place.app) as nobody:
        nobody.cookies.set(COOKIE, "llm")
        for path in ("/", "/plans", "/news", "/namespaces", "/static/style.css"):
            for shown in ("", "Basic YW5uOnNlY3JldA==", "Bearer", "Bearer a b"):
                refused = await nobody.get(path, headers={"Authorization": shown})

                assert refused.status_code == 401, (path, shown)
                assert "the proxy showed no token" in refused.text


async def test_other_hosts_and_other_origins_change_nothing(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann"), scene.namespace) as ann:
        elsewhere = await ann.get("/plans", headers={"Host": "evil.test"})
        forged = [
            await ann.post(path, data={"namespace": "x"}, headers=headers)
            for path in ("/namespaces", f"{PLAN}/approve")
            for headers in ({}, {"Origin": "https://evil.test"}, {"Origin": "null"})
        ]
        without_form = await ann.post(f"{PLAN}/approve", headers={"Origin": ORIGIN})

    assert elsewhere.status_code == 403
    assert {answer.status_code for answer in (*forged, without_form)} == {403}
    assert "Nothing was changed" in without_form.text


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


async def test_a_namespace_is_closed_on_time_though_nobody_asks(scene: Scene, place: Place) -> None:
    token, before = place.token("ann"), asyncio.all_tasks()
    app = place.app = Begun(place.app)

    async with through_proxy(place, token, scene.namespace) as ann:
        assert (await ann.get("/plans")).status_code == 200
        app.begun.clear()
        news = asyncio.create_task(ann.get("/news"))
        await asyncio.wait_for(app.begun.wait(), PATIENCE_S)
        assert place.slept == [OPEN_S]

        place.over.set()

        assert (await asyncio.wait_for(news, PATIENCE_S)).text.startswith("data: ")
        assert place.slept == [OPEN_S, FINISH_S]
        while left := asyncio.all_tasks() - before:
            _, pending = await asyncio.wait(left, timeout=PATIENCE_S)
            assert not pending, "the watches end, too"


class Visitor(httpx.Client):
    """A browser of one person, whose proxy shows a token."""

    def __init__(self, origin: str, trust: ssl.SSLContext, token: str, namespace: str) -> None:
        super().__init__(base_url=origin, verify=trust, trust_env=False, timeout=PATIENCE_S)
        self.origin = origin
        self.headers["Authorization"] = f"Bearer {token}"
        self.cookies.set(COOKIE, namespace)

    def send_form(self, path: str, fields: dict[str, str], origin: str = "") -> httpx.Response:
        return self.post(path, data=fields, headers={"Origin": origin or self.origin})

    def form(self, path: str, action: str) -> dict[str, str]:
        """Hidden fields of the form that does something."""
        return hidden_fields(self.get(path).text, action)


class Served:
    """A console in a cluster, which a proxy reaches with TLS."""

    def __init__(self, origin: str, trust: ssl.SSLContext, namespace: str) -> None:
        self._origin, self._trust, self._namespace = origin, trust, namespace
        self.opened = ExitStack()

    def visitor(self, token: str) -> Visitor:
        visitor = Visitor(self._origin, self._trust, token, self._namespace)
        return self.opened.enter_context(visitor)


@contextmanager
def served(plane: ControlPlane, folder: Path, namespace: str) -> Iterator[Served]:
    with running_proxied_console(plane, folder) as origin:
        trust = ssl.create_default_context(cafile=folder / "console-ca.crt")
        console = Served(origin, trust, namespace)
        with console.opened:
            yield console


@pytest.mark.extended
def test_each_person_has_the_rights_of_a_token(
    scene: Scene, operator: StartOperator, tmp_path: Path
) -> None:
    plane, namespace = scene.control_plane, scene.namespace
    propose(scene, operator)
    nobody = token_of(plane, namespace, "eve")
    reader = token_of(plane, namespace, "bob", "inferno-view")
    approver = token_of(plane, namespace, "ann", "inferno-view", "inferno-approve")
    approve = f"{PLAN}/approve"

    with served(plane, tmp_path, namespace) as console:
        refused = console.visitor(nobody).get("/")
        assert refused.status_code == 403
        assert "cannot list resource" in refused.text
        assert "inferno-1" not in refused.text

        bob = console.visitor(reader)
        answer = bob.send_form(approve, bob.form(PLAN, approve))
        assert answer.status_code == 403
        assert "you need the ClusterRole inferno-approve" in answer.text

        ann = console.visitor(approver)
        fields = ann.form(PLAN, approve)
        assert ann.send_form(approve, {"digest": fields["digest"]}).status_code == 403
        assert ann.send_form(approve, bob.form(PLAN, approve)).status_code == 403
        assert ann.send_form(approve, fields, "https://evil.test").status_code == 403
        assert bob.send_form(approve, fields).status_code == 403
        assert phases(scene) == {"inferno-1": "Proposed"}
        renewed = plane.kubectl("create", "token", "ann", "--namespace", namespace).stdout
        ann.headers["Authorization"] = f"Bearer {renewed.strip()}"
        assert ann.send_form(approve, fields).status_code == 303
        wait_for_phases(scene, inferno_1="Written")

    log = (tmp_path / "log").read_text()
    assert not [token for token in (nobody, reader, approver) if token in log]
