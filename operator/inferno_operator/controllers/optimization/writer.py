"""Write updates on objects: the spec, then the status, then events."""

from collections.abc import Sequence

from inferno_operator.controllers.optimization.plan import Update
from inferno_operator.resources.objects import Event, Manifest, Now, Reference
from inferno_operator.runtime.concurrency import write_each
from inferno_operator.runtime.ports import FIELD_MANAGER, Cluster, GoneError, StaleError


class Writer:
    """Writes updates of objects of our kinds; `now` gives the time of conditions."""

    def __init__(self, cluster: Cluster, now: Now) -> None:
        self._cluster = cluster
        self._now = now

    async def write_all(self, updates: Sequence[Update], digest: Sequence[Event]) -> None:
        """Write updates, several at once; raises the first failure after all are tried.

        The events in `digest`, if any, replace the events of the single objects.
        """
        write = self._write if digest else self.write
        await write_each(updates, write)
        await self._publish(digest)

    async def write(self, update: Update) -> Manifest | None:
        """Write an update of one object and its events; returns None if nothing changes."""
        written = await self._write(update)
        await self._publish(tuple(update.events()))
        return written

    async def clear_request(self, reference: Reference) -> None:
        """Set `optimize` to false; `StaleError` if the Optimizer changed since it was read."""
        manifest = reference.manifest_at_version(spec={"optimize": False})
        await self._cluster.merge(reference.kind, manifest, FIELD_MANAGER)

    async def _publish(self, events: Sequence[Event]) -> None:
        for event in events:
            await self._cluster.publish(event)

    async def _write(self, update: Update) -> Manifest | None:
        reference, generation, written = update.reference, update.generation, None
        if update.spec is not None:
            written = await apply_fields(self._cluster, reference, spec=update.spec)
            reference = Reference.of(reference.kind, written)
            if written["metadata"]["generation"] == generation + 1:  # nobody else changed it
                generation += 1
        status = update.status_at(generation, self._now())
        if status is not None:
            written = await apply_fields(self._cluster, reference, status=status)
        return written


async def apply_fields(cluster: Cluster, reference: Reference, **fields: Manifest) -> Manifest:
    """Set and own exactly these fields of the spec or the status, even if the object changed.

    Every write has the version that was read. So a write that this process sends late, because
    the process was suspended and another operator leads now, changes nothing. If the version is
    out of date, the write is repeated with the newest version of the object of the same uid.

    Raises
    ------
    GoneError
        The object was deleted; another object may have its name.
    """
    while True:
        manifest = reference.manifest_at_version(**fields)
        try:
            return await cluster.apply(reference.kind, manifest, FIELD_MANAGER)
        except StaleError:
            newest = await cluster.get(reference.kind, reference.key)
            if newest["metadata"]["uid"] != reference.uid:
                raise GoneError(f"{reference}: was deleted and created again") from None
            reference = Reference.of(reference.kind, newest)
