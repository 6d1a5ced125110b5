"""The roles of a backend in its ModelBooster: what is written, in which order, or refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.boosters import (
    BoosterObjects,
    BoundsWrite,
    ScaledBackend,
    find_backend,
    plan_writes,
    workload_of,
)
from inferno_operator.controllers.scaling.decision import (
    PlacedReplicas,
    WantedReplicas,
    build_current_alloc,
)
from inferno_operator.controllers.scaling.pods import PodCounts
from inferno_operator.controllers.scaling.reductions import AT_ONCE
from inferno_operator.controllers.scaling.scaled_server import (
    ObservedWorkload,
    ScaledServer,
    Supply,
    build_targets,
)
from inferno_operator.controllers.scaling.steps import State, next_steps
from inferno_operator.resources import ModelBoosterRef, Server, parse
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Reference
from inferno_operator.runtime.ports import Scale
from tests.unit.operator import objects

Manifest = dict[str, Any]

WHOLE = {"name": "main", "accelerator": "A"}
PREFILL = {"name": "pd", "accelerator": "B", "role": "Prefill", "booster": "n"}
DECODE = {"name": "pd", "accelerator": "A", "role": "Decode", "booster": "n"}
PAIR = {"B prefill": 3, "A decode": 2}

TYPES = [
    objects.manifest("Accelerator", {"name": n, "type": n, "cost": 10}, name=n.lower())
    for n in "AB"
]
COUNT = [{"type": name, "count": 20} for name in "AB"]
CARDS = objects.manifest("Capacity", {"count": COUNT}, name="cards")
SUPPLY = Supply(build_system([parse(each) for each in (*TYPES, CARDS)]).system)
IDLE = {**objects.running(0, 1), "load": {"arrivalRate": 0, "avgLength": 1}}

IMAGE = {"image": "engine:1", "pods": 1}


def reference(*backends: Manifest, **fields: object) -> ModelBoosterRef:
    named = list(backends or (WHOLE, PREFILL, DECODE))
    return ModelBoosterRef.model_validate({"name": "m", "backends": named, **fields})


def booster(name: str, release: str, backend: Manifest, groups: int, **spec: object) -> Manifest:
    """A ModelBooster with one backend, as a release has it."""
    number = {"replicas": groups}
    bounds = {"minReplicas": groups, "maxReplicas": max(groups, 1)}
    part = {**backend, **(number if release == "v1.0" else bounds)}
    parts = {"backends": [part]} if release == "v0.1" else {"backend": part}
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return {"metadata": {**metadata, "generation": 1}, "spec": {**parts, **spec}}


class World:
    """Two boosters with their servings: whole requests on A, and both roles on B and A."""

    def __init__(self, release: str = "v0.4", groups: int = 0, **changes: Any) -> None:  # noqa: ANN401
        self.numbers = {"prefill": 1, "decode": 1}
        backend = {
            "name": "pd",
            "type": "vLLMDisaggregated",
            "workers": [{"type": role, "replicas": 1, **IMAGE} for role in self.numbers],
            **changes.pop("backend", {}),
        }
        whole = {"name": "main", "type": "vLLM", "workers": [{"type": "server", **IMAGE}]}
        self.boosters = {
            "m": booster("m", release, whole, 0),
            "n": booster("n", release, backend, groups, **changes),
        }
        self.ready = {"m-main": 0, "n-pd prefill": 0, "n-pd decode": 0}
        self.scaled: ScaledServer
        self.state = State.STEADY

    def part(self, name: str) -> Manifest:
        spec = self.boosters[name]["spec"]
        found: Manifest = spec["backend"] if "backend" in spec else spec["backends"][0]
        return found

    def groups(self, name: str) -> int:
        part = self.part(name)
        return int(part["replicas"] if "replicas" in part else part["minReplicas"])

    def asked(self) -> dict[str, int]:
        """The replicas that the boosters ask for."""
        workers = {w["type"]: w.get("replicas", 1) for w in self.part("n")["workers"]}
        roles = {f"n-pd {r}": self.groups("n") * workers.get(r, 0) for r in self.numbers}
        return {"m-main": self.groups("m"), **roles}

    def parts(self, refers: ModelBoosterRef) -> list[ScaledBackend | Verdict]:
        """The backends and roles with their numbers."""
        asked = self.asked()
        status = {"availableReplicas": self.ready["m-main"]}
        parts = [{"name": r, "replicas": asked[f"n-pd {r}"]} for r in self.numbers]
        servings: dict[str, Manifest] = {
            "m-main": {"metadata": {}, "spec": {"replicas": asked["m-main"]}, "status": status},
            "n-pd": {"metadata": {}, "spec": {"replicas": 1, "template": {"roles": parts}}},
        }
        there = BoosterObjects(self.boosters, servings)
        return [find_backend(refers, each, there) for each in refers.backends]

    def plan(
        self, replicas: Mapping[str, int], refers: ModelBoosterRef | None = None
    ) -> tuple[BoundsWrite, ...]:
        """The next writes."""
        refers = refers or reference()
        found, parts = [], {}
        for backend, read in zip(refers.backends, self.parts(refers), strict=True):
            assert isinstance(read, ScaledBackend)
            ready = self.ready[read.name]
            part = parts[backend.place] = replace(read, available=ready)
            found.append(
                ObservedWorkload(
                    workload_of(refers, backend),
                    Scale(
                        Reference.of(part.fields.kind, part.fields.manifest),
                        part.count_replicas(replicas.get(backend.place, 0)),
                        "",
                        role=part.name,
                    ),
                    PodCounts(ready=ready, live=max(part.requested, ready)),
                    backend=part,
                )
            )
        observation = objects.observed_server(objects.server(spec={"currentAlloc": IDLE}))
        assert observation.resource
        wanted = WantedReplicas(dict(replicas))
        self.scaled = ScaledServer(observation, observation.resource, wanted, tuple(found))
        targets = build_targets(self.scaled, SUPPLY, objects.NOW, AT_ONCE)
        steps = next_steps([targets], SUPPLY.capacity)
        self.state = steps.progress[targets.name].state
        numbers = {t.accelerator: t.spec for t in targets.targets}
        numbers |= {place: n for (_, place), n in steps.replicas.items()}
        return plan_writes(parts, numbers)

    def step(self, replicas: Mapping[str, int]) -> tuple[BoundsWrite, ...]:
        """BoundsWrite what is planned; lists replace what there was, as they are atomic."""
        writes = self.plan(replicas)
        for write in writes:
            name = write.manifest["metadata"]["name"]
            spec = write.spec
            written = spec["backend"] if "backend" in spec else spec["backends"][0]
            named = {k: v for k, v in written.items() if k != "name"}
            assert written.get("name", self.part(name)["name"]) == self.part(name)["name"]
            self.part(name).update(named)
        return writes

    def progress(self) -> None:
        """One replica of each comes up, and what is not asked for any more ends."""
        self.ready = {n: min(self.ready[n] + 1, asked) for n, asked in self.asked().items()}


RELEASES = ["v0.1", "v0.4", "v1.0"]


@pytest.mark.parametrize("release", RELEASES)
def test_both_numbers_stand_in_the_workers_and_nothing_else_changes(release: str) -> None:
    world = World(release)
    before = world.part("n")["workers"]

    (write,) = world.plan(PAIR)

    workers = [{**before[0], "replicas": 3}, {**before[1], "replicas": 2}]
    number = {"replicas": 1} if release == "v1.0" else {"minReplicas": 1, "maxReplicas": 1}
    part = {**number, "workers": workers}
    written = {"backends": [{"name": "pd", **part}]} if release == "v0.1" else {"backend": part}
    assert write.spec == written


@pytest.mark.parametrize("release", RELEASES)
def test_a_move_between_whole_requests_and_roles_leaves_no_gap(release: str) -> None:
    """What serves is the replicas that do both, or the smaller share of the roles."""
    world = World(release)
    decisions = [{"A": 4}, PAIR, {"B prefill": 1, "A decode": 4}, {"A": 3}]
    before: list[Mapping[str, int]] = []
    for decision in decisions:
        for _ in range(20):
            writes = world.step(decision)
            world.progress()
            assert served(world, decision, *before) >= (1.0 if before else 0.0)
        assert world.state == State.STEADY
        assert not writes
        before = [decision]


def served(world: World, *decisions: Mapping[str, int]) -> float:
    """The largest share of one of the decisions that serves."""
    names = {"A": "m-main", "B prefill": "n-pd prefill", "A decode": "n-pd decode"}
    shares = [min(world.ready[names[p]] / n for p, n in each.items()) for each in decisions]
    return max(shares)


MOVES = {
    "apart": [({"A": 4}, 9), (PAIR, 9)],
    "together again": [(PAIR, 9), ({"A": 4}, 9)],
    "turned back on the way apart": [({"A": 4}, 9), (PAIR, 2), ({"A": 4}, 9)],
    "turned back on the way together": [(PAIR, 9), ({"A": 4}, 2), (PAIR, 9)],
}
"""Decisions, and the steps after which the next one comes."""


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("move", MOVES)
def test_all_cards_of_a_move_are_told_at_every_moment(
    move: str, dialect: str, release: str
) -> None:
    """Other Servers get what is left of the Capacity: by type, what runs and what was decided."""
    world, refers = World(release), reference(dialect=dialect)
    for decision, steps in MOVES[move]:
        for _ in range(steps):
            world.step(decision)
            world.progress()
            world.plan(decision, refers)
            runs = {"A": world.ready["m-main"] + world.ready["n-pd decode"]}
            runs["B"] = world.ready["n-pd prefill"]
            placed = world.scaled.list_placed({})
            told = SUPPLY.count_cards(server_with(placed, decision))

            assert all(told[card] >= count for card, count in runs.items())


def server_with(placed: Sequence[PlacedReplicas], decision: Mapping[str, int]) -> Server:
    """A Server on which these replicas are told, and that has a decision."""
    server = parse(objects.server())
    assert isinstance(server, Server)
    current = build_current_alloc(server, placed, {})
    parts = {
        role: {"accelerator": place.removesuffix(f" {role}"), "numReplicas": n}
        for place, n in decision.items()
        for role in ("prefill", "decode")
        if place.endswith(role)
    }
    whole = {"accelerator": "A", "numReplicas": sum(decision.values())}
    desired = {**whole, **({"roles": parts} if parts else {})}
    told = parse(objects.server(spec={"currentAlloc": current, "desiredAlloc": desired}))
    assert isinstance(told, Server)
    return told


def test_the_smaller_role_waits_for_the_larger() -> None:
    world = World(groups=1)
    for _ in range(8):
        world.step({"B prefill": 4, "A decode": 2})
        world.progress()

    world.step({"B prefill": 2, "A decode": 4})

    assert world.asked() == {"m-main": 0, "n-pd prefill": 4, "n-pd decode": 4}


def test_without_a_group_the_numbers_of_the_roles_stay() -> None:
    world = World()
    for decision in (PAIR, {"A": 2}):
        for _ in range(8):
            world.step(decision)
            world.progress()

    assert world.groups("n") == 0
    assert [worker["replicas"] for worker in world.part("n")["workers"]] == [3, 2]


OF_TYPE = "spec.backend.type is vLLM: a backend with roles is vLLMDisaggregated"
NO_WORKER = "spec.backend.workers: none is of the type 'decode': add one"
OF_BOOSTER = "spec.autoscalingPolicy scales whole groups, not roles: remove it"
OF_BACKEND = "spec.backends[0].autoscalingPolicy scales whole groups, not roles: remove it"
GROUPS = "spec.backend.minReplicas is 2: set it to 1, as roles are scaled in one group"


@pytest.mark.parametrize(
    ("changes", "reason", "problem"),
    [
        ({"backend": {"type": "vLLM"}}, "NoBackend", OF_TYPE),
        ({"backend": {"workers": [{"type": "prefill"}]}}, "NoBackend", NO_WORKER),
        ({"autoscalingPolicy": {}}, "Conflict", OF_BOOSTER),
        ({"backend": {"autoscalingPolicy": {}}, "release": "v0.1"}, "Conflict", OF_BACKEND),
        ({"groups": 2}, "SeveralGroups", GROUPS),
    ],
)
def test_what_is_not_possible_is_refused_by_object_and_field(
    changes: Manifest, reason: str, problem: str
) -> None:
    verdicts = [v for v in World(**changes).parts(reference()) if isinstance(v, Verdict)]

    assert (verdicts[-1].holds, verdicts[-1].reason) == (False, reason)
    assert verdicts[-1].message == f"ModelBooster 'n': {problem}"


def test_an_edit_is_all_but_the_numbers_that_the_operator_writes() -> None:
    before, scaled, edited = World(), World(), World()
    scaled.part("n")["workers"][0]["replicas"] = 9
    edited.part("n")["workers"][0]["image"] = "engine:2"

    def revision(world: World) -> str:
        part = world.parts(reference())[-1]
        assert isinstance(part, ScaledBackend)
        return part.revision

    first, second, third = map(revision, (before, scaled, edited))

    assert first == second != third


OTHER = {**DECODE, "name": "other"}


@pytest.mark.parametrize(
    ("backends", "fields", "rule"),
    [
        ([WHOLE, PREFILL], {}, "Prefill and Decode are the two roles of one backend"),
        ([PREFILL, OTHER], {}, "Prefill and Decode are the two roles of one backend"),
        ([PREFILL, DECODE, {**PREFILL, "accelerator": "C", "name": "x"}], {}, "Prefill and Decode"),
        ([PREFILL, DECODE, {**PREFILL, "role": "Both"}], {}, "Prefill and Decode"),
        ([PREFILL, DECODE, {**PREFILL, "accelerator": "C"}], {}, "each backend is named once for"),
        ([PREFILL, DECODE], {"target": "ModelServing"}, "roles need target ModelBooster"),
        ([PREFILL, DECODE], {"target": "Binding"}, "roles need target ModelBooster"),
        ([PREFILL, DECODE], {"bounds": "Ceiling"}, "roles need target ModelBooster and bounds Pin"),
    ],
)
def test_a_reference_that_means_nothing_is_refused(
    backends: list[Manifest], fields: Manifest, rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        reference(*backends, **fields)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_pair_may_be_named_alone_or_beside_whole_requests(order: int) -> None:
    backends = [PREFILL, DECODE]
    backends.insert(order, WHOLE)

    for named, dialect in product((backends, [PREFILL, DECODE]), ("kthena", "matrixinfer")):
        assert reference(*named, dialect=dialect).has_roles
