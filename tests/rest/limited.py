"""`inferno serve` with other limits: `python -m tests.rest.limited '{"body_bytes": 10}'`.

It may solve for longer than any test waits, so that what ends earlier was ended.
"""

import json
import sys

from inferno_optimizer.api.messages import ServerLimits
from inferno_optimizer.api.server import Files, run_server


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    limits = ServerLimits(
        **{"time_limit": 900.0, "solve_seconds": 900.0, **json.loads(sys.argv[1])}
    )
    run_server("127.0.0.1", 0, limits, Files(), say)
