"""Decisions reach ModelBoosters in a cluster in memory: moves, disputes, and what is released."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.boosters import has_own_fields
from inferno_operator.controllers.scaling.reconcile import Context, reconcile
from inferno_operator.controllers.scaling.world import WorkloadObjects
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import POD, Key, Kind, Reference, kind_of
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import FieldManager, RejectedError, Served
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import UnavailableError
from tests.examples import several
from tests.fakes import DEPLOYMENT, FakeCluster
from tests.unit.operator import objects

Manifest = dict[str, Any]

BACKENDS = [{"name": "a", "accelerator": "A"}, {"name": "b", "accelerator": "B"}]
SERVER = Key("default", "s")
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
CARDS = 40
TURNS = 30
"""Turns of the event loop in which a change is seen by those who watch."""


class MergingCluster(FakeCluster):
    """Merges an apply into the fields of a spec, and into the items of lists with names.

    `unreleasable` are names of objects that refuse to be released, and `meanwhile` happens once,
    before the next release is answered.
    """

    unreleasable: Collection[str] = ()
    meanwhile: Callable[[], None] | None = None

    async def set_managers(self, reference: Reference, entries: Sequence[Any]) -> None:
        """Replace the `managedFields` of an object, unless it refuses that."""
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
            await seen()
        if reference.key.name in self.unreleasable:
            raise RejectedError(f"{reference}: the webhook does not answer")
        await super().set_managers(reference, entries)

    @staticmethod
    def _set_spec(stored: Manifest, manifest: Mapping[str, Any]) -> None:
        merged = _merge(stored["spec"], manifest.get("spec", {}))
        if merged != stored["spec"]:
            stored["spec"] = merged
            stored["metadata"]["generation"] += 1


def _merge(before: Any, after: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(before, dict) and isinstance(after, dict):
        return {**before, **{k: _merge(before.get(k), v) for k, v in after.items()}}
    if isinstance(after, list) and isinstance(before, list) and all("name" in i for i in after):
        changed = {item["name"]: item for item in after}
        return [_merge(item, changed.get(item["name"], item)) for item in before]
    return after


class Scene:
    """Server `s` on booster `m` with two backends, its ModelServings, and cards for all."""

    def __init__(self, cards: int = CARDS, **reference: object) -> None:
        self.cluster = MergingCluster()
        self.time = objects.NOW
        self.reference = {"name": "m", "backends": BACKENDS, **reference}
        self.cluster.add(objects.server(spec={"modelBooster": self.reference}, wanted=1))
        for name in "AB":
            accelerator = {"name": name, "type": name, "cost": 10}
            self.cluster.add(objects.manifest("Accelerator", accelerator, name=name.lower()))
        self.cluster.add(objects.model("M", [objects.performance(name) for name in "AB"]))
        self.cluster.add(objects.service_class())
        counts = [{"type": name, "count": cards} for name in "AB"]
        self.cluster.add(objects.manifest("Capacity", {"count": counts}, name="cards"))
        backends = [{"name": n, "minReplicas": 0, "maxReplicas": 1} for n in ("a", "b")]
        self.add(KTHENA.booster, "m", {"backends": backends})
        for name in ("m-a", "m-b"):
            self.add(KTHENA.serving, name, {"replicas": 0})
        self.result = ReconcileResult.SETTLED
        self._watch: asyncio.Task[None] | None = None
        self.restart()

    def restart(self) -> None:
        """Start another operator, which remembers nothing."""
        if self._watch is not None:
            self._watch.cancel()
        world = WorkloadObjects(self.cluster, Informers(self.cluster), lambda _: None)
        self.context = Context(self.cluster, world, lambda r: build_system(r).system, self.now)
        self._watch = None

    def now(self) -> datetime:
        return self.time

    def add(self, kind: Kind, name: str, spec: Manifest, owner: str = "") -> Key:
        entries = [{"manager": owner, "operation": "Apply"}] if owner else []
        metadata = {"name": name, "managedFields": entries}
        header = {"apiVersion": kind.api_version, "kind": kind.kind}
        return self.cluster.add({**header, "metadata": metadata, "spec": spec})

    def stored(self, kind: Kind, name: str) -> Manifest:
        return self.cluster.objects[kind.kind, Key("default", name)]

    @property
    def server(self) -> Manifest:
        return self.cluster.objects["Server", SERVER]

    def backends(self) -> list[Manifest]:
        found: list[Manifest] = self.stored(KTHENA.booster, "m")["spec"]["backends"]
        return found

    def run(self, name: str, available: int) -> None:
        """Have so many available replicas."""
        serving = self.stored(KTHENA.serving, name)
        generation = serving["metadata"]["generation"] + 1
        status = {"availableReplicas": available, "observedGeneration": generation}
        self.cluster.add({**serving, "status": status})

    def decide(self, **replicas: int) -> None:
        """Write a decision on the Server."""
        mix = [{"accelerator": a, "numReplicas": n} for a, n in replicas.items() if n]
        whole = {"accelerator": "A", "numReplicas": 1, "mix": mix}
        generation = self.server["metadata"]["generation"] + 1
        condition = objects.condition(ALLOCATED, "Allocated", observedGeneration=generation)
        status = self.server.get("status", {})
        others = [c for c in status.get("conditions", ()) if c["type"] != ALLOCATED]
        spec = {**self.server["spec"], "desiredAlloc": whole}
        status = {**status, "conditions": [*others, condition]}
        self.cluster.add({**self.server, "spec": spec, "status": status})

    async def actuate(self, *, after: timedelta = timedelta()) -> Manifest:
        """Reconcile the namespace; returns what the Server says."""
        self.time += after
        world = self.context.world
        if self._watch is None:
            self._watch = asyncio.create_task(world.run())
            served = (k for k in KTHENA.scalers if k.kind not in self.cluster.unserved)
            world.watch([POD, KTHENA.booster, KTHENA.serving, *served])
        await seen()
        self.result = await reconcile("default", self.context)
        await seen()
        told: Manifest = next(
            c for c in self.server["status"]["conditions"] if c["type"] == "Actuated"
        )
        return told

    def replicas(self) -> dict[str, int]:
        return {n: self.stored(KTHENA.serving, n)["spec"]["replicas"] for n in ("m-a", "m-b")}

    def pass_on(self) -> None:
        """Have the controller of boosters, or autoscalers, set the numbers of the servings."""
        target = self.reference.get("target", "ModelBooster")
        for backend in self.backends() if target != "ModelServing" else ():
            name = f"m-{backend['name']}"
            holder = backend
            if target == "Binding":
                holder = self.stored(KTHENA.policy, name)["spec"]["homogeneousTarget"]
            least, most = holder["minReplicas"], holder["maxReplicas"]
            now = self.replicas()[name]
            scales = target == "Binding" or "autoscalingPolicy" in backend
            is_unused = (least, most) == (0, 1)  # no request reaches it
            chosen = min(max(now, least), most) if scales and not is_unused else least
            if chosen != now:
                self._put(KTHENA.serving, name, {"replicas": chosen}, "kthena")
        booster = self.stored(KTHENA.booster, "m")
        generation = booster["metadata"]["generation"] + 1
        if booster.get("status", {}).get("observedGeneration") != generation - 1:
            self.cluster.add({**booster, "status": {"observedGeneration": generation}})

    def progress(self, name: str) -> None:
        """One more replica of a serving comes up; what is not asked for any more ends."""
        asked = self.replicas()[name]
        self.run(name, min(self.available(name) + 1, asked))

    def available(self, name: str) -> int:
        """Replicas that serve, less those that are to go."""
        serving = self.stored(KTHENA.serving, name)
        told: int = serving.get("status", {}).get("availableReplicas", 0)
        asked: int = serving["spec"]["replicas"]
        return min(told, asked)

    def run_all(self) -> None:
        """Have as many replicas as are asked for."""
        if self.reference.get("target", "ModelBooster") == "ModelBooster":
            self.pass_on()
        for name, replicas in self.replicas().items():
            self.run(name, replicas)

    def asked(self) -> int:
        """The replicas of all backends that the operator asks for."""
        if self.reference.get("target") == "ModelServing":
            return sum(self.replicas().values())
        return sum(b["minReplicas"] for b in self.backends())

    def edit(self, image: str, replicas: int) -> None:
        """Edit the booster; its manifest, and then its controller, have a number of their own."""
        backends = [{**b, "workers": [{"image": image}]} for b in self.backends()]
        self._put(KTHENA.booster, "m", {"backends": backends})
        self.overwrite_all(replicas)

    def overwrite_all(self, replicas: int) -> None:
        """Set the number of all backends where the operator writes it."""
        if self.reference.get("target") == "ModelServing":
            for name in ("m-a", "m-b"):
                self.overwrite(name, replicas)
            return
        numbers = {"minReplicas": replicas, "maxReplicas": max(replicas, 1)}
        backends = [{**backend, **numbers} for backend in self.backends()]
        self._put(KTHENA.booster, "m", {"backends": backends}, "kthena")

    def overwrite(self, name: str, replicas: int) -> None:
        """Set the number of a serving as the controller of boosters does."""
        self._put(KTHENA.serving, name, {"replicas": replicas}, "kthena")

    def set_by_hand(self, kind: Kind, name: str, spec: Manifest) -> None:
        """Change an object as a person does."""
        self._put(kind, name, spec, "kubectl")

    def _put(self, kind: Kind, name: str, spec: Manifest, manager: str = "") -> None:
        """Change an object; a manager that is named owns all fields from then on."""
        stored = self.stored(kind, name)
        metadata = dict(stored["metadata"])
        if manager:
            fields: Manifest = {"f:spec": {f"f:{key}": {} for key in spec}}
            entry = {"manager": manager, "operation": "Update", "fieldsV1": fields}
            metadata["managedFields"] = [entry]
        self.cluster.add({**stored, "metadata": metadata, "spec": {**stored["spec"], **spec}})

    def tell(self, **fields: object) -> None:
        """Have the booster's controller say something."""
        self.cluster.add({**self.stored(KTHENA.booster, "m"), "status": fields})

    async def settle(self, **decision: int) -> Manifest:
        """Let everybody have many turns."""
        self.decide(**decision)
        for _ in range(24):
            told = await self.actuate(after=SECOND)
            self.pass_on()
            for name in ("m-a", "m-b"):
                self.progress(name)
        return told


async def seen() -> None:
    """Let those who watch see what changed."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def scaled(name: str, least: int = 0, most: int = 1) -> Manifest:
    target = {"targetRef": {"kind": "ModelServing", "name": name}}
    return {"homogeneousTarget": {"target": target, "minReplicas": least, "maxReplicas": most}}


def scene_of(target: str, bounds: str = "Pin", policies: str = "") -> Scene:
    """A scene in which the numbers stand in an object, below a ceiling or not."""
    scene = Scene(target=target, bounds=bounds)
    scene.cluster.add(objects.guarded({"maxDecreasePercent": 100}))
    for name in "ab":
        scene.add(KTHENA.policy, f"m-{name}", scaled(f"m-{name}"))
    backends = [
        {
            **each,
            **({"minReplicas": 1, "autoscalingPolicy": {}} if each["name"] in policies else {}),
        }
        for each in scene.backends()
    ]
    scene.add(KTHENA.booster, "m", {"backends": backends})
    return scene


TARGETS = ("ModelBooster", "ModelServing", "Binding")
decisions = st.dictionaries(st.sampled_from("AB"), st.integers(1, 4), min_size=1)
turns = st.lists(st.sampled_from(["plan", "pass on", "m-a", "m-b"]), max_size=12)


@several(100)
@given(st.sampled_from(TARGETS), st.lists(st.tuples(decisions, turns), min_size=1, max_size=3))
def test_no_move_takes_more_than_both_decisions_spare(
    target: str, story: list[tuple[Mapping[str, int], list[str]]]
) -> None:
    async def live() -> None:
        scene = scene_of(target)
        await scene.settle(A=2)
        floor = scene.available("m-a") + scene.available("m-b")
        assert floor == 2
        for decision, happens in story:
            floor = min(floor, sum(decision.values()))
            scene.decide(**decision)
            for turn in happens:
                if turn == "plan":
                    await scene.actuate(after=SECOND)
                elif turn == "pass on":
                    scene.pass_on()
                else:
                    scene.progress(turn)
                assert scene.available("m-a") + scene.available("m-b") >= floor
        told = await scene.settle(**story[-1][0])
        scene.cluster.writes.clear()
        await scene.actuate()

        assert told["reason"] == "Actuated"
        assert not [write for write in scene.cluster.writes if "Server" not in write]

    asyncio.run(live())


@several(60)
@given(
    st.sampled_from(TARGETS),
    decisions,
    decisions,
    st.sampled_from(["Pin", "Ceiling"]),
    st.sampled_from(["", "a", "ab"]),
)
def test_everything_ends_in_bounds_that_the_schema_accepts(
    target: str,
    first: Mapping[str, int],
    second: Mapping[str, int],
    bounds: str,
    policies: str,
) -> None:
    async def live() -> None:
        scene = scene_of(target, bounds, policies)
        await scene.settle(**first)
        await scene.settle(**second)
        scene.cluster.writes.clear()
        await scene.actuate(after=SECOND)

        assert not [write for write in scene.cluster.writes if "Server" not in write]
        policies_of = (scene.stored(KTHENA.policy, f"m-{n}")["spec"] for n in "ab")
        for holder in [*scene.backends(), *(p["homogeneousTarget"] for p in policies_of)]:
            assert 0 <= holder["minReplicas"] <= holder["maxReplicas"]
            assert holder["maxReplicas"] >= 1
            if "autoscalingPolicy" in holder:
                assert holder["minReplicas"] >= 1

    asyncio.run(live())


async def test_a_full_pool_moves_one_replica_at_a_time_within_the_cards() -> None:
    """Both backends are on the same cards, and the load takes one replica."""
    scene = Scene(cards=4)
    for name in "AB":
        accelerator = {"name": name, "type": "T", "cost": 10}
        scene.cluster.add(objects.manifest("Accelerator", accelerator, name=name.lower()))
    count = [{"type": "T", "count": 4}]
    scene.cluster.add(objects.manifest("Capacity", {"count": count}, name="cards"))
    scene.cluster.add(objects.guarded({"maxDecreasePercent": 100}))
    await scene.settle(A=4)
    asked = []
    scene.decide(B=4)
    for _ in range(30):
        await scene.actuate(after=SECOND)
        asked.append(scene.asked())
        scene.pass_on()
        for name in ("m-a", "m-b"):
            scene.progress(name)

    assert max(asked) == 4
    assert [backend["minReplicas"] for backend in scene.backends()] == [0, 4]


async def test_a_serving_that_was_left_by_role_and_is_named_whole_counts_once() -> None:
    scene = Scene()
    scene.set_by_hand(KTHENA.serving, "m-a", {"replicas": 1})
    for role in ("prefill", "decode"):
        add_pod(scene, "m-a", "m-a-0", role)
    scene.run("m-a", 1)
    add_server_that_left(scene, "m-a")
    other = scene.cluster.objects["Server", Key("default", "o")]
    (left,) = other["status"]["workloads"]
    roles = [{**left, "role": role} for role in ("Prefill", "Decode")]
    scene.cluster.add({**other, "status": {"workloads": roles}})

    for _ in range(3):
        await scene.actuate(after=SECOND)

    assert {name: count_current(scene, name) for name in "os"} == {"o": 0, "s": 1}


@pytest.mark.parametrize(("age", "owner"), [(0, "o"), (9, "s")])
async def test_a_serving_is_that_of_the_older_server_whether_by_name_or_by_booster(
    age: int, owner: str
) -> None:
    scene, serving = Scene(), KTHENA.serving
    scene.set_by_hand(serving, "m-a", {"replicas": 1})
    add_pod(scene, "m-a", "m-a-0")
    scene.run("m-a", 1)
    scene.cluster.workloads.append(Served(serving, is_scalable=True))
    named = {"apiVersion": serving.api_version, "kind": serving.kind, "name": "m-a"}
    spec = {"workloads": [{"accelerator": "A", **named}]}
    scene.cluster.add(objects.server("O", spec=spec, creationTimestamp=objects.born(age)))
    metadata = {**scene.server["metadata"], "creationTimestamp": objects.born(5)}
    scene.cluster.add({**scene.server, "metadata": metadata})
    scene.context.world.watch([serving])

    for _ in range(3):
        await scene.actuate(after=SECOND)

    assert {name: count_current(scene, name) for name in "os"} == {"o": 0, "s": 0} | {owner: 1}


def count_current(scene: Scene, name: str) -> int:
    server = scene.cluster.objects["Server", Key("default", name)]
    replicas: int = server["spec"].get("currentAlloc", {}).get("numReplicas", 0)
    return replicas


def add_server_that_left(scene: Scene, name: str) -> None:
    """An older Server that names a Deployment, and had a ModelServing before."""
    header = {"apiVersion": "apps/v1", "kind": "Deployment"}
    born = {"name": "d", "creationTimestamp": objects.born(0)}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}}
    scene.cluster.add({**header, "metadata": born, "spec": spec})
    serving = KTHENA.serving
    scene.cluster.workloads.append(Served(serving, is_scalable=False))
    left = {"apiVersion": serving.api_version, "kind": serving.kind, "name": name}
    named = [{"accelerator": "B", "name": "d"}]
    server = objects.server("O", spec={"workloads": named}, creationTimestamp=objects.born(0))
    status = {"workloads": [{**left, "accelerator": "A"}]}
    scene.cluster.add({**server, "status": status})
    younger = {**scene.server["metadata"], "creationTimestamp": objects.born(5)}
    scene.cluster.add({**scene.server, "metadata": younger})
    scene.context.world.watch([DEPLOYMENT])


def add_pod(scene: Scene, name: str, group: str, role: str = "leader") -> None:
    """A ready entry pod of a group of a ModelServing."""
    labels = {"name": name, "group-name": group, "role": role, "entry": "true"}
    metadata = {
        "name": f"{group}-{role}",
        "uid": f"{group}-{role}",
        "labels": {KTHENA.pod_label(key): value for key, value in labels.items()},
        "creationTimestamp": objects.born(0),
    }
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": objects.born(1)}
    header = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    scene.cluster.add({**header, "spec": {"nodeName": "n"}, "status": {"conditions": [ready]}})


def running_on(scene: Scene, server: str) -> list[tuple[str, int]]:
    """What a Server reports to run, by accelerator."""
    current = scene.cluster.objects["Server", Key("default", server)]["spec"]["currentAlloc"]
    whole = [current] if current["numReplicas"] else []
    return [(each["accelerator"], each["numReplicas"]) for each in current.get("mix") or whole]


async def test_what_a_booster_left_is_counted_for_the_server_that_names_the_booster_now() -> None:
    scene = Scene()
    scene.set_by_hand(KTHENA.serving, "m-a", {"replicas": 1})
    add_pod(scene, "m-a", "m-a-0")
    scene.run("m-a", 1)
    add_server_that_left(scene, "m-a")

    for _ in range(3):
        await scene.actuate(after=SECOND)

    assert (running_on(scene, "o"), running_on(scene, "s")) == ([], [("A", 1)])


async def test_a_serving_with_both_roles_that_a_booster_left_counts_by_group() -> None:
    scene = Scene()
    scene.add(KTHENA.serving, "x-a", {"replicas": 2})
    for group in ("x-a-0", "x-a-1"):
        for role in ("prefill", "decode"):
            add_pod(scene, "x-a", group, role)
    add_server_that_left(scene, "x-a")

    for _ in range(3):
        await scene.actuate(after=SECOND)

    assert running_on(scene, "o") == [("A", 2)]


async def test_a_writer_who_asks_for_more_is_left_alone_for_five_minutes_and_named() -> None:
    scene = Scene(target="ModelServing")
    await scene.settle(A=4)
    scene.overwrite("m-a", 6)
    scene.run("m-a", 6)

    told = await scene.actuate()
    meanwhile = scene.replicas()["m-a"]
    await scene.actuate(after=5 * MINUTE)

    assert (told["reason"], meanwhile) == ("ForeignWriter", 6)
    assert "field manager 'kthena' changed the number of replicas" in told["message"]
    assert scene.replicas()["m-a"] == 4


@pytest.mark.parametrize("restarts", [False, True])
async def test_bounds_that_were_there_before_the_first_decision_are_nobodys(
    *, restarts: bool
) -> None:
    scene = Scene()
    before = [{"name": name, "minReplicas": 0, "maxReplicas": 9} for name in ("a", "b")]
    scene.set_by_hand(KTHENA.booster, "m", {"backends": before})
    await scene.actuate(after=SECOND)

    if restarts:
        scene.restart()
    scene.decide(A=2)
    told = await scene.actuate(after=SECOND)

    assert told["reason"] != "ForeignWriter"
    assert bounds_of(scene.backends()) == [(2, 2), (0, 1)]


async def test_a_number_that_was_written_is_known_after_a_restart_while_none_is_decided() -> None:
    scene = Scene()
    await scene.settle(A=4)
    spec = {k: v for k, v in scene.server["spec"].items() if k != "desiredAlloc"}
    others = [c for c in scene.server["status"]["conditions"] if c["type"] != ALLOCATED]
    status = {**scene.server["status"], "conditions": others}
    scene.cluster.add({**scene.server, "spec": spec, "status": status})
    await scene.actuate(after=SECOND)

    scene.restart()
    scene.overwrite_all(1)
    scene.decide(A=1)
    await scene.actuate(after=SECOND)

    assert bounds_of(scene.backends())[0] == (4, 4)  # set back before it goes down


async def test_bounds_that_another_writer_raises_are_left_alone_for_five_minutes() -> None:
    scene = Scene()
    await scene.settle(A=2)
    by_hand = [{"name": "a", "minReplicas": 4, "maxReplicas": 8}, scene.backends()[1]]
    scene.set_by_hand(KTHENA.booster, "m", {"backends": by_hand})

    scene.run_all()
    told = await scene.actuate(after=SECOND)
    await scene.actuate(after=4 * MINUTE)
    meanwhile = scene.backends()
    await scene.actuate(after=MINUTE)
    await scene.actuate(after=SECOND)

    assert (told["reason"], meanwhile) == ("ForeignWriter", by_hand)
    assert bounds_of(scene.backends()) == [(2, 2), (0, 1)]


@pytest.mark.parametrize("target", ["ModelBooster", "Binding"])
async def test_what_is_set_back_beside_bounds_of_another_writer_leaves_those(target: str) -> None:
    """Both stand in one object; of a policy with several targets a write owns all of them."""
    scene = Scene(target=target)
    params = [scaled(name)["homogeneousTarget"] for name in ("m-a", "m-b")]
    scene.add(KTHENA.policy, "m", {"heterogeneousTarget": {"params": params}})

    def numbers() -> list[Manifest]:
        if target == "ModelBooster":
            return scene.backends()
        found: list[Manifest] = scene.stored(KTHENA.policy, "m")["spec"]["heterogeneousTarget"][
            "params"
        ]
        return found

    async def turn(after: timedelta = SECOND) -> Manifest:
        told = await scene.actuate(after=after)
        for name, number in zip(("m-a", "m-b"), numbers(), strict=True):
            scene.overwrite(name, number["minReplicas"])
            scene.run(name, number["minReplicas"])
        return told

    scene.decide(A=2, B=2)
    for _ in range(4):
        await turn()
    assert bounds_of(numbers()) == [(2, 2), (2, 2)]
    by_hand = [
        {**each, "minReplicas": least, "maxReplicas": most}
        for each, (least, most) in zip(numbers(), [(4, 8), (0, 1)], strict=True)
    ]
    if target == "ModelBooster":
        scene.set_by_hand(KTHENA.booster, "m", {"backends": by_hand})
    else:
        spec = {"heterogeneousTarget": {"params": by_hand}}
        scene.set_by_hand(KTHENA.policy, "m", spec)

    told = [await turn() for _ in range(3)]
    meanwhile = bounds_of(numbers())
    for _ in range(3):
        await turn(after=5 * MINUTE)

    assert [each["reason"] for each in told] == ["ForeignWriter"] * 3
    assert meanwhile == [(4, 8), (2, 2)]
    assert bounds_of(numbers()) == [(2, 2), (2, 2)]


def bounds_of(numbers: list[Manifest]) -> list[tuple[int, int]]:
    return [(each["minReplicas"], each["maxReplicas"]) for each in numbers]


async def test_a_decision_that_the_other_writer_agrees_with_is_taken_at_once() -> None:
    scene = Scene(target="ModelServing")
    await scene.settle(A=4)
    scene.overwrite("m-a", 5)
    scene.run("m-a", 5)
    assert (await scene.actuate())["reason"] == "ForeignWriter"

    scene.decide(A=5)
    told = await scene.actuate(after=SECOND)

    assert (told["reason"], told["message"]) == ("Actuated", "5 x A")


@pytest.mark.parametrize("target", ["ModelServing", "ModelBooster"])
@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_edits_of_a_booster_leave_the_decided_replicas(
    target: str, *, restarts: bool
) -> None:
    """Its controller, or `kubectl apply`, sets the number of the manifest with each edit."""
    scene = Scene(target=target)
    await scene.settle(A=3)
    for edit in range(8):
        if restarts:
            scene.restart()
        scene.edit(f"engine:{edit}", replicas=0)
        await scene.actuate(after=MINUTE)
        assert scene.asked() == 3
        scene.run_all()
        told = await scene.actuate()
        assert (told["reason"], told["message"]) == ("Actuated", "3 x A")


async def test_a_number_that_could_not_be_set_back_at_once_is_no_fight() -> None:
    scene = Scene(target="ModelServing")
    await scene.settle(A=3)
    scene.run_all()
    scene.overwrite("m-a", 0)
    scene.cluster.failing["ModelServing"] = UnavailableError("HTTP 409")
    await scene.actuate(after=SECOND)
    scene.cluster.failing.clear()
    await scene.actuate(after=MINUTE)
    assert scene.replicas()["m-a"] == 3

    scene.run_all()
    told = await scene.actuate(after=SECOND)

    assert (told["reason"], told["message"]) == ("Actuated", "3 x A")


async def test_in_a_fight_what_was_decided_keeps_running_and_the_writer_is_named() -> None:
    scene = Scene(target="ModelServing")
    await scene.settle(A=3)
    for _ in range(4):
        scene.run_all()
        scene.overwrite("m-a", 0)
        told = await scene.actuate(after=MINUTE)
        assert scene.replicas()["m-a"] == 3
    scene.run_all()
    later = await scene.actuate(after=SECOND)
    over = await scene.actuate(after=5 * MINUTE)

    reasons = told["reason"], later["reason"], over["reason"]
    assert reasons == ("ForeignWriter", "ForeignWriter", "Actuated")
    assert "kthena" in told["message"]


async def about_to_move() -> Scene:
    """A Server that runs on A and is decided to run on B."""
    scene = Scene(target="ModelServing")
    scene.cluster.add(objects.guarded({"maxDecreasePercent": 100}))
    await scene.settle(A=3)
    scene.decide(B=3)
    return scene


async def test_an_edit_during_a_move_does_not_take_the_old_replicas() -> None:
    scene = await about_to_move()
    await scene.actuate(after=MINUTE)
    for edit in range(3):
        scene.edit(f"engine:{edit}", replicas=0)
        await scene.actuate(after=MINUTE)
        assert scene.replicas() == {"m-a": 3, "m-b": 3}

    scene.run_all()
    told = await scene.actuate(after=MINUTE)

    assert scene.replicas() == {"m-a": 0, "m-b": 3}
    assert told["reason"] == "Moving"


async def test_an_edit_leaves_what_an_autoscaler_runs_below_a_ceiling() -> None:
    scene = Scene(target="ModelServing", bounds="Ceiling")
    scene.overwrite("m-a", 4)
    scene.run_all()
    scene.decide(A=7)
    told = await scene.actuate()
    assert told["message"] == "4 x A (7 at most)"
    for edit in range(3):
        scene.edit(f"engine:{edit}", replicas=0)
        await scene.actuate(after=MINUTE)
        assert scene.replicas() == {"m-a": 4, "m-b": 0}
        scene.run_all()


async def test_a_serving_that_is_being_deleted_replaces_no_other() -> None:
    scene = await about_to_move()
    await scene.actuate()
    scene.run_all()
    serving = scene.stored(KTHENA.serving, "m-b")
    ends = {**serving["metadata"], "deletionTimestamp": objects.born(0)}
    scene.cluster.add({**serving, "metadata": ends})

    told = await scene.actuate()

    assert scene.replicas()["m-a"] == 3
    assert told["reason"] == "NotFound"
    assert "ModelServing 'm-b' does not exist" in told["message"]


@pytest.mark.parametrize("bounds", ["Pin", "Ceiling"])
async def test_an_autoscaler_of_a_serving_is_named_and_not_fought_unless_it_has_a_ceiling(
    bounds: str,
) -> None:
    scene = Scene(target="ModelServing", bounds=bounds)
    scene.decide(A=3)
    await scene.actuate()
    scene.overwrite("m-a", 3)
    scene.run_all()
    target = {
        "apiVersion": KTHENA.serving.api_version,
        "kind": KTHENA.serving.kind,
        "name": "m-a",
    }
    autoscaler = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
    scene.cluster.add({**autoscaler, "spec": {"scaleTargetRef": target}})
    scene.cluster.writes.clear()
    for replicas in (2, 3, 2, 1):
        scene.overwrite("m-a", replicas)
        scene.run("m-a", replicas)
        told = await scene.actuate(after=timedelta(seconds=15))

    assert scene.replicas()["m-a"] == 1
    assert "apply ModelServing m-a" not in scene.cluster.writes
    if bounds == "Pin":
        assert told["reason"] == "ForeignWriter"
        assert "HorizontalPodAutoscaler 'h' scales the workload too" in told["message"]
    else:
        assert (told["reason"], told["message"]) == ("Actuated", "1 x A (3 at most)")


events = st.lists(
    st.sampled_from(["edit", "overwrite", "restart", "run", "pass", "A", "B", "AB", "act"]),
    max_size=25,
)


@several(200)
@given(st.sampled_from(["ModelServing", "ModelBooster"]), events)
@example("ModelBooster", ["overwrite", "overwrite"])
@example("ModelBooster", ["overwrite", "B", "run", "overwrite"])
def test_nobody_takes_what_was_decided_and_runs(target: str, story: list[str]) -> None:
    """After each turn of the operator, the lesser of both decisions is asked for, in any order."""

    async def live() -> None:
        scene = Scene(target=target)
        await scene.settle(A=3)
        for turn, what in enumerate(story):
            match what:
                case "edit":
                    scene.edit(f"engine:{turn}", replicas=turn % 2)
                case "overwrite":
                    scene.overwrite_all(turn % 2)
                case "restart":
                    scene.restart()
                case "run":
                    scene.run_all()
                case "pass":
                    scene.time += 2 * MINUTE
                case "act":
                    pass
                case accelerators:
                    scene.decide(**dict.fromkeys(accelerators, 3))
            await scene.actuate(after=SECOND)
            assert scene.asked() >= 3

    asyncio.run(live())


async def test_what_an_autoscaler_keeps_is_explained() -> None:
    scene = scene_of("ModelBooster", policies="b")
    of_policy = await scene.settle(A=2)
    bound = scene_of("Binding", "Ceiling")
    await bound.settle(A=2)
    bound.overwrite("m-b", 1)
    bound.run("m-b", 1)
    of_autoscaler = await bound.actuate()

    assert (of_policy["reason"], of_policy["message"]) == (
        "Actuated",
        "2 x A + 1 x B; the autoscalingPolicy of 'm-b' needs 1",
    )
    assert of_autoscaler["message"].endswith(
        "1 x B (0 wanted); the autoscaler of 'm-b' may keep 1: there is no smaller maximum"
    )


async def test_a_ceiling_is_lowered_to_what_runs_although_the_load_would_need_more() -> None:
    scene = scene_of("Binding", "Ceiling")
    scene.add(KTHENA.policy, "m-b", scaled("m-b", least=1, most=3))
    for name in ("m-a", "m-b"):
        scene.overwrite(name, 1)
        scene.run(name, 1)
    spec = {**scene.server["spec"], "currentAlloc": objects.running(0, 4)}
    scene.cluster.add({**scene.server, "spec": spec})

    await scene.settle(A=4, B=1)

    found = [
        scene.stored(KTHENA.policy, name)["spec"]["homogeneousTarget"] for name in ("m-a", "m-b")
    ]
    assert [(each["minReplicas"], each["maxReplicas"]) for each in found] == [(1, 4), (1, 1)]


async def test_what_does_not_come_up_in_time_is_told_and_the_old_stays() -> None:
    scene = await about_to_move()
    moving = await scene.actuate()

    late = await scene.actuate(after=5 * MINUTE)

    assert (moving["status"], moving["reason"]) == ("Unknown", "Moving")
    assert (late["status"], late["reason"]) == ("False", "Blocked")
    assert "3 x A (0 wanted) + 0 x B (3 wanted); no progress for too long" in late["message"]
    assert scene.replicas() == {"m-a": 3, "m-b": 3}


async def test_an_accelerator_without_a_backend_is_named_and_nothing_goes() -> None:
    scene = Scene()
    await scene.settle(A=2)

    told = await scene.settle(X=2)

    assert (told["reason"], scene.available("m-a")) == ("NoBackend", 2)
    assert "'X'" in told["message"]


FAILED = {"type": "Failed", "status": "True", "message": "m-a: image is missing"}
ACTIVE = {"type": "Active", "status": "True", "message": ""}


async def test_the_failure_of_a_booster_is_told_with_the_words_of_its_controller() -> None:
    scene = Scene()
    scene.decide(A=1)
    scene.tell(conditions=[FAILED])

    told = await scene.actuate()

    assert (told["status"], told["reason"]) == ("False", "ModelBoosterFailed")
    words = "the controller of 'm' reports: m-a: image is missing; 0 x A (1 wanted)"
    assert words in told["message"]
    assert scene.backends()[0] == {"name": "a", "minReplicas": 1, "maxReplicas": 1}


@pytest.mark.parametrize(
    ("conditions", "available", "reason"),
    [
        ([FAILED, ACTIVE], 0, "Moving"),
        ([{**FAILED, "observedGeneration": 1}, ACTIVE], 0, "ModelBoosterFailed"),
        ([{**FAILED, "status": "False"}], 0, "Moving"),
        ([FAILED], 1, "Actuated"),
    ],
    ids=["never cleared", "of our controller", "over", "without effect"],
)
async def test_a_failure_that_is_over_is_not_told(
    conditions: list[Manifest], available: int, reason: str
) -> None:
    scene = Scene()
    scene.decide(A=1)
    await scene.actuate()
    scene.overwrite("m-a", available)
    scene.run("m-a", available)
    scene.tell(conditions=conditions)

    assert (await scene.actuate())["reason"] == reason


OF_TWO = [
    {"name": "a", "accelerator": "A"},
    {"name": "a", "accelerator": "B", "booster": "n"},
]


async def test_a_booster_that_is_missing_is_named_and_nothing_is_written() -> None:
    scene = Scene(backends=OF_TWO, target="ModelServing")
    scene.decide(A=2)

    told = await scene.actuate()

    assert told["reason"] == "NoModelBooster"
    assert "'n' does not exist" in told["message"]
    assert scene.replicas()["m-a"] == 0


async def test_a_booster_that_is_created_again_gets_what_was_decided() -> None:
    scene = Scene()
    scene.decide(A=2)
    await scene.actuate()
    assert scene.backends()[0]["minReplicas"] == 2
    scene.cluster.remove(KTHENA.booster, Key("default", "m"))
    assert (await scene.actuate(after=MINUTE))["reason"] == "NoModelBooster"

    backends = [{"name": name, "minReplicas": 0, "maxReplicas": 1} for name in ("a", "b")]
    kind = {"apiVersion": KTHENA.booster.api_version, "kind": KTHENA.booster.kind}
    metadata = {"name": "m", "uid": "another"}
    scene.cluster.add({**kind, "metadata": metadata, "spec": {"backends": backends}})
    await scene.actuate(after=SECOND)

    assert scene.backends()[0]["minReplicas"] == 2


async def test_all_boosters_of_a_server_are_its_own() -> None:
    scene = Scene(backends=OF_TWO)
    scene.add(KTHENA.booster, "n", {"backend": {"name": "a", "replicas": 1}})
    refers = {"name": "n", "backends": [{"name": "a", "accelerator": "B"}]}
    scene.cluster.add(objects.server("T", spec={"modelBooster": refers}))
    scene.decide(A=1)

    await scene.actuate()

    (told,) = scene.cluster.objects["Server", Key("default", "t")]["status"]["conditions"]
    assert told["reason"] == "Conflict"
    assert "the older Server 's' refers to 'n' too" in told["message"]


@pytest.mark.parametrize(
    ("unserved", "reason"),
    [
        (["AutoscalingPolicyBinding"], "NoBinding"),  # as in v1.0.0
        (["AutoscalingPolicyBinding", "AutoscalingPolicy"], "CRDMissing"),
        (["ModelServing"], "CRDMissing"),
    ],
)
async def test_a_kind_is_missing_if_no_release_does_without_it(
    unserved: list[str], reason: str
) -> None:
    scene = Scene(target="Binding")
    scene.cluster.unserved = set(unserved)
    scene.decide(A=1)

    assert (await scene.actuate())["reason"] == reason


async def test_policies_of_any_name_are_found_when_they_come_and_missed_when_they_go() -> None:
    scene = Scene(target="Binding")
    scene.decide(A=1)
    before = await scene.actuate()
    for name in ("m-a", "m-b"):
        scene.add(KTHENA.policy, f"for-{name}", scaled(name))
    found = await scene.actuate()
    scene.add(KTHENA.policy, "for-m-b", scaled("other"))

    missed = await scene.actuate()

    reasons = [told["reason"] for told in (before, found, missed)]
    assert reasons == ["NoBinding", "Moving", "NoBinding"]


async def test_what_deleted_servers_owned_is_released_at_the_start() -> None:
    scene = Scene(target="Binding")
    left: dict[tuple[Kind, str], Manifest] = {
        (KTHENA.booster, "gone"): {"backend": {"name": "a", "replicas": 1}},
        (KTHENA.serving, "gone-a"): {"replicas": 1},
        (KTHENA.binding, "gone"): scaled("gone-a"),
        (KTHENA.policy, "gone"): scaled("gone-a"),
    }
    kept = {
        (KTHENA.policy, "mine"): scaled("m-a"),
        (KTHENA.serving, "apart"): {"template": {"roles": [{"name": "decode", "replicas": 1}]}},
    }
    serving = {"apiVersion": KTHENA.serving.api_version, "kind": "ModelServing", "name": "apart"}
    workloads = [{**serving, "accelerator": "A", "role": role} for role in ("Prefill", "Decode")]
    scene.cluster.add(objects.server("W", spec={"workloads": workloads}))
    for (kind, name), spec in [*left.items(), *kept.items()]:
        scene.add(kind, name, spec, FieldManager.ACTUATION)

    await scene.actuate()
    await reconcile("", scene.context)

    assert not any(has_own_fields(scene.stored(kind, name)) for kind, name in left)
    assert [has_own_fields(scene.stored(kind, name)) for kind, name in kept] == [True, True]
    assert scene.stored(KTHENA.serving, "gone-a")["spec"] == {"replicas": 1}


async def test_a_server_that_gives_up_its_booster_leaves_the_numbers_and_says_so() -> None:
    scene = Scene()
    await scene.settle(A=2)
    give_up_booster(scene)

    told = await scene.actuate()

    assert told["reason"] == "Released"
    assert not has_own_fields(scene.stored(KTHENA.booster, "m"))
    assert [backend["minReplicas"] for backend in scene.backends()] == [2, 0]


def give_up_booster(scene: Scene) -> None:
    stored = scene.server
    spec = {name: value for name, value in stored["spec"].items() if name != "modelBooster"}
    scene.cluster.add({**stored, "spec": spec})


async def test_a_booster_that_refuses_to_be_released_stops_nobody_and_is_tried_again() -> None:
    scene = Scene()
    for name in ("gone", "gone-too"):
        spec = {"backend": {"name": "a", "replicas": 1}}
        scene.add(KTHENA.booster, name, spec, FieldManager.ACTUATION)
    refers = {"name": "gone", "backends": [{"name": "a", "accelerator": "B"}]}
    scene.cluster.add(objects.server("T", spec={"modelBooster": refers}))
    await scene.actuate()
    scene.cluster.remove(kind_of(Server), Key("default", "t"))
    scene.cluster.unreleasable = {"gone"}
    scene.decide(A=2)

    await scene.actuate()
    refused = scene.result
    assert has_own_fields(scene.stored(KTHENA.booster, "gone"))
    assert not has_own_fields(scene.stored(KTHENA.booster, "gone-too"))
    assert [backend["minReplicas"] for backend in scene.backends()] == [2, 0]

    scene.cluster.unreleasable = set()
    await scene.actuate()
    assert [refused.failed, scene.result.failed] == [True, False]
    assert not has_own_fields(scene.stored(KTHENA.booster, "gone"))


async def test_a_booster_is_not_said_to_be_released_before_it_is() -> None:
    scene = Scene()
    await scene.settle(A=2)
    give_up_booster(scene)
    scene.cluster.unreleasable = {"m"}
    before = await scene.actuate()
    scene.cluster.unreleasable = set()

    after = await scene.actuate()

    assert before["reason"] != "Released"
    assert after["reason"] == "Released"
    assert not has_own_fields(scene.stored(KTHENA.booster, "m"))


async def test_a_booster_that_is_given_up_during_a_release_is_released_after_it() -> None:
    scene = Scene()
    await scene.settle(A=2)
    spec = {"backend": {"name": "a", "replicas": 1}}
    scene.add(KTHENA.booster, "gone", spec, FieldManager.ACTUATION)
    refers = {"name": "gone", "backends": [{"name": "a", "accelerator": "B"}]}
    scene.cluster.add(objects.server("T", spec={"modelBooster": refers}))
    await scene.actuate()
    scene.cluster.remove(kind_of(Server), Key("default", "t"))
    scene.cluster.meanwhile = lambda: give_up_booster(scene)

    await scene.actuate()
    told = await scene.actuate()

    assert not has_own_fields(scene.stored(KTHENA.booster, "gone"))
    assert not has_own_fields(scene.stored(KTHENA.booster, "m"))
    assert told["reason"] == "Released"


@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_half_of_the_replicas_go_each_five_minutes(*, restarts: bool) -> None:
    scene = Scene(target="ModelServing")
    await scene.settle(A=8)
    scene.decide(A=1)

    async def steps(seconds: int) -> list[int]:
        found: list[int] = []
        for second in range(seconds):
            await scene.actuate(after=SECOND)
            if scene.replicas()["m-a"] not in found[-1:]:
                found.append(scene.replicas()["m-a"])
            scene.run_all()
            if restarts and second % 20 == 0:
                scene.restart()
        return found

    assert await steps(310) == [4, 2]
    assert await steps(310) == [2, 1]


@pytest.mark.parametrize("available", [0, 3, 5])
@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_replicas_that_fail_for_a_while_served_in_the_window(
    available: int, *, restarts: bool
) -> None:
    scene = Scene(target="ModelServing")
    await scene.settle(A=8)
    scene.run("m-a", available)
    if not restarts:
        await scene.actuate(after=SECOND)
    scene.decide(A=1)
    asked = []
    for second in range(46):
        await scene.actuate(after=5 * SECOND)
        asked.append(scene.asked())
        if second > 4:
            scene.run_all()

    assert min(asked) == 4
    for _ in range(20):
        await scene.actuate(after=MINUTE)
        scene.run_all()
    assert scene.asked() == 1
