"""The curve of the exact solver in the documentation, of a fleet of the benchmarks.

`python -m tests.curve` draws it anew, in half a minute.
"""

import sys
from dataclasses import replace

from inferno_operator.cli.drawing.curve import draw
from inferno_optimizer.optimize import optimize
from inferno_optimizer.wire.codec import decode_system
from tests.controlplane.processes import ROOT
from tests.generate import fleet

FILE = ROOT / "docs" / "pictures" / "curve.svg"

SERVERS, ACCELERATORS, SEED, DEMAND = 1_000, 20, 1, 4.0

TIME_LIMIT = 30.0
"""Of the exact solver [s]."""


def main() -> int:
    """Write the picture; the exit status."""
    system = decode_system(fleet(SERVERS, ACCELERATORS, SEED, DEMAND))
    options = replace(system.options, unlimited=False, milp=True, time_limit=TIME_LIMIT, trace=True)
    solution = optimize(replace(system, options=options))
    FILE.write_text(draw(solution.certificate))
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
