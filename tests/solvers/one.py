"""One solver on one program, in a process of its own; prints the result as JSON.

Two solvers that bring the same library do not load into one process.
"""

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.solvers.levels import Rows, solve_with

OTHERS = {"highs": "Highs", "cp-sat": "CpSat", "scip": "Scip"}
"""Classes of the other solvers, in modules of this package."""


def main() -> None:
    """Solve: arguments are the solver, the file of the program, and the seconds."""
    name, file, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    module = importlib.import_module(f"tests.solvers.{name.replace('-', '_')}")
    if name in OTHERS:
        solver = getattr(module, OTHERS[name])()
        title, result = solver.name, solve_with(solver, Rows.load(file), seconds)
    else:
        title, result = module.NAME, module.solve_ours(file, seconds)
    print(json.dumps({"solver": title, **asdict(result)}))


if __name__ == "__main__":
    main()
