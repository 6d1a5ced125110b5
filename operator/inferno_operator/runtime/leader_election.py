"""Who leads: one of several operators, by a Lease that it holds and renews.

The leader may write for `renew_deadline` seconds after its last renewal was sent. Another one
takes the lease `duration` seconds after it saw that renewal, so later than it was sent, each
by its own clock. What lies between the two is time for a last write to end in. Times of day
in the Lease are for people to read: nobody compares them with a clock.

`View` decides, purely; `Election` looks, acts and waits.
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
"""Seconds since some moment; never set, and it goes on while the machine sleeps."""

logger = logging.getLogger(__name__)


class LeadershipLostError(InfernoError):
    """Another operator leads, or may soon: this one must not write any more."""

    reason = "LeadershipLost"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; by default those of other controllers, but for a closer look at who leads.

    A lease may be taken when it was not renewed for `duration`; a leader that could not
    renew it for `renew_deadline` stops; it tries every `retry_period`, and the others look
    every `look_period`.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    look_period: float = 1.0


@dataclass(frozen=True, slots=True)
class Lease:
    """What a Lease says; without a holder it is free. `version` is the API server's."""

    holder: str
    duration: float
    acquired: datetime
    renewed: datetime
    transitions: int = 0
    version: str = ""


class LeaseStore(Protocol):
    """Where the Lease is; raises `UnavailableError` when a later try may succeed."""

    async def read(self) -> Lease:
        """The Lease as it is; `GoneError` when there is none."""

    async def create(self, lease: Lease) -> Lease:
        """Make it; `StaleError` when there is one already."""

    async def update(self, lease: Lease) -> Lease:
        """Replace the version that was read; `StaleError` when there is a newer one."""


class Step(Enum):
    """What is to be done next."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class View:
    """What one operator knows of the lease, by its own clock.

    `lease` is what was seen last, and says so since `seen_at`; it may be deleted by now
    (`exists`). `renewed_at` is when the last renewal that succeeded was sent; None: it does
    not lead.
    """

    identity: str
    timing: Timing = Timing()
    lease: Lease | None = None
    exists: bool = False
    seen_at: float = 0.0
    renewed_at: float | None = None

    def seeing(self, lease: Lease | None, now: float) -> "View":
        """The view after a look; a deleted lease still holds for as long as it would have."""
        if lease is None:
            return replace(self, exists=False)
        seen_at = self.seen_at if lease == self.lease else now
        return replace(self, lease=lease, exists=True, seen_at=seen_at)

    def holding(self, lease: Lease, sent_at: float, now: float) -> "View":
        """The view after the lease was written as ours."""
        return replace(self.seeing(lease, now), renewed_at=sent_at)

    def step(self, now: float) -> Step:
        """What is to be done now."""
        if self.renewed_at is not None:
            return Step.RENEW if self._holds and self.remaining(now) > 0 else Step.STOP
        if self.free_in(now) > 0:
            return Step.WAIT
        return Step.TAKE if self.exists else Step.CREATE

    def remaining(self, now: float) -> float:
        """Seconds for which it may write; 0 when it does not lead."""
        if self.renewed_at is None:
            return 0.0
        return max(0.0, self.renewed_at + self.timing.renew_deadline - now)

    def free_in(self, now: float) -> float:
        """Seconds until the lease may be taken, unless it is renewed; 0 when it is free."""
        if self.lease is None or self.lease.holder in ("", self.identity):
            return 0.0
        return max(0.0, self.seen_at + (self.lease.duration or self.timing.duration) - now)

    def proposal(self, now: datetime) -> Lease:
        """The lease as this operator would write it, to take or to renew it."""
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
    """One operator's part in it.

    Parameters
    ----------
    store
        Where the Lease is.
    identity
        Of this operator; no other one has it, not even after a restart.
    clock
        Decides.
    now
        What the Lease tells people.
    timing
        How long everything takes.
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
        self._view = View(identity, timing)

    @property
    def leading(self) -> bool:
        """Whether it may write."""
        return self.remaining() > 0

    @property
    def holder(self) -> str | None:
        """Who leads, "" for nobody; None as long as that is not known."""
        return None if self._view.lease is None else self._view.lease.holder

    def remaining(self) -> float:
        """Seconds for which it may write."""
        return self._view.remaining(self._clock())

    async def acquire(self) -> None:
        """Wait until this operator leads."""
        timing, told = self._view.timing, None
        while True:
            await self._attempt(timing.renew_deadline)
            if self.leading:
                return
            if self.holder != told:
                told = self.holder
                logger.info("operator ready; standing by while %s leads", told)
            free_in = self._view.free_in(self._clock())
            await asyncio.sleep(min(timing.look_period, free_in or timing.look_period))

    async def keep(self) -> None:
        """Renew the lease until that fails for too long or somebody else has it.

        Raises
        ------
        LeadershipLostError
            The only way in which this ends.
        """
        while self._view.step(self._clock()) is Step.RENEW:
            await asyncio.sleep(min(self._view.timing.retry_period, self.remaining()))
            await self._attempt(self.remaining())
        holder = self._view.lease.holder if self._view.lease and self._view.exists else ""
        self._view = replace(self._view, renewed_at=None)
        if holder not in ("", self._view.identity):
            raise LeadershipLostError(f"{holder} leads now; this operator ends")
        raise LeadershipLostError("the lease was not renewed in time; this operator ends")

    async def release(self) -> None:
        """Let others lead at once; without that they would have to wait."""
        view = self._view
        self._view = replace(view, renewed_at=None)
        try:
            async with asyncio.timeout(view.timing.retry_period):
                lease = await self._store.read()  # a renewal may have been cut off after its effect
                if lease.holder == view.identity:
                    await self._store.update(replace(lease, holder="", renewed=self._now()))
        except (InfernoError, TimeoutError) as error:
            logger.warning("the lease is not released, it will expire: %s", error)
        else:
            logger.info("the lease is released")

    async def _attempt(self, patience: float) -> None:
        """Look, and do what is due; a failure only costs time."""
        try:
            async with asyncio.timeout(patience):
                await self._look()
                await self._act()
        except InfernoError as error:
            logger.warning("the lease is out of reach: %s", error)
        except TimeoutError:
            logger.warning("the lease is out of reach: the API server does not answer in time")

    async def _look(self) -> None:
        try:
            lease = await self._store.read()
        except GoneError:
            lease = None
        self._view = self._view.seeing(lease, self._clock())

    async def _act(self) -> None:
        sent_at = self._clock()
        step = self._view.step(sent_at)
        if step in (Step.WAIT, Step.STOP):
            return
        proposal = self._view.proposal(self._now())
        write = self._store.create if step is Step.CREATE else self._store.update
        self._view = self._view.holding(await write(proposal), sent_at, self._clock())
