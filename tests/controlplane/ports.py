"""Ports on loopback for programs that have to be told one."""

import socket
from collections.abc import Callable

from tests.controlplane.errors import ProgramError

HOST = "127.0.0.1"
PORT_ATTEMPTS = 5


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
    """A port that nobody uses now; another program may take it first."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
