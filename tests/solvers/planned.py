"""Print the plan of the installed optimizer for a file: load of each class, and cost.

It imports nothing of the tests, so that another checkout can run it.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import SaturationPolicy
from inferno_optimizer.wire.codec import decode_system


def main(file: str, policy: str, seconds: str) -> None:
    """Print what a plan serves of each class, as a share of its load, and what it costs."""
    system = decode_system(json.loads(Path(file).read_text()))
    options = replace(
        system.options,
        milp=True,
        saturation_policy=SaturationPolicy(policy),
        time_limit=float(seconds),
    )
    # The time of the process: what else runs on the machine does not count.
    solution = optimize(replace(system, options=options), time.process_time)
    levels = sorted(solution.certificate.levels, key=lambda level: level.priority)
    served = [level.served / max(level.load, level.served, 1e-9) for level in levels]
    cost = sum(allocation.cost for allocation in solution.allocations.values())
    print(json.dumps({"served": served, "cost": cost}))


if __name__ == "__main__":
    main(*sys.argv[1:])
