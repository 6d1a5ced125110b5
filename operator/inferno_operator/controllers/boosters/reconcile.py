"""Reconcile a booster: read, plan, write, report; safe to repeat."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.changes import (
    Apply,
    ChildWrites,
    is_terminating,
    plan_changes,
)
from inferno_operator.controllers.boosters.status import FAILED, Report, is_up_to_date, status_of
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import (
    Event,
    Key,
    Kind,
    Manifest,
    Now,
    Place,
    Reference,
    kind_of,
)
from inferno_operator.runtime.cache import ObjectDifference
from inferno_operator.runtime.informers import Subscription
from inferno_operator.runtime.ports import (
    Cluster,
    FieldManager,
    GoneError,
    RejectedError,
    StaleError,
    UnknownFieldError,
)
from inferno_operator.runtime.work_queue import ReconcileResult
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

SERVER = kind_of(Server)


@dataclass(slots=True)
class BoosterCache:
    """Objects by place and by owner.

    Parameters
    ----------
    dialect
        The dialect of the boosters.
    objects
        The boosters, their children, and Servers.
    """

    dialect: Dialect
    objects: Subscription
    _owned: dict[str, set[Place]] = field(default_factory=dict)
    """The places of children by uid of their owner."""

    def booster(self, key: Key) -> Manifest | None:
        """Return the manifest of a booster, if it exists."""
        return self.objects.get(Place(self.dialect.booster, key))

    def children(self, booster: Booster) -> list[Manifest]:
        """Return the objects that a booster owns, and all with a name that its children need."""
        names = [booster.metadata.name, *map(booster.child_name, booster.spec.backends)]
        named = {
            Place(kind, Key(booster.metadata.namespace, name))
            for kind in self.dialect.children
            for name in names
        }
        places = named | self._owned.get(booster.metadata.uid, set())
        return [child for place in places if (child := self.objects.get(place)) is not None]

    def servers(self, namespace: str) -> Iterator[Server]:
        """Return the Servers of a namespace whose spec is valid."""
        for observation in self.objects.observations(SERVER, namespace):
            if isinstance(observation.resource, Server):
                yield observation.resource

    def boosters(self) -> set[Key]:
        """Return the keys of all boosters."""
        return {place.key for place in self.objects.places(self.dialect.booster)}

    def written(self, kind: Kind, manifest: Manifest) -> None:
        """Take an object as the API server returned it to a write of this operator."""
        for difference in self.objects.written(kind, manifest):
            self._index(difference)

    def noted(self, difference: ObjectDifference) -> set[Key]:
        """Take a change from a watch; returns the boosters to reconcile."""
        if difference.place.kind == SERVER:
            return self._decided_by(difference) if difference.concerns(_decision) else set()
        self._index(difference)
        return self._boosters_of(difference)

    def _index(self, difference: ObjectDifference) -> None:
        for uid in _owners(difference.before):
            self._owned[uid].discard(difference.place)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owners(difference.after):
            self._owned.setdefault(uid, set()).add(difference.place)

    def _boosters_of(self, difference: ObjectDifference) -> set[Key]:
        """Return the booster of a difference.

        If a child has no owner, or another owner than before, boosters that may need its name
        are returned too.
        """
        place, before, after = difference.place, difference.before, difference.after
        if place.kind == self.dialect.booster:
            return {place.key}
        owners = {
            Key(place.key.namespace, owner["name"])
            for owner in ((after or before or {})["metadata"].get("ownerReferences") or ())
            if owner.get("kind") == self.dialect.booster.kind
        }
        has_other_owners = before is not None and after and _owners(before) != _owners(after)
        if has_other_owners or not owners:
            owners |= set(self._namesakes(place.key))
        return owners

    def _decided_by(self, difference: ObjectDifference) -> set[Key]:
        """Return the boosters that a Server refers to, and those with servings that it names."""
        keys = set()
        for manifest in filter(None, (difference.before, difference.after)):
            namespace, spec = difference.place.key.namespace, manifest.get("spec", {})
            booster = spec.get("modelBooster") or {}
            names = {booster.get("name"), *(b.get("booster") for b in booster.get("backends", ()))}
            keys |= {Key(namespace, name) for name in names if name}
            for workload in spec.get("workloads") or ():
                keys |= set(self._namesakes(Key(namespace, workload.get("name", ""))))
        return keys & self.boosters()

    def _namesakes(self, key: Key) -> Iterator[Key]:
        for place in self.objects.places(self.dialect.booster, key.namespace):
            if key.name == place.key.name or key.name.startswith(f"{place.key.name}-"):
                yield place.key


def _decision(manifest: Manifest) -> object:
    """Return what of a Server says for which backends it decides, and whether it does."""
    spec, metadata = manifest.get("spec", {}), manifest["metadata"]
    conditions = manifest.get("status", {}).get("conditions") or ()
    reasons = {c["type"]: c["reason"] for c in conditions if c["type"] == ACTUATED}
    return (
        *(spec.get(name) for name in ("modelBooster", "workloads", "actuation")),
        metadata.get("deletionTimestamp"),
        any(c["type"] == ALLOCATED for c in conditions),
        reasons.get(ACTUATED) == RECOMMENDED,
    )


def _owners(manifest: Manifest | None) -> set[str]:
    metadata = (manifest or {}).get("metadata") or {}
    return {owner["uid"] for owner in metadata.get("ownerReferences") or ()}


CONCURRENT_RECONCILES = 16

ACTION = "Reconcile"
"""The action in events of this controller."""

REFUSED_SECONDS = 300.0
"""Seconds until a rejected write is tried again: admission policies may have changed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need.

    `unserved` returns the kinds of children that the API server does not serve, with a message.
    """

    cluster: Cluster
    cache: BoosterCache
    now: Now
    unserved: Callable[[], Mapping[Kind, str]] = dict
    limit: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(CONCURRENT_RECONCILES)
    )


@dataclass(slots=True)
class WriteResults:
    """The results of the writes of a plan: names of children, and errors."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)


async def reconcile(key: Key, context: Context) -> ReconcileResult:
    """Create, update and delete the children of a booster, and report on its status."""
    async with context.limit:
        manifest = context.cache.booster(key)
        if manifest is None or is_terminating(manifest):
            return ReconcileResult.SETTLED  # the garbage collector deletes the children
        try:
            return await _reconcile(manifest, context)
        except (StaleError, UnavailableError) as error:
            logger.info("%s: trying again: %s", key, error)
            return ReconcileResult.FAILED
        except GoneError as error:
            logger.info("%s", error)
            return ReconcileResult.SETTLED  # the deletion comes as a change of its own
        except InfernoError as error:
            logger.warning("%s: %s", key, error)
            return ReconcileResult.due_after(REFUSED_SECONDS)


async def _reconcile(manifest: Manifest, context: Context) -> ReconcileResult:
    cache, dialect = context.cache, context.cache.dialect
    try:
        booster = read_booster(manifest, dialect)
    except InputError as error:
        logger.warning("%s", error)  # the CRD rejects such an object: do not use its status
        return ReconcileResult.SETTLED
    needed = {dialect.serving, dialect.server, dialect.route}
    if booster.is_scaled:
        needed |= {dialect.policy, dialect.binding}
    missing = [text for kind, text in context.unserved().items() if kind in needed]

    servers = cache.servers(booster.metadata.namespace)
    decided = plan_changes(booster, cache.children(booster), dialect, servers)
    results = WriteResults() if missing else await _write(decided, context)

    about = Reference.of(dialect.booster, manifest)
    for reason in ("Created", "Updated", "Deleted"):
        if names := getattr(results, reason.lower()):
            event = Event(about, "Normal", reason, ", ".join(names), ACTION)
            await context.cluster.publish(event)
    report = Report(
        failures=[*missing, *map(str, decided.problems), *results.refused, *results.unanswered],
        invalid=[str(problem) for problem in decided.invalid],
        remarks=decided.remarks,
    )
    status = status_of(booster, cache.children(booster), dialect, report, context.now())
    before, failed = booster.status.condition(FAILED), "\n".join(report.failures)
    if failed and (before is None or before.message != failed):
        await context.cluster.publish(Event(about, "Warning", FAILED, failed, ACTION))
    if not is_up_to_date(manifest.get("status") or {}, status):
        body = about.manifest_at_version(status=status)
        written = await context.cluster.apply(about.kind, body, FieldManager.BOOSTERS)
        cache.written(about.kind, written)
    if results.unanswered:
        return ReconcileResult.FAILED
    return ReconcileResult.due_after(REFUSED_SECONDS if results.refused else None)


async def _write(decided: ChildWrites, context: Context) -> WriteResults:
    """Do the writes of a plan; scale down and delete only if all other writes succeeded."""
    results = WriteResults()
    for apply in decided.applies:
        await _attempt(apply, results, context)
    if not (results.refused or results.unanswered):
        removals: tuple[Apply | Reference, ...] = (*decided.scale_downs, *decided.deletes)
        for removal in removals:
            await _attempt(removal, results, context)
    return results


async def _attempt(action: Apply | Reference, results: WriteResults, context: Context) -> None:
    """Apply a child, or delete the one of a reference."""
    try:
        if isinstance(action, Apply):
            kind, manifest = action.kind, action.manifest
            written = await context.cluster.apply(kind, manifest, FieldManager.BOOSTERS)
            context.cache.written(kind, written)
            names = results.created if action.new else results.updated
            names.append(f"{kind.kind} {manifest['metadata']['name']}")
        else:
            await context.cluster.delete(action)
            results.deleted.append(f"{action.kind.kind} {action.key.name}")
    except GoneError as error:
        logger.info("%s", error)  # the deletion of its kind or namespace comes as a change
    except UnknownFieldError as error:
        release = context.cache.dialect.release
        results.refused.append(f"{error}: the operator makes objects of {release}")
    except RejectedError as error:
        results.refused.append(str(error))
    except UnavailableError as error:
        results.unanswered.append(str(error))
