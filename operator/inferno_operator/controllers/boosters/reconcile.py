"""One booster: read, decide, act, report; safe to call twice."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.cache import BoosterCache
from inferno_operator.controllers.boosters.plan import Apply, Delete, Plan, is_going, plan
from inferno_operator.controllers.boosters.retention import FIELD_MANAGER
from inferno_operator.controllers.boosters.status import FAILED, Findings, is_told, status_of
from inferno_operator.resources.objects import Event, Key, Kind, Manifest, Now, Reference
from inferno_operator.runtime.ports import Cluster, GoneError, RejectedError, StaleError
from inferno_operator.runtime.work_queue import Outcome
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

CONCURRENT_PASSES = 16

ACTION = "Reconcile"
"""What events say that the controller was doing."""

REFUSED_SECONDS = 300.0
"""After so long what the API server refused is tried again: its rules may have changed."""

logger = logging.getLogger(__name__)


def _concurrently() -> asyncio.Semaphore:
    return asyncio.Semaphore(CONCURRENT_PASSES)


@dataclass(frozen=True, slots=True)
class Context:
    """What reconciling boosters works with.

    `unserved` tells which kinds of children the API server does not serve us, and why.
    """

    cluster: Cluster
    cache: BoosterCache
    now: Now
    unserved: Callable[[], Mapping[Kind, str]] = dict
    limit: asyncio.Semaphore = field(default_factory=_concurrently)


@dataclass(slots=True)
class Deeds:
    """What came of a plan: names of children, and what went wrong."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def events(self, about: Reference) -> Iterator[Event]:
        """What was done, for the people who look at the booster."""
        for reason in ("Created", "Updated", "Deleted"):
            names = getattr(self, reason.lower())
            if names:
                yield Event(about, "Normal", reason, ", ".join(names), ACTION)


async def reconcile_booster(key: Key, context: Context) -> Outcome:
    """Drive the children of a booster towards what it asks for."""
    async with context.limit:
        manifest = context.cache.booster(key)
        if manifest is None or is_going(manifest):
            return Outcome.SETTLED  # the garbage collector does the rest
        try:
            return await _reconcile(manifest, context)
        except (StaleError, UnavailableError) as error:
            logger.info("%s: trying again: %s", key, error)
            return Outcome.FAILED
        except GoneError as error:
            logger.info("%s", error)
            return Outcome.SETTLED  # what went tells so by an event of its own
        except InfernoError as error:
            logger.warning("%s: %s", key, error)
            return Outcome.due_after(REFUSED_SECONDS)


async def _reconcile(manifest: Manifest, context: Context) -> Outcome:
    dialect = context.cache.dialect
    try:
        booster = read_booster(manifest, dialect)
    except InputError as error:
        logger.warning("%s", error)  # which no schema of ours admits: there is no status to trust
        return Outcome.SETTLED
    missing = _missing(booster, context)
    decided = plan(booster, context.cache.children(booster), dialect)
    deeds = Deeds() if missing else await _act(decided, context)
    for event in deeds.events(Reference.of(dialect.booster, manifest)):
        await context.cluster.publish(event)
    await _report(manifest, booster, _findings(missing, decided, deeds), context)
    if deeds.unanswered:
        return Outcome.FAILED
    return Outcome.due_after(REFUSED_SECONDS if deeds.refused else None)


def _missing(booster: Booster, context: Context) -> list[str]:
    """What is not served though this booster needs it; later releases have no bindings."""
    dialect = context.cache.dialect
    needed = {dialect.serving, dialect.server, dialect.route}
    if booster.is_scaled:
        needed |= {dialect.policy, dialect.binding}
    return [text for kind, text in context.unserved().items() if kind in needed]


def _findings(missing: Sequence[str], decided: Plan, deeds: Deeds) -> Findings:
    """What to tell of a pass."""
    return Findings(
        failures=[*missing, *map(str, decided.problems), *deeds.refused, *deeds.unanswered],
        invalid=[str(problem) for problem in decided.invalid],
        remarks=decided.remarks,
    )


async def _act(decided: Plan, context: Context) -> Deeds:
    """Write everything that can be; take something away only when all of it was."""
    deeds = Deeds()
    for action in decided.applies:
        await _attempt(action, deeds, context)
    if not (deeds.refused or deeds.unanswered):
        withdrawals: tuple[Apply | Delete, ...] = (*decided.idles, *decided.deletes)
        for withdrawal in withdrawals:
            await _attempt(withdrawal, deeds, context)
    return deeds


async def _attempt(action: Apply | Delete, deeds: Deeds, context: Context) -> None:
    try:
        if isinstance(action, Apply):
            await _apply(action, deeds, context)
        else:
            await _delete(action, deeds, context)
    except GoneError as error:
        logger.info("%s", error)  # its kind or namespace went: an event tells
    except RejectedError as error:
        deeds.refused.append(str(error))
    except UnavailableError as error:
        deeds.unanswered.append(str(error))


async def _apply(action: Apply, deeds: Deeds, context: Context) -> None:
    written = await context.cluster.apply(action.kind, action.manifest, FIELD_MANAGER)
    context.cache.written(action.kind, written)
    name = f"{action.kind.kind} {action.manifest['metadata']['name']}"
    (deeds.created if action.new else deeds.updated).append(name)


async def _delete(action: Delete, deeds: Deeds, context: Context) -> None:
    await context.cluster.delete(action.reference)
    deeds.deleted.append(f"{action.reference.kind.kind} {action.reference.key.name}")


async def _report(
    manifest: Manifest, booster: Booster, findings: Findings, context: Context
) -> None:
    """Write the status if it says something new."""
    cache = context.cache
    about = Reference.of(cache.dialect.booster, manifest)
    present = cache.children(booster)
    status = status_of(booster, present, cache.dialect, findings, context.now())
    before, failed = booster.status.condition(FAILED), "\n".join(findings.failures)
    if failed and (before is None or before.message != failed):
        await context.cluster.publish(Event(about, "Warning", FAILED, failed, ACTION))
    if is_told(status, manifest.get("status") or {}):
        return
    written = await context.cluster.apply(
        about.kind, about.manifest_at_version(status=status), FIELD_MANAGER
    )
    cache.written(about.kind, written)
