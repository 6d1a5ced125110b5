"""RequestLimit at an optimizer: in turn, and no longer than one's patience."""

import asyncio

import pytest

from inferno_operator.adapters.optimizers.remote import RequestLimit
from inferno_optimizer.errors import UnavailableError

FOREVER = 3600.0


async def visit(places: RequestLimit, name: str, visits: list[str]) -> None:
    async with places.take(name):
        visits.append(name)
        await asyncio.sleep(0)


async def test_requests_take_their_turn_in_the_order_in_which_they_came() -> None:
    places = RequestLimit("http://here", 1, FOREVER)
    visits: list[str] = []

    await asyncio.gather(*(visit(places, name, visits) for name in "abcde"))

    assert visits == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "for 0 s on the request for a"), (3, "for 0 s on the request for a and on 2 other")],
)
async def test_one_that_waits_too_long_is_told_who_is_in_its_way(count: int, words: str) -> None:
    places = RequestLimit("http://here", count, patience=0.01)
    entered = [places.take(name) for name in "abc"[:count]]
    for place in entered:
        await place.__aenter__()

    with pytest.raises(UnavailableError, match=rf"^http://here: no turn within 0.01 s: .* {words}"):
        await visit(places, "z", [])


@pytest.mark.parametrize("ends", ["with an error", "cancelled"])
async def test_a_place_is_free_again_however_a_request_ends(ends: str) -> None:
    places = RequestLimit("http://here", 1, FOREVER)
    visits: list[str] = []

    async def fail() -> None:
        async with places.take("a"):
            if ends == "cancelled":
                await asyncio.Event().wait()
            raise UnavailableError("no answer")

    failing = asyncio.create_task(fail())
    waiting = asyncio.create_task(visit(places, "b", visits))
    await asyncio.sleep(0)
    failing.cancel()
    await asyncio.wait([failing, waiting])

    assert visits == ["b"]


async def test_who_gives_up_waiting_takes_no_place() -> None:
    places = RequestLimit("http://here", 1, FOREVER)
    visits: list[str] = []
    async with places.take("a"):
        gone = asyncio.create_task(visit(places, "b", visits))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
    await visit(places, "c", visits)

    assert visits == ["c"]


async def test_a_request_that_ends_just_when_another_gives_up_waiting_is_named() -> None:
    places = RequestLimit("http://here", 1, patience=0.0)
    async with places.take("a"):
        waiting = asyncio.create_task(visit(places, "b", []))
        await asyncio.sleep(0)

    with pytest.raises(UnavailableError, match=r"on the request for a$"):
        await waiting
