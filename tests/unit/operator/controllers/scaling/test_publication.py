"""What is published of Servers, from the states in which the operator writes them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from inferno_operator.controllers.scaling.publication import Publication, Published, publish
from inferno_operator.resources import Server
from inferno_operator.resources.objects import Key, Kind, kind_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import GoneError, ObjectChange, RejectedError
from inferno_optimizer.errors import UnavailableError
from inferno_optimizer.solution import IDLE
from inferno_optimizer.way_down import HALF
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import in_background

Manifest = dict[str, Any]

NAMED = [{"accelerator": "A", "name": "on-a"}, {"accelerator": "B", "name": "on-b"}]
NOTHING = {"accelerator": "", "numReplicas": 0}


def server(
    desired: Manifest | None = None,
    reason: str | None = None,
    message: str = "",
    *,
    about: int = 1,
    **spec: object,
) -> Manifest:
    """A Server with a decision and the reason of its condition, about so old a generation."""
    decided = {} if desired is None else {"desiredAlloc": desired}
    manifest = objects.server("S", spec={"workloads": NAMED, **decided, **spec}, generation=1)
    if reason is None:
        return manifest
    status = "True" if reason in ("Allocated", "BestEffort") else "False"
    condition = objects.condition(
        "Allocated", reason, status=status, message=message, observedGeneration=about
    )
    return {**manifest, "status": {"conditions": [condition]}}


def published(manifest: Manifest, before: Published | None = None) -> Published:
    return publish(objects.observed_server(manifest), before)


def on(count: int, accelerator: str = "A") -> Manifest:
    return {"accelerator": accelerator, "numReplicas": count}


def test_a_decision_is_published_by_accelerator() -> None:
    found = published(server(on(3), "Allocated"))

    assert (found.on("A"), found.on("B")) == (3, 0)
    assert dict(found.parts()) == {"A": 3, "B": 0}


def published_at(manifest: Manifest, seconds: float = 0.0) -> dict[str, int]:
    """What an autoscaler reads, so long after the time of the tests."""
    whole = publish(objects.observed_server(manifest), None, "", HALF)
    return dict(whole.limited(objects.NOW + timedelta(seconds=seconds)).parts())


def went(seconds: int, **served: int) -> Manifest:
    """A reduction before the time of the tests, and what served before it."""
    time = f"{(objects.NOW - timedelta(seconds=seconds)).isoformat()[:19]}Z"
    replicas = [{"accelerator": a, "replicas": n} for a, n in served.items()]
    return {"time": time, "replicas": replicas}


BEFORE = {"reductions": [went(100, A=8)]}
APPROVED = {"approved": {"plan": "p", "replicas": [{"accelerator": "A", "replicas": 1}]}}


@pytest.mark.parametrize(
    ("desired", "current", "status", "seconds", "published"),
    [
        (on(1), on(8), {}, 0, {"A": 4, "B": 0}),
        (on(1), on(4), BEFORE, 199, {"A": 4, "B": 0}),
        (on(1), on(4), BEFORE, 200, {"A": 2, "B": 0}),
        (on(1), NOTHING, BEFORE, 199, {"A": 4, "B": 0}),
        (on(1), on(1), BEFORE, 199, {"A": 4, "B": 0}),
        (on(1), on(5), BEFORE, 199, {"A": 4, "B": 0}),
        (on(6, "B"), on(8), {}, 0, {"A": 4, "B": 6}),
        (on(9), on(4), {"reductions": [went(1, A=8)]}, 0, {"A": 9, "B": 0}),
        (on(1), on(8), APPROVED, 0, {"A": 1, "B": 0}),
    ],
    ids=[
        "half goes",
        "no more within five minutes",
        "half again after five minutes",
        "all are not ready for a while",
        "most are not ready for a while",
        "some are not ready for a while",
        "what starts is published at once",
        "a number that grows is published beside reductions",
        "what a person approved goes at once",
    ],
)
def test_replicas_that_others_scale_go_by_half_within_five_minutes(
    desired: Manifest,
    current: Manifest,
    status: Manifest,
    seconds: float,
    published: dict[str, int],
) -> None:
    manifest = server(desired, "Allocated", currentAlloc=current, actuation="Publish")
    manifest["status"].update(status)

    assert published_at(manifest, seconds) == published


def test_the_decision_is_published_where_the_operator_scales() -> None:
    assert published_at(server(on(1), "Allocated", currentAlloc=on(8))) == {"A": 1, "B": 0}


def test_the_parts_of_a_mix_come_with_the_largest_first() -> None:
    mix = [on(1, "A"), on(4, "B")]

    found = published(server({**on(5, "B"), "mix": mix}, "Allocated"))

    assert list(found.decided.items()) == [("B", 4), ("A", 1)]
    assert (found.on("A"), found.on("B")) == (1, 4)


@pytest.mark.parametrize(("reason", "message"), [("Allocated", IDLE), ("NoCapacity", "no cards")])
def test_a_decision_for_nothing_is_a_number_too(reason: str, message: str) -> None:
    found = published(server(NOTHING, reason, message))

    assert (found.on("A"), found.decided) == (0, {})


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (server(), "nothing was decided yet"),
        (server(NOTHING, "InvalidSpec", "bad class"), "InvalidSpec: bad class"),
        (server(on(3), "UnknownModel", "no model 'M'"), "UnknownModel: no model 'M'"),
        (server(NOTHING, "Allocated", about=0), "being written"),
        (server(on(3), "NoCapacity"), "being written"),
    ],
)
def test_without_a_decision_there_is_no_number(manifest: Manifest, why: str) -> None:
    found = published(manifest)

    with pytest.raises(UnavailableError, match=f"Server default/s: no decision stands: .*{why}"):
        found.on("A")


def test_while_a_decision_is_written_the_one_before_stands() -> None:
    before = published(server(on(3), "Allocated"))

    cleared = published(server(NOTHING, "Allocated", about=0), before)
    undecided = published(server(NOTHING, "UnknownModel"), cleared)

    assert cleared.on("A") == 3
    assert undecided.replicas is None


def test_an_accelerator_that_nobody_named_is_no_decision_for_nothing() -> None:
    found = published(server(on(3), "Allocated"))

    with pytest.raises(
        GoneError, match=r"Server default/s: spec.workloads: .*'a'; known: 'A', 'B'"
    ):
        found.on("a")


def test_the_backends_of_a_booster_count_as_named() -> None:
    booster: Manifest = {"name": "m", "backends": [{"name": "x", "accelerator": "B"}]}

    booster["backends"].append({"name": "y", "accelerator": "A"})
    found = published(server(on(2), "Allocated", workloads=[], modelBooster=booster))

    assert dict(found.parts()) == {"A": 2, "B": 0}


def test_a_decision_for_an_accelerator_without_a_workload_does_not_stop_the_others() -> None:
    found = published(server(on(2, "C"), "Allocated"))

    with pytest.raises(UnavailableError, match="no item runs on accelerator 'C': add one"):
        found.on("A")


def test_without_workloads_the_decision_alone_names_accelerators() -> None:
    found = published(server(on(2, "C"), "Allocated", workloads=[]))

    assert found.on("C") == 2
    with pytest.raises(GoneError, match="no item runs on accelerator 'A'; known: 'C'"):
        found.on("A")


SERVER = kind_of(Server)
S = Key("default", "s")
NOT_YET = "their list is awaited"


class CutCluster(FakeCluster):
    """A cluster whose watches can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = asyncio.Event()

    async def watch(
        self, kind: Kind, namespace: str, since: int
    ) -> AsyncGenerator[ObjectChange, None]:
        watched = super().watch(kind, namespace, since)
        while not self.cut.is_set():
            change = asyncio.ensure_future(anext(watched))
            cut = asyncio.ensure_future(self.cut.wait())
            await asyncio.wait([change, cut], return_when=asyncio.FIRST_COMPLETED)
            for task in (change, cut):
                task.cancel()
            if change.done() and not change.cancelled():
                yield change.result()
        raise UnavailableError("a watch was interrupted: reset")


def decided(replicas: int, name: str = "S") -> dict[str, Any]:
    desired = {"accelerator": "A", "numReplicas": replicas}
    manifest = objects.server(name, spec={"desiredAlloc": desired})
    return {**manifest, "status": {"conditions": [objects.condition("Allocated", "Allocated")]}}


@asynccontextmanager
async def watching(publication: Publication) -> AsyncGenerator[None, None]:
    async with in_background(publication.run()):
        await until(lambda: not publication.unready())
        yield


async def until(met: Callable[[], bool]) -> None:
    """Wait for a condition, for a minute of virtual time."""
    for _ in range(600):
        if met():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


async def test_before_the_first_list_nothing_is_known() -> None:
    publication = Publication(FakeCluster(), Informers(FakeCluster()))

    with pytest.raises(UnavailableError, match=NOT_YET):
        publication.decision(S)
    assert NOT_YET in publication.unready()


async def test_the_newest_decision_is_published() -> None:
    cluster = FakeCluster()
    cluster.add(decided(2))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        assert publication.decision(S).on("A") == 2

        cluster.add(decided(5))
        await until(lambda: publication.decision(S).on("A") == 5)


async def test_a_server_that_is_gone_is_not_published() -> None:
    cluster = FakeCluster()
    cluster.add(decided(2))
    cluster.add(decided(1, "T"))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        cluster.remove(SERVER, S)
        await until(lambda: [item.key.name for item in publication.decisions()] == ["t"])

        with pytest.raises(GoneError, match="Server default/s does not exist"):
            publication.decision(S)


async def test_a_lost_watch_is_told_until_servers_are_listed_again() -> None:
    cluster = CutCluster()
    cluster.add(decided(2))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        cluster.failures = [UnavailableError("the API server does not answer")] * 3
        cluster.cut.set()
        await until(lambda: bool(publication.unready()))

        with pytest.raises(UnavailableError, match=r"interrupted|does not answer"):
            publication.decision(S)
        assert [item.on("A") for item in publication.decisions()] == [2]

        cluster.cut.clear()
        cluster.remove(SERVER, S)
        await until(lambda: not publication.unready())
        assert list(publication.decisions()) == []


async def test_a_namespace_without_rights_does_not_silence_the_others() -> None:
    class Closed(FakeCluster):
        async def list(self, kind: Kind, namespace: str) -> Any:  # noqa: ANN401 - as the fake's
            if namespace == "closed":
                raise RejectedError("servers is forbidden")
            return await super().list(kind, namespace)

    cluster = Closed()
    cluster.add(decided(2))
    publication = Publication(cluster, Informers(cluster, ("closed", "default")))

    async with in_background(publication.run()):
        await until(lambda: bool(list(publication.decisions())))
        with pytest.raises(UnavailableError, match="servers is forbidden"):
            publication.decision(Key("closed", "s"))
        assert publication.decision(S).on("A") == 2


def autoscaler(
    name: str, target: str, metadata: dict[str, Any] | None = None, kind: str = "Deployment"
) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"scaleTargetRef": reference},
    }


async def test_a_variant_has_the_name_of_its_annotated_autoscaler() -> None:
    managed: dict[str, Any] = {"annotations": {"llm-d.ai/managed": "true"}}
    owner: dict[str, Any] = {"ownerReferences": [{"kind": "ScaledObject", "name": "scaled"}]}
    cluster = FakeCluster()
    workloads = [{"accelerator": name, "name": f"on-{name.lower()}"} for name in "ABCD"]
    cluster.add(decided(2) | {"spec": decided(2)["spec"] | {"workloads": workloads}})
    cluster.add(autoscaler("of-a", "on-a", managed))
    cluster.add(autoscaler("keda-hpa-scaled", "on-b", managed | owner))
    cluster.add(autoscaler("of-c", "on-c"))
    cluster.add(autoscaler("of-d", "on-d", managed, kind="StatefulSet"))
    publication = Publication(cluster, Informers(cluster), names_variants=True)

    async with watching(publication):
        decision = publication.decision(S)
        await until(lambda: publication.find_variant(decision, "A") == "of-a")

        names = [publication.find_variant(decision, name) for name in "BCDX"]
        assert names == ["scaled", "on-c", "on-d", "s"]


async def test_without_the_right_to_list_autoscalers_a_variant_has_the_name_of_its_workload() -> (
    None
):
    cluster = FakeCluster()
    workloads = [{"accelerator": "A", "name": "on-a"}]
    cluster.add(decided(2) | {"spec": decided(2)["spec"] | {"workloads": workloads}})
    cluster.unserved.add("HorizontalPodAutoscaler")
    publication = Publication(cluster, Informers(cluster), names_variants=True)

    async with watching(publication):
        await asyncio.sleep(61)
        assert publication.find_variant(publication.decision(S), "A") == "on-a"


def optimizer(mode: str) -> dict[str, Any]:
    manifest = objects.optimizer("plan")
    return {**manifest, "spec": {**manifest["spec"], "mode": mode}}


async def test_a_recommendation_is_not_published() -> None:
    cluster = FakeCluster()
    cluster.add(decided(2))
    cluster.add(optimizer("Recommend"))
    publication = Publication(cluster, Informers(cluster))

    async with watching(publication):
        with pytest.raises(UnavailableError, match="no decision stands: Optimizer 'plan' has mode"):
            publication.decision(S).on("A")

        cluster.add(optimizer("Auto"))
        await until(lambda: publication.decision(S).replicas is not None)
        assert publication.decision(S).on("A") == 2
