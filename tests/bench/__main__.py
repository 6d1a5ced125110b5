"""Measure, and compare with what must be reached; see `--help`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.bench.isolation import ROOT, Case, measure
from tests.bench.plan import KEYS, ROWS
from tests.bench.report import Report

PAGE = ROOT / "docs" / "benchmarks.md"
MISSED, INTERRUPTED = 1, 130


def main() -> int:
    """Measure what was chosen; the exit status."""
    arguments = _parser().parse_args()
    if arguments.list:
        print("\n".join(KEYS))
        return 0
    report = chosen(arguments.only, short=arguments.short)
    try:
        run(report)
    except KeyboardInterrupt:
        print("Interrupted; what was measured so far:", file=sys.stderr)
        report.print(Console())
        return INTERRUPTED
    report.print(Console())
    if arguments.json:
        arguments.json.write_text(report.as_json() + "\n")
    if arguments.markdown:
        report.write_into(arguments.markdown)
    missed = report.missed()
    if missed:
        print(f"Missed: {', '.join(missed)}", file=sys.stderr)
    return MISSED if missed else 0


def chosen(only: list[str] | None, *, short: bool) -> Report:
    """The rows of these keys, or all."""
    return Report(
        [row for row in ROWS if (not only or row.key in only) and not (short and row.long)]
    )


def run(report: Report) -> None:
    """Measure every case; a bar on a terminal shows how far it is."""
    cases = report.cases()
    columns = (
        *(TextColumn("{task.description}"), BarColumn()),
        *(MofNCompleteColumn(), TimeElapsedColumn()),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("measuring", total=len(cases))
        for case in cases:
            progress.update(task, description=_described(case))
            report.outcomes[case.key] = measure(case)
            progress.advance(task)


def _described(case: Case) -> str:
    return f"{case.measure} " + " ".join(f"{k}={v}" for k, v in case.arguments.items())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure, and compare with what must be reached.",
        epilog="example: python -m tests.bench --only greedy milp-1000 --json out.json",
    )
    add: Callable[..., object] = parser.add_argument
    add("--only", nargs="+", choices=KEYS, metavar="KEY", help="only these rows")
    add("--short", action="store_true", help="leave out what takes minutes")
    add("--json", type=Path, metavar="FILE", help="write everything to a file")
    add(
        "--markdown",
        type=Path,
        nargs="?",
        const=PAGE,
        metavar="PAGE",
        help="write the table between the markers of a page (docs/benchmarks.md)",
    )
    add("--list", action="store_true", help="show the keys, measure nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
