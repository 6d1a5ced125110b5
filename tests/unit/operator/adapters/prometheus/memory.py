"""A process that asks a Prometheus many queries at once, and prints its most memory [MiB]."""

import asyncio
import importlib
import sys
from contextlib import suppress

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_optimizer.errors import InfernoError
from tests.memory import peak_mib

AT_ONCE = 12
"""More than the operator asks at the same time: 8 of Servers' own, 1 shared, 2 of calibration."""


async def ask(url: str) -> None:
    """Ask all queries; their answers are of no interest."""
    async with connect(PrometheusEndpoint(url, timeout=120.0)) as prometheus:

        async def one() -> None:
            with suppress(InfernoError):
                await prometheus.query("up")

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(one())


if __name__ == "__main__":
    importlib.import_module("inferno_operator.main")  # the whole operator
    asyncio.run(ask(sys.argv[1]))
    print(peak_mib())
