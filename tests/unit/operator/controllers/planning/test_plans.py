"""The life of Plans: recorded, held back, approved, carried out, replaced, pruned."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from inferno_operator.controllers.planning.plans import find_arrivals
from inferno_operator.controllers.planning.proposal import build_spec_manifest
from inferno_operator.resources import Plan, Server, parse
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import RejectedError
from tests.calls import calls
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.scene import (
    INFERNO,
    Killed,
    MortalCluster,
    Scene,
    TypedLoads,
    scene_of,
)
from tests.unit.operator.controllers.planning.test_proposal import proposed
from tests.unit.operator.objects import Manifest

FROZEN = {"start": "0 11 * * *", "duration": "2h", "timezone": "UTC"}
SCALED = objects.server("S", spec={"workloads": [{"accelerator": "A", "name": "w"}]})
"""A Server that the operator scales."""

ONE_REPLICA = {"accelerator": "A", "numReplicas": 1, "maxBatch": 1, "cost": 10}


async def test_in_mode_auto_a_plan_is_recorded_and_carried_out_at_once() -> None:
    async with scene_of() as scene:
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Written"}
        assert scene.plans()["inferno-1"]["status"]["by"] == "mode Auto"
        assert "approved" not in status_of(scene, "s")


async def test_an_optimization_that_changes_nothing_writes_no_plan() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(optimize=False, interval=60)
        await scene.optimize()
        await scene.advance()
        scene.later(seconds=61)
        before = list(scene.cluster.writes)
        await scene.optimize()
        await scene.advance()

        assert scene.cluster.writes[len(before) :] == ["status Optimizer inferno"]


async def test_in_mode_approve_nothing_changes_until_a_person_approves() -> None:
    async with scene_of() as scene:
        await scene.propose()
        await scene.advance()

        assert scene.desired() == {}
        assert scene.phases() == {"inferno-1": "Proposed"}
        assert "Plan inferno-1 awaits approval" in scene.optimized()

        scene.answer("inferno-1", "Approved")
        await scene.advance()
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Written"}
        assert scene.plans()["inferno-1"]["status"]["by"] == "ann"


def status_of(scene: Scene, server: str) -> Manifest:
    """The status of a Server."""
    status: Manifest = scene.cluster.objects["Server", Key("default", server)]["status"]
    return status


async def test_what_a_person_approved_is_noted_until_another_decision_stands() -> None:
    async with scene_of() as scene:
        await scene.propose()
        await scene.advance()
        scene.answer("inferno-1", "Approved")
        await scene.advance()
        approved = status_of(scene, "s")["approved"]
        scene.write_optimizer(interval=60)
        scene.later(seconds=61)
        await scene.optimize()
        again = status_of(scene, "s")["approved"]
        scene.write_optimizer()
        scene.change("Server", "s", minNumReplicas=3)
        await scene.optimize()

        assert approved == {"plan": "inferno-1", "replicas": [{"accelerator": "A", "replicas": 2}]}
        assert again == approved
        assert scene.desired()["s"] == 3
        assert "approved" not in status_of(scene, "s")
        assert "approved" in status_of(scene, "t")


async def test_an_optimization_carries_out_what_a_person_approved_meanwhile() -> None:
    async with scene_of() as scene:
        await scene.propose()
        scene.answer("inferno-1", "Approved")
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.seen()
        await scene.optimize()

        assert scene.desired() == {"s": 2, "t": 1}
        assert status_of(scene, "s")["approved"]["plan"] == "inferno-1"
        assert scene.phases() == {"inferno-1": "Acting"}


@pytest.mark.parametrize(
    ("guard", "reason", "words"),
    [
        ({"maxServersChanged": 1}, "BeyondGuard", "2 Servers change"),
        ({"maxCostIncreasePercent": 30}, "BeyondGuard", "rises from 0 to 30 cents/hour"),
        ({"freeze": [FROZEN]}, "Frozen", "until 2026-03-01 13:00 UTC"),
    ],
    ids=["servers", "cost", "freeze"],
)
async def test_beyond_the_guard_also_a_plan_of_mode_auto_waits(
    guard: Manifest, reason: str, words: str
) -> None:
    async with scene_of() as scene:
        scene.write_optimizer(guard=guard)
        await scene.optimize()
        await scene.advance()
        told = scene.told("inferno-1")

        assert scene.desired() == {}
        assert told[0] == reason
        assert words in told[1]
        assert "kubectl inferno diff inferno-1" in told[1]
        assert [e.reason for e in scene.cluster.events if e.about.kind.kind == "Plan"] == [reason]


async def test_what_waits_for_the_end_of_a_freeze_is_carried_out_then() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(guard={"freeze": [FROZEN]})
        await scene.optimize()
        outcome = await scene.advance()

        assert outcome.again_after == 3600.0

        scene.later(hours=1)
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Acting"}


async def test_within_the_guard_a_plan_is_carried_out() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(guard={"maxServersChanged": 2})
        await scene.optimize()

        assert scene.desired() == {"s": 2, "t": 1}


async def test_a_plan_that_waits_is_not_proposed_again_at_every_interval() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(mode="Approve", interval=60, optimize=False)
        for _ in range(3):
            await scene.optimize()
            await scene.advance()
            scene.later(seconds=61)

        assert scene.phases() == {"inferno-1": "Proposed"}
        assert scene.cluster.writes.count("status Plan inferno-1") == 1


async def test_a_rejected_plan_is_proposed_again_only_on_request_or_with_new_inputs() -> None:
    async with scene_of() as scene:
        await scene.propose(interval=60, optimize=False)
        scene.answer("inferno-1", "Rejected")
        await scene.advance()
        scene.later(seconds=61)
        await scene.optimize()
        told = scene.optimized()

        assert scene.phases() == {"inferno-1": "Rejected"}
        assert "Plan inferno-1 was rejected" in told

        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Rejected", "inferno-2": "Proposed"}
        assert scene.desired() == {}


@pytest.mark.parametrize(
    ("kind", "name", "spec"),
    [
        ("Accelerator", "a", {"cost": 11}),
        ("Capacity", "cards", {"count": [{"type": "T", "count": 19}]}),
        ("Server", "t", {"currentAlloc": objects.running(0, 3)}),
        ("ServiceClass", "c", {"priority": 2}),
        ("Optimizer", "inferno", {"data": {"optimizer": {"unlimited": True}}}),
    ],
)
async def test_a_plan_whose_inputs_changed_is_superseded_and_not_applied(
    kind: str, name: str, spec: Manifest
) -> None:
    async with scene_of() as scene:
        await scene.propose()
        await scene.advance()
        scene.change(kind, name, **spec)
        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Superseded"}
        assert "inputs changed" in scene.told("inferno-1")[1]
        assert scene.desired() == {}


async def test_an_answer_for_another_plan_is_refused() -> None:
    async with scene_of() as scene:
        await scene.propose()
        scene.answer("inferno-1", "Approved", digest="sha256:0")
        await scene.advance()

        assert scene.told("inferno-1")[0] == "WrongDigest"
        assert scene.phases() == {"inferno-1": "Proposed"}
        assert scene.desired() == {}


@pytest.mark.parametrize(
    ("until", "phase"), [("2026-03-01T12:00:00Z", "Expired"), ("2026-03-01T12:00:01Z", "Acting")]
)
async def test_an_approval_that_has_ended_is_void(until: str, phase: str) -> None:
    async with scene_of() as scene:
        await scene.propose()
        scene.answer("inferno-1", "Approved", until=until)
        await scene.advance()

        assert scene.phases() == {"inferno-1": phase}


class Meter(TypedLoads):
    """Measures all Servers: so many times their load, and `least` replicas while they miss."""

    factor = 1.0
    least = 0

    async def with_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        return self.with_known_loads(observations)

    def with_known_loads(self, observations: Sequence[Observation]) -> Sequence[Observation]:
        return [self._measured(observation) for observation in observations]

    def _measured(self, observation: Observation) -> Observation:
        server = observation.resource
        if not isinstance(server, Server) or server.spec.current_alloc is None:
            return observation
        current = server.spec.current_alloc
        assert current.load is not None
        rate = {"arrival_rate": current.load.arrival_rate * self.factor}
        load = current.load.model_copy(update=rate)
        changed: dict[str, object] = {"current_alloc": current.model_copy(update={"load": load})}
        if self.least:
            changed["min_num_replicas"] = self.least
        spec = server.spec.model_copy(update=changed)
        return replace(observation, resource=server.model_copy(update={"spec": spec}))


MEASURE = {"source": "vLLM", "labels": {"model_name": "m"}}
MEASURED = objects.server("S", wanted=5, spec={"measure": MEASURE})


@pytest.mark.parametrize(
    ("factor", "least", "phases"),
    [
        (1.2, 0, {"inferno-1": "Proposed"}),
        (1.0, 2, {"inferno-1": "Proposed"}),
        (1.5, 0, {"inferno-1": "Superseded", "inferno-2": "Proposed"}),
    ],
    ids=["a little", "targets are missed", "far"],
)
async def test_a_plan_that_waits_stays_while_measured_loads_move_a_little(
    factor: float, least: int, phases: dict[str, str]
) -> None:
    meter = Meter()
    async with scene_of(MEASURED, loads=meter) as scene:
        await scene.propose(interval=60, optimize=False)
        await scene.advance()
        meter.factor, meter.least = factor, least
        scene.later(seconds=61)
        await scene.optimize()
        await scene.advance()

        assert scene.phases() == phases

        newest = max(phases)
        scene.answer(newest, "Approved")
        await scene.advance()

        assert scene.phases()[newest] == "Acting"


async def test_a_rejected_plan_is_not_proposed_again_because_a_load_moved_a_little() -> None:
    meter = Meter()
    async with scene_of(MEASURED, loads=meter) as scene:
        await scene.propose(interval=60, optimize=False)
        scene.answer("inferno-1", "Rejected")
        await scene.advance()
        meter.factor = 1.2
        scene.later(seconds=61)
        await scene.optimize()

        assert scene.phases() == {"inferno-1": "Rejected"}


async def test_an_approved_plan_is_not_applied_if_a_measured_load_has_moved_far() -> None:
    meter = Meter()
    async with scene_of(objects.server("S", spec={"measure": MEASURE}), loads=meter) as scene:
        await scene.propose()
        meter.factor = 3.0
        scene.answer("inferno-1", "Approved")
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Superseded"}
        assert "arrivalRate was 90 and is 270 now" in scene.told("inferno-1")[1]
        assert scene.desired() == {}


async def test_a_plan_that_the_api_server_refuses_is_tried_again_and_says_why() -> None:
    async with scene_of() as scene:
        await scene.propose()
        scene.answer("inferno-1", "Approved")
        scene.cluster.failing["Server"] = RejectedError("an admission policy says no")
        outcome = await scene.advance()

        assert outcome.failed
        assert scene.told("inferno-1") == ("NotWritten", "an admission policy says no")

        scene.cluster.failing.clear()
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}


async def test_a_newer_plan_supersedes_one_that_waits() -> None:
    async with scene_of() as scene:
        await scene.propose()
        await scene.advance()
        scene.change("Server", "s", currentAlloc=objects.running(0, 5))
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Superseded", "inferno-2": "Proposed"}


async def test_a_plan_that_nothing_needs_any_more_is_superseded() -> None:
    async with scene_of(objects.server("S", spec={"desiredAlloc": ONE_REPLICA})) as scene:
        await scene.propose()
        await scene.advance()
        scene.change("Server", "s", currentAlloc=objects.running(0, 1))
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()

        assert scene.phases() == {"inferno-1": "Superseded"}


async def test_mode_approve_clears_no_decision_because_of_a_typing_error() -> None:
    async with scene_of() as scene:
        scene.write_optimizer()
        await scene.optimize()
        scene.change("Server", "s", model="typo")
        scene.change("Optimizer", "inferno", optimize=True, mode="Approve")
        await scene.optimize()
        conditions = scene.cluster.objects["Server", Key("default", "s")]["status"]["conditions"]

        assert scene.desired() == {"s": 2, "t": 1}
        assert {c["reason"] for c in conditions} == {"UnknownModel"}
        assert list(scene.phases()) == ["inferno-1"]


async def test_a_server_without_a_decision_names_the_plan_that_waits() -> None:
    async with scene_of() as scene:
        scene.change("Server", "s", model="typo")
        scene.write_optimizer(mode="Approve")
        await scene.optimize()
        scene.change("Server", "s", model="M")
        scene.change("Optimizer", "inferno", optimize=True)
        await scene.optimize()
        told = {
            name: {(c["type"], c["status"], c["reason"]) for c in conditions}
            for name, conditions in scene.conditions().items()
        }
        (message,) = {c["message"] for c in scene.conditions()["s"]}
        waits = {(type_, "False", "Proposed") for type_ in ("Ready", "Allocated")}

        assert told == {"s": waits, "t": waits}
        assert "kubectl inferno approve inferno-2" in message
        assert scene.wanted("s").replicas is None

        scene.answer("inferno-2", "Approved")
        await scene.advance()

        assert {c["reason"] for c in scene.conditions()["s"]} == {"Allocated"}
        assert scene.wanted("s").replicas == {"A": 2}


async def test_a_server_with_a_decision_keeps_its_words_while_a_plan_waits() -> None:
    async with scene_of() as scene:
        scene.write_optimizer()
        await scene.optimize()
        before = scene.conditions()["s"]
        scene.change("Server", "s", currentAlloc=objects.running(0, 3))
        scene.change("Optimizer", "inferno", optimize=True, mode="Approve")
        await scene.optimize()
        await scene.advance()

        assert scene.phases()["inferno-2"] == "Proposed"
        assert scene.conditions()["s"] == before


async def test_finished_plans_beyond_the_history_are_deleted_the_oldest_first() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(history=2)
        for wanted in range(1, 13):
            scene.change("Server", "s", currentAlloc=objects.running(0, wanted))
            scene.change("Optimizer", "inferno", optimize=True)
            await scene.optimize()
            await scene.advance()
            await scene.advance()

        assert list(scene.phases()) == ["inferno-11", "inferno-12"]


async def test_a_recommendation_is_only_written() -> None:
    async with scene_of() as scene:
        scene.write_optimizer(mode="Recommend", guard={"maxServersChanged": 0})
        await scene.optimize()
        await scene.advance()

        assert scene.desired() == {"s": 2, "t": 1}
        assert scene.phases() == {"inferno-1": "Written"}
        assert scene.told("inferno-1") == (
            "Recommended",
            "written: 2 decisions; in mode Recommend the operator scales nothing",
        )


async def test_a_plan_for_servers_without_workloads_is_written_and_not_done() -> None:
    async with scene_of() as scene:
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Written"}
        assert scene.told("inferno-1") == (
            "Written",
            "written: 2 decisions; the operator scales none of these Servers",
        )
        assert scene.plans()["inferno-1"]["status"]["arrived"] == 0


async def test_a_plan_counts_those_that_run_and_those_that_are_only_written() -> None:
    published = {"workloads": [{"accelerator": "A", "name": "v"}], "actuation": "Publish"}
    servers = (SCALED, objects.server("T", spec=published))
    async with scene_of(*servers) as scene:
        scene.write_optimizer()
        await scene.optimize()
        scene.actuated("s", "Actuated", "True")
        scene.actuated("t", "Published", "True")
        await scene.advance()
        scene.actuated("s", "Actuated", "True")
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Done"}
        assert scene.told("inferno-1")[1] == (
            "1 Server runs what was decided; written, not scaled by the operator: 1 Server (t)"
        )


ABSENT = "Deployment 'w' does not exist: create it, or correct spec.workloads"


@pytest.mark.parametrize("mode", ["Auto", "Approve"])
async def test_a_plan_says_that_a_workload_of_it_does_not_exist(mode: str) -> None:
    async with scene_of(SCALED) as scene:
        scene.actuated("s", "NotFound", "False", ABSENT)
        scene.write_optimizer(mode=mode)
        await scene.optimize()
        await scene.advance()
        scene.actuated("s", "NotFound", "False", ABSENT)
        await scene.advance()

        assert scene.phases() == {"inferno-1": "Acting" if mode == "Auto" else "Proposed"}
        assert ABSENT in scene.told("inferno-1")[1]


async def test_a_plan_is_superseded_while_it_acts_as_soon_as_a_newer_one_acts() -> None:
    async with scene_of(SCALED) as scene:
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()
        held = {"freeze": [FROZEN]}
        load = {"currentAlloc": objects.running(0, 3)}
        scene.change("Server", "s", **load)
        scene.change("Optimizer", "inferno", optimize=True, guard=held)
        await scene.optimize()
        await scene.advance()
        proposed = scene.phases()
        scene.answer("inferno-2", "Approved")
        await scene.advance()
        await scene.advance()

        assert proposed == {"inferno-1": "Acting", "inferno-2": "Proposed"}
        assert scene.phases() == {"inferno-1": "Superseded", "inferno-2": "Acting"}


async def test_a_plan_is_done_when_its_servers_are_actuated() -> None:
    async with scene_of(SCALED) as scene:
        scene.write_optimizer()
        await scene.optimize()
        first = await scene.advance()
        before = scene.told("inferno-1")
        scene.actuated("s", "NoRoom", "False")
        await scene.advance()
        between = scene.told("inferno-1")
        scene.actuated("s", "Actuated", "True")
        await scene.advance()

        assert first.again_after == 1.0
        assert before == (
            "Acting",
            "0 of 1 Servers run what was decided; not yet: s (not reported yet)",
        )
        assert between[1].endswith("not yet: s (NoRoom)")
        assert scene.phases() == {"inferno-1": "Done"}


async def test_while_servers_start_none_is_read_again() -> None:
    async with scene_of(SCALED) as scene:
        scene.write_optimizer()
        await scene.optimize()
        await scene.advance()
        scene.cluster.listed.clear()
        for _ in range(10):
            await scene.advance()
        while_it_starts = list(scene.cluster.listed)
        scene.actuated("s", "Actuated", "True")
        await scene.advance()

        assert while_it_starts == []
        assert scene.cluster.listed == ["Server"]
        assert scene.phases() == {"inferno-1": "Done"}


@pytest.mark.parametrize("mode", ["Auto", "Approve"])
@pytest.mark.parametrize("after", range(12))
async def test_whenever_the_operator_is_killed_the_next_one_completes_the_plan(
    mode: str, after: int
) -> None:
    async with scene_of() as scene:
        scene.write_optimizer(mode=mode)
        if mode == "Approve":
            await scene.optimize()
            scene.answer("inferno-1", "Approved")
        scene.cluster.kill_after(after)
        with suppress(Killed):
            await scene.optimize()
            await scene.advance()
        scene.cluster.kill_after(None)
        async with scene.restarted() as restarted:
            for _ in range(3):
                await restarted.optimize()
                await restarted.advance()

            assert restarted.desired() == {"s": 2, "t": 1}
            assert restarted.phases() == {"inferno-1": "Written"}
            assert not restarted.cluster.objects["Optimizer", INFERNO]["spec"]["optimize"]


async def test_without_the_definition_of_plans_mode_auto_works_and_says_so() -> None:
    cluster = MortalCluster()
    cluster.unserved.add("Plan")
    async with scene_of(cluster=cluster) as scene:
        scene.write_optimizer()
        await scene.optimize()

        assert scene.desired() == {"s": 2, "t": 1}
        assert "not recorded as Plans" in scene.optimized()

        scene.change("Optimizer", "inferno", optimize=True, mode="Approve")
        scene.change("Server", "s", currentAlloc=objects.running(0, 5))
        await scene.optimize()

        assert scene.desired() == {"s": 2, "t": 1}
        assert "need Plans" in scene.optimized()


SERVERS = 30


def test_a_plan_that_lists_a_part_of_its_changes_is_followed_by_all_and_unpacked_once() -> None:
    servers = [objects.server(f"S{n:02}") for n in range(SERVERS)]
    proposal = proposed(servers, cards=1000)
    assert proposal is not None
    spec = build_spec_manifest(proposal.spec)
    listed = {**spec, "steps": spec["steps"][:1], "stepsOmitted": SERVERS - 1}
    plan = parse(objects.manifest("Plan", listed, name="p"))
    assert isinstance(plan, Plan)
    there = [observe(Server, server) for server in servers[1:]]

    first, again = (calls(partial(find_arrivals, plan, there)) for _ in range(2))
    seen = find_arrivals(plan, there)

    assert (len(seen.unscaled), seen.servers, seen.gone) == (SERVERS - 1, SERVERS, ("s00",))
    assert again < first / 4
