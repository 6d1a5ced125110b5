"""Waiting on a condition, with a deadline."""

import json
import time
from collections.abc import Callable
from typing import TypeVar

from tests.controlplane.errors import WaitTimeoutError

FIRST_INTERVAL_S, LONGEST_INTERVAL_S = 0.005, 0.1
"""Between two probes: what is done at once is seen at once, and what takes long is asked rarely."""

PATIENCE_S = 120.0
"""What has not happened by then hangs: a busy machine is not as slow [s]."""

State = TypeVar("State")


def wait_until(
    probe: Callable[[], State],
    done: Callable[[State], bool],
    what: str,
    timeout: float = PATIENCE_S,
) -> State:
    """Call `probe` until its result is `done`, and return that result.

    Raises
    ------
    WaitTimeoutError
        After `timeout` seconds; names `what` did not happen and shows the last result.
    """
    deadline, interval = time.monotonic() + timeout, FIRST_INTERVAL_S
    while not done(state := probe()):
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"{what}: not within {timeout:g} s\nlast seen: {_show(state)}")
        time.sleep(interval)
        interval = min(2 * interval, LONGEST_INTERVAL_S)
    return state


def _show(state: object) -> str:
    return state if isinstance(state, str) else json.dumps(state, indent=2, default=str)
