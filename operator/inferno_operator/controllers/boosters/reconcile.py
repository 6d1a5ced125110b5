"""One booster: read, decide, act, report; safe to call twice."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.boosters.booster import Booster, read_booster
from inferno_operator.controllers.boosters.cache import BoosterMirror
from inferno_operator.controllers.boosters.plan import Apply, Delete, Plan, is_going, plan
from inferno_operator.controllers.boosters.ports import BoosterCluster, Notice
from inferno_operator.controllers.boosters.status import FAILED, Findings, is_told, status_of
from inferno_operator.resources.objects import Key, Kind, Manifest, Now
from inferno_operator.runtime.ports import GoneError, RejectedError, StaleError
from inferno_operator.runtime.work_queue import Outcome
from inferno_optimizer.errors import InfernoError, InputError, UnavailableError

CONCURRENT_PASSES = 16

REFUSED_SECONDS = 300.0
"""After so long what the API server refused is tried again: its rules may have changed."""

logger = logging.getLogger(__name__)


def _concurrently() -> asyncio.Semaphore:
    return asyncio.Semaphore(CONCURRENT_PASSES)


@dataclass(frozen=True, slots=True)
class Boosting:
    """What reconciling boosters works with.

    `unserved` tells which kinds of children the API server does not serve us, and why.
    """

    cluster: BoosterCluster
    mirror: BoosterMirror
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

    def notices(self) -> Iterator[Notice]:
        """What to tell of what was done."""
        for reason in ("Created", "Updated", "Deleted"):
            names = getattr(self, reason.lower())
            if names:
                yield Notice("Normal", reason, ", ".join(names))


async def reconcile_booster(key: Key, boosting: Boosting) -> Outcome:
    """Drive the children of a booster towards what it asks for."""
    async with boosting.limit:
        manifest = boosting.mirror.booster(key)
        if manifest is None or is_going(manifest):
            return Outcome.SETTLED  # the garbage collector does the rest
        try:
            return await _reconcile(manifest, boosting)
        except (StaleError, UnavailableError) as error:
            logger.info("%s: trying again: %s", key, error)
            return Outcome.FAILED
        except GoneError as error:
            logger.info("%s", error)
            return Outcome.SETTLED  # what went tells so by an event of its own
        except InfernoError as error:
            logger.warning("%s: %s", key, error)
            return Outcome.due_after(REFUSED_SECONDS)


async def _reconcile(manifest: Manifest, boosting: Boosting) -> Outcome:
    dialect = boosting.mirror.dialect
    try:
        booster = read_booster(manifest, dialect)
    except InputError as error:
        logger.warning("%s", error)  # which no schema of ours admits: there is no status to trust
        return Outcome.SETTLED
    missing = _missing(booster, boosting)
    decided = plan(booster, boosting.mirror.children(booster), dialect)
    deeds = Deeds() if missing else await _act(decided, boosting)
    for notice in deeds.notices():
        await boosting.cluster.publish(dialect.booster, manifest, notice)
    await _report(manifest, booster, _findings(missing, decided, deeds), boosting)
    if deeds.unanswered:
        return Outcome.FAILED
    return Outcome.due_after(REFUSED_SECONDS if deeds.refused else None)


def _missing(booster: Booster, boosting: Boosting) -> list[str]:
    """What is not served though this booster needs it; later releases have no bindings."""
    dialect = boosting.mirror.dialect
    needed = {dialect.serving, dialect.server, dialect.route}
    if booster.is_scaled:
        needed |= {dialect.policy, dialect.binding}
    return [text for kind, text in boosting.unserved().items() if kind in needed]


def _findings(missing: Sequence[str], decided: Plan, deeds: Deeds) -> Findings:
    """What to tell of a pass."""
    return Findings(
        failures=[*missing, *map(str, decided.problems), *deeds.refused, *deeds.unanswered],
        invalid=[str(problem) for problem in decided.invalid],
        remarks=decided.remarks,
    )


async def _act(decided: Plan, boosting: Boosting) -> Deeds:
    """Write everything that can be; take something away only when all of it was."""
    deeds = Deeds()
    for action in decided.applies:
        await _attempt(action, deeds, boosting)
    if not (deeds.refused or deeds.unanswered):
        withdrawals: tuple[Apply | Delete, ...] = (*decided.idles, *decided.deletes)
        for withdrawal in withdrawals:
            await _attempt(withdrawal, deeds, boosting)
    return deeds


async def _attempt(action: Apply | Delete, deeds: Deeds, boosting: Boosting) -> None:
    try:
        if isinstance(action, Apply):
            await _apply(action, deeds, boosting)
        else:
            await _delete(action, deeds, boosting)
    except GoneError as error:
        logger.info("%s", error)  # its kind or namespace went: an event tells
    except RejectedError as error:
        deeds.refused.append(str(error))
    except UnavailableError as error:
        deeds.unanswered.append(str(error))


async def _apply(action: Apply, deeds: Deeds, boosting: Boosting) -> None:
    written = await boosting.cluster.apply(action.kind, action.manifest)
    boosting.mirror.written(action.kind, written)
    name = f"{action.kind.kind} {action.manifest['metadata']['name']}"
    (deeds.created if action.new else deeds.updated).append(name)


async def _delete(action: Delete, deeds: Deeds, boosting: Boosting) -> None:
    await boosting.cluster.delete(action.kind, action.key, action.uid)
    deeds.deleted.append(f"{action.kind.kind} {action.key.name}")


async def _report(
    manifest: Manifest, booster: Booster, findings: Findings, boosting: Boosting
) -> None:
    """Write the status if it says something new."""
    mirror = boosting.mirror
    present = mirror.children(booster)
    status = status_of(booster, present, mirror.dialect, findings, boosting.now())
    before, failed = booster.status.condition(FAILED), "\n".join(findings.failures)
    if failed and (before is None or before.message != failed):
        notice = Notice("Warning", FAILED, failed)
        await boosting.cluster.publish(mirror.dialect.booster, manifest, notice)
    if is_told(status, manifest.get("status") or {}):
        return
    written = await boosting.cluster.apply_status(
        mirror.dialect.booster, {**manifest, "status": status}
    )
    mirror.written(mirror.dialect.booster, written)
