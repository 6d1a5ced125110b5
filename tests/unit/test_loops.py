"""The event loops of tests: one ends after its connections, one waits for none of its timers."""

import asyncio
import socket
from threading import Thread

import pytest

from tests import loops
from tests.loops import PatientLoop, VirtualTimeLoop


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


def test_virtual_time_stands_still_while_bytes_are_under_way() -> None:
    here, there = socket.socketpair()

    def answer() -> None:
        there.sendall(b"answer")
        there.recv(len(b"question"))

    async def ask() -> tuple[bytes, float]:
        reader, writer = await asyncio.open_connection(sock=here)
        writer.write(b"question")
        other = Thread(target=answer)
        other.start()
        async with asyncio.timeout(10):
            answered = await reader.readexactly(len(b"answer"))
        other.join()
        writer.close()
        return answered, asyncio.get_running_loop().time()

    with there, asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(ask()) == (b"answer", 0.0)


def test_virtual_time_is_that_of_both_ends_of_a_connection() -> None:
    async def slow_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while text := await reader.read(1):
            await asyncio.sleep(60)
            writer.write(text)
        writer.close()

    async def exchange() -> list[float]:
        async with await asyncio.start_server(slow_echo, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            times = []
            for _ in range(3):
                writer.write(b"x")
                await reader.readexactly(1)
                times.append(asyncio.get_running_loop().time())
            writer.close()
            await writer.wait_closed()
        return times

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(exchange()) == [60.0, 120.0, 180.0]
