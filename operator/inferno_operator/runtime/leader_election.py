"""Leader election: one of several operators holds a Lease, renews it, and may write.

The leader may write for `renew_deadline` seconds after it sent its last renewal. Another
operator takes the lease `duration` seconds after it saw that renewal, which is later than the
renewal was sent; each uses its own clock. In the time between the two, the last write of the
old leader ends. The times of day in the Lease are for people: no operator compares them with
its clock.

`LeaseView` decides, without side effects; `Election` reads and writes the Lease and waits.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Protocol

from inferno_operator.resources.objects import Now
from inferno_operator.runtime.ports import GoneError
from inferno_optimizer.errors import InfernoError

Clock = Callable[[], float]
"""Seconds since an arbitrary moment; monotonic, and it includes the time of a suspend."""

logger = logging.getLogger(__name__)


class LeadershipLostError(InfernoError):
    """Another operator leads, or may lead soon: this operator must not write any more."""

    reason = "LeadershipLost"


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations [s]; the defaults are those of client-go, with a shorter polling period.

    Another operator may take a lease that was not renewed for `duration`. The leader renews
    the lease every `retry_period`, and stops if that fails for `renew_deadline`. The other
    operators read the lease every `poll_period`.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    poll_period: float = 1.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a Lease; it is free if `holder` is "". `version` is its resourceVersion."""

    holder: str
    duration: float
    acquired: datetime
    renewed: datetime
    transitions: int = 0
    version: str = ""


class LeaseStore(Protocol):
    """Stores the Lease; every method raises `UnavailableError` if a later call may succeed."""

    async def read(self) -> Lease:
        """Return the Lease; `GoneError` if there is none."""

    async def create(self, lease: Lease) -> Lease:
        """Create the Lease; `StaleError` if there is one already."""

    async def update(self, lease: Lease) -> Lease:
        """Replace the version that was read; `StaleError` if there is a newer one."""


class LeaseStep(Enum):
    """What an operator does next with the lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What one operator knows about the lease, by its own clock.

    `lease` is the lease that was read last, and `seen_at` the time at which it was first seen
    with this content; `exists` is False if it was deleted since then. `renewed_at` is the time
    at which the last successful renewal was sent; None if this operator does not lead.
    """

    identity: str
    timing: Timing = Timing()
    lease: Lease | None = None
    exists: bool = False
    seen_at: float = 0.0
    renewed_at: float | None = None

    def after_read(self, lease: Lease | None, now: float) -> "LeaseView":
        """Return the view after a read; a deleted lease stays valid until it would expire."""
        if lease is None:
            return replace(self, exists=False)
        seen_at = self.seen_at if lease == self.lease else now
        return replace(self, lease=lease, exists=True, seen_at=seen_at)

    def after_write(self, lease: Lease, sent_at: float, now: float) -> "LeaseView":
        """Return the view after this operator took or renewed the lease."""
        return replace(self.after_read(lease, now), renewed_at=sent_at)

    def step(self, now: float) -> LeaseStep:
        """Decide what to do now."""
        if self.renewed_at is not None:
            return LeaseStep.RENEW if self._holds and self.remaining(now) > 0 else LeaseStep.STOP
        if self.free_in(now) > 0:
            return LeaseStep.WAIT
        return LeaseStep.TAKE if self.exists else LeaseStep.CREATE

    def remaining(self, now: float) -> float:
        """Return the seconds for which this operator may write; 0 if it does not lead."""
        if self.renewed_at is None:
            return 0.0
        return max(0.0, self.renewed_at + self.timing.renew_deadline - now)

    def free_in(self, now: float) -> float:
        """Return the seconds until the lease expires unless it is renewed; 0 if it is free."""
        if self.lease is None or self.lease.holder in ("", self.identity):
            return 0.0
        return max(0.0, self.seen_at + (self.lease.duration or self.timing.duration) - now)

    def proposal(self, now: datetime) -> Lease:
        """Return the lease that this operator writes to take or renew it."""
        before = self.lease
        if before is None or not self.exists:
            return Lease(self.identity, self.timing.duration, now, now)
        renewed = replace(before, duration=self.timing.duration, renewed=now)
        if before.holder == self.identity:
            return renewed
        transitions = before.transitions + 1
        return replace(renewed, holder=self.identity, acquired=now, transitions=transitions)

    @property
    def _holds(self) -> bool:
        return self.exists and self.lease is not None and self.lease.holder == self.identity


class Election:
    """Takes part in the leader election for one operator.

    Parameters
    ----------
    store
        Stores the Lease.
    identity
        Identity of this process; unique, also after a restart.
    clock
        The clock that decides when a lease expires.
    now
        The time of day that is written into the Lease.
    timing
        Durations of the election.
    """

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        clock: Clock,
        now: Now,
        timing: Timing = Timing(),
    ) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._view = LeaseView(identity, timing)

    @property
    def leading(self) -> bool:
        """Whether this operator leads, so that it may write."""
        return self.remaining() > 0

    @property
    def holder(self) -> str | None:
        """Identity of the leader; "" if there is none, None if that is not known yet."""
        return None if self._view.lease is None else self._view.lease.holder

    def remaining(self) -> float:
        """Return the seconds for which this operator may write; 0 if it does not lead."""
        return self._view.remaining(self._clock())

    async def acquire(self) -> None:
        """Wait until this operator leads."""
        timing, logged = self._view.timing, None
        while True:
            await self._try_to_lead(timing.renew_deadline)
            if self.leading:
                return
            if self.holder != logged:
                logged = self.holder
                logger.info("operator ready; standing by while %s leads", logged)
            free_in = self._view.free_in(self._clock())
            await asyncio.sleep(min(timing.poll_period, free_in or timing.poll_period))

    async def keep(self) -> None:
        """Renew the lease until renewals fail for too long or another operator holds it.

        Raises
        ------
        LeadershipLostError
            Always, when this operator no longer leads.
        """
        while self._view.step(self._clock()) is LeaseStep.RENEW:
            await asyncio.sleep(min(self._view.timing.retry_period, self.remaining()))
            await self._try_to_lead(self.remaining())
        holder = self._view.lease.holder if self._view.lease and self._view.exists else ""
        self._view = replace(self._view, renewed_at=None)
        if holder not in ("", self._view.identity):
            raise LeadershipLostError(f"{holder} leads now; this operator exits")
        raise LeadershipLostError("the lease was not renewed in time; this operator exits")

    async def release(self) -> None:
        """Release the lease, so that another operator can lead without waiting for its end."""
        view = self._view
        self._view = replace(view, renewed_at=None)
        try:
            async with asyncio.timeout(view.timing.retry_period):
                lease = await self._store.read()  # a cancelled renewal may have been carried out
                if lease.holder == view.identity:
                    await self._store.update(replace(lease, holder="", renewed=self._now()))
        except (InfernoError, TimeoutError) as error:
            logger.warning("the lease is not released and will expire: %s", error)
        else:
            logger.info("the lease is released")

    async def _try_to_lead(self, patience: float) -> None:
        """Read the lease, and take or renew it if that is due; failures are only logged."""
        try:
            async with asyncio.timeout(patience):
                await self._read()
                await self._take_step()
        except InfernoError as error:
            logger.warning("the lease cannot be read or written: %s", error)
        except TimeoutError:
            logger.warning(
                "the lease cannot be read or written: the API server does not answer in time"
            )

    async def _read(self) -> None:
        try:
            lease = await self._store.read()
        except GoneError:
            lease = None
        self._view = self._view.after_read(lease, self._clock())

    async def _take_step(self) -> None:
        sent_at = self._clock()
        step = self._view.step(sent_at)
        if step in (LeaseStep.WAIT, LeaseStep.STOP):
            return
        proposal = self._view.proposal(self._now())
        write = self._store.create if step is LeaseStep.CREATE else self._store.update
        self._view = self._view.after_write(await write(proposal), sent_at, self._clock())
