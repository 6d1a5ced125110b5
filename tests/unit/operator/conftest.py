"""Tests here wait in virtual time, but for those of adapters, which have real partners."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.loops import PatientLoop, VirtualTimeLoop

REAL_TIME = Path(__file__).with_name("adapters")


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop in which an asynchronous test runs."""
    if item.path.is_relative_to(REAL_TIME):
        return {"real time": PatientLoop}
    return {"virtual time": VirtualTimeLoop}
