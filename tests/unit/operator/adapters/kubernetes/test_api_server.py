"""What a call to the API server takes in this process, whatever the server needs for it."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Self

import pytest
from kubernetes.aio.client import ApiClient, Configuration, CustomObjectsApi
from pydantic_core import to_json

from inferno_operator.adapters.kubernetes.api_server import ApiServer
from inferno_operator.resources.objects import Event, Key, Kind, Reference
from tests.calls import calls
from tests.unit.operator import objects

DEPLOYMENT = Kind("apps", "Deployment", "deployments", "v1")
METADATA = {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 1}
ANSWER = {"metadata": METADATA, "spec": {"replicas": 2}, "status": {"selector": "app=d"}}
PLACE = Key("n", "d")


class Response:
    """An answer of the API server."""

    status = 200

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> bytes:
        return to_json(ANSWER)


class Client(ApiClient):
    """The client, without a network: notes what is asked, and always answers the same."""

    def __init__(self) -> None:
        super().__init__(Configuration(host="https://api"))
        self.requests: list[tuple[str, str]] = []

    async def call_api(self, method: str, url: str, *_: object, **__: object) -> Any:  # noqa: ANN401 - as the client's
        self.requests.append((method, url))
        return SimpleNamespace(response=Response())


Call = Callable[[ApiServer], Coroutine[Any, Any, object]]


def get(api: ApiServer) -> Coroutine[Any, Any, object]:
    return api.get(DEPLOYMENT, PLACE)


def scale(api: ApiServer) -> Coroutine[Any, Any, object]:
    return api.scale(DEPLOYMENT, PLACE)


def publish(api: ApiServer) -> Coroutine[Any, Any, object]:
    about = Reference.of(DEPLOYMENT, ANSWER)
    return api.publish(Event(about, "Normal", "Moving", "to 2 replicas"))


def write(api: ApiServer) -> Coroutine[Any, Any, object]:
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": METADATA, "spec": {}}
    return api.apply(DEPLOYMENT, manifest, "inferno-operator")


def taken(call: Call) -> tuple[int, list[tuple[str, str]]]:
    """How many functions a call calls, and the requests that it makes."""
    client = Client()
    api = ApiServer(CustomObjectsApi(client), lambda: objects.NOW, "operator")

    def run() -> None:
        """Run to the end without a loop: nothing is waited for."""
        with suppress(StopIteration):
            call(api).send(None)

    run()  # what is done once
    return calls(run), client.requests[:1]


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        (get, ("GET", "https://api/apis/apps/v1/namespaces/n/deployments/d")),
        (scale, ("GET", "https://api/apis/apps/v1/namespaces/n/deployments/d/scale")),
        (publish, ("POST", "https://api/apis/events.k8s.io/v1/namespaces/n/events")),
    ],
)
def test_reads_and_events_take_as_few_calls_as_writes(
    call: Call, request_: tuple[str, str]
) -> None:
    count, requests = taken(call)

    assert requests == [request_]
    assert count < 1.5 * taken(write)[0]
