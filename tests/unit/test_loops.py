"""The event loop of tests: it ends after its connections."""

import asyncio
import socket

import pytest

from tests import loops
from tests.loops import PatientLoop


def test_connections_that_close_late_are_closed_when_the_loop_is() -> None:
    async def leave_open(connection: socket.socket) -> None:
        _, writer = await asyncio.open_connection(sock=connection)
        asyncio.get_running_loop().call_later(0.05, writer.close)

    here, there = socket.socketpair()
    with there, asyncio.Runner(loop_factory=PatientLoop) as runner:
        runner.run(leave_open(here))

    assert here.fileno() == -1


def test_what_nothing_closes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PATIENCE_S", 0.05)
    here, there = socket.socketpair()
    loop = PatientLoop()
    with here, there:
        loop.add_reader(here, lambda: None)

        with pytest.raises(TimeoutError):
            loop.close()

    assert loop.is_closed()


def test_asyncio_run_uses_it() -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert isinstance(asyncio.run(running()), PatientLoop)
