"""Moves between backends, driven at random against a small world: no gap, an end, no rest."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.controllers.actuation.booster_bounds import Write
from inferno_operator.controllers.actuation.changes import (
    MOVE_TIMEOUT,
    ActuationPlan,
    Inputs,
    decide,
)
from inferno_operator.controllers.actuation.decision import Wanted, wanted
from inferno_operator.controllers.actuation.targets import ScaledObjects
from inferno_operator.resources import ModelBoosterRef, Status
from inferno_operator.resources.conditions import merge_conditions
from inferno_operator.resources.dialects import KTHENA
from tests.examples import several
from tests.unit.operator import objects

Manifest = dict[str, Any]

NAMES = ("a", "b", "c")
TARGETS = ("ModelBooster", "ModelServing", "Binding")


def reference(**fields: object) -> ModelBoosterRef:
    backends = [{"name": name, "accelerator": name.upper()} for name in NAMES]
    return ModelBoosterRef.model_validate({"name": "m", "backends": backends, **fields})


def has_arrived(plan: ActuationPlan) -> bool:
    """Whether everything is as it was decided."""
    return plan.verdict is not None and plan.verdict.holds is True


class Fleet:
    """A booster, its servings and bindings, and controllers that act when they are asked to."""

    def __init__(self, reference: ModelBoosterRef, policies: frozenset[str] = frozenset()) -> None:
        self.reference = reference
        self.status = Status()
        self.now = objects.NOW
        self.booster = self._object("m", {"backends": [self._backend(n, policies) for n in NAMES]})
        self.servings = {f"m-{name}": self._object(f"m-{name}", {"replicas": 0}) for name in NAMES}
        self.bindings = {
            f"m-{name}": self._object(
                f"m-{name}",
                {
                    "scalingConfiguration": {
                        "target": {"targetRef": {"kind": "ModelServing", "name": f"m-{name}"}},
                        "minReplicas": 0,
                        "maxReplicas": 1,
                    }
                },
            )
            for name in NAMES
        }

    @staticmethod
    def _backend(name: str, policies: frozenset[str]) -> Manifest:
        if name in policies:
            return {"name": name, "minReplicas": 1, "maxReplicas": 1, "autoscalingPolicy": {}}
        return {"name": name, "minReplicas": 0, "maxReplicas": 1}

    @staticmethod
    def _object(name: str, spec: Manifest) -> Manifest:
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": name,
            "generation": 1,
            "resourceVersion": "1",
        }
        return {"metadata": metadata, "spec": spec, "status": {"observedGeneration": 1}}

    def step(self, decision: Mapping[str, int] | None) -> ActuationPlan:
        """Plan, and write what was planned."""
        scalers = {KTHENA.binding: list(self.bindings.values())}
        workload = ScaledObjects({"m": self.booster}, self.servings, scalers)
        inputs = Inputs(self.reference, Wanted(decision, reason="Held"), self.status, workload)
        plan = decide(inputs, self.now)
        for write in plan.writes:
            self._apply(write)
        if plan.verdict is not None:
            conditions = merge_conditions(self.status, [plan.verdict], 1, self.now)
            self.status = Status(conditions=conditions)
        return plan

    def _apply(self, write: Write) -> None:
        kind, name = write.reference.kind.kind, write.reference.key.name
        if kind == "ModelBooster":
            for fields in write.spec["backends"]:
                self._backends()[fields["name"]].update(fields)
            self.booster["metadata"]["generation"] += 1
        elif kind == "ModelServing":
            self._scale(self.servings[name], write.spec["replicas"])
        else:
            configuration = self.bindings[name]["spec"]["scalingConfiguration"]
            configuration.update(write.spec["scalingConfiguration"])

    def _backends(self) -> dict[str, Manifest]:
        return {backend["name"]: backend for backend in self.booster["spec"]["backends"]}

    @staticmethod
    def _scale(serving: Manifest, replicas: int) -> None:
        if serving["spec"]["replicas"] != replicas:
            serving["spec"]["replicas"] = replicas
            serving["metadata"]["generation"] += 1

    def pass_on(self) -> None:
        """The booster's controller, or the autoscaler, has its turn."""
        for name, backend in self._backends().items():
            holder = backend
            if self.reference.target == "ModelServing":
                continue
            if self.reference.target == "Binding":
                holder = self.bindings[f"m-{name}"]["spec"]["scalingConfiguration"]
            serving = self.servings[f"m-{name}"]
            now, least, most = (
                serving["spec"]["replicas"],
                holder["minReplicas"],
                holder["maxReplicas"],
            )
            scales = self.reference.target == "Binding" or "autoscalingPolicy" in backend
            is_unused = (least, most) == (0, 1)  # no request reaches it
            chosen = 0 if is_unused else min(max(now, least), most)
            self._scale(serving, chosen if scales else least)
        self.booster["status"]["observedGeneration"] = self.booster["metadata"]["generation"]

    def progress(self, name: str) -> None:
        """A serving has its turn: what is too much goes, what is missing comes one by one."""
        serving = self.servings[f"m-{name}"]
        asked, status = serving["spec"]["replicas"], serving["status"]
        status["availableReplicas"] = min(self.available(name) + 1, asked)
        status["observedGeneration"] = serving["metadata"]["generation"]

    def settle(self, decision: Mapping[str, int] | None) -> list[ActuationPlan]:
        """Let everybody have many turns; the last plans tell whether there is an end."""
        plans = []
        for _ in range(40):
            plans.append(self.step(decision))
            self.pass_on()
            for name in NAMES:
                self.progress(name)
        return plans

    def available(self, name: str) -> int:
        """Replicas that serve: those told, less those that are to go."""
        serving = self.servings[f"m-{name}"]
        told: int = serving["status"].get("availableReplicas", 0)
        asked: int = serving["spec"]["replicas"]
        return min(told, asked)

    @property
    def total(self) -> int:
        """All replicas that serve."""
        return sum(map(self.available, NAMES))


decisions = st.dictionaries(st.sampled_from(["A", "B", "C"]), st.integers(1, 4), max_size=3)
turns = st.lists(st.sampled_from(["plan", "pass on", *NAMES]), max_size=30)
references = st.builds(reference, target=st.sampled_from(TARGETS))


@given(references, st.lists(st.tuples(decisions, turns), min_size=1, max_size=4))
def test_no_move_takes_more_than_both_decisions_spare(
    reference: ModelBoosterRef, story: list[tuple[dict[str, int], list[str]]]
) -> None:
    fleet = Fleet(reference)
    fleet.settle({"A": 2})
    floor = fleet.total
    for decision, happens in story:
        floor = min(floor, sum(decision.values()))
        for turn in happens:
            take(turn, fleet, decision)
            assert fleet.total >= floor
    plans = fleet.settle(story[-1][0])

    assert fleet.total >= floor
    assert has_arrived(plans[-1])
    assert not plans[-1].writes


def take(turn: str, fleet: Fleet, decision: Mapping[str, int]) -> None:
    if turn == "plan":
        fleet.step(decision)
    elif turn == "pass on":
        fleet.pass_on()
    else:
        fleet.progress(turn)


@given(
    references,
    decisions,
    decisions.filter(bool),
    st.sampled_from(["Pin", "Ceiling"]),
    st.frozensets(st.sampled_from(NAMES)),
)
def test_everything_ends_in_bounds_that_the_schema_accepts(
    reference: ModelBoosterRef,
    first: dict[str, int],
    second: dict[str, int],
    bounds: str,
    policies: frozenset[str],
) -> None:
    reference = reference.model_copy(update={"bounds": bounds})
    fleet = Fleet(reference, policies)
    fleet.settle(first)
    fleet.settle(second)
    plans = fleet.settle(second)

    assert not any(plan.writes for plan in plans)
    for holder in [
        *fleet.booster["spec"]["backends"],
        *(b["spec"]["scalingConfiguration"] for b in fleet.bindings.values()),
    ]:
        assert 0 <= holder["minReplicas"] <= holder["maxReplicas"]
        assert holder["maxReplicas"] >= 1
        if "autoscalingPolicy" in holder:
            assert holder["minReplicas"] >= 1


@several(30)
@given(references, decisions.filter(bool))
def test_no_decision_writes_nothing(reference: ModelBoosterRef, decision: dict[str, int]) -> None:
    fleet = Fleet(reference)
    fleet.settle(decision)
    before = fleet.total

    plans = fleet.settle(None)

    assert not any(plan.writes for plan in plans)
    assert plans[-1].verdict is not None
    assert plans[-1].verdict.reason == "Held"
    assert fleet.total == before


def test_a_mix_is_spread_over_its_backends() -> None:
    fleet = Fleet(reference())

    plans = fleet.settle({"A": 2, "C": 3})

    assert has_arrived(plans[-1])
    assert [fleet.available(name) for name in NAMES] == [2, 0, 3]


def told(fleet: Fleet, decision: Mapping[str, int], **running: int) -> tuple[bool | None, str]:
    """What is said of a decision that is written, while so many replicas run."""
    fleet.settle(decision)
    for name, replicas in running.items():
        serving = fleet.servings[f"m-{name}"]
        serving["spec"]["replicas"] = serving["status"]["availableReplicas"] = replicas
    verdict = fleet.step(decision).verdict
    assert verdict is not None
    return verdict.holds, verdict.message


def test_what_an_autoscaler_runs_below_a_ceiling_is_told() -> None:
    fleet = Fleet(reference(target="Binding", bounds="Ceiling"))

    beside = told(fleet, {"A": 7}, a=4, b=1)
    below = told(fleet, {"A": 7}, a=4, b=0)
    mixed = told(fleet, {"A": 7, "B": 2}, a=4, b=1)

    holds, message = beside
    assert holds is None
    assert message.startswith("4 x A (7 at most) + 1 x B; 1 replicas on B (backend 'b'), 0 decided")
    assert message.endswith("its autoscaler may keep 1, as there is no smaller maximum")
    assert below == (True, "4 x A (7 at most)")
    assert mixed == (True, "4 x A (7 at most) + 1 x B (2 at most)")


def test_a_replica_beside_those_that_are_pinned_is_no_part_of_the_decision() -> None:
    fleet = Fleet(reference(target="Binding"))

    assert told(fleet, {"A": 4}, a=4) == (True, "4 x A")
    assert told(fleet, {"A": 4}, a=4, b=1)[0] is None


def test_a_replica_that_a_policy_keeps_is_told_beside_the_decided_ones() -> None:
    fleet = Fleet(reference(), frozenset("b"))

    assert told(fleet, {"A": 2}, a=2, b=1) == (
        True,
        "2 x A + 1 x B (0 decided; its autoscalingPolicy needs 1)",
    )


def test_what_does_not_come_up_in_time_is_told_and_the_old_stays() -> None:
    fleet = Fleet(reference())
    fleet.settle({"A": 2})
    moving = fleet.step({"B": 2})
    fleet.now += MOVE_TIMEOUT + timedelta(seconds=1)

    late = fleet.step({"B": 2})

    assert moving.verdict is not None
    assert (moving.verdict.reason, moving.again_after) == ("Moving", 600)
    assert late.verdict is not None
    assert late.verdict.reason == "MoveTimedOut"
    assert "0 of 2 replicas on B (backend 'b') available; until then the replicas on A stay" in (
        late.verdict.message
    )
    assert fleet.available("a") == 2


def test_an_accelerator_without_a_backend_is_named_and_nothing_goes() -> None:
    fleet = Fleet(reference())
    fleet.settle({"A": 2})

    plans = fleet.settle({"X": 2})

    assert plans[-1].verdict is not None
    assert plans[-1].verdict.reason == "NoBackend"
    assert "'X'" in plans[-1].verdict.message
    assert fleet.available("a") == 2


def server(allocated: Manifest, desired: Manifest, generation: int = 3) -> Manifest:
    manifest = objects.server(spec={"desiredAlloc": desired}, generation=generation)
    time = "2026-01-01T00:00:00Z"
    told = {"type": "Allocated", "lastTransitionTime": time, "message": "", **allocated}
    return {**manifest, "status": {"conditions": [told]}}


NOTHING = {"accelerator": "", "numReplicas": 0}
SOME = {"accelerator": "A", "numReplicas": 2}


@pytest.mark.parametrize(
    ("status", "reason", "observed", "desired", "replicas", "fresh"),
    [
        ("True", "Allocated", 3, SOME, {"A": 2}, True),
        ("True", "Allocated", 2, SOME, {"A": 2}, True),
        ("True", "Allocated", 3, NOTHING, {}, True),
        ("True", "Allocated", 2, NOTHING, None, False),
        ("False", "NoCapacity", 2, NOTHING, {}, True),
        ("False", "NoCapacity", 2, SOME, None, False),
        ("False", "UnknownModel", 3, NOTHING, None, True),
        ("False", "InvalidSpec", 2, NOTHING, None, True),
    ],
)
def test_a_decision_counts_when_what_is_told_of_it_belongs_to_it(
    status: str,
    reason: str,
    observed: int,
    desired: Manifest,
    replicas: dict[str, int] | None,
    *,
    fresh: bool,
) -> None:
    told = {"status": status, "reason": reason, "observedGeneration": observed}

    decision = wanted(objects.observed(server(told, desired)))

    assert (decision.replicas, decision.fresh) == (replicas, fresh)


def test_a_server_that_was_never_optimized_is_held() -> None:
    decision = wanted(objects.observed(objects.server()))

    assert decision.replicas is None
    assert "nothing was decided yet" in decision.why


def test_the_parts_of_a_mix_are_what_is_wanted() -> None:
    mix = [{"accelerator": "A", "numReplicas": 2}, {"accelerator": "B", "numReplicas": 1}]
    desired = {"accelerator": "A", "numReplicas": 3, "mix": mix}
    told = {"status": "True", "reason": "Allocated", "observedGeneration": 3}

    assert wanted(objects.observed(server(told, desired))).replicas == {"A": 2, "B": 1}
