"""The guide to `make demo-loop` shows what it printed: `python -m tests.day.page` runs it for that.

Run it on a machine that has nothing else to do: latencies and costs are those of real processes.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.controlplane.processes import ROOT
from tests.reference.shown import ELIDED, Shown, shown, with_output

PAGE = ROOT / "docs" / "guides" / "demo-loop.md"

LEFT_OUT = ("01:00  ", "24:00  ")
"""Begins of the lines of two hours; what is printed between them is too long for a page."""


def command() -> Shown:
    """The command on the page, with the output that the page shows."""
    (found,) = [each for each in shown(PAGE) if each.text == "make demo-loop"]
    return found


def shortened(lines: Sequence[str]) -> list[str]:
    """The lines of a day without those between two hours."""
    first, last = (_begins_with(lines, hour) for hour in LEFT_OUT)
    return [*lines[: first + 1], ELIDED, *lines[last:]]


def _begins_with(lines: Sequence[str], text: str) -> int:
    return next(place for place, line in enumerate(lines) if line.startswith(text))


def _printed() -> Iterator[str]:
    """Run a day, show what it prints, and yield its lines."""
    program = [sys.executable, "-m", "tests.day"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as day:
        assert day.stdout is not None
        for line in day.stdout:
            print(line, end="", flush=True)
            yield line.rstrip("\n")
    if day.returncode:
        sys.exit(day.returncode)


def main() -> None:
    output = "\n".join(shortened(list(_printed())))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_output(text, command(), output), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
