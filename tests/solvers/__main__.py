"""`make bench-solvers`: served load and value of each solver, at equal time."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.solvers.fleets import save
from tests.solvers.levels import TOLERANCE
from tests.solvers.one import OTHERS

OURS = "ours"
FLEETS = ("b-300-2", "b-1000-2", "b-1000-4", "b-3000-2", "b-10000-2", "o-1000-0.5")
BEHIND = 1e-3
"""Share of the load of a level by which ours may be behind another solver."""

Result = Mapping[str, Any]


def main() -> None:
    """Compare, and print a line for each fleet and solver as it is measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.solvers", description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[8.0, 30.0])
    parser.add_argument("--fleets", nargs="+", default=FLEETS, metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--solvers", nargs="+", default=list(OTHERS), choices=list(OTHERS))
    parser.add_argument("--side-by-side", action="store_true", help="run all solvers at once")
    parser.add_argument("--json", type=Path, help="append each result to this file, too")
    arguments = parser.parse_args()
    runs = []
    with TemporaryDirectory() as folder:
        for fleet, seed in product(arguments.fleets, arguments.seeds):
            file = Path(folder) / f"{fleet}-{seed}.npz"
            print(f"{fleet} seed {seed}: {save(fleet, seed, file):,} rows", flush=True)
            for seconds in arguments.seconds:
                solvers = (OURS, *arguments.solvers)
                workers = len(solvers) if arguments.side_by_side else 1
                with ThreadPoolExecutor(workers) as pool:
                    runs.append([*pool.map(partial(_run, file=file, seconds=seconds), solvers)])
                if arguments.json:
                    _append(arguments.json, fleet, seed, seconds, runs[-1])
    print(_summary(runs))


def _run(solver: str, file: Path, seconds: float) -> Result:
    """Measure one solver in a process of its own, and print the result."""
    command = [sys.executable, "-m", "tests.solvers.one", solver, str(file), str(seconds)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: Result = json.loads(printed.splitlines()[-1])
    served = "  ".join(f"{100 * share:8.4f}" for share in result["served"])
    print(
        f"  {seconds:3g} s  {result['solver']:26} {served}  value {result['value']:14,.1f}"
        f"  {result['seconds']:6.1f} s",
        flush=True,
    )
    return result


def _append(path: Path, fleet: str, seed: int, seconds: float, results: Iterable[Result]) -> None:
    with path.open("a") as lines:
        for result in results:
            line = {"fleet": fleet, "seed": seed, "limit": seconds, **result}
            lines.write(json.dumps(line) + "\n")


def _summary(runs: Sequence[Sequence[Result]]) -> str:
    """How often ours is at least as good as each other, and how far it is behind at most."""
    pairs = [(ours, other) for ours, *others in runs for other in others]
    good = sum(is_as_good(ours, other) for ours, other in pairs)
    most = max((behind(ours, other) for ours, other in pairs), default=0.0)
    return (
        f"ours is at least as good in {good} of {len(pairs)} comparisons;"
        f" at most {most:.2%} of a level behind (must: {BEHIND:.1%})"
    )


def is_as_good(ours: Result, other: Result) -> bool:
    """Whether ours serves as much, level by level, or else has as low a value.

    Loads that differ by less than the tolerance of a level are equal.
    """
    for mine, theirs in zip(ours["served"], other["served"], strict=True):
        if abs(mine - theirs) > TOLERANCE:
            return bool(mine > theirs)
    return bool(ours["value"] <= other["value"] + TOLERANCE * abs(other["value"]))


def behind(ours: Result, other: Result) -> float:
    """Return the share of the first level that differs by which ours serves less."""
    differences = (b - a for a, b in zip(ours["served"], other["served"], strict=True))
    return max(next((d for d in differences if abs(d) > TOLERANCE), 0.0), 0.0)


if __name__ == "__main__":
    main()
