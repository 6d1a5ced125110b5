"""The console behind an authenticating proxy, on a real API server: each token decides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from inferno_operator.cli.kubectl.console.attempts import MOST_OF_CLIENT, WINDOW_S
from inferno_operator.cli.kubectl.console.proxied import COOKIE
from tests.cluster.console import hidden_fields, token_of
from tests.cluster.scene import Scene
from tests.cluster.test_visits import ORIGIN, Place, browser

pytestmark = pytest.mark.usefixtures("crds_installed")


@pytest.fixture
def place(scene: Scene, tmp_path: Path) -> Place:
    return Place(scene, tmp_path, behind_proxy=True)


@asynccontextmanager
async def through_proxy(place: Place, token: str) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of which a proxy shows the token."""
    async with browser(place.app) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


async def choose(client: httpx.AsyncClient, namespace: str) -> httpx.Response:
    return await client.post("/login", data={"namespace": namespace}, headers={"Origin": ORIGIN})


async def test_a_person_chooses_a_namespace_and_sees_it(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann")) as ann:
        asked = await ann.get("/", headers={"Accept": "text/html"})
        form = (await ann.get("/login")).text

        chosen = await choose(ann, scene.namespace)

        assert (asked.status_code, asked.headers["location"]) == (303, "/login")
        assert "Choose a namespace" in form
        assert 'name="token"' not in form
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/")
        page = await ann.get("/plans")
        assert page.status_code == 200
        assert f"Namespace {scene.namespace}" in page.text
        fields = hidden_fields(page.text, "/logout")
        left = await ann.post("/logout", data=fields, headers={"Origin": ORIGIN})
        assert (left.status_code, left.headers["location"]) == (303, "/login")
        assert (await ann.get("/plans")).status_code == 401


async def test_the_token_of_each_request_decides_and_not_the_cookie(
    scene: Scene, place: Place
) -> None:
    ann, nobody = place.token("ann"), token_of(scene.control_plane, scene.namespace, "eve")
    async with through_proxy(place, ann) as client:
        await choose(client, scene.namespace)
        fields = hidden_fields((await client.get("/plans")).text, "/logout")

        client.headers["Authorization"] = f"Bearer {nobody}"

        refused = await client.get("/plans")
        assert refused.status_code == 403
        assert "cannot list resource" in refused.text
        forged = await client.post("/logout", data=fields, headers={"Origin": ORIGIN})
        assert forged.status_code == 403
        client.headers["Authorization"] = f"bearer {ann}"  # the scheme has no case (RFC 9110)
        assert (await client.get("/plans")).status_code == 200


async def test_a_token_that_was_renewed_shows_the_same_pages(scene: Scene, place: Place) -> None:
    here = ("--namespace", scene.namespace)
    async with through_proxy(place, place.token("ann")) as ann:
        await choose(ann, scene.namespace)
        renewed = scene.control_plane.kubectl("create", "token", "ann", *here).stdout.strip()

        ann.headers["Authorization"] = f"Bearer {renewed}"

        assert (await ann.get("/plans")).status_code == 200


async def test_requests_that_come_at_once_begin_one_visit(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann")) as ann:
        ann.cookies.set(COOKIE, scene.namespace)

        answers = await asyncio.gather(*(ann.get(path) for path in ("/plans", "/plans", "/data")))

        assert {answer.status_code for answer in answers} == {200}
        assert place.slept == [8 * 3600]


async def test_requests_without_a_token_say_what_the_proxy_has_to_do(
    scene: Scene, place: Place
) -> None:
    async with browser(place.app) as nobody:
        chosen = await choose(nobody, scene.namespace)
        nobody.cookies.set(COOKIE, scene.namespace)
        page = await nobody.get("/plans", headers={"Authorization": "Basic YW5uOnNlY3JldA=="})

    assert (chosen.status_code, page.status_code) == (401, 401)
    assert "the proxy showed no token" in chosen.text
    assert "the proxy showed no token" in page.text


async def test_tokens_that_are_not_taken_are_tried_a_few_times_a_minute(
    scene: Scene, place: Place
) -> None:
    token = place.token("ann")
    async with through_proxy(place, "x.y.z") as client:
        client.cookies.set(COOKIE, scene.namespace)
        refused = [await client.get("/plans") for _ in range(MOST_OF_CLIENT + 1)]
        client.headers["Authorization"] = f"Bearer {token}"
        place.time_s += WINDOW_S
        later = await client.get("/plans")

    assert {answer.status_code for answer in refused[:-1]} == {401}
    assert "does not know its issuer or audience" in refused[0].text
    assert refused[-1].status_code == 429
    assert refused[-1].headers["retry-after"] == "60"
    assert later.status_code == 200


async def test_other_hosts_and_other_origins_change_nothing(scene: Scene, place: Place) -> None:
    async with through_proxy(place, place.token("ann")) as ann:
        elsewhere = await ann.get("/plans", headers={"Host": "evil.test"})
        forged = await ann.post("/login", data={"namespace": scene.namespace})

    assert (elsewhere.status_code, forged.status_code) == (403, 403)
