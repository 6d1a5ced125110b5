"""How much the program does: calls of functions, which other work on the machine does not change.

How long that takes is measured by `make bench`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.generate import fleet

SLOW_TO_IMPORT = {"aiohttp", "kubernetes", "highspy", "kopf", "numpy", "pulp", "pydantic", "rich"}

COUNTING = """
import sys
from contextlib import suppress
from tests.calls import calls

def run():
    from inferno_operator.cli import entry
    with suppress(SystemExit):
        getattr(entry, sys.argv[0])()

del sys.argv[0]
print(calls(run), file=sys.stderr)
"""


def calls_of(program: str, *arguments: str | Path) -> int:
    """Functions that a program calls from its first import to its end."""
    command = [sys.executable, "-c", COUNTING, program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stderr.splitlines()[-1])  # after what the program warns of


@pytest.mark.extended
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_thousand_servers_on_twenty_accelerators_take_two_thousand_calls_each(
    output: str, tmp_path: Path
) -> None:
    """The candidates of all of them are computed at once."""
    system = tmp_path / "system.json"
    system.write_text(json.dumps(fleet(1_000, 20, seed=1, demand=1.0)))

    assert calls_of("inferno", "plan", system, "-o", output) < 2_000 * 1_000


@pytest.mark.parametrize("program", ["inferno", "kubectl_inferno"])
def test_help_takes_no_more_than_a_quarter_of_a_million_calls(program: str) -> None:
    assert calls_of(program, "--help") < 250_000


@pytest.mark.parametrize("module", ["inferno.main", "kubectl.main"])
def test_a_command_line_imports_nothing_that_help_can_do_without(module: str) -> None:
    code = f"import sys, inferno_operator.cli.{module}; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout

    assert SLOW_TO_IMPORT.isdisjoint(imported.decode().split())


def test_the_operator_imports_no_class_of_the_core_of_kubernetes() -> None:
    code = "import sys, inferno_operator.main; print(*sys.modules)"
    command = [sys.executable, "-c", code]

    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert "kubernetes.aio.client" in imported
    assert "kubernetes.aio.client.models.v1_pod" not in imported
