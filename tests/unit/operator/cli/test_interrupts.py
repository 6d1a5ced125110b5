"""Ctrl-C while a command waits."""

import asyncio
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from inferno_operator.cli.console import run_async


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.default_int_handler(number, frame)


@pytest.fixture
def handler_of_the_program() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, _interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handler_of_the_program")
def test_ctrl_c_cancels_what_a_command_waits_for_also_in_the_middle_of_a_task() -> None:
    ends = []

    async def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        except BaseException as end:
            ends.append(type(end))
            raise

    with pytest.raises(KeyboardInterrupt):
        run_async(work())

    assert ends == [asyncio.CancelledError]
    assert signal.getsignal(signal.SIGINT) is _interrupt


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        return "done"

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_async(work()) == "done"
    finally:
        signal.signal(signal.SIGINT, before)
