"""A process that asks a Prometheus many queries at once, and prints its most memory [MiB]."""

import asyncio
import importlib
import itertools
import sys
from contextlib import suppress

from inferno_operator.adapters.prometheus.client import connect
from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
from inferno_optimizer.errors import InfernoError
from tests.memory import peak_mib

AT_ONCE = 12
"""More than the operator asks at the same time: 8 of Servers' own, 1 shared, 2 of calibration."""

DECODED = 4
"""So many answers are awaited: if they were not decoded in turn, all would be in memory by then."""


async def ask(url: str) -> None:
    """Ask all queries, and await some answers, which are of no interest."""
    async with connect(PrometheusEndpoint(url, timeout=120.0)) as prometheus:

        async def one() -> None:
            with suppress(InfernoError):
                await prometheus.query("up")

        asked = [asyncio.create_task(one()) for _ in range(AT_ONCE)]
        for answered in itertools.islice(asyncio.as_completed(asked), DECODED):
            await answered
        for query in asked:
            query.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


if __name__ == "__main__":
    importlib.import_module("inferno_operator.main")  # the whole operator
    asyncio.run(ask(sys.argv[1]))
    print(peak_mib())
