"""The curve of the exact solver in the documentation, of a fleet of the benchmarks.

`python -m tests.curve` draws it from the recorded search, the same each time; with `--measure` it
searches first, half a minute of processor time, and records the search.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from inferno_operator.cli.drawing import SEARCH_PHASE, draw_solver_curve
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Certificate
from inferno_optimizer.wire.codec import decode_system
from inferno_optimizer.wire.tables import CERTIFICATE
from tests.controlplane.processes import ROOT
from tests.generate import fleet

FILE = ROOT / "docs" / "pictures" / "curve.svg"

RECORD = ROOT / "tests" / "data" / "curve.json"
"""The certificate of the search, as the REST API has it."""

SERVERS, ACCELERATORS, SEED, DEMAND = 1_000, 20, 1, 4.0

TIME_LIMIT = 30.0
"""Of the exact solver [s]."""


def measured() -> Certificate:
    """Search now. The time is that of the processor, which other programs do not change."""
    system = decode_system(fleet(SERVERS, ACCELERATORS, SEED, DEMAND))
    options = replace(system.options, unlimited=False, milp=True, time_limit=TIME_LIMIT, trace=True)
    return optimize(replace(system, options=options), time.process_time).certificate


def recorded() -> Certificate:
    """The search that was measured last."""
    certificate = CERTIFICATE.read(json.loads(RECORD.read_text()))
    return replace(certificate, phases=((SEARCH_PHASE, certificate.seconds),))


def main(arguments: Sequence[str]) -> int:
    """Write the picture, and with `--measure` the record before; the exit status."""
    if "--measure" in arguments:
        RECORD.write_text(json.dumps(CERTIFICATE.write(measured()), indent=1) + "\n")
        print(RECORD)
    FILE.write_text(draw_solver_curve(recorded()))
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
