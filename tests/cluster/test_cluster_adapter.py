"""The `Cluster` protocol on a real API server: what is written, left alone, and refused."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from inferno_operator.adapters.kubernetes.api_server import ApiServer
from inferno_operator.controllers.planning.reconcile import clear_request
from inferno_operator.resources import (
    API_VERSION,
    RESOURCES,
    SYSTEM_RESOURCES,
    Optimizer,
    Resource,
    Server,
)
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import POD, Event, Key, Kind, Reference, kind_of
from inferno_operator.resources.objects import Manifest as Stored
from inferno_operator.runtime.ports import (
    FieldManager,
    GoneError,
    RejectedError,
    Scale,
    Served,
    StaleError,
    UnscaledError,
)
from inferno_operator.runtime.updates import Writer
from inferno_optimizer.errors import InfernoError, UnavailableError
from tests.cluster.connection import connected
from tests.cluster.scene import ACCOUNT
from tests.conftest import ROOT
from tests.controlplane import ControlPlane
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import PATIENCE_S, wait_until

Manifest = dict[str, Any]

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
FLAGS = dict.fromkeys(("unlimited", "heterogeneous", "milpSolver", "useCplex"), False)
SPECS: dict[str, Manifest] = {
    "Accelerator": {"name": "A", "type": "T", "cost": 10},
    "Model": {"name": "M"},
    "ServiceClass": {"name": "C"},
    "Server": {"name": "S", "class": "C", "model": "M", "minNumReplicas": 1},
    "Capacity": {"count": []},
    "Optimizer": {"optimize": True, "data": {"optimizer": FLAGS}},
}
TWO = {"accelerator": "A", "numReplicas": 2}
pytestmark = pytest.mark.usefixtures("crds_installed")

SERVER = kind_of(Server)


def decisions(api: ApiServer) -> Writer:
    """Writes as the optimization controller does."""
    return Writer(api, FieldManager.DECISIONS, lambda: NOW)


async def apply_spec(api: ApiServer, reference: Reference, spec: Manifest) -> Stored:
    """Own these fields of a spec, as the optimization controller does."""
    return await api.apply(reference.kind, reference.manifest(spec=spec), FieldManager.DECISIONS)


class Scene:
    """A namespace with objects of ours, as their user sees it."""

    def __init__(self, control_plane: ControlPlane, namespace: str, api: ApiServer) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.api = api

    def create(self, kind: str, name: str = "x") -> Reference:
        """Create an object as its user does, with `kubectl apply --server-side`."""
        document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}}
        self.control_plane.api.apply([{**document, "spec": SPECS[kind]}], self.namespace)
        return self.reference(kind, name)

    def reference(self, kind: str, name: str = "x") -> Reference:
        """The object as it is now."""
        resource = next(resource for resource in RESOURCES if resource.kind == kind)
        return Reference.of(kind_of(resource), self.get(resource, name))

    def make(self, *manifests: Manifest) -> None:
        self.control_plane.api.create(manifests, self.namespace)

    def delete(self, reference: Reference) -> None:
        self._kubectl("delete", reference.kind.plural, reference.key.name)

    def get(self, resource: type[Resource] | Kind, name: str = "x") -> Manifest:
        return self.control_plane.get(resource.plural, name, self.namespace)

    def patch(
        self, resource: type[Resource], patch: Manifest, subresource: str | None = None
    ) -> Manifest:
        return self.control_plane.patch(resource.plural, "x", patch, self.namespace, subresource)

    def names(self, resource: type[Resource] | Kind) -> list[str]:
        items = self.control_plane.items(resource.plural, self.namespace)
        return [item["metadata"]["name"] for item in items]

    def managers(self, resource: type[Resource]) -> list[tuple[str, str, str]]:
        """Who wrote on the object: manager, operation and sub-resource."""
        shown = self._kubectl(
            *("get", resource.plural, "x", "--output", "json", "--show-managed-fields")
        )
        return [
            (entry["manager"], entry["operation"], entry.get("subresource", ""))
            for entry in json.loads(shown)["metadata"]["managedFields"]
        ]

    def _kubectl(self, *arguments: str) -> str:
        return self.control_plane.kubectl(*arguments, "--namespace", self.namespace).stdout


@pytest.fixture
def scene(control_plane: ControlPlane, namespace: str, api: ApiServer) -> Scene:
    return Scene(control_plane, namespace, api)


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[ApiServer]:
    async with connected(control_plane.kubeconfig, lambda: NOW) as api_server:
        yield api_server


@contextmanager
def api_server_stopped(control_plane: ControlPlane) -> Iterator[None]:
    control_plane.stop_api_server()
    try:
        yield
    finally:
        control_plane.start_api_server()


def condition(type_: str, message: str = "") -> Manifest:
    time = "2026-03-01T12:00:00Z"
    said = {"type": type_, "status": "True", "reason": "Valid", "message": message}
    return {**said, "lastTransitionTime": time}


def status(*types: str, **fields: object) -> Manifest:
    return {"active": True, "conditions": [condition(type_) for type_ in types], **fields}


def conditions(manifest: Manifest) -> list[str]:
    return [item["type"] for item in manifest["status"]["conditions"]]


def one_line(error: pytest.ExceptionInfo[InfernoError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


async def test_an_object_is_read_as_it_is(scene: Scene) -> None:
    scene.create("Server")

    manifest = await scene.api.get(SERVER, Key(scene.namespace, "x"))

    assert manifest["kind"] == "Server"
    assert manifest["spec"].items() >= SPECS["Server"].items()
    assert manifest["metadata"]["generation"] == 1


async def test_a_list_has_whole_objects_of_one_kind_and_namespace(scene: Scene) -> None:
    for kind in SPECS:
        scene.create(kind, "a")
        scene.create(kind, "b")

    for resource in SYSTEM_RESOURCES:
        items = (await scene.api.list(kind_of(resource), scene.namespace)).manifests

        kinds = {(item["apiVersion"], item["kind"]) for item in items}
        assert sorted(item["metadata"]["name"] for item in items) == ["a", "b"]
        assert kinds == {(API_VERSION, resource.kind)}
        assert all(item["metadata"]["namespace"] == scene.namespace for item in items)


async def test_a_list_of_nothing_is_empty(scene: Scene) -> None:
    assert not (await scene.api.list(SERVER, scene.namespace)).manifests


async def test_an_applied_spec_leaves_the_fields_of_others_alone(scene: Scene) -> None:
    server = scene.create("Server")
    changed = {"metadata": {"labels": {"team": "a"}}, "spec": {"maxBatchSize": 8}}
    before = scene.patch(Server, changed)["spec"]

    returned = await apply_spec(scene.api, server, {"desiredAlloc": TWO})

    stored = scene.get(Server)
    assert stored["spec"] == {**before, "desiredAlloc": TWO}
    assert stored["metadata"]["labels"] == {"team": "a"}
    assert "finalizers" not in stored["metadata"]
    assert "annotations" not in stored["metadata"]
    assert returned["metadata"]["generation"] == stored["metadata"]["generation"] == 3


async def test_an_applied_spec_is_all_that_we_own(scene: Scene) -> None:
    server = scene.create("Server")
    await apply_spec(scene.api, server, {"desiredAlloc": {**TWO, "cost": 20, "maxBatch": 4}})

    await apply_spec(scene.api, server, {"desiredAlloc": {**TWO, "maxBatch": 5}})

    assert scene.get(Server)["spec"]["desiredAlloc"] == {**TWO, "maxBatch": 5}


async def test_an_applied_spec_wins_over_what_a_user_wrote_in_our_fields(scene: Scene) -> None:
    server = scene.create("Server")
    scene.patch(Server, {"spec": {"desiredAlloc": {"accelerator": "B", "numReplicas": 7}}})

    await apply_spec(scene.api, server, {"desiredAlloc": TWO})

    assert scene.get(Server)["spec"]["desiredAlloc"] == TWO


async def test_what_is_applied_again_changes_nothing(scene: Scene) -> None:
    server = scene.create("Server")
    first = await apply_spec(scene.api, server, {"desiredAlloc": {**TWO, "cost": 20.0}})
    second = await apply_spec(scene.api, server, {"desiredAlloc": {**TWO, "cost": 20.0}})

    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert first["metadata"]["generation"] == second["metadata"]["generation"] == 2


async def test_any_text_is_applied_as_it_is(scene: Scene) -> None:
    reference = scene.create("Server")
    controls = "\x7f \x85 \x9f \u2028 \u2029 \ufeff \ufffe \uffff"

    for text in ("Modèle 中 \U0001f680", 'a "b" \\ \t\n', controls):
        spec = {"desiredAlloc": {**TWO, "accelerator": text}}
        applied = await apply_spec(scene.api, reference, spec)

        assert applied["spec"]["desiredAlloc"]["accelerator"] == text


async def test_a_status_is_applied_and_the_spec_stays(scene: Scene) -> None:
    said = status("Ready", observedGeneration=1)
    for kind in SPECS:
        reference = scene.create(kind)
        before = scene.get(reference.kind)["spec"]

        returned = await decisions(scene.api).apply(reference, status=said)

        stored = scene.get(reference.kind)
        assert returned["status"] == stored["status"]
        assert stored["status"].items() >= said.items()
        assert stored["spec"] == before
        assert stored["metadata"]["generation"] == 1


async def test_conditions_of_others_stay_and_ours_that_are_left_out_go(scene: Scene) -> None:
    server = scene.create("Server")
    foreign = {"status": {"conditions": [condition("Audited", "by others")]}}
    scene.patch(Server, foreign, subresource="status")

    await decisions(scene.api).apply(
        server, status=status("Ready", "Allocated", observedGeneration=1)
    )
    before = conditions(scene.get(Server))
    await decisions(scene.api).apply(server, status=status("Ready"))

    assert sorted(before) == ["Allocated", "Audited", "Ready"]
    after = scene.get(Server)
    assert sorted(conditions(after)) == ["Audited", "Ready"]
    assert "observedGeneration" not in after["status"]


async def test_conditions_are_stored_in_the_order_in_which_we_apply_them(scene: Scene) -> None:
    server = scene.create("Server")
    others = {"status": status("Allocated", "Audited", "Ready")}
    scene.patch(Server, others, subresource="status")

    await decisions(scene.api).apply(server, status=status("Ready", "Allocated"))

    stored = [type_ for type_ in conditions(scene.get(Server)) if type_ != "Audited"]
    assert stored == ["Ready", "Allocated"]


async def test_spec_and_status_are_managed_under_one_name(scene: Scene) -> None:
    server = scene.create("Server")

    await apply_spec(scene.api, server, {"desiredAlloc": TWO})
    await decisions(scene.api).apply(server, status=status("Ready"))

    assert sorted(scene.managers(Server)) == [
        (FieldManager.DECISIONS, "Apply", ""),
        (FieldManager.DECISIONS, "Apply", "status"),
        ("kubectl", "Apply", ""),
    ]


async def test_a_request_is_cleared_and_nothing_else(scene: Scene) -> None:
    optimizer = scene.create("Optimizer")
    before = scene.get(Optimizer)

    await clear_request(optimizer, scene.api)

    assert scene.get(Optimizer)["spec"] == {**before["spec"], "optimize": False}
    assert (FieldManager.DECISIONS, "Update", "") in scene.managers(Optimizer)


@pytest.mark.parametrize(
    "change",
    [{"spec": {"interval": 60}}, {"metadata": {"labels": {"team": "a"}}}],
    ids=["spec", "labels"],
)
async def test_a_request_is_not_cleared_on_an_object_that_changed(
    scene: Scene, change: Manifest
) -> None:
    optimizer = scene.create("Optimizer")
    scene.patch(Optimizer, change)

    with pytest.raises(StaleError) as raised:
        await clear_request(optimizer, scene.api)

    assert "Optimizer" in one_line(raised)
    assert scene.get(Optimizer)["spec"]["optimize"] is True


async def test_what_is_not_there_is_gone(scene: Scene) -> None:
    with pytest.raises(GoneError) as raised:
        await scene.api.get(SERVER, Key(scene.namespace, "nobody"))

    assert f"Server {scene.namespace}/nobody" in one_line(raised)


async def write(api: ApiServer, what: str, reference: Reference) -> None:
    """Write on an object in one of the ways that there are."""
    if what == "spec":
        await apply_spec(api, reference, {"desiredAlloc": TWO})
    elif what == "status":
        await decisions(api).apply(reference, status=status("Ready"))
    else:
        await clear_request(reference, api)


@pytest.mark.parametrize(
    ("kind", "what"), [("Server", "spec"), ("Server", "status"), ("Optimizer", "request")]
)
async def test_what_was_deleted_is_gone_and_is_not_made_again(
    scene: Scene, kind: str, what: str
) -> None:
    reference = scene.create(kind)
    scene.delete(reference)

    with pytest.raises(GoneError) as raised:
        await write(scene.api, what, reference)

    assert str(reference) in one_line(raised)
    assert scene.names(reference.kind) == []


@pytest.mark.parametrize(
    ("kind", "what"), [("Server", "spec"), ("Server", "status"), ("Optimizer", "request")]
)
async def test_what_was_made_anew_is_another_object_and_stays_as_it_is(
    scene: Scene, kind: str, what: str
) -> None:
    old = scene.create(kind)
    scene.delete(old)
    scene.create(kind)
    before = scene.get(old.kind)

    with pytest.raises((GoneError, StaleError)) as raised:
        await write(scene.api, what, old)

    assert str(old) in one_line(raised)
    assert scene.get(old.kind) == before


@pytest.mark.parametrize(
    ("desired", "named"),
    [
        ({"accelerator": "A"}, "numReplicas"),
        ({**TWO, "mix": [{"accelerator": "A"}]}, "mix[0].numReplicas"),
        ({**TWO, "load": {"arrivalRate": 1}}, "give avgLength or avgOutTokens"),
    ],
)
async def test_what_the_schema_forbids_is_rejected_in_one_line(
    scene: Scene, desired: Manifest, named: str
) -> None:
    server = scene.create("Server")

    with pytest.raises(RejectedError) as raised:
        await apply_spec(scene.api, server, {"desiredAlloc": desired})

    assert str(server) in one_line(raised)
    assert named in str(raised.value)
    assert "HTTP 422" in str(raised.value)


async def test_a_status_that_the_schema_forbids_is_rejected(scene: Scene) -> None:
    server = scene.create("Server")

    with pytest.raises(RejectedError) as raised:
        await decisions(scene.api).apply(
            server, status={"active": True, "conditions": [{"type": "Ready"}]}
        )

    assert "lastTransitionTime" in one_line(raised)


async def test_a_field_that_older_definitions_do_not_have_is_rejected(scene: Scene) -> None:
    server = scene.create("Server")

    with pytest.raises(RejectedError) as raised:
        await apply_spec(scene.api, server, {"desiredAlloc": {**TWO, "fieldOfTheFuture": 1}})

    assert "fieldOfTheFuture" in one_line(raised)


async def test_what_our_rights_do_not_cover_is_rejected(
    control_plane: ControlPlane, scene: Scene
) -> None:
    server = scene.create("Server")
    control_plane.kubectl("create", "serviceaccount", "nobody", "--namespace", scene.namespace)
    kubeconfig = control_plane.service_account_kubeconfig(scene.namespace, "nobody")

    async with connected(kubeconfig, lambda: NOW) as api:
        with pytest.raises(RejectedError) as raised:
            await api.get(SERVER, server.key)
        with pytest.raises(RejectedError):
            await decisions(api).apply(server, status=status("Ready"))

    assert "forbidden" in one_line(raised)
    assert "nobody" in str(raised.value)


async def test_a_token_that_is_no_good_any_more_may_be_renewed(
    control_plane: ControlPlane, scene: Scene
) -> None:
    server = scene.create("Server")
    control_plane.kubectl("create", "serviceaccount", "leaver", "--namespace", scene.namespace)
    kubeconfig = control_plane.service_account_kubeconfig(scene.namespace, "leaver")
    control_plane.kubectl("delete", "serviceaccount", "leaver", "--namespace", scene.namespace)

    async def refusal() -> InfernoError:
        async with connected(kubeconfig, lambda: NOW) as api:
            with pytest.raises(InfernoError) as raised:
                await api.get(SERVER, server.key)
        return raised.value

    error = await refusal()
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(error, RejectedError):  # forbidden, until the API server knows of the end
            error = await refusal()

    assert isinstance(error, UnavailableError)
    assert "HTTP 401" in str(error)


async def test_an_api_server_that_is_away_is_unavailable_and_found_again(
    control_plane: ControlPlane, scene: Scene
) -> None:
    server = scene.create("Server")
    await scene.api.get(SERVER, server.key)  # so that there is a connection to lose

    with api_server_stopped(control_plane):
        for call in (
            scene.api.get(SERVER, server.key),
            scene.api.list(SERVER, scene.namespace),
            apply_spec(scene.api, server, {"desiredAlloc": TWO}),
            decisions(scene.api).apply(server, status=status("Ready")),
            clear_request(server, scene.api),
        ):
            with pytest.raises(UnavailableError) as raised:
                await call
            assert "does not answer" in one_line(raised)

    assert (await scene.api.get(SERVER, server.key))["metadata"]["uid"] == server.uid


def events(scene: Scene) -> list[Manifest]:
    return scene.control_plane.items("events", scene.namespace)


async def test_an_event_is_what_kubectl_shows(scene: Scene) -> None:
    server = scene.create("Server")

    await scene.api.publish(Event(server, "Warning", "NoCapacity", "not enough cards"))

    (event,) = wait_until(lambda: events(scene), bool, "an event")
    shown = scene.control_plane.kubectl("get", "events", "--namespace", scene.namespace).stdout
    assert shown.splitlines()[1].split(maxsplit=4)[1:] == [
        "Warning",
        "NoCapacity",
        "server/x",
        "not enough cards",
    ]
    assert event["involvedObject"]["uid"] == server.uid
    assert event["eventTime"] == "2026-03-01T12:00:00.123456Z"
    assert event["reportingComponent"] == "inferno.platform.ai"


async def test_an_event_is_described_with_its_object(scene: Scene) -> None:
    server = scene.create("Server")

    await scene.api.publish(Event(server, "Normal", "Allocated", "2 x A"))

    described = scene.control_plane.kubectl(
        "describe", "server.inferno.platform.ai", "x", "--namespace", scene.namespace
    ).stdout
    assert "2 x A" in described.partition("Events:")[2]


async def test_events_of_one_object_do_not_collide(scene: Scene) -> None:
    server = scene.create("Server", "x" * 250)

    for message in ("one", "two"):
        await scene.api.publish(Event(server, "Normal", "Allocated", message))

    assert sorted(event["message"] for event in events(scene)) == ["one", "two"]


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
async def test_a_long_message_is_cut_but_not_dropped(scene: Scene, letter: str) -> None:
    server = scene.create("Server")

    await scene.api.publish(Event(server, "Warning", "InvalidSpec", letter * 5000))

    (event,) = events(scene)
    assert letter * 300 in event["message"]


async def test_an_event_that_cannot_be_published_is_dropped_and_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = Reference(SERVER, Key("no-such-namespace", "x"), "1", "1")

    with caplog.at_level(logging.WARNING):
        await scene.api.publish(Event(nowhere, "Normal", "Allocated", "2 x A"))

    assert "the event is not published" in caplog.text
    assert "no-such-namespace" in caplog.text
    assert events(scene) == []


DEPLOYMENT = Kind("apps", "Deployment", "deployments", "v1")


def labelled(kind: str, labels: dict[str, str], replicas: int) -> Manifest:
    """A Deployment, or one of another kind, with these labels."""
    document = {**deployment("d", replicas), "kind": kind}
    document["spec"]["selector"] = {"matchLabels": labels}
    document["spec"]["template"]["metadata"] = {"labels": labels}
    return document


@pytest.mark.parametrize(
    ("api_version", "kind", "found"),
    [
        ("apps/v1", "Deployment", Served(DEPLOYMENT, is_scalable=True)),
        (API_VERSION, "Server", Served(SERVER, is_scalable=False)),
        ("apps/v1", "Widget", None),
        ("apps/v9", "Deployment", None),
        ("example.com/v1", "Widget", None),
    ],
)
async def test_a_kind_is_found_by_its_name(
    api: ApiServer, api_version: str, kind: str, found: Served | None
) -> None:
    assert await api.find(api_version, kind) == found


async def test_a_scale_is_read_and_set_at_the_version_that_was_read(scene: Scene) -> None:
    scene.make(labelled("Deployment", {"app": "d", "tier": "gold"}, replicas=0))
    read = await scene.api.scale(DEPLOYMENT, Key(scene.namespace, "d"))
    written = await scene.api.set_scale(read, 2, "inferno-actuation")

    assert (read.replicas, read.selector) == (0, "app=d,tier=gold")
    assert written.replicas == scene.get(DEPLOYMENT, "d")["spec"]["replicas"] == 2
    assert int(written.reference.version) > int(read.reference.version)
    with pytest.raises(StaleError):
        await scene.api.set_scale(read, 3, "inferno-actuation")
    with pytest.raises(GoneError):
        await scene.api.scale(DEPLOYMENT, Key(scene.namespace, "missing"))


SERVING = {
    "apiVersion": KTHENA.serving.api_version,
    "kind": "ModelServing",
    "metadata": {"name": "m"},
    "spec": {
        "schedulerName": "volcano",
        "template": {
            "roles": [
                {
                    "name": name,
                    "replicas": 1,
                    "workerReplicas": 0,
                    "entryTemplate": {"spec": {"containers": [{"name": "e", "image": "i"}]}},
                }
                for name in ("prefill", "decode")
            ]
        },
    },
}


async def test_roles_of_a_serving_are_set_beside_each_other_but_not_over_another_number(
    scene: Scene,
) -> None:
    scene.control_plane.install_crds(ROOT / "crds/kthena")
    scene.make(SERVING)
    before = scene.get(KTHENA.serving, "m")
    prefill, decode = (Scale.of_role(KTHENA.serving, before, n) for n in ("prefill", "decode"))
    assert prefill is not None
    assert decode is not None

    written = await asyncio.gather(
        scene.api.set_scale(prefill, 3, "inferno-actuation"),
        scene.api.set_scale(decode, 2, "inferno-actuation"),
    )
    after = scene.get(KTHENA.serving, "m")
    with pytest.raises(StaleError):
        await scene.api.set_scale(prefill, 4, "inferno-actuation")
    (other, *_) = written
    uid = replace(other, reference=replace(other.reference, uid="another"))
    with pytest.raises(StaleError):
        await scene.api.set_scale(uid, 4, "inferno-actuation")

    numbers = [(role["name"], role["replicas"]) for role in after["spec"]["template"]["roles"]]
    assert numbers == [("prefill", 3), ("decode", 2)]
    assert [found.replicas for found in written] == [3, 2]
    for role in after["spec"]["template"]["roles"]:
        role["replicas"] = 1
    assert after["spec"] == before["spec"]


async def test_an_object_without_a_number_says_so_until_it_is_set(scene: Scene) -> None:
    scene.control_plane.install_crds(ROOT / "tests/data/workloads")
    group, name = "disaggregatedset.x-k8s.io", "DisaggregatedSetRoleScaler"
    kind = Kind(group, name, "disaggregatedsetrolescalers", "v1")
    scene.make({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "r"}})
    key = Key(scene.namespace, "r")
    with pytest.raises(UnscaledError):
        await scene.api.scale(kind, key)
    unset = Scale(Reference.of(kind, scene.get(kind, "r")), 0, "", is_unset=True)

    await scene.api.set_scale(unset, 2, "inferno-actuation")

    assert (await scene.api.scale(kind, key)).replicas == 2


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
async def test_the_scale_subresource_is_what_the_watched_object_tells(
    scene: Scene, kind: str
) -> None:
    scene.make(labelled(kind, {"app": "d", "a.example.com/b": ""}, replicas=3))
    apps = Kind("apps", kind, f"{kind.lower()}s", "v1")

    (listed,) = (await scene.api.list(apps, scene.namespace)).manifests
    watched = Scale.of_watched(apps, listed)

    assert watched == await scene.api.scale(apps, Key(scene.namespace, "d"))


async def test_pods_are_listed_and_watched(scene: Scene) -> None:
    listing = await scene.api.list(POD, scene.namespace)
    spec = {"containers": [{"name": "engine", "image": "example.com/engine"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    scene.make(ACCOUNT, pod)
    async with aclosing(scene.api.watch(POD, scene.namespace, listing.version)) as changes:
        first = await anext(changes)

    assert listing.manifests == ()
    assert first.manifest is not None
    assert (first.manifest["kind"], first.manifest["apiVersion"]) == ("Pod", "v1")
    assert len((await scene.api.list(POD, scene.namespace)).manifests) == 1


async def test_many_pods_are_listed_page_by_page_with_what_is_read_of_them(scene: Scene) -> None:
    cards = {"nvidia.com/gpu": "1"}
    engine = {"name": "engine", "image": "example.com/engine", "env": [{"name": "A"}]}
    sidecar = {"name": "sidecar", "image": "example.com/sidecar"}  # takes no cards
    containers = [{**engine, "resources": {"limits": cards}}, sidecar]
    header = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
    scene.make(ACCOUNT, *({**header, "metadata": {"name": f"p{n}"}} for n in range(5)))

    async with connected(scene.control_plane.kubeconfig, lambda: NOW, page_size=2) as api:
        listing = await api.list(POD, scene.namespace)

    assert [pod["metadata"]["name"] for pod in listing.manifests] == [f"p{n}" for n in range(5)]
    newest = max(int(pod["metadata"]["resourceVersion"]) for pod in listing.manifests)
    assert listing.version >= newest
    (read,) = listing.manifests[0]["spec"]["containers"]
    assert read == {"name": "engine", "resources": {"limits": cards, "requests": cards}}
