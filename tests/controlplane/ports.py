"""Ports on loopback for programs that have to be told one."""

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.controlplane.errors import ProgramError

HOST = "127.0.0.1"
PORT_ATTEMPTS = 5

LEAST = 10_000
"""Programs that people know by their ports have lower ones."""

GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The first and the last port of those that the kernel gives to who asks for no certain one."""


def on_free_port(name: str, start: Callable[[int], None]) -> int:
    """Start a program on a port that is free, and return the port.

    Raises
    ------
    ProgramError
        The program does not start, or other programs take each port first.
    """
    for _ in range(PORT_ATTEMPTS):
        port = free_port()
        try:
            start(port)
        except ProgramError as error:  # another program may have been faster
            if "address already in use" not in str(error):
                raise
        else:
            return port
    raise ProgramError(f"{name} found no free port in {PORT_ATTEMPTS} attempts")


def free_port(host: str = HOST) -> int:
    """A port that nobody uses now; only a program that is told the same one may take it first.

    It is none that the kernel gives: all servers and clients beside this test get such ones, also
    while the program has not begun to listen, or is stopped to be started again.
    """
    below, above = never_given()
    ports = [*below, *above]
    return first_free(host, iter(lambda: secrets.choice(ports), None))


def first_free(host: str, ports: Iterator[int]) -> int:
    """The first of these ports that nobody uses."""
    for port in ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise ProgramError(f"all these ports of {host} are in use")


def never_given() -> tuple[range, range]:
    """The ports that the kernel gives to nobody, below those that it gives and above them."""
    first, last = map(int, GIVEN.read_text().split())
    return range(LEAST, first), range(max(last + 1, LEAST), 2**16)
