"""Reconcile a booster: read, plan, write, report; safe to repeat."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.cache import BoosterCache
from inferno_operator.controllers.boosters.changes import (
    Apply,
    ChildWrites,
    Delete,
    decide,
    is_terminating,
)
from inferno_operator.controllers.boosters.status import FAILED, Report, is_up_to_date, status_of
from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Now, Reference
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

CONCURRENT_RECONCILES = 16

ACTION = "Reconcile"
"""The action in events of this controller."""

REFUSED_SECONDS = 300.0
"""Seconds until a rejected write is tried again: admission policies may have changed."""

logger = logging.getLogger(__name__)


def _limit() -> asyncio.Semaphore:
    return asyncio.Semaphore(CONCURRENT_RECONCILES)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciles need.

    `unserved` returns the kinds of children that the API server does not serve, with a message.
    """

    cluster: Cluster
    cache: BoosterCache
    now: Now
    unserved: Callable[[], Mapping[Kind, str]] = dict
    limit: asyncio.Semaphore = field(default_factory=_limit)


@dataclass(slots=True)
class WriteResults:
    """The results of the writes of a plan: names of children, and errors."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def events(self, about: Reference) -> Iterator[Event]:
        """Return an event for each kind of write that was done."""
        for reason in ("Created", "Updated", "Deleted"):
            names = getattr(self, reason.lower())
            if names:
                yield Event(about, "Normal", reason, ", ".join(names), ACTION)


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
    dialect = context.cache.dialect
    try:
        booster = read_booster(manifest, dialect)
    except InputError as error:
        logger.warning("%s", error)  # the CRD rejects such an object: do not use its status
        return ReconcileResult.SETTLED
    missing = _missing(booster, context)
    servers = context.cache.servers(booster.metadata.namespace)
    decided = decide(booster, context.cache.children(booster), dialect, servers)
    results = WriteResults() if missing else await _act(decided, context)
    for event in results.events(Reference.of(dialect.booster, manifest)):
        await context.cluster.publish(event)
    await _report(manifest, booster, _to_report(missing, decided, results), context)
    if results.unanswered:
        return ReconcileResult.FAILED
    return ReconcileResult.due_after(REFUSED_SECONDS if results.refused else None)


def _missing(booster: Booster, context: Context) -> list[str]:
    """Return messages about the kinds that this booster needs and that are not served."""
    dialect = context.cache.dialect
    needed = {dialect.serving, dialect.server, dialect.route}
    if booster.is_scaled:
        needed |= {dialect.policy, dialect.binding}
    return [text for kind, text in context.unserved().items() if kind in needed]


def _to_report(missing: Sequence[str], decided: ChildWrites, results: WriteResults) -> Report:
    """Return what to report of a reconcile."""
    return Report(
        failures=[*missing, *map(str, decided.problems), *results.refused, *results.unanswered],
        invalid=[str(problem) for problem in decided.invalid],
        remarks=decided.remarks,
    )


async def _act(decided: ChildWrites, context: Context) -> WriteResults:
    """Do the writes of a plan; scale down and delete only if all other writes succeeded."""
    results = WriteResults()
    for action in decided.applies:
        await _attempt(action, results, context)
    if not (results.refused or results.unanswered):
        removals: tuple[Apply | Delete, ...] = (*decided.scale_downs, *decided.deletes)
        for removal in removals:
            await _attempt(removal, results, context)
    return results


async def _attempt(action: Apply | Delete, results: WriteResults, context: Context) -> None:
    try:
        if isinstance(action, Apply):
            await _apply(action, results, context)
        else:
            await _delete(action, results, context)
    except GoneError as error:
        logger.info("%s", error)  # the deletion of its kind or namespace comes as a change
    except UnknownFieldError as error:
        release = context.cache.dialect.release
        results.refused.append(f"{error}: the operator makes objects of {release}")
    except RejectedError as error:
        results.refused.append(str(error))
    except UnavailableError as error:
        results.unanswered.append(str(error))


async def _apply(action: Apply, results: WriteResults, context: Context) -> None:
    written = await context.cluster.apply(action.kind, action.manifest, FieldManager.BOOSTERS)
    context.cache.written(action.kind, written)
    name = f"{action.kind.kind} {action.manifest['metadata']['name']}"
    (results.created if action.new else results.updated).append(name)


async def _delete(action: Delete, results: WriteResults, context: Context) -> None:
    await context.cluster.delete(action.reference)
    results.deleted.append(f"{action.reference.kind.kind} {action.reference.key.name}")


async def _report(manifest: Manifest, booster: Booster, report: Report, context: Context) -> None:
    """Write the status if it changed, and publish an event for a new failure."""
    cache = context.cache
    about = Reference.of(cache.dialect.booster, manifest)
    present = cache.children(booster)
    status = status_of(booster, present, cache.dialect, report, context.now())
    before, failed = booster.status.condition(FAILED), "\n".join(report.failures)
    if failed and (before is None or before.message != failed):
        await context.cluster.publish(Event(about, "Warning", FAILED, failed, ACTION))
    if is_up_to_date(manifest.get("status") or {}, status):
        return
    written = await context.cluster.apply(
        about.kind, about.manifest_at_version(status=status), FieldManager.BOOSTERS
    )
    cache.written(about.kind, written)
