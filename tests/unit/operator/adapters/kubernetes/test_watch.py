"""Watches whose connection falls silent, before an API server that is made up, in virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration, CustomObjectsApi

from inferno_operator.adapters.kubernetes.api_server import ApiReader
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Place, kind_of
from inferno_operator.runtime.informers import Informers, Subscription
from tests.loops import VirtualTimeLoop
from tests.unit.operator.background import in_background, serving
from tests.unit.operator.objects import Manifest, server

SERVER = kind_of(Server)
MINUTE_S = 60.0
NOTICED_S = 82.0
"""What a silence may last until it is noticed: the read limit, a question, and the jitter."""


def versioned(name: str, version: int) -> Manifest:
    metadata = {"name": name, "namespace": "n", "uid": name, "generation": 1}
    return {**server("S"), "metadata": {**metadata, "resourceVersion": str(version)}}


class Api:
    """The API server of one kind, at a version, which may say nothing to whoever watches.

    Attributes
    ----------
    has_bookmarks
        Whether watches get one each minute.
    is_dead
        Whether nothing is answered any more, and no connection is closed.
    lists, questions, watches
        Requests for all objects, for one object at most, and to watch.
    """

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, Manifest] = {}
        self.has_bookmarks = True
        self.is_dead = False
        self.lists = self.questions = self.watches = 0
        self._streams: set[web.StreamResponse] = set()

    def put(self, name: str, version: int) -> Manifest:
        self.version = version
        self.objects[name] = versioned(name, version)
        return self.objects[name]

    async def tell(self, name: str) -> None:
        """Send an object to all who watch."""
        for stream in self._streams:
            await self._send(stream, "MODIFIED", self.objects[name])

    def forget_streams(self) -> None:
        """Keep the connections of those who watch open, and send nothing more."""
        self._streams.clear()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.is_dead:
            await asyncio.Event().wait()
        if "watch" in request.query:
            return await self._watch(request, int(request.query["resourceVersion"]))
        is_question = request.query["limit"] == "1"
        self.questions += is_question
        self.lists += not is_question
        items = [*self.objects.values()][: int(request.query["limit"])]
        body = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        return web.json_response(body)

    async def _watch(self, request: web.Request, since: int) -> web.StreamResponse:
        self.watches += 1
        stream = web.StreamResponse()
        await stream.prepare(request)
        for manifest in self.objects.values():
            if int(manifest["metadata"]["resourceVersion"]) > since:
                await self._send(stream, "MODIFIED", manifest)
        self._streams.add(stream)
        ends_at = asyncio.get_running_loop().time() + float(request.query["timeoutSeconds"])
        while asyncio.get_running_loop().time() < ends_at:
            await asyncio.sleep(MINUTE_S)
            if self.has_bookmarks and not self.is_dead and self.version >= since:
                await self._send(stream, "BOOKMARK", versioned("", self.version))
        self._streams.discard(stream)
        return stream

    @staticmethod
    async def _send(stream: web.StreamResponse, type_: str, manifest: Manifest) -> None:
        with suppress(ConnectionError):  # whoever watched is gone
            await stream.write(json.dumps({"type": type_, "object": manifest}).encode() + b"\n")


@asynccontextmanager
async def followed(api: Api) -> AsyncIterator[Subscription]:
    """Follow the objects of an API server, through real connections."""
    async with serving(api.answer) as url:
        configuration = Configuration(host=url)
        configuration.client_session_kwargs = {"trust_env": False}  # asked in a thread
        async with ApiClient(configuration) as client:
            subscription = Informers(ApiReader(CustomObjectsApi(client))).subscribe([SERVER])
            async with in_background(subscription.run()):
                await subscription.complete(MINUTE_S)
                yield subscription


Work = Callable[[Api, Subscription], Coroutine[object, object, None]]


def follow(api: Api, work: Work) -> None:
    """Do something while the objects of an API server are followed."""

    async def run() -> None:
        async with followed(api) as subscription:
            await work(api, subscription)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


async def seconds_until(
    condition: Callable[[], bool], tick: Callable[[], Awaitable[None]]
) -> float:
    """How long it takes until something holds [s]."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        await tick()
        assert loop.time() < began + 600
    return loop.time() - began


async def tick() -> None:
    await asyncio.sleep(1)


def version_of(subscription: Subscription, name: str = "a") -> str:
    manifest = subscription.get(Place(SERVER, Key("n", name)))
    return manifest["metadata"]["resourceVersion"] if manifest else ""


@pytest.mark.parametrize("has_bookmarks", [True, False])
def test_an_idle_kind_is_not_listed_anew(has_bookmarks: bool) -> None:
    api = Api()
    api.has_bookmarks = has_bookmarks
    api.put("a", 10)

    async def idle(api: Api, subscription: Subscription) -> None:
        await asyncio.sleep(15 * MINUTE_S)
        assert subscription.is_complete
        api.put("a", 20)
        await api.tell("a")
        assert await seconds_until(lambda: version_of(subscription) == "20", tick) < 5

    follow(api, idle)

    assert api.lists == 1
    assert (api.questions > 0) is not has_bookmarks


def test_a_connection_that_dies_silently_is_replaced_and_nothing_is_missed() -> None:
    api = Api()
    api.put("a", 10)

    async def miss(api: Api, subscription: Subscription) -> None:
        api.forget_streams()
        api.has_bookmarks = False
        api.put("a", 20)
        assert await seconds_until(lambda: version_of(subscription) == "20", tick) < NOTICED_S

    follow(api, miss)

    assert api.lists == 1


def test_an_api_server_that_falls_silent_is_not_known_any_more() -> None:
    async def die(api: Api, subscription: Subscription) -> None:
        api.is_dead = True
        assert await seconds_until(lambda: not subscription.is_complete, tick) < NOTICED_S
        assert "does not answer" in subscription.unready()

    follow(Api(), die)


@pytest.mark.parametrize("end", ["breaks", "is silent", "has older bookmarks"])
def test_objects_of_an_older_version_replace_what_was_known(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api()
    api.put("gone", 9)
    api.put("a", 10)

    async def restore(api: Api, subscription: Subscription) -> None:
        api.put("a", 30)
        await api.tell("a")
        await seconds_until(lambda: version_of(subscription) == "30", tick)
        api.objects.clear()
        api.put("a", 12)
        api.has_bookmarks = end != "is silent"
        if end == "breaks":
            for stream in api._streams:  # noqa: SLF001 - as a crash would
                stream._payload_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001
        passed = await seconds_until(lambda: version_of(subscription) == "12", tick)
        assert passed < (10 if end == "breaks" else NOTICED_S)
        assert version_of(subscription, "gone") == ""
        api.put("a", 13)
        await api.tell("a")
        assert await seconds_until(lambda: version_of(subscription) == "13", tick) < 5

    follow(api, restore)

    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "went back from version 30 to 12" in warning.getMessage()
