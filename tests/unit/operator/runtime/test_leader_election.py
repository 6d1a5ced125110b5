"""Who leads: at most one at any time, whatever clocks, networks and crashes do."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferno_operator.runtime.leader_election import (
    Election,
    LeadershipLostError,
    Lease,
    LeaseStep,
    LeaseView,
    Timing,
)
from inferno_optimizer.errors import UnavailableError
from tests.examples import several
from tests.fakes import FakeLeaseStore
from tests.unit.operator.objects import NOW

PATIENCE_S = 60.0
TIMING = Timing()
MARGIN = Timing().duration - Timing().renew_deadline
LEASE = Lease("other", 15.0, NOW, NOW, version="1")


def seeing(lease: Lease | None, now: float = 100.0) -> LeaseView:
    return LeaseView("me").after_read(lease, now)


def leading(renewed_at: float = 100.0) -> LeaseView:
    mine = replace(LEASE, holder="me")
    return LeaseView("me").after_write(mine, renewed_at, renewed_at + 0.1)


RENEWED = replace(LEASE, renewed=NOW + timedelta(seconds=2))
PAST, FUTURE = (NOW + timedelta(days=365 * years) for years in (-50, 50))
DELETED = seeing(LEASE).after_read(None, 110.0)
WAIT, TAKE, CREATE = LeaseStep.WAIT, LeaseStep.TAKE, LeaseStep.CREATE
RENEW, STOP = LeaseStep.RENEW, LeaseStep.STOP


@pytest.mark.parametrize(
    ("view", "steps"),
    [
        pytest.param(seeing(None), {100.0: CREATE}, id="there is none"),
        pytest.param(seeing(replace(LEASE, holder="")), {100.0: TAKE}, id="nobody holds it"),
        pytest.param(seeing(LEASE).after_read(LEASE, 110), {114.9: WAIT, 115.0: TAKE}, id="same"),
        pytest.param(seeing(replace(LEASE, duration=60.0)), {159: WAIT, 160: TAKE}, id="longer"),
        pytest.param(seeing(LEASE).after_read(RENEWED, 114.0), {128.9: WAIT}, id="renewed"),
        pytest.param(
            seeing(LEASE).after_read(replace(LEASE, version="2"), 114.0),
            {128.9: WAIT},
            id="renewed while the time of day stood still",
        ),
        *(
            pytest.param(
                seeing(replace(LEASE, acquired=day, renewed=day)),
                {114: WAIT, 115: TAKE},
                id=str(day),
            )
            for day in (PAST, FUTURE)
        ),
        pytest.param(DELETED, {114.0: WAIT, 115.0: CREATE}, id="deleted"),
        pytest.param(leading(100.0), {109.9: RENEW, 110.0: STOP}, id="mine"),
        pytest.param(leading().after_read(LEASE, 101.0), {101.0: STOP}, id="taken from me"),
        pytest.param(leading().after_read(None, 101.0), {101.0: STOP}, id="mine, deleted"),
    ],
)
def test_what_to_do_with_a_lease_follows_from_when_it_was_seen_unchanged(
    view: LeaseView, steps: dict[float, LeaseStep]
) -> None:
    assert {now: view.step(now) for now in steps} == steps


def test_a_lease_tells_since_when_and_how_often_it_was_taken() -> None:
    later = NOW + timedelta(minutes=1)

    assert seeing(LEASE).proposal(later) == Lease("me", 15.0, later, later, 1, "1")
    assert leading().proposal(later) == Lease("me", 15.0, NOW, later, 0, "1")
    assert DELETED.proposal(NOW).version == ""
    assert [leading(100.0).remaining(now) for now in (104.0, 110.0)] == [6.0, 0.0]


@dataclass
class Write:
    """A request on its way; `reply` is what comes back once it has reached the API server."""

    lease: Lease
    sent_at: float
    reply: Lease | None = None
    delivered: bool = False


class History:
    """Two operators with clocks of their own; requests and answers take any time or get lost."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.stored: Lease | None = None
        self.version = 0
        self.on_the_way: dict[int, Write] = {}
        self.may_write_until = [0.0, 0.0]
        self.offsets = [random.uniform(-1e6, 1e6) for _ in range(2)]
        self.views = [LeaseView(f"operator {i}") for i in range(2)]
        self.takeovers = 0

    def step(self) -> None:
        """Something happens."""
        self.now += self.random.choice([0.0, 0.0, 0.1, 1.0, 2.0, 5.0, 9.9, 15.0])
        usual, rare = [self.attempt] * 10 + [self.look, self.send] * 4, [self.restart, self.release]
        self.random.choice([*usual, *rare])(self.random.randrange(2))
        for i, write in list(self.on_the_way.items()):
            if self.random.random() < 0.5:
                self.arrive(i, write)

    def clock(self, i: int) -> float:
        return self.now + self.offsets[i]

    def look(self, i: int) -> None:
        self.views[i] = self.views[i].after_read(self.stored, self.clock(i))

    def send(self, i: int) -> None:
        now = self.clock(i)
        if (
            self.views[i].step(now) not in (LeaseStep.WAIT, LeaseStep.STOP)
            and i not in self.on_the_way
        ):
            day = datetime.fromtimestamp(self.now, UTC)
            self.on_the_way[i] = Write(self.views[i].proposal(day), now)

    def attempt(self, i: int) -> None:
        self.look(i)
        self.send(i)

    def arrive(self, i: int, write: Write) -> None:
        """A request reaches the API server, or its answer the operator, unless it is lost."""
        if not write.delivered:
            write.delivered = True
            self.deliver(i, write)
            return
        del self.on_the_way[i]
        if write.reply is not None and self.random.random() < 0.9:
            self.views[i] = self.views[i].after_write(write.reply, write.sent_at, self.clock(i))
            if self.may_write(i):
                self.may_write_until[i] = self.now + self.views[i].remaining(self.clock(i))

    def deliver(self, i: int, write: Write) -> None:
        if write.lease.version != ("" if self.stored is None else self.stored.version):
            return
        if self.stored is not None and self.stored.holder not in ("", write.lease.holder):
            self.takeovers += 1
            assert self.may_write_until[1 - i] <= self.now - MARGIN + 1e-6
        self.store(write.lease)
        write.reply = self.stored

    def store(self, lease: Lease) -> None:
        self.version += 1
        self.stored = replace(lease, version=str(self.version))

    def release(self, i: int) -> None:
        self.end(i)
        if self.stored is not None and self.stored.holder == self.views[i].identity:
            self.store(replace(self.stored, holder=""))

    def restart(self, i: int) -> None:
        self.end(i)
        self.views[i] = LeaseView(f"operator {i} since {self.now} {self.version}")

    def end(self, i: int) -> None:
        self.views[i] = replace(self.views[i], renewed_at=None)
        self.on_the_way.pop(i, None)
        self.may_write_until[i] = min(self.may_write_until[i], self.now)

    def may_write(self, i: int) -> bool:
        return self.views[i].remaining(self.clock(i)) > 1e-6


@several(100)
@given(seed=st.integers(0, 2**32))
def test_two_may_never_write_at_once_and_the_last_write_has_time_to_end(seed: int) -> None:
    history = History(Random(seed))  # noqa: S311 - no secret

    for _ in range(500):
        history.step()

        assert not (history.may_write(0) and history.may_write(1))

    assert history.takeovers > 0


def election(store: FakeLeaseStore, identity: str) -> Election:
    return Election(store, identity, asyncio.get_running_loop().time, lambda: NOW, TIMING)


async def soon(what: asyncio.Task[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await what


async def test_the_second_one_stands_by_until_the_first_is_gone() -> None:
    store = FakeLeaseStore()
    first, second = election(store, "first"), election(store, "second")
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    standing_by = asyncio.create_task(second.acquire())
    done, _ = await asyncio.wait([keeping, standing_by], timeout=2 * TIMING.duration)
    assert not done
    assert (first.leading, second.leading, second.holder) == (True, False, "first")
    assert store.lease is not None
    assert store.lease.holder == "first"

    keeping.cancel()  # as a crash: nothing is released
    crashed = asyncio.get_running_loop().time()
    await soon(standing_by)
    taken = asyncio.get_running_loop().time()

    assert (first.leading, second.leading) == (False, True)
    assert taken - crashed <= TIMING.duration + 2 * TIMING.poll_period
    assert store.lease.transitions == 1


async def test_a_released_lease_is_taken_at_once() -> None:
    store = FakeLeaseStore()
    first, second = election(store, "first"), election(store, "second")
    await first.acquire()
    standing_by = asyncio.create_task(second.acquire())
    started = asyncio.get_running_loop().time()

    await first.release()
    await soon(standing_by)

    assert not first.leading
    assert asyncio.get_running_loop().time() - started < TIMING.duration / 2


async def test_failures_that_pass_cost_nothing_but_time() -> None:
    store = FakeLeaseStore()
    first = election(store, "first")
    store.failures = [UnavailableError("connection refused")] * 2
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    store.failures = [UnavailableError("connection refused")] * 2

    done, _ = await asyncio.wait([keeping], timeout=2 * TIMING.renew_deadline)

    assert not done
    assert first.leading
    keeping.cancel()


class Hanging(FakeLeaseStore):
    async def update(self, lease: Lease) -> Lease:
        await asyncio.Event().wait()
        return await super().update(lease)


@pytest.mark.parametrize("store", [FakeLeaseStore(), Hanging()], ids=["refuses", "hangs"])
async def test_a_leader_that_cannot_renew_gives_up(store: FakeLeaseStore) -> None:
    first = election(store, "first")
    await first.acquire()
    started = asyncio.get_running_loop().time()
    if not isinstance(store, Hanging):
        store.failures = [UnavailableError("connection refused")] * 1000

    with pytest.raises(LeadershipLostError, match="not renewed in time"):
        await soon(asyncio.create_task(first.keep()))

    assert not first.leading
    assert asyncio.get_running_loop().time() - started < TIMING.duration


async def test_a_leader_that_sees_another_one_gives_up_names_it_and_releases_nothing() -> None:
    store = FakeLeaseStore()
    first = election(store, "first")
    await first.acquire()
    assert store.lease is not None
    store.lease = replace(store.lease, holder="second", version="7")

    with pytest.raises(LeadershipLostError, match="second leads now"):
        await soon(asyncio.create_task(first.keep()))
    await first.release()

    assert store.lease.holder == "second"
