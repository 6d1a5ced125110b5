"""The sample fleet with a past of two days: loads that moved, Plans, measurements, calibrations.

Everything follows from the sample and from what the operator decides; the same each time.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import yaml

from inferno_operator.cli.kubectl.console.data import SeenLeader
from inferno_operator.controllers.planning.ports import Optimization
from inferno_operator.controllers.planning.proposal import Seal, build_proposal, build_spec_manifest
from inferno_operator.controllers.planning.snapshot import Snapshot, build_system
from inferno_operator.controllers.planning.status import report_result
from inferno_operator.controllers.planning.updates import Update, plan_updates
from inferno_operator.resources import API_VERSION, RESOURCES, Optimizer, Phase, Plan, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation, observe, readable
from inferno_operator.runtime.leader_election import Lease
from inferno_optimizer.explain.load_curve import load_curve
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import System
from tests.controlplane.processes import ROOT

Manifest = dict[str, Any]

NAMESPACE = "llm"
NOW = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
STEP = timedelta(hours=6)
STEPS = 8
"""Decisions of the past; the load goes up and down once."""

LEADER = SeenLeader(
    Lease(
        holder="inferno-operator-5c9f_6d0c",
        duration=15.0,
        acquired=NOW - timedelta(hours=41),
        renewed=NOW - timedelta(seconds=1),
        transitions=2,
    )
)
"""Who leads."""

CALIBRATED = ("G2", "MI250", "MI300X")
"""Accelerators with a calibration: those that most Servers run on."""

MORE = 1.35
"""Work of the sample at its peak, beside what its files have: then some cards are short."""

OUTPUT = 0.4
"""Share of the tokens of a request that are its output."""

TYPED_EVERY = 5
"""One of so many Servers is not measured."""

NOT_FRESH = {
    2: ("Stale", "the newest sample is 7 minutes old: look at the targets of Prometheus"),
    7: ("Missing", "no series has these labels: correct spec.measure.labels"),
}
"""Quality and message of the Servers at these places."""


def world() -> list[Observation]:
    """All objects of the namespace, with its Plans, as the operator reads them now."""
    return [*_world()]


@cache  # the eight decisions take two seconds, and nobody changes an observation
def _world() -> tuple[Observation, ...]:
    manifests, plans = list(_sample()), list[Manifest]()
    for number in range(STEPS):
        time = NOW - STEP * (STEPS - 1 - number) - timedelta(minutes=3)
        before, waits = _at(manifests, number), number == STEPS - 1
        manifests, plan = _decided(before, time)
        if plan:
            plans.append(_recorded(plan, len(plans) + 1, time, waits=waits))
        if waits:
            manifests = [*map(_undecided, before, manifests)]
    servers = [m for m in manifests if m["kind"] == "Server"]
    others = [_told(m) for m in manifests if m["kind"] != "Server"]
    measured = [_measured(m, place) for place, m in enumerate(servers)]
    return tuple(_observed(m) for m in (*others, *measured, *plans))


def _undecided(before: Manifest, after: Manifest) -> Manifest:
    """An object whose Plan waits: the Optimizer tells of it, Servers are as they were."""
    return before if before["kind"] == "Server" else after


def _sample() -> Iterator[Manifest]:
    for file in sorted((ROOT / "samples" / "fleet").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document and document["apiVersion"] == API_VERSION:
                yield _with_lengths(_with_prefill(document))


def _with_prefill(manifest: Manifest) -> Manifest:
    """A Model with times for prompts, and replicas that keep the tokens of their largest batch."""
    if manifest["kind"] != "Model":
        return manifest
    data = [
        {
            **{name: value for name, value in part.items() if name not in ("alpha", "beta")},
            "decodeParms": {"alpha": part["alpha"], "beta": part["beta"]},
            "prefillParms": {"gamma": 17.5, "delta": 0.003},
            "maxTokens": part["maxBatchSize"] * part["atTokens"],
        }
        for part in manifest["spec"]["data"]
    ]
    return {**manifest, "spec": {**manifest["spec"], "data": data}}


def _with_lengths(manifest: Manifest) -> Manifest:
    """A Server whose requests have prompts and outputs, as long together as in the sample.

    There are more of them as their outputs are shorter, which is as much work, times `MORE`.
    """
    if manifest["kind"] != "Server":
        return manifest
    spec, current = manifest["spec"], manifest["spec"]["currentAlloc"]
    load = {name: value for name, value in current["load"].items() if name != "avgLength"}
    length = current["load"]["avgLength"]
    lengths = {"avgOutTokens": round(OUTPUT * length), "avgInTokens": round((1 - OUTPUT) * length)}
    load |= {"arrivalRate": round(MORE * load["arrivalRate"] / OUTPUT), **lengths}
    return {**manifest, "spec": {**spec, "currentAlloc": {**current, "load": load}}}


def _observed(manifest: Manifest) -> Observation:
    kind = next(kind for kind in RESOURCES if kind.kind == manifest["kind"])
    metadata = {"namespace": NAMESPACE, "uid": "u", "generation": 1, "resourceVersion": "1"}
    return observe(kind, {**manifest, "metadata": {**metadata, **manifest["metadata"]}})


def _at(manifests: Sequence[Manifest], number: int) -> list[Manifest]:
    """The objects at another time of the day, with the latencies that replicas have then."""
    loaded = [_loaded(m, number) for m in manifests]
    system = _snapshot([_observed(m) for m in loaded]).system
    return [_running(system, m) for m in loaded]


def _loaded(manifest: Manifest, number: int) -> Manifest:
    """A Server at another time of the day: 40 to 100 % of the load of the sample."""
    if manifest["kind"] != "Server":
        return manifest
    spec, labels = manifest["spec"], manifest["metadata"].get("labels", {})
    current = spec["currentAlloc"]
    peak = labels.get("peak", str(current["load"]["arrivalRate"]))
    rate = float(peak) * (0.7 - 0.3 * math.cos(2 * math.pi * (number + 1) / STEPS))
    load = {**current["load"], "arrivalRate": round(rate, 2)}
    metadata = {**manifest["metadata"], "labels": {"peak": peak}}
    return {
        **manifest,
        "metadata": metadata,
        "spec": {**spec, "currentAlloc": {**current, "load": load}},
    }


def _decided(
    manifests: Sequence[Manifest], time: datetime
) -> tuple[list[Manifest], Manifest | None]:
    """The objects after an optimization that was carried out, and its Plan if there is one."""
    observations = [_observed(manifest) for manifest in manifests]
    optimizer, snapshot = _optimizer(observations), _snapshot(observations)
    found = optimize(snapshot.system)
    solution = replace(found, certificate=replace(found.certificate, seconds=0.012))
    updates = plan_updates(observations, snapshot, solution)
    last = report_result(optimizer, solution, time)
    assert isinstance(optimizer.resource, Optimizer)
    optimization = Optimization(optimizer.resource, observations, updates, snapshot, solution, True)
    proposal = build_proposal(optimization)
    pairs = zip(manifests, observations, updates, strict=True)
    after = [_after(m, last if o is optimizer else u, time) for m, o, u in pairs]
    return after, dict(build_spec_manifest(proposal.spec)) if proposal else None


def _optimizer(observations: Sequence[Observation]) -> Observation:
    return next(o for o in observations if o.kind is Optimizer)


def _snapshot(observations: Sequence[Observation]) -> Snapshot:
    """What the optimizer gets, to be solved greedily, which takes the same time for all."""
    optimizer = _optimizer(observations).resource
    assert isinstance(optimizer, Optimizer)
    snapshot = build_system(readable(observations), optimizer)
    options = replace(snapshot.system.options, milp=False)
    return replace(snapshot, system=replace(snapshot.system, options=options))


def _running(system: System, manifest: Manifest) -> Manifest:
    """A Server with the latencies of what runs at its load now, that nothing was decided for."""
    if manifest["kind"] != "Server":
        return manifest
    spec, curve = manifest["spec"], load_curve(system, manifest["spec"]["name"])
    if curve is None:
        return manifest
    now = {
        "itlAverage": round(float(curve.itl_ms[curve.now]), 2),
        "waitAverage": round(float(curve.wait_ms[curve.now]), 2),
        "ttftAverage": round(float(curve.ttft_ms[curve.now]), 2),
    }
    return {**manifest, "spec": {**spec, "currentAlloc": {**spec["currentAlloc"], **now}}}


def _after(manifest: Manifest, update: Update, time: datetime) -> Manifest:
    """An object with what was decided for it; a Server runs that."""
    status = update.status_at(1, time) or manifest.get("status", {})
    spec = {**manifest["spec"], **(update.spec or {})}
    if desired := spec.get("desiredAlloc"):
        spec["currentAlloc"] = {**desired, "mix": []}
    return {**manifest, "spec": spec, "status": {**manifest.get("status", {}), **status}}


def _recorded(spec: Manifest, number: int, time: datetime, *, waits: bool) -> Manifest:
    """A Plan that was carried out, or one that waits for approval."""
    born = f"{time:%Y-%m-%dT%H:%M:%SZ}"
    metadata = {"name": f"fleet-{number}", "creationTimestamp": born}
    message = "the Optimizer has mode Approve" if waits else "all Servers run what was decided"
    told = {
        "type": "CarriedOut",
        "status": "False" if waits else "True",
        "reason": "AwaitsApproval" if waits else "Done",
        "message": message,
        "lastTransitionTime": born,
    }
    place = Key(NAMESPACE, metadata["name"])
    signed = {**spec, "signature": Seal(b"a key").signature(place, "u", spec["digest"])}
    servers = spec["totals"]["servers"]
    phase = (
        {"phase": "Proposed"} if waits else {"phase": "Done", "by": "mode Auto", "arrived": servers}
    )
    plan = {"apiVersion": API_VERSION, "kind": "Plan", "metadata": metadata, "spec": signed}
    return {**plan, "status": {"conditions": [told], **phase}}


def _measured(manifest: Manifest, place: int) -> Manifest:
    """A Server with what is measured of it: a little beside what was predicted."""
    if place % TYPED_EVERY == TYPED_EVERY - 1:
        return manifest
    spec, name = manifest["spec"], manifest["metadata"]["name"]
    labels = {"namespace": "prod", "model_name": spec["model"], "server": name}
    current = spec["currentAlloc"]
    off = 1 + 0.06 * math.sin(place + 1)
    quality, message = NOT_FRESH.get(place, ("Fresh", ""))
    age = timedelta(seconds=420 if message else 14 + place)
    load, out = current["load"], current["load"]["avgOutTokens"]
    numbers = {
        "arrivalRate": round(load["arrivalRate"] * off, 2),
        "avgInTokens": load["avgInTokens"],
        "avgOutTokens": out,
        "itlAverage": round(current["itlAverage"] * off, 2),
        "waitAverage": round(current["waitAverage"] * off, 2),
        "ttftAverage": round(current["ttftAverage"] * off, 2),
        "running": round(load["arrivalRate"] / 60e3 * out * current["itlAverage"], 1),
        "waiting": place % 3,
        "kvCacheUsage": 0.3 + 0.02 * place,
        "replicas": {"ready": current["numReplicas"], "reporting": current["numReplicas"]},
    }
    measured = {
        "time": f"{NOW - age:%Y-%m-%dT%H:%M:%SZ}",
        "quality": quality,
        "message": message,
        **(numbers if quality != "Missing" else {}),
    }
    status = {**manifest["status"], "measured": measured}
    return {
        **manifest,
        "spec": {**spec, "measure": {"source": "vLLM", "labels": labels}},
        "status": status,
    }


def _told(manifest: Manifest) -> Manifest:
    """A Model with calibrations on some accelerators; others as they are."""
    if manifest["kind"] != "Model":
        return manifest
    known = [data for data in manifest["spec"]["data"] if data["acc"] in CALIBRATED]
    found = [_calibrated(data, place) for place, data in enumerate(known)]
    status = {**manifest.get("status", {}), "calibration": found}
    told = {
        "type": "Calibrated",
        "status": "True",
        "reason": "Calibrated",
        "message": f"parameters for {len(found)} accelerators",
        "lastTransitionTime": "2026-11-24T11:00:00Z",
    }
    conditions = [*status.get("conditions", []), told]
    return {**manifest, "status": {**status, "conditions": conditions}}


def _calibrated(data: Manifest, place: int) -> Manifest:
    """A calibration that found a little more than what is typed."""
    typed = data["decodeParms"]
    alpha, beta = typed["alpha"] * (1.03 + 0.02 * place), typed["beta"] * (1.08 - 0.02 * place)
    rounded = {"alpha": round(alpha, 3), "beta": round(beta, 4)}
    upper = {"alpha": round(alpha * 1.04, 3), "beta": round(beta * 1.1, 4)}
    errors = {"alphaError": round(0.02 * alpha, 3), "betaError": round(0.05 * beta, 4)}
    return {
        "acc": data["acc"],
        "reason": "Calibrated",
        "message": "",
        "time": "2026-11-24T11:00:00Z",
        "rows": 180 + 20 * place,
        "rejected": [
            {"reason": "Saturated", "rows": 20},
            {"reason": "FewTokens", "rows": 4 * place},
        ],
        "shift": 0.12 if place == 1 else None,
        "avgInTokens": 614.0,
        "prefill": {
            "gamma": 18.2, "delta": 0.0031, "gammaError": 1.1, "deltaError": 0.00008,
            "residual": 0.034, "condition": 3.1,
        },
        "prefillParms": {"gamma": 20.4, "delta": 0.0033},
        "leastBatch": 1.4,
        "mostBatch": round(0.8 * data["maxBatchSize"], 1),
        "decode": {**rounded, **errors, "residual": 0.021, "condition": 4.2},
        "expected": rounded,
        "decodeParms": upper,
    }  # fmt: skip


COPIES = 10
"""Servers in a large namespace for each of the sample."""

LONG = "-for-the-customers-of-the-northern-region"
"""Makes a name about as long as Kubernetes allows where pods have it, too."""


def large_world() -> list[Observation]:
    """The same namespace with `COPIES` of each Server, which have long names; solved greedily."""
    return [copy for observation in world() for copy in _copies(observation)]


def _copies(observation: Observation) -> Iterator[Observation]:
    server = observation.resource
    if isinstance(server, Optimizer):
        document = server.to_json()
        document["spec"]["data"]["optimizer"]["milpSolver"] = False
        yield _observed(document)
        return
    if not isinstance(server, Server):
        yield observation
        return
    for number in range(COPIES):
        name = f"{server.metadata.name}{LONG}"[:61] + f"-{number}"
        metadata = server.metadata.model_copy(update={"name": name})
        spec = server.spec.model_copy(update={"name": name})
        copy = server.model_copy(update={"metadata": metadata, "spec": spec})
        key = Key(NAMESPACE, name)
        reference = replace(observation.reference, key=key, uid=f"{name}-uid")
        yield replace(observation, resource=copy, reference=reference)


def failing_world() -> list[Observation]:
    """The same namespace when all is wrong: targets missed, nothing decided, nothing measured."""
    return [_failing(o, place) for place, o in enumerate(world())]


def _failing(observation: Observation, place: int) -> Observation:
    resource = observation.resource
    told = {
        "type": "Ready",
        "status": "False",
        "reason": "NoCapacity",
        "message": "needs 4 cards of H100, A100, MI300X or MI250, and all of these are in use by"
        " Servers of more important classes; 2 more cards of MI250 would serve it",
        "lastTransitionTime": "2026-11-24T11:58:00Z",
    }
    if isinstance(resource, Server):
        if place % 4 == 0:
            problem = "spec.currentAlloc.load.arrivalRate is not a number: 'a lot'"
            return replace(observation, resource=None, problem=problem)
        document = resource.to_json()
        current = document["spec"].get("currentAlloc", {})
        current |= {"itlAverage": 870.0, "waitAverage": 125_000.0}
        measured = document["status"].get("measured")
        if measured:
            measured |= {
                "quality": "Partial", "itlAverage": 870.0, "waitAverage": 125_000.0,
                "message": "the newest sample is 7 minutes old: look at the targets of Prometheus",
            }  # fmt: skip
        document["status"]["conditions"] = [told, {**told, "type": "Allocated"}]
        return _observed(document)
    if isinstance(resource, Plan):
        document = resource.to_json()
        document["status"] = {
            "phase": "Failed",
            "conditions": [{**told, "type": "CarriedOut", "reason": "Disputed"}],
        }
        return _observed(document)
    if isinstance(resource, Optimizer):
        document = resource.to_json()
        reason = {"type": "Optimized", "reason": "Unavailable"}
        text = (
            "the optimizer at http://inferno-optimizer:3302 does not answer: timed out after 60 s"
        )
        document["status"] = {"conditions": [{**told, **reason, "message": text}]}
        return _observed(document)
    return observation


PHASES: Mapping[Phase, tuple[str, str]] = {
    "Done": ("Done", "6 Servers run what was decided"),
    "Expired": (
        "Expired",
        "the approval of ana@example.com was valid until 2026-11-22 20:00:00 UTC",
    ),
    "Rejected": ("NotApproved", "rejected by ana@example.com"),
    "Failed": (
        "Contradiction",
        "decisions and steps contradict each other: steps say 4 x G2 for premium-llama3-8b",
    ),
    "Superseded": ("Superseded", "Plan fleet-6 is newer"),
    "Acting": ("Acting", "2 of 6 Servers run what was decided; not yet: free-phi, bulk-llama"),
    "Approved": ("Approved", "approved by ana@example.com"),
    "Proposed": ("AwaitsApproval", "the Optimizer has mode Approve; look at it, then answer"),
}
"""Phases of the Plans, the oldest first, with the reason and what the operator says of each."""

ANSWERED = ("Expired", "Rejected", "Acting", "Approved")
"""Phases of Plans that somebody answered."""


def phases_world() -> list[Observation]:
    """The same namespace with a Plan in each phase."""
    phases = iter(PHASES)
    return [_in_phase(o, next(phases)) if isinstance(o.resource, Plan) else o for o in world()]


def _in_phase(observation: Observation, phase: Phase) -> Observation:
    assert observation.resource
    document, (reason, message) = observation.resource.to_json(), PHASES[phase]
    (told,) = document["status"]["conditions"]
    document["status"] = {
        "phase": phase,
        "by": "ana@example.com" if phase in ANSWERED else "",
        "conditions": [{**told, "status": "False", "reason": reason, "message": message}],
    }
    return _observed(document)
