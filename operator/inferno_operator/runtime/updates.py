"""Write what controllers decide on objects: the spec, then the status, then events.

One rule for all: every write has the version that was read. So a write that this process sends
late, because the process was suspended and another operator leads now, changes nothing. If the
object changed meanwhile, the write is repeated with the newest version of the object of the same
uid; if it was deleted, nothing is written.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol, TypeVar

from inferno_operator.resources.conditions import Verdict, is_new_verdict, merge_conditions
from inferno_operator.resources.objects import Event, Manifest, Now, Reference
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.ports import (
    Cluster,
    FieldManager,
    GoneError,
    StaleError,
    UnknownFieldError,
)
from inferno_optimizer.errors import InfernoError

T = TypeVar("T")

CONCURRENT_WRITES = 16

APART = 2 * CONCURRENT_WRITES
"""Steps of other items between two steps of an item, while there are that many."""

logger = logging.getLogger(__name__)


async def write_each(items: Iterable[T], *steps: Callable[[T], Awaitable[object]]) -> None:
    """Take the steps for each item, several at once; raises the first failure after all calls.

    Some items take a step before they take the next one. An item takes no further step after one
    that failed, or after its object was deleted. Items are made when their turn comes: ten
    thousand writes take tens of megabytes.
    """
    fresh = ((item, steps) for item in items)
    waiting = deque(islice(fresh, APART + 1))
    failures: list[InfernoError] = []

    async def work() -> None:
        while waiting:
            item, (step, *others) = waiting.popleft()
            waiting.extend(islice(fresh, max(APART + 1 - len(waiting), 0)))
            try:
                await step(item)
            except GoneError as error:
                logger.info("%s: not written, the object was deleted", error)
            except InfernoError as error:
                failures.append(error)
            else:
                if others:
                    waiting.insert(APART, (item, tuple(others)))

    workers = (work() for _ in range(min(CONCURRENT_WRITES, len(waiting))))
    ended = await asyncio.gather(*workers, return_exceptions=True)
    for failure in (*failures, *filter(None, ended)):
        raise failure


class Writable(Protocol):
    """What to write on an object."""

    @property
    def reference(self) -> Reference:
        """The object as it was read."""

    @property
    def spec(self) -> Manifest | None:
        """The manager's fields of the spec; None if they stay as they are."""

    def status_after(self, written: Manifest | None, now: datetime) -> Manifest | None:
        """Return the manager's fields of the status; None if they stay as they are.

        `written` is the object after the write of its spec, if that was written.
        """

    def events(self) -> Iterable[Event]:
        """Return the events to publish after the writes."""

    def otherwise(self, error: UnknownFieldError, /) -> "Writable | None":
        """Return what to write if the definition lacks a field of the status; None: nothing."""


@dataclass(frozen=True, slots=True)
class FieldUpdate:
    """Fields of an object to write, and events about it; parts that are None stay as they are.

    `otherwise` returns what to write if the definition lacks a field of the status.
    """

    reference: Reference
    status: Manifest | None
    spec: Manifest | None = None
    news: tuple[Event, ...] = ()
    otherwise: Callable[[UnknownFieldError], "FieldUpdate | None"] = lambda _: None

    def status_after(self, written: Manifest | None, now: datetime) -> Manifest | None:
        """Return the fields of the status, whatever was written before."""
        del written, now
        return self.status

    def events(self) -> Iterable[Event]:
        """Return the events."""
        return self.news


def report_unknown_field(
    observation: Observation,
    condition: str,
    fields: Manifest,
    now: datetime,
    error: UnknownFieldError,
) -> FieldUpdate | None:
    """Return what to write if the definition lacks a field of the status; None if it is there.

    Parameters
    ----------
    observation
        The object.
    condition
        The type of the condition that says so.
    fields
        The manager's other fields, which stay; those that an apply leaves out are removed.
    now
        The time.
    error
        Which field is lacking.
    """
    judged = Verdict(condition, holds=False, reason=error.reason, message=str(error))
    if not is_new_verdict(observation.status, judged):
        return None
    merged = merge_conditions(observation.status, [judged], observation.generation, now)
    status = {**fields, "conditions": [each.to_json() for each in merged]}
    event = Event(observation.reference, "Warning", judged.reason, judged.message)
    return FieldUpdate(observation.reference, status, news=(event,))


@dataclass(slots=True)
class _Write:
    """An update, and its object after the last write, if there was one."""

    update: Writable
    written: Manifest | None = None

    @property
    def reference(self) -> Reference:
        """The object as it is known."""
        reference = self.update.reference
        return Reference.of(reference.kind, self.written) if self.written else reference


class Writer:
    """Writes updates as one field manager; `now` gives the time of conditions."""

    def __init__(self, cluster: Cluster, manager: FieldManager, now: Now) -> None:
        self._cluster = cluster
        self._manager = manager
        self._now = now

    async def write_all(self, updates: Iterable[Writable], digest: Sequence[Event] = ()) -> None:
        """Write updates, several at once; raises the first failure after all are tried.

        The events in `digest`, if any, replace the events of the single objects. Some specs are
        written before the first of their statuses: the API server computes a write twice if its
        cache does not show the one before yet.
        """
        report = self._write_status if digest else self._report
        await write_each(map(_Write, updates), self._write_spec, report)
        await self._publish(digest)

    async def write(self, update: Writable) -> Manifest | None:
        """Write an update of one object and its events; returns None if nothing changes."""
        write = _Write(update)
        await self._write_spec(write)
        await self._report(write)
        return write.written

    async def _publish(self, events: Iterable[Event]) -> None:
        for event in events:
            await self._cluster.publish(event)

    async def _write_spec(self, write: "_Write") -> None:
        update = write.update
        if update.spec is not None:
            write.written = await self.apply(update.reference, spec=update.spec)

    async def _write_status(self, write: "_Write") -> None:
        status = write.update.status_after(write.written, self._now())
        if status is not None:
            write.written = await self.apply(write.reference, status=status)

    async def _report(self, write: "_Write") -> None:
        try:
            await self._write_status(write)
        except UnknownFieldError as error:
            other = write.update.otherwise(error)
            if other is not None:
                await self._report(_Write(other, write.written))
            raise
        await self._publish(write.update.events())

    async def apply(self, reference: Reference, **fields: Manifest) -> Manifest:
        """Set and own exactly these fields of the spec or the status, even if the object changed.

        Raises
        ------
        GoneError
            The object was deleted; another object may have its name.
        """
        while True:
            manifest = reference.manifest_at_version(**fields)
            try:
                return await self._cluster.apply(reference.kind, manifest, self._manager)
            except StaleError:
                newest = await self._cluster.get(reference.kind, reference.key)
                if newest["metadata"]["uid"] != reference.uid:
                    raise GoneError(f"{reference}: was deleted and created again") from None
                reference = Reference.of(reference.kind, newest)
