"""`inferno serve` with other limits: `python -m tests.rest.limited '{"body_bytes": 10}'`."""

import json
import sys

from inferno_optimizer.api.limits import ServerLimits
from inferno_optimizer.api.security import Files
from inferno_optimizer.api.server import serve


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve("127.0.0.1", 0, ServerLimits(**json.loads(sys.argv[1])), Files(), say)
