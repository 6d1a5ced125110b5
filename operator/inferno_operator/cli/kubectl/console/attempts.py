"""How often somebody may try to log in: guesses of tokens must not keep the API server busy.

See OWASP, Authentication Cheat Sheet, section on login throttling.
"""

from collections import deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

WINDOW_S = 60.0
"""The time over which attempts are counted [s]."""

MOST_OF_CLIENT = 10
"""Attempts of one client in that time that may fail."""

MOST_IN_ALL = 100
"""Attempts of all clients in that time that may fail; no more than these are kept in memory."""

SITE_PREFIX = 64
"""Bits of the address of an IPv6 network, in which one machine has all addresses."""


class LoginAttempts:
    """The attempts to log in that failed, or are going on, within the last `WINDOW_S`.

    Parameters
    ----------
    clock
        Seconds since some moment.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: deque[tuple[float, str]] = deque()

    def wait_s(self, address: str) -> float:
        """How long a client has to wait for its next attempt [s]; 0 if it may try now."""
        now, client = self._clock(), client_of(address)
        while self._begun and self._begun[0][0] <= now - WINDOW_S:
            self._begun.popleft()
        own = [moment for moment, other in self._begun if other == client]
        every = [moment for moment, _ in self._begun]
        return max(_wait_s(own, MOST_OF_CLIENT, now), _wait_s(every, MOST_IN_ALL, now))

    def begin(self, address: str) -> None:
        """Count an attempt, which has not succeeded yet: others may begin meanwhile."""
        self._begun.append((self._clock(), client_of(address)))

    def succeeded(self, address: str) -> None:
        """Count one attempt of a client less."""
        client = client_of(address)
        newest = next((entry for entry in reversed(self._begun) if entry[1] == client), None)
        if newest:
            self._begun.remove(newest)


def client_of(address: str) -> str:
    """Who is behind an address: of IPv6, the network, whose addresses one machine can take."""
    try:
        parsed = ip_address(address)
    except ValueError:  # such as the name of a socket
        return address
    if isinstance(parsed, IPv6Address):
        return str(int(parsed) >> (parsed.max_prefixlen - SITE_PREFIX))
    return str(parsed)


def _wait_s(moments: list[float], most: int, now: float) -> float:
    """Time until fewer than `most` attempts are within the window [s]."""
    return moments[-most] + WINDOW_S - now if len(moments) >= most else 0.0
