"""Outcomes as a table: for a terminal, for the documentation, as JSON."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from tests.bench.isolation import ROOT, Case, Outcome
from tests.bench.plan import ROWS, Row

HEADINGS = ("what", "must reach", "aim for", "measured", "met")
TARGETS = "targets"
ABSENT = Outcome(trouble="not measured")


@dataclass
class Report:
    """Rows that were chosen, and the outcomes of their cases so far.

    `load` is what else the machine had to do before: processes, on average of a minute.
    """

    rows: Sequence[Row]
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def cases(self) -> list[Case]:
        """Everything to measure, each case once."""
        return list({row.case.key: row.case for row in self.rows}.values())

    def outcome(self, case: Case) -> Outcome:
        return self.outcomes.get(case.key, ABSENT)

    def missed(self) -> list[str]:
        """Keys of the rows that do not reach what they must."""
        return [row.key for row in self.rows if not row.met(self.outcome(row.case).numbers)]

    def _line(self, row: Row) -> list[str]:
        outcome = self.outcome(row.case)
        measured = outcome.trouble or row.measured(outcome.numbers)
        met = "yes" if row.met(outcome.numbers) else "no"
        return [row.what, row.must(), row.aim(), measured, met]

    def print(self, console: Console) -> None:
        """Show the table."""
        shown = RichTable(*HEADINGS)
        for row in self.rows:
            shown.add_row(*self._line(row))
        console.print(shown)

    def as_json(self) -> str:
        """Everything, for programs."""
        return json.dumps({"machine": machine(), "load": self.load, **self._content()}, indent=2)

    def _content(self) -> dict[str, Any]:
        return {
            "targets": [
                {"key": row.key, "what": row.what, **self._verdict(row)} for row in self.rows
            ],
            "cases": [
                {"measure": case.measure, "arguments": dict(case.arguments), **_told(outcome)}
                for case in self.cases()
                for outcome in [self.outcome(case)]
            ],
        }

    def _verdict(self, row: Row) -> dict[str, Any]:
        outcome = self.outcome(row.case)
        limits = {
            limit.quantity: {
                "must": limit.must,
                "aim": limit.aim,
                "measured": outcome.numbers.get(limit.quantity),
            }
            for limit in row.limits
        }
        return {"limits": limits, "trouble": outcome.trouble, "met": row.met(outcome.numbers)}

    def write_into(self, page: Path) -> None:
        """Replace the table of targets on a page of documentation, between its markers.

        Targets that were not chosen keep their lines; then the page also keeps what it says of the
        machine.
        """
        text = page.read_text()
        others = _lines(text, {row.what for row in ROWS} - {row.what for row in self.rows})
        named = {line[0]: line for line in map(self._line, self.rows)}
        text = _replace(text, TARGETS, _markdown(HEADINGS, [*(others | named).values()]))
        if not others:
            text = _replace(text, "machine", _sentence(machine(), self.load))
        page.write_text(text)


def _lines(text: str, names: Collection[str]) -> dict[str, Sequence[str]]:
    """The lines of the targets on a page that have one of these names."""
    inside = text.partition(f"<!-- bench:{TARGETS} -->")[2].partition("<!-- /bench:")[0]
    cells = (line.strip("| ").split(" | ") for line in inside.splitlines() if line.strip())
    return {line[0]: line for line in cells if line[0] in names}


def _told(outcome: Outcome) -> dict[str, Any]:
    return {"numbers": dict(outcome.numbers), "trouble": outcome.trouble}


def _replace(text: str, key: str, content: str) -> str:
    start, end = f"<!-- bench:{key} -->", f"<!-- /bench:{key} -->"
    pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{start}\n{content}\n{end}", text)


def _markdown(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def machine() -> Mapping[str, str | int]:
    """What the numbers were measured on."""
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return {
        "commit": subprocess.run(
            commit, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "cores": os.cpu_count() or 0,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _sentence(machine: Mapping[str, str | int], load: float) -> str:
    return (
        f"Commit {machine['commit'] or 'unknown'} on {machine['cores']} cores"
        f" ({machine['processor']}), {machine['system']}, Python {machine['python']};"
        f" load of the machine before: {load:.1f}."
    )


def _processor() -> str:
    """Model of the processor, where the system tells."""
    told = Path("/proc/cpuinfo")
    text = told.read_text() if told.exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found[1] if found else platform.processor() or "unknown"
