"""One solver on one program, in a process of its own; prints the result as JSON.

Two solvers that bring the same library do not load into one process.
"""

import importlib
import json
import sys
from dataclasses import asdict

OURS = "ours"
OTHERS = {"highs": "Highs", "cp-sat": "CpSat", "scip": "Scip"}
"""Classes of the other solvers, in modules of this package."""


def main() -> None:
    """Solve: arguments are the solver, the fleet, the seed and the seconds."""
    name, fleet, seed, seconds = sys.argv[1:]
    solver = None
    if name != OURS:  # before any other library
        module = importlib.import_module(f"tests.solvers.{name.replace('-', '_')}")
        solver = getattr(module, OTHERS[name])()
    from tests.solvers.fleets import program
    from tests.solvers.levels import solve_ours, solve_with

    rows = program(fleet, int(seed))
    if solver is None:
        title, result = OURS, solve_ours(rows, float(seconds))
    else:
        title, result = solver.name, solve_with(solver, rows, float(seconds))
    print(json.dumps({"solver": title, "rows": len(rows.case), **asdict(result)}))


if __name__ == "__main__":
    main()
