"""Decisions reach boosters in a cluster in memory: disputes, failures, and what is released."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inferno_operator.controllers.actuation.booster_bounds import owns
from inferno_operator.controllers.actuation.controller import ActuationController
from inferno_operator.controllers.actuation.index import ServerIndex
from inferno_operator.controllers.actuation.reconcile import Context, reconcile
from inferno_operator.resources import ModelBoosterRef
from inferno_operator.resources.conditions import ALLOCATED
from inferno_operator.resources.dialects import KTHENA
from inferno_operator.resources.objects import Key, Kind
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.ports import FieldManager
from tests.examples import several
from tests.fakes import FakeCluster
from tests.unit.operator import objects
from tests.unit.operator.background import started

Manifest = dict[str, Any]

BACKENDS = [{"name": "a", "accelerator": "A"}, {"name": "b", "accelerator": "B"}]
SERVER = Key("default", "s")


class Scene:
    """Server `s` on booster `m` with two backends, and its ModelServings."""

    def __init__(self, **reference: object) -> None:
        self.cluster = FakeCluster()
        self.time = objects.NOW
        self.context = Context(self.cluster, self.now, ServerIndex())
        refers = {"name": "m", "backends": BACKENDS, **reference}
        self.reference_target = reference.get("target", "ModelBooster")
        self.cluster.add(objects.server(spec={"modelBooster": refers}))
        backends = [{"name": n, "minReplicas": 0, "maxReplicas": 1} for n in ("a", "b")]
        self.add(KTHENA.booster, "m", {"backends": backends})
        for name in ("m-a", "m-b"):
            self.add(KTHENA.serving, name, {"replicas": 0})

    def now(self) -> datetime:
        return self.time

    def add(self, kind: Kind, name: str, spec: Manifest, owner: str = "") -> Key:
        entries = [{"manager": owner, "operation": "Apply"}] if owner else []
        metadata = {"name": name, "managedFields": entries}
        header = {"apiVersion": kind.api_version, "kind": kind.kind}
        return self.cluster.add({**header, "metadata": metadata, "spec": spec})

    def stored(self, kind: Kind, name: str) -> Manifest:
        return self.cluster.objects[kind.kind, Key("default", name)]

    def run(self, name: str, available: int) -> None:
        """Have so many available replicas."""
        serving = self.stored(KTHENA.serving, name)
        generation = serving["metadata"]["generation"]
        serving["status"] = {"availableReplicas": available, "observedGeneration": generation}

    def decide(self, **replicas: int) -> None:
        """Write a decision on the Server."""
        stored = self.cluster.objects["Server", SERVER]
        mix = [{"accelerator": a, "numReplicas": n} for a, n in replicas.items() if n]
        stored["spec"]["desiredAlloc"] = {"accelerator": "A", "numReplicas": 1, "mix": mix}
        generation = stored["metadata"]["generation"]
        condition = objects.condition(ALLOCATED, "Allocated", observedGeneration=generation)
        status = stored.get("status", {})
        kept = [each for each in status.get("conditions", []) if each["type"] != ALLOCATED]
        stored["status"] = {**status, "conditions": [*kept, condition]}

    async def actuate(self, *, after: timedelta = timedelta()) -> Manifest:
        """Reconcile the Server; returns what it says."""
        self.time += after
        await reconcile(SERVER, self.context)
        conditions = self.cluster.objects["Server", SERVER]["status"]["conditions"]
        told: Manifest = next(c for c in conditions if c["type"] == "Actuated")
        return told

    def replicas(self) -> dict[str, int]:
        return {n: self.stored(KTHENA.serving, n)["spec"]["replicas"] for n in ("m-a", "m-b")}

    def run_all(self) -> None:
        """Have as many replicas as are asked for."""
        if self.reference_target == "ModelBooster":
            for backend in self.stored(KTHENA.booster, "m")["spec"]["backends"]:
                self.stored(KTHENA.serving, f"m-{backend['name']}")["spec"]["replicas"] = backend[
                    "minReplicas"
                ]
        for name, replicas in self.replicas().items():
            self.run(name, replicas)

    def asked(self) -> int:
        """The replicas of all backends that the operator asks for."""
        if self.reference_target == "ModelServing":
            return sum(self.replicas().values())
        return sum(b["minReplicas"] for b in self.stored(KTHENA.booster, "m")["spec"]["backends"])

    def restart(self) -> None:
        """Start another operator, which remembers nothing."""
        self.context = Context(self.cluster, self.now, ServerIndex())

    def edit(self, image: str, replicas: int) -> None:
        """Edit the booster; its manifest, and then its controller, have a number of their own."""
        spec = self.stored(KTHENA.booster, "m")["spec"]
        backends = [{**b, "workers": [{"image": image}]} for b in spec["backends"]]
        self._put(KTHENA.booster, "m", {"backends": backends})
        self.overwrite_all(replicas)

    def overwrite_all(self, replicas: int) -> None:
        """Set the number of all backends where the operator writes it."""
        if self.reference_target == "ModelServing":
            for name in ("m-a", "m-b"):
                self.overwrite(name, replicas)
            return
        numbers = {"minReplicas": replicas, "maxReplicas": max(replicas, 1)}
        spec = self.stored(KTHENA.booster, "m")["spec"]
        backends = [{**backend, **numbers} for backend in spec["backends"]]
        self._put(KTHENA.booster, "m", {"backends": backends}, "kthena")

    def overwrite(self, name: str, replicas: int) -> None:
        """Set the number of a serving as the controller of boosters does."""
        self._put(KTHENA.serving, name, {"replicas": replicas}, "kthena")

    def _put(self, kind: Kind, name: str, spec: Manifest, manager: str = "") -> None:
        """Replace an object; a manager that is named owns all fields from then on."""
        stored = self.stored(kind, name)
        metadata = dict(stored["metadata"])
        if manager:
            fields: Manifest = {"f:spec": {f"f:{key}": {} for key in spec}}
            entry = {"manager": manager, "operation": "Update", "fieldsV1": fields}
            metadata["managedFields"] = [entry]
        self.cluster.add({**stored, "metadata": metadata, "spec": spec})

    def tell(self, **fields: object) -> None:
        """Have the booster's controller say something."""
        self.stored(KTHENA.booster, "m")["status"] = fields


async def test_a_dispute_about_one_object_does_not_hold_up_the_others() -> None:
    scene = Scene(target="ModelServing")
    scene.decide(A=5, B=5)
    await scene.actuate()
    for replicas in (4, 3):
        scene.run_all()
        scene.cluster.disputed = {"ModelServing m-a"}
        scene.decide(A=replicas, B=replicas)
        told = await scene.actuate(after=timedelta(minutes=1))

    assert told["reason"] == "Conflict"
    assert scene.replicas() == {"m-a": 4, "m-b": 3}


async def test_a_field_is_taken_over_once_in_five_minutes_to_reduce_what_another_wants() -> None:
    scene = Scene(target="ModelServing")
    scene.decide(A=20)
    await scene.actuate()
    replicas = []
    for minute in range(11):
        scene.run_all()
        scene.cluster.disputed = {"ModelServing m-a"}
        scene.decide(A=19 - minute)
        await scene.actuate(after=timedelta(minutes=1))
        replicas.append(scene.replicas()["m-a"])

    assert replicas == [19, 19, 19, 19, 19, 14, 14, 14, 14, 14, 10]


async def test_a_decision_that_the_other_writer_agrees_with_is_taken_at_once() -> None:
    scene = Scene(target="ModelServing")
    scene.decide(A=4)
    await scene.actuate()
    for replicas in (6, 5):
        scene.overwrite("m-a", replicas)
        scene.run("m-a", replicas)
        told = await scene.actuate()
    assert told["reason"] == "Conflict"

    scene.decide(A=5)
    told = await scene.actuate(after=timedelta(seconds=1))

    assert (told["reason"], told["message"]) == ("Actuated", "5 x A")


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("target", ["ModelServing", "ModelBooster"])
@pytest.mark.parametrize("restarts", [False, True], ids=["one operator", "restarted"])
async def test_edits_of_a_booster_leave_the_decided_replicas(
    target: str, *, restarts: bool
) -> None:
    """Its controller, or `kubectl apply`, sets the number of the manifest with each edit."""
    scene = Scene(target=target)
    scene.decide(A=3)
    for edit in range(8):
        if restarts:
            scene.restart()
        scene.edit(f"engine:{edit}", replicas=0)
        told = await scene.actuate(after=MINUTE)
        assert scene.asked() == 3
        assert told["reason"] == "Moving"
        scene.run_all()
        told = await scene.actuate()
        assert (told["reason"], told["message"]) == ("Actuated", "3 x A")


async def test_the_first_takeover_is_no_part_of_a_fight() -> None:
    """Another controller has made the serving, and sets its number once more without an edit."""
    scene = Scene(target="ModelServing")
    scene.overwrite("m-a", 5)
    scene.run("m-a", 5)
    scene.decide(A=3)
    await scene.actuate()
    scene.overwrite("m-a", 5)
    scene.run("m-a", 5)

    told = await scene.actuate(after=MINUTE)

    assert scene.replicas()["m-a"] == 3
    assert told["reason"] == "Moving"


async def test_in_a_fight_what_was_decided_keeps_running_and_the_writer_is_named() -> None:
    scene = Scene(target="ModelServing")
    scene.decide(A=3)
    await scene.actuate()
    for _ in range(4):
        scene.run_all()
        scene.overwrite("m-a", 0)
        told = await scene.actuate(after=MINUTE)
        assert scene.replicas()["m-a"] == 3
    scene.run_all()
    later = await scene.actuate(after=timedelta(seconds=1))
    over = await scene.actuate(after=5 * MINUTE)

    assert (told["reason"], later["reason"], over["reason"]) == ("Conflict", "Conflict", "Actuated")
    assert "kthena" in told["message"]
    assert "only where replicas would be lost" in told["message"]


async def about_to_move() -> Scene:
    """A Server that runs on A and is decided to run on B."""
    scene = Scene(target="ModelServing")
    scene.decide(A=3)
    await scene.actuate()
    scene.run_all()
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
    scene.stored(KTHENA.serving, "m-b")["metadata"]["deletionTimestamp"] = objects.born(0)

    told = await scene.actuate()

    assert scene.replicas()["m-a"] == 3
    assert told["reason"] == "Moving"
    assert "0 of 3 replicas on B" in told["message"]


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
        assert told["reason"] == "Conflict"
        assert "HorizontalPodAutoscaler 'h' scales ModelServing 'm-a'" in told["message"]
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
        scene.decide(A=3)
        await scene.actuate()
        scene.run_all()
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
            await scene.actuate(after=timedelta(seconds=1))
            assert scene.asked() >= 3

    asyncio.run(live())


async def test_what_runs_beyond_the_decision_is_told() -> None:
    scene = Scene(target="ModelServing")
    scene.decide(A=1)
    await scene.actuate()
    scene.run("m-a", 1)
    scene.run("m-b", 2)

    told = await scene.actuate()
    late = await scene.actuate(after=timedelta(minutes=11))
    scene.run("m-b", 0)
    done = await scene.actuate()

    assert (told["status"], told["reason"]) == ("Unknown", "Moving")
    assert "2 replicas on B (backend 'b'), 0 decided" in told["message"]
    assert late["reason"] == "MoveTimedOut"
    assert "check why the pods do not end" in late["message"]
    assert (done["reason"], done["message"]) == ("Actuated", "1 x A")


FAILED = {"type": "Failed", "status": "True", "message": "m-a: image is missing"}
ACTIVE = {"type": "Active", "status": "True", "message": ""}


async def test_the_failure_of_a_booster_is_told_with_the_words_of_its_controller() -> None:
    scene = Scene()
    scene.decide(A=1)
    scene.tell(conditions=[FAILED])

    told = await scene.actuate()

    assert (told["status"], told["reason"]) == ("False", "ModelBoosterFailed")
    assert (
        "the controller of 'm' reports: m-a: image is missing; 0 of 1 replicas" in told["message"]
    )
    backends = scene.stored(KTHENA.booster, "m")["spec"]["backends"]
    assert backends[0] == {"name": "a", "minReplicas": 1, "maxReplicas": 1}


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
    scene.stored(KTHENA.serving, "m-a")["spec"]["replicas"] = available
    scene.run("m-a", available)
    scene.tell(conditions=conditions)

    assert (await scene.actuate())["reason"] == reason


OF_TWO = [
    {"name": "a", "accelerator": "A"},
    {"name": "a", "accelerator": "B", "booster": "n"},
]


async def test_a_booster_that_is_missing_does_not_hold_up_the_other() -> None:
    scene = Scene(backends=OF_TWO, target="ModelServing")
    scene.add(KTHENA.serving, "n-a", {"replicas": 1})
    scene.run("n-a", 1)
    scene.decide(A=2)

    told = await scene.actuate()

    assert told["reason"] == "NoModelBooster"
    assert "'n' does not exist" in told["message"]
    assert scene.replicas()["m-a"] == 2
    assert scene.stored(KTHENA.serving, "n-a")["spec"] == {"replicas": 1}


async def test_all_boosters_of_a_server_are_its_own() -> None:
    scene = Scene(backends=OF_TWO)
    scene.add(KTHENA.booster, "n", {"backend": {"name": "a", "replicas": 1}})
    refers = {"name": "n", "backends": [{"name": "a", "accelerator": "B"}]}
    scene.cluster.add(objects.server("T", spec={"modelBooster": refers}))
    for age, (name, key) in enumerate({"s": SERVER, "t": Key("default", "t")}.items()):
        stored = scene.cluster.objects["Server", key]
        reference = ModelBoosterRef.model_validate(stored["spec"]["modelBooster"])
        scene.context.index.put(key, (age, name), reference)

    await reconcile(Key("default", "t"), scene.context)

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
    scene.cluster.remove(KTHENA.serving, Key("default", "m-b"))
    if "ModelServing" in unserved:
        scene.cluster.remove(KTHENA.serving, Key("default", "m-a"))
    scene.decide(A=1)

    assert (await scene.actuate())["reason"] == reason


async def test_policies_of_any_name_are_found_when_they_come_and_missed_when_they_go() -> None:
    scene = Scene(target="Binding")
    scene.decide(A=1)
    controller = ActuationController(scene.cluster, Informers(scene.cluster), scene.now)

    async def told() -> str:
        for _ in range(20):
            await scene.cluster.something_changed()
            conditions = scene.cluster.objects["Server", SERVER]["status"]["conditions"]
            reasons = [c["reason"] for c in conditions if c["type"] == "Actuated"]
            if reasons != before:
                before[:] = reasons
                return str(reasons[0])
        return "the same"

    before: list[str] = []
    async with started(controller):
        assert await told() == "NoBinding"
        for name in ("m-a", "m-b"):
            scene.add(KTHENA.policy, f"for-{name}", scaled(name))
        assert await told() == "Moving"
        scene.add(KTHENA.policy, "for-m-b", scaled("other"))

        assert await told() == "NoBinding"


def scaled(name: str) -> Manifest:
    target = {"targetRef": {"kind": "ModelServing", "name": name}}
    return {"homogeneousTarget": {"target": target, "minReplicas": 1, "maxReplicas": 1}}


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
    controller = ActuationController(scene.cluster, Informers(scene.cluster), scene.now)

    async with started(controller):
        while any(owns(scene.stored(kind, name)) for kind, name in left):
            await scene.cluster.something_changed()

    assert [owns(scene.stored(kind, name)) for kind, name in kept] == [True, True]
    assert {n: scene.stored(k, n)["spec"] for k, n in left if k == KTHENA.serving} == {
        "gone-a": {"replicas": 1}
    }
