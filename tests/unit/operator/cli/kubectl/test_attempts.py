"""Attempts to log in, against a list of all that ever happened."""

import tracemalloc

import numpy as np
import pytest

from inferno_operator.cli.kubectl.console.attempts import (
    MOST_IN_ALL,
    MOST_OF_CLIENT,
    WINDOW_S,
    LoginAttempts,
    client_of,
)


class Watch:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.time_s = 1000.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_at_no_time_more_attempts_fail_than_are_allowed(watch: Watch) -> None:
    chance, attempts = np.random.default_rng(7), LoginAttempts(watch)
    failed = list[tuple[float, str]]()
    refused = 0
    for _ in range(5000):
        watch.time_s += chance.exponential(0.25)
        client = f"192.0.2.{chance.choice([1, 1, 1, *range(2, 60)])}"
        recent = [other for moment, other in failed if moment > watch.time_s - WINDOW_S]
        is_full = recent.count(client) >= MOST_OF_CLIENT or len(recent) >= MOST_IN_ALL

        assert bool(attempts.wait_s(client)) == is_full
        if is_full:
            refused += 1
            continue
        attempts.begin(client)
        if chance.random() < 0.3:
            attempts.succeeded(client)
        else:
            failed.append((watch.time_s, client))

    assert 100 < refused < 4900


def test_after_the_time_that_is_told_one_may_try_again_and_not_before(watch: Watch) -> None:
    attempts = LoginAttempts(watch)
    for _ in range(MOST_OF_CLIENT):
        watch.time_s += 1.0
        attempts.begin("192.0.2.1")
    wait_s = attempts.wait_s("192.0.2.1")

    watch.time_s += wait_s - 0.01
    before = attempts.wait_s("192.0.2.1")
    watch.time_s += 0.01

    assert before == pytest.approx(0.01)
    assert attempts.wait_s("192.0.2.1") == 0.0


def test_memory_does_not_grow_with_the_number_of_clients(watch: Watch) -> None:
    attempts = LoginAttempts(watch)

    def strangers(first: int) -> None:
        for number in range(first, first + 2000):
            watch.time_s += 0.05
            if not attempts.wait_s(f"10.{number >> 8}.{number % 256}.1"):
                attempts.begin(f"10.{number >> 8}.{number % 256}.1")

    strangers(0)
    tracemalloc.start()
    strangers(10_000)
    before, _ = tracemalloc.get_traced_memory()
    strangers(20_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert after < 1.5 * before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("", "", True),
    ],
)
def test_a_machine_has_all_addresses_of_its_network(one: str, other: str, same: bool) -> None:
    assert (client_of(one) == client_of(other)) is same
