"""Every command that a page shows is run: here, on a cluster, or by the test that is named."""

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest
import typer

from inferno_operator.cli.inferno.main import main
from inferno_operator.resources import SYSTEM_RESOURCES
from tests.docs.elsewhere import ELSEWHERE, elsewhere
from tests.in_process import called
from tests.reference.commands import contexts
from tests.reference.shown import OF_THE_SHELL, ROOT, Shown, every, find_folder, run_in, variables
from tests.tiers import extended

COMMANDS = every()
LONG = ("servegen-m-large.csv", "trace.csv --hours")
"""Parts of commands that take 9 s of processor time; the others of their kind take 1 s."""


def those(kind: str) -> list[Shown]:
    """The commands that begin with these words, each once."""
    found = {command.text: command for command in COMMANDS if command.text.startswith(kind)}
    return list(found.values())


@cache
def finished(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command that was run; those of several pages once, and the program where the tests are."""
    program, *arguments = shlex.split(text)
    if program != "inferno" or OF_THE_SHELL & set(text):
        return run_in(folder, text)
    done = called(main, arguments, folder=folder, environment=variables())
    streams = (stream.decode() for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(text, done.returncode, *streams)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [extended(c)[0] if any(part in c.text for part in LONG) else c for c in COMMANDS if c.offline],
    ids=str,
)
def test_a_command_prints_what_the_page_shows(command: Shown) -> None:
    done = finished(command.text, find_folder(command.page))

    assert done.returncode == 0, done.stderr
    assert command.fits(done.stdout), f"make it anew: make reference\n{done.stdout}"


def test_every_other_command_is_run_somewhere() -> None:
    others = [c for c in COMMANDS if not (c.offline or c.on_cluster or elsewhere(c))]

    assert others == []


def test_where_they_are_run_is_there() -> None:
    assert [place for place in ELSEWHERE.values() if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("command", those("kubectl wait --for=delete"), ids=str)
def test_definitions_that_are_waited_for_are_those_that_the_original_has(command: Shown) -> None:
    """It has no Plans, so its uninstallation never deletes them."""
    (braces,) = re.findall(r"crd/{([a-z,]+)}", command.text)

    assert {*braces.split(",")} == {kind.plural for kind in SYSTEM_RESOURCES}


@pytest.mark.parametrize("command", those("make "), ids=str)
def test_make_knows_the_targets_and_variables(command: Shown) -> None:
    words = shlex.split(command.text)
    variables = {word.partition("=")[0] for word in words if "=" in word}
    known = set(re.findall(r"^([\w-]+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE))

    planned = subprocess.run(
        [*words, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert planned.returncode == 0, planned.stderr
    assert variables <= known


@pytest.mark.parametrize("command", [*those("inferno operator"), *those("inferno serve")], ids=str)
def test_the_programs_know_the_options(command: Shown) -> None:
    _, name, *arguments = shlex.split(command.text)
    (known,) = [c for c in contexts() if c.command_path == f"inferno {name}"]

    given = known.command.make_context(name, arguments, parent=typer.Context(known.command))

    assert given.params
