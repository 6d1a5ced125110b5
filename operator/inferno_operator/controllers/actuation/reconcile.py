"""Drive the ModelBooster of a Server towards its decision; safe to repeat."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from inferno_operator.controllers.actuation import plan as planning
from inferno_operator.controllers.actuation.current import (
    current_allocation,
    has_changed,
    running,
    unit_costs,
)
from inferno_operator.controllers.actuation.decision import wanted
from inferno_operator.controllers.actuation.index import Index
from inferno_operator.controllers.actuation.ownership import backend_key, owned_backends, owns
from inferno_operator.controllers.actuation.plan import ACTUATED, Plan, plan_actuation
from inferno_operator.controllers.actuation.ports import (
    SERVER,
    ConflictError,
    Objects,
    Place,
    Write,
)
from inferno_operator.controllers.actuation.targets import (
    World,
    binding_places,
    booster_place,
    read_places,
    serving_places,
    written_places,
)
from inferno_operator.resources import Accelerator, Model, ModelBoosterRef, Server
from inferno_operator.resources.conditions import Verdict, changed, merge_conditions
from inferno_operator.resources.dialects import DIALECTS
from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Now
from inferno_operator.resources.observation import Observation, observe, readable
from inferno_operator.runtime.ports import Cluster, GoneError, StaleError
from inferno_operator.runtime.work_queue import Outcome
from inferno_optimizer.errors import InfernoError, UnavailableError

PAUSE = timedelta(minutes=5)
"""For so long a field that we took from another writer, and lost again, is left to it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What actuation works with.

    `seized` tells when fields of an object were last taken from others, by its uid and the API
    server's word for it.
    """

    cluster: Cluster
    objects: Objects
    now: Now
    index: Index = field(default_factory=Index)
    seized: dict[tuple[str, str], datetime] = field(default_factory=dict)


async def reconcile(key: Key, context: Context) -> Outcome:
    """Bring a Server's decision to its ModelBooster; without a name, tidy up the namespace."""
    try:
        if not key.name:
            await release(key.namespace, context)
            return Outcome.SETTLED
        place = Place(SERVER, key)
        return await _serve(await context.objects.get(place), context)
    except GoneError:
        return Outcome.SETTLED
    except StaleError as error:
        logger.debug("%s; starting over", error)
        return Outcome.FAILED
    except InfernoError as error:
        logger.warning("Server %s: not actuated: %s", key, error)
        return Outcome.FAILED


async def release(namespace: str, context: Context) -> None:
    """Give up the fields of everything in a namespace that no Server refers to any more."""
    listed = await context.objects.listed(SERVER, namespace)
    observations = [observe(Server, manifest) for manifest in listed.manifests]
    kept: set[Place] = set()
    for observation in observations:
        reference = reference_of(observation)
        if reference is not None:
            key = observation.reference.key
            kept |= {Place(SERVER, key), *written_places(reference, namespace)}
        elif observation.resource is None:  # nobody knows what it refers to
            return
    await _disown(SERVER, listed.manifests, kept, context)
    for kinds in DIALECTS.values():
        for kind in (kinds.booster, kinds.serving, kinds.binding):
            try:
                found = (await context.objects.listed(kind, namespace)).manifests
            except GoneError:  # not served
                continue
            await _disown(kind, found, kept, context)


async def _disown(
    kind: Kind, manifests: Iterable[Manifest], kept: set[Place], context: Context
) -> None:
    for manifest in manifests:
        place = Place(kind, Key.of(manifest))
        if place not in kept and owns(manifest):
            await context.objects.disown(place, manifest)
            logger.info("%s: released", place)


def reference_of(observation: Observation) -> ModelBoosterRef | None:
    """What a Server refers to; nothing if it cannot be read or is about to go."""
    resource = observation.resource
    if not isinstance(resource, Server) or observation.deleted is not None:
        return None
    return resource.spec.model_booster


async def _serve(manifest: Manifest, context: Context) -> Outcome:
    observation = observe(Server, manifest)
    if observation.resource is None or observation.deleted is not None:
        return Outcome.SETTLED  # the optimizer tells what is wrong with it
    reference = reference_of(observation)
    if reference is None:
        return await _let_go(observation, context)
    try:
        plan, current = await _step(observation, reference, context)
    except (StaleError, UnavailableError):
        raise  # it passes by itself, and says nothing of the move
    except InfernoError as error:
        verdict = Verdict(ACTUATED, holds=False, reason=error.reason, message=str(error))
        await _tell(observation, manifest, verdict, context)
        raise
    if current is not None:
        manifest = await _tell_current(observation, current, context)
    await _tell(observation, manifest, plan.verdict, context)
    return Outcome.due_after(plan.again_after)


async def _let_go(observation: Observation, context: Context) -> Outcome:
    """Release what a Server referred to, if it is still said to be actuated."""
    before = observation.status.condition(ACTUATED)
    if before is None or before.reason == "Released":
        return Outcome.SETTLED
    await release(observation.reference.key.namespace, context)
    newest = await context.objects.get(Place(SERVER, observation.reference.key))
    await _tell(observation, newest, planning.released(), context)
    return Outcome.SETTLED


async def _step(
    observation: Observation, reference: ModelBoosterRef, context: Context
) -> tuple[Plan, Manifest | None]:
    """Do what is next; returns what to say, and what runs if the Server says otherwise."""
    rival = _rival(observation.reference.key, reference, context)
    if rival is not None:
        return Plan(planning.taken(reference, rival)), None
    world = await _look(observation, reference, context)
    if isinstance(world, Verdict):
        return Plan(world), None
    now = context.now()
    plan = plan_actuation(reference, wanted(observation), world, observation.status, now)
    plan = await _write(plan, world, context)
    return plan, await _current(observation, reference, world, context)


def _rival(key: Key, reference: ModelBoosterRef, context: Context) -> str | None:
    """The oldest Server that refers to the same booster, if that is another one."""
    holder = context.index.holder(booster_place(reference, key.namespace))
    return None if holder in (None, key) else holder.name


async def _look(
    observation: Observation, reference: ModelBoosterRef, context: Context
) -> World | Verdict:
    """What is there of a reference, or what is missing."""
    namespace = observation.reference.key.namespace
    needed = {place.kind: None for place in read_places(reference, namespace)}
    places = booster_place(reference, namespace), *serving_places(reference, namespace)
    booster, *servings = await _get_all(places, context)
    bindings: Sequence[Manifest | None] = ()
    lacking = None in (booster, *servings)
    if reference.target == "Binding":
        bindings = await _get_all(binding_places(reference, namespace), context)
        lacking = lacking or not any(bindings)
    if lacking:
        for kind in needed:
            if not await context.objects.serves(kind):
                return planning.crd_missing(kind)
    if booster is None or "deletionTimestamp" in booster["metadata"]:
        return planning.no_booster(reference)
    return World(booster, _by_name(servings), _by_name(bindings))


async def _get_all(places: Iterable[Place], context: Context) -> list[Manifest | None]:
    async def get(place: Place) -> Manifest | None:
        try:
            return await context.objects.get(place)
        except GoneError:
            return None

    return await asyncio.gather(*map(get, places))


def _by_name(manifests: Iterable[Manifest | None]) -> dict[str, Manifest]:
    return {m["metadata"]["name"]: m for m in manifests if m is not None}


async def _write(plan: Plan, world: World, context: Context) -> Plan:
    """Carry out a plan; what others hold is taken once, and then left to them for a while."""
    for write in plan.writes:
        await _drop_backends(write, world, context)
        try:
            await context.objects.apply(write, force=False)
        except ConflictError as error:
            conflict = write.uid, str(error)
            waits = _seconds_to_wait(conflict, context)
            if waits > 0:
                verdict = planning.conflict(str(error), PAUSE.total_seconds())
                return replace(plan, verdict=verdict, again_after=waits)
            context.seized[conflict] = context.now()
            await context.objects.apply(write, force=True)
    return plan


def _seconds_to_wait(conflict: tuple[str, str], context: Context) -> float:
    """For how long to leave fields to others; what is long over is forgotten."""
    over = context.now() - PAUSE
    for known in [known for known, time in context.seized.items() if time <= over]:
        del context.seized[known]
    last = context.seized.get(conflict)
    return 0.0 if last is None else (last - over).total_seconds()


async def _drop_backends(write: Write, world: World, context: Context) -> None:
    """Give up backends that the reference does not name any more, with their values kept."""
    if "backends" not in write.spec:
        return
    named = {backend_key(backend["name"]) for backend in write.spec["backends"]}
    if owned_backends(world.booster) - named:
        await context.objects.disown(write.place, world.booster)


async def _current(
    observation: Observation, reference: ModelBoosterRef, world: World, context: Context
) -> Manifest | None:
    """What runs, where the Server says otherwise."""
    server, count = observation.resource, running(reference, world)
    if not isinstance(server, Server) or not world.servings or not has_changed(server, count):
        return None
    namespace = server.metadata.namespace
    accelerators = await context.cluster.list(Accelerator, namespace)
    models = await context.cluster.list(Model, namespace)
    found = [observe(Accelerator, manifest) for manifest in accelerators]
    found += [observe(Model, manifest) for manifest in models]
    return current_allocation(server, count, unit_costs(readable(found), server.spec.model))


async def _tell_current(observation: Observation, current: Manifest, context: Context) -> Manifest:
    """Write what runs on the Server; returns the Server then."""
    about = observation.reference
    write = Write(Place(SERVER, about.key), about.uid, {"currentAlloc": current})
    return await context.objects.apply(write, force=True)


async def _tell(
    observation: Observation, manifest: Manifest, verdict: Verdict | None, context: Context
) -> None:
    """Say it on the Server, unless it says so already."""
    if verdict is None:
        return
    generation = manifest["metadata"]["generation"]
    now = context.now()
    (condition,) = merge_conditions(observation.status, [verdict], generation, now)
    if condition == observation.status.condition(ACTUATED):
        return
    place = Place(SERVER, observation.reference.key)
    await context.objects.apply_conditions(place, manifest, [condition.to_json()])
    if changed(observation.status, verdict) and verdict.reason != "Moving":
        about, severity = observation.reference, _severity(verdict)
        await context.cluster.publish(Event(about, severity, verdict.reason, verdict.message))


def _severity(verdict: Verdict) -> Literal["Normal", "Warning"]:
    return "Normal" if verdict.holds or verdict.reason == "Released" else "Warning"
